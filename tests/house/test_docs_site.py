"""The docs build as a site, offline, with every link and anchor good."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ) | {"NO_MKDOCS_2_WARNING": "1"},
    )
    assert built.returncode == 0, built.stderr
    assert not built.stderr.strip(), built.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_in_it(site):
    pages = {p.relative_to(ROOT / "docs") for p in (ROOT / "docs").rglob("*.md")}
    menu = (ROOT / "mkdocs.yml").read_text()
    for page in pages:
        assert (site / page.with_suffix(".html")).is_file(), page
        assert f"- {page}\n" in menu, f"{page} is not in the menu"


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        for tag in re.findall(r"<(?:script|img|link|iframe)\b[^>]*>", text):
            if 'rel="canonical"' not in tag:
                assert not re.search(r'(?:src|href)="(?:https?:)?//', tag), f"{page.name}: {tag}"
