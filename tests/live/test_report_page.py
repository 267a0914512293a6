"""A run's report in a real browser: nothing sticks out on a phone, and it follows the theme."""

import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    with resources.as_file(resources.files("weft.client") / "samples" / "tpch") as folder:
        files = [str(file) for file in sorted(Path(folder).glob("q0*.json"))]
        cluster = "2x16vcores,65536memory_mb,400disk_mbps,1000network_mbps"
        arguments = ["simulate", *files, "--cluster", cluster, "--out", str(out), "--report"]
        command = [sys.executable, "-c", "from lab.cli import main; main()", *arguments]
        subprocess.run(command, check=True, capture_output=True)
    return out / "report.html"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_a_report_fits_its_window_and_follows_the_theme(
    report: Path, theme: str, width: int
) -> None:
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        size: Any = {"width": width, "height": 844}
        page = browser.new_page(viewport=size, color_scheme=theme)
        page.goto(report.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        letters = page.evaluate(
            """() => { const all = [...document.querySelectorAll("figure svg")];
              const svg = all.find((one) => one.getBoundingClientRect().width > 0);
              return 10 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width; }"""
        )
        assert letters >= 8, "letters of 10 points are drawn so large, px"
        wide = page.evaluate(
            """() => [...document.querySelectorAll("figure")]
              .filter((one) => one.scrollWidth > one.clientWidth)
              .map((one) => one.getAttribute("aria-label"))"""
        )
        assert all(name.startswith(("Machines", "The slowest")) for name in wide), wide
        names = page.evaluate(
            """() => document.querySelector("figure[aria-label^=Machines] svg").innerHTML"""
        )
        assert "<!-- n1 -->" in names, "nodes are named"
        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        ink = page.evaluate(
            "getComputedStyle(document.querySelector('figure svg g text, figure svg g use')).fill"
        )
        light = [sum(int(n) for n in text[4:-1].split(",")) > 384 for text in (back, ink)]
        assert light == [theme == "light", theme == "dark"], f"{ink} on {back}"
        browser.close()
