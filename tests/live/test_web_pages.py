"""The pages in a real browser: they show what is so, stay quick when it is much, and keys work."""

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from testkit.browser import CHROMIUM, FLAGS, PATIENCE_MS
from testkit.browser import Served as Pages
from testkit.dags import mosaic, pipeline, tangle, wide
from testkit.live import until
from testkit.web import CLUSTER_TS, NOW_S, FakeClient
from weft.client.text import duration
from weft.model.ids import attempt_id, container_id
from weft.protocol.requests import ContainerReport
from weft.runtime.role_settings import WebSettings
from weft.web.server import make_app

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
]
RUNS = f"application_{CLUSTER_TS}_0496"
PAGES = (
    "",
    "/apps",
    f"/app/{RUNS}",
    f"/app/{RUNS}/stage/1",
    "/nodes",
    "/node/n3",
    "/queues",
    "/events",
    "/settings",
)
WIDE, TABLET, PHONE = (1440, 900), (800, 1000), (390, 844)
LONG_NAMES = {
    number: replace(wide(5), name=f"nightly-warehouse-refresh-of-all-regions-{number}")
    for number in (611, 612, 613)
}


class Served(Pages):
    """The server over a fake manager."""

    def __init__(self, fake: FakeClient) -> None:
        self.fake = fake
        settings = WebSettings(port=0, plan_limit_s=0)
        super().__init__(lambda: make_app(settings, fake))  # type: ignore[arg-type]

    def tell(self, fact: dict[str, Any]) -> None:
        """A fact of the manager."""
        self.soon(self.fake.facts.put_nowait, fact)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as play:
        made = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield made
        made.close()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served(FakeClient(nodes=1_000, apps=500))
    yield made
    made.close()


@pytest.fixture(scope="module")
def served_jobs() -> Iterator[Served]:
    """Applications with many stages, and one with many tasks."""
    made = Served(FakeClient(nodes=40, apps=8, jobs={**JOBS, 604: wide(5_000), **LONG_NAMES}))
    yield made
    made.close()


@pytest.fixture
def page(browser: Any, served: Served) -> Iterator[Any]:
    """A page that may say nothing on its console."""
    made = browser.new_page(viewport={"width": 1280, "height": 900})
    made.set_default_timeout(PATIENCE_MS)
    said: list[str] = []
    made.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
    made.on("pageerror", lambda error: said.append(str(error)))
    made.said = said
    made.may_say = ""
    yield made
    made.close()
    assert [text for text in said if not made.may_say or made.may_say not in text] == []


def open_page(page: Any, served: Served, path: str) -> None:
    page.goto(served.url + path)
    page.wait_for_selector("#main:not([aria-busy])")


def expect_rows(page: Any, count: int) -> None:
    playwright.expect(page.locator("tbody tr")).to_have_count(count, timeout=PATIENCE_MS)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_breaks_a_rule_of_accessibility(browser: Any, served: Served, theme: str) -> None:
    """axe finds nothing in WCAG's levels A and AA, nor of what it calls good practice."""
    for width, height in (WIDE, PHONE):
        page = browser.new_page(
            viewport={"width": width, "height": height}, color_scheme=theme, bypass_csp=True
        )
        page.set_default_timeout(PATIENCE_MS)
        for path in (*PAGES, "/nowhere"):
            open_page(page, served, f"/cluster{path}")
            wide = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert wide, f"{path} scrolls sideways at {width} px"
            found = axe.Axe().run(page).response["violations"]
            assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], path
        page.close()


def test_an_application_that_had_a_master_and_waits_for_its_word_is_recovering(
    page: Any, served: Served
) -> None:
    open_page(page, served, "/cluster/apps")
    script = """async (started_s) => {
        const { appState } = await import("/static/util.js");
        return appState({ state: "ACCEPTED", final: "UNDEFINED", started_s });
    }"""
    assert [page.evaluate(script, s) for s in (0, 3.5)] == ["ACCEPTED", "RECOVERING"]


def test_pages_round_times_as_the_command_line_does(page: Any, served: Served) -> None:
    open_page(page, served, "/cluster/apps")
    script = """async (times) => {
        const { duration } = await import("/static/util.js");
        return times.map(duration);
    }"""
    times = [0.4, 9.94, 9.96, 58.4, 58.6, 59.6, 185.5, 3599.7, 7859.6, 86_399.6, 356_400.0]
    shown = [re.findall(r"[\d.]+", text) for text in page.evaluate(script, times)]
    told = [re.findall(r"[\d.]+", duration(each)) for each in times]
    assert [[float(one) for one in row] for row in shown] == [[float(o) for o in r] for r in told]
    script = """async (times) => {
        const { clockText } = await import("/static/play_clock.js");
        return times.map(clockText);
    }"""
    found = page.evaluate(script, [59.999, 83.4, 3599.999, 3659.6])
    assert found == ["1:00.00", "1:23.40", "1:00:00", "1:01:00"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_drawn_without_a_word_on_the_console(
    page: Any, served: Served, theme: str
) -> None:
    page.emulate_media(color_scheme=theme)
    for path in PAGES:
        open_page(page, served, f"/cluster{path}")
        assert page.locator("h1").count() == 1
        if path == f"/app/{RUNS}":
            page.wait_for_selector("text=No preferred schedule")
        wide = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert wide, f"{path} scrolls sideways"


def test_five_hundred_applications_are_filtered_sorted_and_paged(page: Any, served: Served) -> None:
    open_page(page, served, "/cluster/apps")
    rows = page.locator("tbody tr")
    assert rows.count() == 25
    assert page.get_by_role("status").filter(has_text="of 500").count() == 1
    assert rows.first.locator("td.name").inner_text() == "query 500"
    page.get_by_role("button", name="Next").click()
    assert rows.first.locator("td.name").inner_text() == "query 475"
    page.get_by_role("button", name="Name", exact=True).click()
    assert rows.first.locator("td.name").inner_text() == "query 1", "numbers in names count"
    page.get_by_role("button", name="Failed").click()
    assert page.get_by_role("status").filter(has_text="of 100").count() == 1
    page.keyboard.press("/")
    page.keyboard.type("query 49")
    expect_rows(page, 2)  # 493, 498
    page.keyboard.press("Escape")
    assert "state=failed" in page.url
    page.reload()
    expect_rows(page, 2)


def test_a_thousand_nodes_are_drawn_and_redrawn_quickly(page: Any, served: Served) -> None:
    open_page(page, served, "/cluster/nodes")
    assert page.locator(".heat-cell").count() == 1_000
    assert page.locator("tbody tr").count() == 25
    took_ms = page.evaluate(
        """async () => {
          const box = document.querySelector("input[type=search]");
          const start = performance.now();
          box.value = "r1";
          box.dispatchEvent(new Event("input"));
          await new Promise(requestAnimationFrame);
          return performance.now() - start;
        }"""
    )
    assert took_ms < 3_000, "a bound against the absurd: it takes about 50 ms"
    page.get_by_role("button", name="Not running").click()
    page.get_by_role("searchbox").fill("")
    expect_rows(page, 3)
    states = page.locator("tbody .badge").all_inner_texts()
    assert sorted(states) == ["Decommissioned", "Lost", "Unhealthy"]


def test_keys_lead_everywhere(page: Any, served: Served) -> None:
    open_page(page, served, "/cluster")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for key, place in (("a", "/apps"), ("n", "/nodes"), ("q", "/queues"), ("o", "")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(f"{served.url}/cluster{place}")
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_selector("tbody tr:nth-child(2)")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{served.url}/cluster/app/application_{CLUSTER_TS}_0499")
    page.wait_for_selector("text=query 499")


def test_an_application_shows_its_graph_its_tasks_and_why_it_waits(
    page: Any, served: Served
) -> None:
    open_page(page, served, f"/cluster/app/{RUNS}")
    stages = page.locator(".dag .stage")
    assert stages.count() == 4
    label = stages.nth(1).get_attribute("aria-label")
    assert "Stage left, running: 4 of 12 tasks finished, 6 running, 2 asked for" in label
    assert "task by task after read" in label
    assert page.locator(".dag .edge.broadcast").count() == 1
    assert page.get_by_text("700 nodes: does not fit: vcores").is_visible()
    assert page.get_by_text("Waiting for parents").is_visible()
    assert page.get_by_role("img", name="As it runs: 18 tasks").count() == 1
    assert page.get_by_text("Shown is a part").count() == 1, "nobody watched it from its start"
    stages.nth(1).focus()
    page.keyboard.press("Enter")
    assert stages.nth(1).get_attribute("aria-pressed") == "true"
    assert page.get_by_role("link", name="Its tasks").get_attribute("href").endswith("/stage/1")
    page.get_by_role("button", name="By node").click()
    assert (page.locator(".gantt .lane").first.text_content() or "").startswith("n")
    page.wait_for_selector("text=No preferred schedule")


def test_killing_asks_first(page: Any, served: Served) -> None:
    open_page(page, served, f"/cluster/app/{RUNS}")
    page.get_by_role("button", name="Kill").click()
    page.get_by_role("button", name="Keep it").click()
    assert served.fake.calls["kill"] == 0
    page.get_by_role("button", name="Kill").click()
    page.get_by_role("button", name="Kill it").click()
    page.wait_for_selector(".head .badge:has-text('Killed')")
    assert served.fake.calls["kill"] == 1


def test_an_application_is_moved_and_raised(page: Any, served: Served) -> None:
    open_page(page, served, f"/cluster/app/{RUNS}")
    page.get_by_role("button", name="Move").click()
    page.get_by_role("combobox", name="Move").select_option("root.dev")
    page.get_by_role("button", name="Move it").click()
    page.wait_for_selector(".facts dd:text-is('root.dev')")
    page.get_by_role("button", name="Priority").click()
    page.get_by_role("spinbutton").fill("17")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Cancel").click()
    assert served.fake.calls["set_priority"] == 0
    page.get_by_role("button", name="Priority").click()
    page.get_by_role("spinbutton").fill("17")
    page.get_by_role("button", name="Set it").click()
    page.wait_for_selector(".facts dd:text-is('17')")
    assert (served.fake.calls["move"], served.fake.calls["set_priority"]) == (1, 1)


def test_a_node_is_taken_out_of_service_and_put_back(page: Any, served: Served) -> None:
    open_page(page, served, "/cluster/node/n3")
    page.get_by_role("button", name="Decommission").click()
    page.get_by_role("spinbutton").fill("90")
    page.locator("dialog").get_by_role("button", name="Decommission").click()
    page.wait_for_selector(".head .badge:has-text('Decommissioning')")
    assert served.fake.calls["decommission 90"] == 1
    page.get_by_role("button", name="Put back into service").click()
    page.wait_for_selector(".head .badge:has-text('Running')")


def test_the_number_of_an_application_leads_to_its_page(page: Any, served: Served) -> None:
    """As the command line takes it."""
    for tail in ("", "/stage/0"):
        page.goto(f"{served.url}/cluster/app/{int(RUNS.rpartition('_')[2])}{tail}")
        assert page.url == f"{served.url}/cluster/app/{RUNS}{tail}"
    page.may_say = "aborted"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/cluster/nosuch", "There is no such page"),
        ("/cluster/apps/more", "There is no such page"),
        (f"/cluster/app/application_{CLUSTER_TS}_9999", "There is no such application"),
        ("/cluster/app/nonsense", "There is no such application"),
        (f"/cluster/app/{RUNS}/stage/77", "There is no such stage"),
        ("/cluster/node/nowhere", "there is no node nowhere"),
    ],
)
def test_what_is_not_there_is_said_and_offers_nothing(
    page: Any, served: Served, path: str, words: str
) -> None:
    open_page(page, served, path)
    page.wait_for_selector(f"text={words}")
    for name in ("Kill", "Move", "Priority", "Decommission"):
        assert not page.get_by_role("button", name=name, exact=True).is_visible()
    page.may_say = "40"  # the 404s themselves, also of a later look


BOXES = """() => {
  const view = document.querySelector(".dag-box").getBoundingClientRect();
  const rects = [...document.querySelectorAll(".dag .stage")].map((stage) => {
    const box = stage.querySelector(".box:not(.under)").getBoundingClientRect();
    const texts = [...stage.querySelectorAll("text")].map((t) => t.getBoundingClientRect());
    const size = Math.min(...texts.map((t) => t.height));
    const inside = texts.every((t) => t.left >= box.left - 1 && t.right <= box.right + 1);
    return { left: box.left, right: box.right, top: box.top, bottom: box.bottom, size, inside };
  });
  const seen = rects.filter((r) => r.left < view.right - 20 && r.right > view.left + 20
    && r.top < view.bottom - 10 && r.bottom > view.top + 10);
  let crossing = 0;
  rects.forEach((a, i) => rects.slice(i + 1).forEach((b) => {
    const beside = a.left >= b.right - 1 || b.left >= a.right - 1;
    if (!beside && a.top < b.bottom - 1 && b.top < a.bottom - 1) crossing += 1;
  }));
  return { count: rects.length, seen: seen.length, crossing,
    size: Math.min(...rects.map((r) => r.size)), inside: rects.every((r) => r.inside) };
}"""
JOBS = {601: tangle(60), 602: pipeline(142), 603: mosaic(1_276)}


@pytest.mark.parametrize("app", JOBS)
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_graphs_of_many_stages_can_be_read(
    page: Any, served_jobs: Served, app: int, size: tuple[int, int], theme: str
) -> None:
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": size[0], "height": size[1]})
    open_page(page, served_jobs, f"/cluster/app/application_{CLUSTER_TS}_0{app}")
    page.wait_for_selector(".dag .stage")
    shown = page.evaluate(BOXES)
    assert shown["crossing"] == 0, "boxes lie over each other"
    assert shown["size"] >= 10, "letters are too small, px"
    assert shown["inside"], "words stick out of their boxes"
    assert shown["seen"] >= 3, "the first view shows boxes"
    assert shown["count"] <= max(8, len(JOBS[app].stages) // 2), "like stages are grouped"
    wide = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert wide, "the page scrolls sideways"


CUT_OFF = """() => [...document.querySelectorAll(".scroll, td.name")]
  .filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.className + " " + e.innerText)"""


@pytest.mark.parametrize("size", [WIDE, TABLET, PHONE], ids=["wide", "tablet", "phone"])
@pytest.mark.parametrize("path", ["", "/apps", f"/app/application_{CLUSTER_TS}_0611", "/nodes"])
def test_tables_show_every_column_and_the_ends_of_names(
    page: Any, served_jobs: Served, size: tuple[int, int], path: str
) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    open_page(page, served_jobs, f"/cluster{path}")
    page.wait_for_selector("tbody tr")
    assert page.evaluate(CUT_OFF) == []
    if path in ("", "/apps"):
        link = page.get_by_title(LONG_NAMES[612].name)
        assert link.inner_text().endswith("-612")


def test_a_chart_of_one_sample_shows_it(page: Any, served: Served) -> None:
    open_page(page, served, "/cluster")
    page.evaluate(
        """async () => {
          const { lineChart } = await import("/static/chart.js");
          const line = { name: "only", values: [0.5], colour: "red" };
          document.body.append(lineChart({ times: [7], lines: [line], marks: [0, 1],
            tick: String, width: 400, label: "One" }));
        }"""
    )
    dot = page.locator("svg.chart[aria-label^='One'] circle").bounding_box()
    assert dot is not None
    assert dot["width"] > 3


def test_a_graph_is_opened_zoomed_fitted_and_led_to_what_runs(
    page: Any, served_jobs: Served
) -> None:
    open_page(page, served_jobs, f"/cluster/app/application_{CLUSTER_TS}_0603")
    boxes = page.locator(".dag .stage")
    few = boxes.count()
    assert few == 9, [box.get_attribute("aria-label") for box in boxes.all()]
    group = page.get_by_role("button", name="Group of 317 stages like mProject_1,")
    group.focus()
    page.keyboard.press("Enter")
    assert boxes.count() == few - 1 + 317
    page.get_by_role("button", name="Close groups").click()
    assert boxes.count() == few
    took_ms = page.evaluate(
        """() => {
          const all = [...document.querySelectorAll(".dag-tools button")][0];
          const start = performance.now();
          all.click();
          document.querySelector(".dag").getBoundingClientRect();
          return performance.now() - start;
        }"""
    )
    assert boxes.count() == 1_276
    assert took_ms < 10_000, "a bound against the absurd: it takes about 400 ms"
    page.get_by_role("button", name="Fit", exact=True).click()
    fits = """() => { const box = document.querySelector(".dag-box");
      return box.scrollWidth <= box.clientWidth + 1
        && box.scrollHeight <= box.clientHeight + 1; }"""
    assert page.evaluate(fits)
    page.get_by_role("button", name="What runs", exact=True).click()
    running = page.evaluate(
        """() => { const at = document.activeElement.getBoundingClientRect();
          const view = document.querySelector(".dag-box").getBoundingClientRect();
          return document.activeElement.classList.contains("running") && at.top >= view.top
            && at.bottom <= view.bottom; }"""
    )
    assert running
    before = page.evaluate("document.querySelector('.dag').getBoundingClientRect().width")
    page.keyboard.press("+")
    after = page.evaluate("document.querySelector('.dag').getBoundingClientRect().width")
    assert after == pytest.approx(1.25 * before, rel=0.01)


def test_a_stage_of_five_thousand_tasks_is_drawn_at_once(page: Any, served_jobs: Served) -> None:
    open_page(page, served_jobs, f"/cluster/app/application_{CLUSTER_TS}_0604")
    page.evaluate("window.begun = performance.now()")
    path = f"/cluster/app/application_{CLUSTER_TS}_0604/stage/0"
    page.locator(f"a[href='{path}']").first.click()
    page.wait_for_selector("tbody tr:nth-child(50)")
    took_ms = page.evaluate("performance.now() - window.begun")
    print(f"a stage of 5,000 tasks: {took_ms:.0f} ms")
    assert took_ms < 5_000, "a bound against the absurd: it takes about 200 ms"
    assert page.get_by_text("4,993 of 5,000 tasks finished").is_visible()
    assert page.get_by_text("99 %", exact=True).is_visible()
    page.get_by_role("button", name="Stragglers").click()
    assert page.get_by_role("status").filter(has_text="of 104").count() == 1
    page.get_by_role("button", name="Failed").click()
    first = page.locator("tbody tr", has_text="no space left on its disk").first
    assert first.locator("td").nth(3).inner_text() == "3", "the exit code"
    assert first.get_by_role("link", name="log").count() == 0, "it ran no command"


def test_what_happens_is_shown_without_a_reload(page: Any, served: Served) -> None:
    open_page(page, served, "/cluster/node/n3")
    page.wait_for_selector("text=Nothing runs here")
    page.wait_for_selector(".live.on")
    number = container_id(attempt_id(496, 1), 40)

    async def begun(app: int) -> tuple[ContainerReport, ...]:
        at_s = NOW_S - 5
        return (ContainerReport(number, "n3", "right", 3, 1, "RUNNING", at_s, 0.0, "127.0.0.1:1"),)

    served.fake.containers = begun
    served.tell(
        {
            "fact": "Placed",
            "now_s": NOW_S - 5,
            "container": number,
            "node": "n3",
            "ask": 1,
            "stage": 2,
            "demand": [1.0, 2048.0],
            "kind": "DEFAULT",
            "queue": "root.prod",
        }
    )
    page.wait_for_selector("tbody >> text=query 496")
    row = page.locator("tbody tr").first
    playwright.expect(row.get_by_role("link", name="right[3], try 1")).to_be_visible()
    link = row.get_by_role("link", name="log").get_attribute("href")
    assert link.startswith("/node/n3/containerlogs/container_")
    served.tell(
        {
            "fact": "Closed",
            "now_s": NOW_S,
            "container": number,
            "node": "n3",
            "outcome": "SUCCEEDED",
            "stage": 2,
            "task": 0,
            "attempt": 0,
        }
    )
    page.wait_for_selector("text=Nothing runs here")


def test_a_lost_manager_is_said_and_found_again(page: Any, served: Served) -> None:
    open_page(page, served, "/cluster/queues")
    served.fake.down = True
    page.wait_for_selector("#banner:has-text('cannot be reached')")
    assert page.get_by_text("prod").first.is_visible(), "what was known stays"
    served.fake.down = False
    page.wait_for_selector("#banner", state="hidden")
    page.said[:] = [text for text in page.said if "503" not in text]


def test_the_theme_is_kept(page: Any, served: Served) -> None:
    page.emulate_media(color_scheme="light")
    open_page(page, served, "/cluster")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Theme").click()
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const lum = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    const shown = element.checkVisibility() && walk.currentNode.data.trim();
    if (!shown || element.closest("svg, [disabled], script, noscript, #tip, option")) continue;
    const [a, b] = [lum(parse(getComputedStyle(element).color)), lum(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${walk.currentNode.data.trim()}: ${ratio.toFixed(2)}`);
  }
  const names = [...document.querySelectorAll("button, a[href], input, select, [role=meter]")]
    .filter((e) => e.checkVisibility() && !(e.ariaLabel || e.textContent.trim()));
  return [...new Set(bad), ...names.map((e) => `no name: ${e.outerHTML}`)];
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_can_be_read_and_controls_have_names(page: Any, served: Served, theme: str) -> None:
    page.emulate_media(color_scheme=theme)
    for path in PAGES:
        open_page(page, served, f"/cluster{path}")
        time.sleep(0.1)
        assert page.evaluate(CONTRAST) == [], path


def axe_finds(page: Any) -> list[tuple[str, str]]:
    found = axe.Axe().run(page).response["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found]


@pytest.mark.parametrize("size", [WIDE, PHONE])
def test_queues_are_changed_by_a_form(browser: Any, served: Served, size: tuple[int, int]) -> None:
    """It sends the whole tree: what the form does not show stays; a refusal says why."""
    viewport = {"width": size[0], "height": size[1]}
    page = browser.new_page(viewport=viewport, bypass_csp=True)
    page.set_default_timeout(PATIENCE_MS)
    open_page(page, served, "/cluster/queues")
    page.get_by_role("button", name="Change queues").click()
    field = page.get_by_label("Guaranteed of root.dev", exact=True)
    playwright.expect(field).to_have_value("30")
    assert axe_finds(page) == []
    page.get_by_label("Remove root.prod", exact=True).check()
    page.get_by_role("button", name="Apply").click()
    page.wait_for_selector("text=root.prod is in use")
    page.get_by_label("Remove root.prod", exact=True).uncheck()
    field.fill("25")
    page.get_by_label("Name of the new queue").fill("lab")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_label("Guaranteed of root.lab", exact=True).fill("5")
    page.get_by_role("button", name="See what changes").click()
    page.wait_for_selector("text=root.dev: changed, capacity 0.3")
    assert not served.fake.calls["set_queues dry_run=False"] > 1
    page.get_by_role("button", name="Apply").click()
    page.wait_for_selector("dialog.wide[open]", state="detached")
    _, dev, lab = served.fake._tree.children
    assert (dev.name, dev.capacity, dev.max_capacity, dev.submit) == ("dev", 0.25, 0.5, ("ann",))
    assert (lab.name, lab.capacity) == ("lab", 0.05)
    page.close()


def test_what_a_master_takes_before_its_first_task_is_named(page: Any, served: Served) -> None:
    report = next(app for app in served.fake._apps.values() if app.state == "FAILED")
    app = report.app_id
    seen = {"fact": "AppChanged", "app": app, "state": "SUBMITTED"}
    served.tell({**seen, "now_s": report.submitted_s})
    served.tell(
        {
            "fact": "Placed",
            "now_s": report.started_s + 0.4,
            "container": container_id(attempt_id(app, 1), 40),
            "node": "n3",
            "ask": 1,
            "stage": 0,
            "demand": [1.0, 2048.0],
            "kind": "DEFAULT",
            "queue": "root.prod",
        }
    )
    open_page(page, served, f"/cluster/app/application_{CLUSTER_TS}_{app:04d}")
    fact = page.locator("dl.facts div").filter(has_text="From its master to its first task")
    playwright.expect(fact.locator("dd")).to_have_text("0.4 s", timeout=PATIENCE_MS)


def test_events_come_newest_first_and_are_filtered(page: Any, served: Served) -> None:
    app = 496
    container = container_id(attempt_id(app, 1), 9)
    served.tell({"fact": "NodeChanged", "now_s": NOW_S - 9, "node": "n7", "to": "LOST"})
    served.tell(
        {
            "fact": "Closed",
            "now_s": NOW_S - 4,
            "container": container,
            "node": "n3",
            "outcome": "SUCCEEDED",
            "stage": 0,
            "task": 2,
            "attempt": 0,
            "exit_code": 0,
            "run_s": 3.5,
            "message": "",
        }
    )
    open_page(page, served, "/cluster/events")
    expect_rows(page, 2)
    assert "Closed" in page.locator("tbody tr").nth(0).inner_text()
    assert page.locator("tbody tr").nth(0).locator("a").first.get_attribute("href").endswith(RUNS)
    page.get_by_label("Kind of event").select_option("NodeChanged")
    expect_rows(page, 1)
    assert "LOST" in page.locator("tbody").inner_text()
    page.get_by_label("Kind of event").select_option("")
    page.locator("input[type=search]").fill("nothing like it")
    expect_rows(page, 0)


def test_a_phone_has_what_tells_rows_apart_and_every_tab(page: Any, served: Served) -> None:
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    text = "a reason of many words that go on and on until they do not fit into one line"
    served.tell({"fact": "Remark", "now_s": NOW_S - 9, "level": "warning", "text": text})
    served.tell({"fact": "AppChanged", "now_s": NOW_S - 9, "app": 496, "state": "RUNNING"})
    open_page(page, served, "/cluster/apps")
    expect_rows(page, 25)
    first = page.locator("tbody tr").first
    assert first.get_by_text("0500", exact=True).is_visible()
    tabs = page.locator("nav a")
    edges = [tabs.nth(i).bounding_box() for i in range(tabs.count())]
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= PHONE[0] for box in edges)
    open_page(page, served, "/cluster/events")
    expect_rows(page, 2)
    assert page.locator(".below", has_text=text).is_visible()
    assert page.evaluate(CUT_OFF) == []


def test_what_is_over_waits_for_nothing(page: Any, served: Served) -> None:
    known = served.fake._apps.values()
    failed = next(one for one in known if one.final_status == "FAILED")
    number = f"application_{CLUSTER_TS}_{failed.app_id:04d}"
    open_page(page, served, f"/cluster/app/{number}")
    page.wait_for_selector("tbody tr")
    last = page.locator("tbody tr").last.inner_text()
    assert "not run" in last, last
    assert "waiting" not in page.locator(".dag").inner_html()


def test_a_cluster_without_applications_says_so(page: Any) -> None:
    empty = Served(FakeClient(nodes=2, apps=0))
    open_page(page, empty, "/cluster/apps")
    page.wait_for_selector("text=No application was submitted yet")
    assert page.get_by_label("Queue").locator("option").all_inner_texts() == ["All queues"]
    open_page(page, empty, "/cluster/settings")
    page.wait_for_selector("text=no folder: nothing survives a restart")
    # It listens to the server, which ends now.
    page.goto("about:blank")
    empty.close()


def test_settings_show_what_was_set(page: Any, served: Served) -> None:
    open_page(page, served, "/cluster/settings")
    expect_rows(page, 3)
    page.get_by_role("button", name="Set 1").click()
    expect_rows(page, 1)
    assert page.locator("tbody strong").inner_text() == "graphene"


def test_a_part_of_the_time_is_chosen_by_keys_buttons_and_pointer(
    page: Any, served: Served
) -> None:
    """Both charts show it, and all of it again."""
    open_page(page, served, f"/cluster/app/{RUNS}")

    def shown() -> str:
        return page.locator("svg.gantt").first.inner_html()

    # The charts are drawn anew as the application runs, so what is done to one may go to its last.
    def pressed(key: str) -> bool:
        page.locator(".gantt-box").first.press(key)
        return True

    def dragged() -> bool:
        place = page.locator("svg.gantt").first.bounding_box()
        if place is None:
            return False
        page.mouse.move(place["x"] + place["width"] * 0.5, place["y"] + 40)
        page.mouse.down()
        page.mouse.move(place["x"] + place["width"] * 0.7, place["y"] + 40, steps=3)
        told = page.locator("#tip").inner_text()
        page.mouse.up()
        return "tasks run then" in told and all_of_it.is_enabled()

    all_of_it = page.get_by_role("button", name="Show all of the time")
    whole = shown()
    page.get_by_role("button", name="Zoom in").click()
    until(lambda: shown() != whole, "a part is shown")
    part = shown()
    until(lambda: pressed("ArrowRight") and shown() not in (whole, part), "another part is shown")
    until(lambda: pressed("0") and all_of_it.is_disabled(), "all of it is shown")
    until(dragged, "a part is chosen by the pointer")


def test_names_that_are_cut_can_be_told_apart(browser: Any) -> None:
    """The middle is cut where there is no room; there these two differ."""
    names = [f"tpch-{size}g-of-the-nightly-warehouse-refresh-query-22" for size in (250, 50)]
    jobs = {604 + i: replace(wide(5), name=name) for i, name in enumerate(names)}
    served = Served(FakeClient(nodes=4, apps=8, jobs=jobs))
    page = browser.new_page(viewport={"width": PHONE[0], "height": PHONE[1]})
    page.set_default_timeout(PATIENCE_MS)
    open_page(page, served, "/cluster/apps")
    shown = [page.locator(f"a[title='{name}']").inner_text() for name in names]
    assert shown[0] != shown[1]
    assert all("…" in text for text in shown)
    page.close()
    served.close()


def test_a_time_of_day_stands_beside_how_long_ago(browser: Any) -> None:
    """The cluster's clock began at 2026-01-02 03:04:05 UTC, and 496 was submitted 4,960 s later."""
    began = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    settings = WebSettings(port=0, plan_limit_s=0, epoch_s=began.timestamp())
    fake = FakeClient(nodes=4, apps=8)
    served = Pages(lambda: make_app(settings, fake))  # type: ignore[arg-type]
    page = browser.new_page(timezone_id="UTC")
    page.set_default_timeout(PATIENCE_MS)
    open_page(page, served, "/cluster/apps")  # type: ignore[arg-type]
    report = max(fake._apps.values(), key=lambda one: one.app_id)
    at = began + timedelta(seconds=report.submitted_s)
    text = page.locator("tbody tr time").first.get_attribute("datetime")
    assert abs((datetime.fromisoformat(text) - at).total_seconds()) < 0.01
    assert f"{at:%H:%M:%S}" in page.locator("tbody tr time").first.inner_text()
    page.close()
    served.close()


def test_a_clock_that_runs_faster_is_told_on_the_page_and_leaves_ago_to_the_reader(
    browser: Any,
) -> None:
    """Durations are by the cluster's clock, dates and "ago" by the reader's."""
    began = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    settings = WebSettings(port=0, plan_limit_s=0, epoch_s=began.timestamp(), time_scale=10.0)
    fake = FakeClient(nodes=4, apps=8)
    served = Pages(lambda: make_app(settings, fake))  # type: ignore[arg-type]
    page = browser.new_page(timezone_id="UTC")
    page.set_default_timeout(PATIENCE_MS)
    report = max(fake._apps.values(), key=lambda one: one.app_id)
    for path in ("/cluster/apps", f"/cluster/app/application_{CLUSTER_TS}_0008"):
        open_page(page, served, path)  # type: ignore[arg-type]
        assert page.locator("#pace").inner_text() == "Clock × 10"
        shown = page.locator("main time").first.inner_text()
        minutes, seconds = divmod(round((NOW_S - report.submitted_s) / 10.0), 60)
        assert shown.startswith(f"{minutes} min {seconds} s ago"), (path, shown)
    open_page(page, served, "/cluster")  # type: ignore[arg-type]
    axis = page.locator("svg.chart text").filter(has_text="ago").first
    playwright.expect(axis).to_have_text(re.compile(r"^3\.0 s ago, \d\d:\d\d:\d\d$"))
    reach = page.get_by_role("group", name="How far back").get_by_role("button").first
    assert reach.inner_text() == "15 min", "30 s of the cluster's clock are 3 s"
    page.close()
    served.close()
