"""A page that an application shows is no page of Weft's, in a real browser: also to an operator."""

import gzip
import http.client
import os
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from testkit.browser import CHROMIUM, FLAGS, PATIENCE_MS, Served
from testkit.web import CLUSTER_TS, FakeClient
from weft.client.certificates import make
from weft.protocol.access import Role
from weft.runtime.role_settings import WebSettings
from weft.web import visitors
from weft.web.server import make_app
from weft.wire.tokens import Keys

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")]
APP = f"application_{CLUSTER_TS}_0496"  # of grace
EVIL = """<!DOCTYPE html><title>at first</title><link rel="stylesheet" href="style.css">
<form id="form" method="POST" enctype="text/plain" action="/ws/v1/cluster/apps/new-application">
</form><script src="script.js"></script><script>
const tried = {};
const attempt = (name, work) => work().then(
  (answer) => { tried[name] = `${answer.status}`; }, () => { tried[name] = "refused"; });
(async () => {
  await attempt("submit", () => fetch("/ws/v1/cluster/apps/new-application",
    {method: "POST", credentials: "include"}));
  await attempt("kill", () => fetch("/ws/v1/cluster/apps/APP/state", {method: "PUT",
    headers: {"Content-Type": "application/json"}, body: '{"state": "KILLED"}'}));
  await attempt("read", () => fetch("/ws/v1/cluster/apps", {credentials: "include"}));
  await attempt("own", () => fetch("data.json",
    {headers: {"X-Requested-With": "XMLHttpRequest"}}));
  try { tried.cookie = document.cookie; } catch { tried.cookie = "refused"; }
  tried.origin = self.origin;
  tried.script = self.loaded;
  tried.style = getComputedStyle(document.body).color;
  window.tried = tried; document.title = "done";
})();
</script>"""


class Master:
    """What an application's own master serves, and what it was asked with."""

    def __init__(self) -> None:
        self.seen: list[dict[str, str]] = []

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/{tail:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        self.seen.append(dict(request.headers))
        if request.match_info["tail"] == "moved":
            raise web.HTTPFound("/stage/?id=3&attempt=0")
        kinds = {
            "": (EVIL.replace("APP", APP), "text/html"),
            "style.css": ("body { color: rgb(1, 2, 3) }", "text/css"),
            "script.js": ("self.loaded = 'loaded'", "text/javascript"),
            "data.json": ("{}", "application/json"),
        }
        text, kind = kinds[request.match_info["tail"]]
        return web.Response(text=text, content_type=kind)


class Stranger:
    """A page of another site that would read what an application shows."""

    def app(self, url: str) -> web.Application:
        async def answer(request: web.Request) -> web.Response:
            script = (
                f"fetch('{url}data.json').then((got) => got.text()).then((text) => parent"
                ".postMessage(text, '*'), () => parent.postMessage('refused', '*'))"
            )
            text = (
                "<!DOCTYPE html><title>at first</title><script>onmessage = (event) => "
                "{ document.title = event.data }</script>"
                f'<iframe sandbox="allow-scripts" srcdoc="<script>{script}</script>"></iframe>'
            )
            return web.Response(text=text, content_type="text/html")

        made = web.Application()
        made.router.add_get("/", answer)
        return made


FRAMES = Stranger()


class Manager(FakeClient):
    """A manager that is asked for nothing but reads, if all goes well."""

    url = ""

    async def application(self, app: int) -> Any:
        return replace(await super().application(app), tracking_url=self.url)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as play:
        made = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield made
        made.close()


@pytest.fixture
def master() -> Iterator[tuple[Master, str]]:
    made = Master()
    served = Served(made.app)
    yield made, served.url
    served.close()


def tried(page: Any) -> dict[str, str]:
    playwright.expect(page).to_have_title("done", timeout=PATIENCE_MS)
    found: dict[str, str] = page.evaluate("() => window.tried")
    return found


def test_what_a_master_packed_is_passed_on_as_it_is(browser: Any) -> None:
    """Whoever unpacked it for the browser would hold all that it becomes."""
    packed = gzip.compress(b"<title>done</title>" + b" " * (64 << 20))

    async def answer(request: web.Request) -> web.Response:
        assert "gzip" in request.headers["Accept-Encoding"]
        headers = {"Content-Encoding": "gzip", "Content-Type": "text/html"}
        return web.Response(body=packed, headers=headers)

    def app() -> web.Application:
        made = web.Application()
        made.router.add_get("/{tail:.*}", answer)
        return made

    manager, packs = Manager(nodes=3, apps=500), Served(app)
    manager.url = packs.url
    pages = Served(lambda: make_app(WebSettings(port=0, watch=False), manager))  # type: ignore[arg-type]
    try:
        host, _, port = pages.url.rpartition("/")[2].rpartition(":")
        asked = http.client.HTTPConnection(host, int(port), timeout=30)
        asked.request("GET", f"/proxy/{APP}/", headers={"Accept-Encoding": "gzip"})
        got = asked.getresponse()
        assert got.headers["Content-Encoding"] == "gzip"
        assert got.read() == packed
        page = browser.new_page()
        page.goto(f"{pages.url}/proxy/{APP}/")
        playwright.expect(page).to_have_title("done", timeout=PATIENCE_MS)
        page.close()
    finally:
        pages.close()
        packs.close()


def changes(manager: FakeClient) -> int:
    return sum(manager.calls[name] for name in ("new_application", "submit", "kill", "new_id"))


def test_where_a_master_sends_on_to_is_told_whole(master: tuple[Master, str]) -> None:
    manager = Manager(nodes=3, apps=500)
    manager.url = master[1]
    pages = Served(lambda: make_app(WebSettings(port=0, watch=False), manager))  # type: ignore[arg-type]
    try:
        host, _, port = pages.url.rpartition("/")[2].rpartition(":")
        asked = http.client.HTTPConnection(host, int(port), timeout=30)
        asked.request("GET", f"/proxy/{APP}/moved")
        got = asked.getresponse()
        assert got.status == 302
        assert got.headers["Location"] == f"/proxy/{APP}/stage/?id=3&attempt=0"
        asked.close()
    finally:
        pages.close()


def test_a_script_of_an_application_reads_and_changes_nothing(
    browser: Any, master: tuple[Master, str]
) -> None:
    manager = Manager(nodes=3, apps=500)
    manager.url = master[1]
    settings = WebSettings(port=0, watch=False)
    pages = Served(lambda: make_app(settings, manager))  # type: ignore[arg-type]
    try:
        page = browser.new_page()
        page.goto(f"{pages.url}/proxy/{APP}/")
        found = tried(page)
        assert found == {
            "submit": "refused",
            "kill": "refused",
            "read": "refused",
            "own": "200",
            "cookie": "refused",
            "origin": "null",
            "script": "loaded",
            "style": "rgb(1, 2, 3)",
        }
        with page.expect_response(lambda answer: "new-application" in answer.url) as got:
            page.evaluate("() => document.getElementById('form').submit()")
        assert got.value.status == 403
        stranger = Served(lambda: FRAMES.app(f"{pages.url}/proxy/{APP.replace('496', '491')}/"))
        page.close()
        page = browser.new_page()
        page.goto(stranger.url)
        playwright.expect(page).to_have_title("refused", timeout=PATIENCE_MS)
        stranger.close()
        page.close()
        assert changes(manager) == 0
    finally:
        pages.close()


@pytest.mark.parametrize("who", ["admin", "other", "owner"])
def test_whoever_is_not_the_owner_is_warned_and_then_acts_no_more_than_before(
    browser: Any,
    master: tuple[Master, str],
    who: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By TLS and with a login, which the browser adds to whatever asks this server."""
    manager = Manager(nodes=3, apps=500)
    manager.url = master[1]

    async def source(app: web.Application, shown: tuple[str, str]) -> Any:
        return app[visitors.SOURCE]

    monkeypatch.setattr(visitors, "_source", source)
    made = make(tmp_path, ["web,127.0.0.1"])
    assert made
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "web.pem", tmp_path / "web-key.pem")
    settings = WebSettings(port=0, watch=False, https=True)
    pages = Served(lambda: make_app(settings, manager), context)  # type: ignore[arg-type]
    names = {"admin": (Role.ADMIN, "root"), "other": (Role.CLIENT, "mallory")}
    role, name = names.get(who, (Role.CLIENT, "grace"))
    token = Keys(0.0, os.urandom).user(role, name, 0.0, 1e9)
    visitor = browser.new_context(
        ignore_https_errors=True, http_credentials={"username": "any", "password": token}
    )
    try:
        page = visitor.new_page()
        page.goto(f"{pages.url}/proxy/{APP}/?proxyapproved=true")
        if who != "owner":
            assert page.locator("h1").inner_text() == "This page is not Weft's"
            assert "grace" in page.locator("strong").inner_text()
            assert not master[0].seen, "nothing was asked of the master"
            page.get_by_role("link", name="Show it all the same").click()
        found = tried(page)
        assert [found[name] for name in ("submit", "kill", "read")] == ["refused"] * 3
        assert found["own"] == "200", "more of the same master"
        assert (found["script"], found["style"]) == ("loaded", "rgb(1, 2, 3)")
        page.goto(f"{pages.url}/proxy/{APP}/")
        tried(page)
        passed = page.url
        page.close()
        strangers = browser.new_context(ignore_https_errors=True)
        assert strangers.request.get(f"{passed}data.json").status == 200
        other = passed.replace(APP, APP.replace("496", "491"))
        for url in (f"{other}data.json", passed.replace("/pass/", "/pass/0") + "data.json"):
            assert strangers.request.get(url).status == 401, "it is for these pages only"
        page = strangers.new_page()
        page.goto(passed)
        assert page.locator("h1").count() == (who != "owner"), "warned, as it was not approved"
        strangers.close()
        assert changes(manager) == 0
        for headers in master[0].seen:
            assert "Authorization" not in headers
            assert headers["Cookie"] == "proxy-user=weft"
    finally:
        visitor.close()
        pages.close()
