"""The docs' own search finds the page for what its readers type first."""

import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testkit.browser import CHROMIUM, FLAGS, PATIENCE_MS

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
    pytest.mark.slow,
]
ROOT = Path(__file__).resolve().parents[2]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Logs nothing."""

    def log_message(self, *words: Any) -> None:
        """Say nothing of a request."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return what the search of the built site lists for a text: paths of pages, best first."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        check=True,
        env=dict(os.environ) | {"NO_MKDOCS_2_WARNING": "1"},
    )
    handler = functools.partial(Quiet, directory=str(folder))
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        playwright.sync_playwright() as play,
    ):
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page()
        base = f"http://127.0.0.1:{server.server_port}/"

        def found(text: str) -> list[str]:
            page.goto(f"{base}index.html?q={text.replace(' ', '+')}")
            told = page.locator(".md-search-result__meta")
            playwright.expect(told).to_contain_text("matching document", timeout=PATIENCE_MS)
            listed = page.locator(".md-search-result__item > a").all()
            paths = (row.evaluate("row => row.href").removeprefix(base) for row in listed)
            return [path.partition("?")[0].partition("#")[0] for path in paths]

        try:
            yield found
        finally:
            browser.close()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("add a queue", "recipes/queues.html"),
        ("drain a node", "recipes/drain.html"),
        ("why is my job slow", "recipes/slow.html"),
        ("oom", "recipes/memory.html"),
        ("out of memory", "recipes/memory.html"),
        ("spark", "hadoop.html"),
        ("restore", "recipes/backup.html"),
        ("write a matcher", "policies.html"),
        ("what is stable", "versions.html"),
    ],
)
def test_the_page_that_is_looked_for_is_the_first(results: Any, text: str, page: str) -> None:
    assert results(text)[0] == page
