"""The player in a real browser: any moment of a run at once, decision by decision, two runs."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
import pytest

from lab.functions import cluster_of
from lab.learning.gym import synthetic
from lab.play.server import make_player
from lab.play.views import Run
from sim.faults import Fault, FaultKind, Faults
from sim.replay.recorded_run import Watched, of_simulation
from sim.replay.timeline import MASTER, Timeline
from sim.settings import SimSettings
from testkit.browser import CHROMIUM, FLAGS, PATIENCE_MS, Served
from testkit.builders import chain
from weft.model.queues import QueueSpec
from weft.policies.presets import preset
from weft.runtime.role_settings import WebSettings

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
]
CLUSTER = "20x4vcores,16384memory_mb,800disk_mbps,1250network_mbps"
SCRUB_MS = 100.0
WIDE, PHONE = (1440, 900), (390, 844)
SCRUBS = """async (count) => {
  const slider = document.querySelector(".transport input[type=range]");
  const took = [];
  for (let i = 0; i < count; i += 1) {
    const t = ((i * 37) % count) / count * Number(slider.max);
    const begun = performance.now();
    slider.value = String(t);
    slider.dispatchEvent(new Event("input"));
    await new Promise(requestAnimationFrame);  // and a task after it: the frame is made
    await new Promise((done) => setTimeout(done));
    took.push(performance.now() - begun);
  }
  return took;
}"""


def simulated(scheduler: str) -> Run:
    jobs = synthetic(np.random.default_rng(3), jobs=34, interarrival_s=2.0, smaller=7)
    settings = SimSettings(preset(scheduler), prompt=True)
    run = Watched(cluster_of(CLUSTER), jobs, settings)
    run.run()
    return Run(of_simulation(scheduler, scheduler, run))


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [simulated("capacity"), simulated("graphene")]


@pytest.fixture(scope="module")
def served(runs: list[Run]) -> Iterator[Served]:
    made = Served(lambda: make_player(runs, WebSettings(port=0, plan_limit_s=0)))
    yield made
    made.close()


@pytest.fixture(scope="module")
def served_one(runs: list[Run]) -> Iterator[Served]:
    made = Served(lambda: make_player(runs[1:], WebSettings(port=0, plan_limit_s=0)))
    yield made
    made.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as play:
        made = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield made
        made.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that may say nothing on its console."""
    made = browser.new_page(viewport={"width": 1440, "height": 900})
    made.set_default_timeout(PATIENCE_MS)
    said: list[str] = []
    made.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
    made.on("response", lambda r: said.append(r.url) if r.status >= 400 else None)
    made.on("pageerror", lambda error: said.append(str(error)))
    yield made
    made.close()
    assert said == []


def open_player(page: Any, served: Served, query: str = "") -> None:
    page.goto(f"{served.url}/cluster/play{query}")
    page.wait_for_selector("canvas.cluster[aria-label]")


def grants(timeline: Timeline) -> list[int]:
    return [row for row, stage in enumerate(timeline.stage) if stage != MASTER]


def running(timeline: Timeline, at_s: float) -> int:
    """Tasks that hold a container at a time."""
    return sum(
        timeline.start[row] <= at_s and not 0 <= timeline.end[row] <= at_s
        for row in grants(timeline)
    )


def figure(page: Any, name: str, run: int = 0) -> str:
    found = page.locator(f".figures dt:text-is('{name}') + dd").nth(run)
    return str(found.inner_text())


def test_a_run_of_a_thousand_tasks_is_stepped_through_and_scrubbed(
    page: Any, served_one: Served, runs: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    timeline = runs[1].timeline
    rows = grants(timeline)
    assert len(rows) >= 1_000
    open_player(page, served_one)
    assert page.title() == "graphene · Weft"
    assert page.get_by_text(f"Before the first of {len(rows):,} decisions").is_visible()
    for place in range(3):
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(f"h2:text-is('Decision {place + 1:,} of {len(rows):,}')")
        page.wait_for_selector(
            f".verdict:has-text('{timeline.nodes[timeline.node[rows[place]]]['name']}')"
        )
    took_ms = page.evaluate(SCRUBS, 60)
    with capsys.disabled():
        print(
            f"\nscrubbing {len(rows):,} tasks: {median(took_ms):.1f} ms a step in the median, "
            f"{sorted(took_ms)[-4]:.1f} ms at the 95th percentile"
        )
    assert median(took_ms) < SCRUB_MS
    page.keyboard.press("Home")
    took_ms = page.evaluate(
        """async (count) => {
          const begun = performance.now();
          for (let i = 0; i < count; i += 1)
            document.body.dispatchEvent(
              new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
          return performance.now() - begun;
        }""",
        len(rows),
    )
    page.wait_for_selector(f"h2:text-is('Decision {len(rows):,} of {len(rows):,}')")
    with capsys.disabled():
        print(f"stepping: {took_ms / len(rows):.2f} ms a decision")
    assert took_ms / len(rows) < SCRUB_MS


def test_every_moment_shows_what_was(page: Any, served_one: Served, runs: list[Run]) -> None:
    timeline = runs[1].timeline
    span = timeline.last_s - timeline.first_s
    for part in (0.15, 0.8, 0.4):
        open_player(page, served_one, f"?t={part * span}")
        at_s = timeline.first_s + part * span
        assert figure(page, "Running") == f"{running(timeline, at_s):,}"
        done = sum(0 <= job["finished"] <= at_s for job in timeline.jobs)
        assert figure(page, "Jobs done") == f"{done} of {len(timeline.jobs)}"


def test_a_decision_shows_who_competed_and_by_what_scores(
    page: Any, served_one: Served, runs: list[Run]
) -> None:
    timeline, rows = runs[1].timeline, grants(runs[1].timeline)
    own = Run(runs[1].played)  # the server's works on a thread of its own
    place = next(i for i, row in enumerate(rows) if len(own.weighed(row)["ranked"]) > 2)
    open_player(page, served_one, f"?decision={place + 1}")
    page.wait_for_selector(".candidates tbody tr:nth-child(3)")
    found = own.weighed(rows[place])
    lines = page.locator(".candidates tbody tr")
    assert lines.count() == len(found["ranked"])
    won = lines.first.inner_text()
    job, stage, _, scores = found["ranked"][0]
    assert timeline.jobs[job]["name"] in won
    assert timeline.jobs[job]["stages"][stage]["name"] in won
    assert f"{scores['perf']:.3g}"[:5] in won
    head = page.locator(".candidates thead").inner_text()
    # perf = pri x packing - work left can be added up.
    assert all(name in head for name in ("perf", "pri", "packing", "work left")), head
    page.reload()
    page.wait_for_selector(f"h2:text-is('Decision {place + 1:,} of {len(rows):,}')")


def test_two_runs_stand_side_by_side_at_one_time(
    page: Any, served: Served, runs: list[Run]
) -> None:
    open_player(page, served, "?t=60")
    assert page.locator("canvas.cluster").count() == 2
    for n, run in enumerate(runs):
        assert figure(page, "Running", n) == f"{running(run.timeline, run.timeline.first_s + 60):,}"
    page.keyboard.press("End")
    gaps = page.locator(".jobs tbody tr td:last-child").all_inner_texts()
    jcts = [
        [job["finished"] - job["submitted"] for job in run.timeline.jobs if job["final"]]
        for run in runs
    ]
    told = [float(gap.removesuffix(" s")) for gap in gaps]
    known = [round(b - a, 2) for a, b in zip(*jcts, strict=True)]
    assert told == pytest.approx(known, abs=0.011)
    for name in ("Running", "Waiting", "Jobs done"):
        page.get_by_role("button", name=name, exact=True).click()
        assert page.locator(".overtime polyline").count() == 2
    page.keyboard.press("2")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**/cluster/play?run=1&decision=1")


def test_jobs_that_one_of_two_runs_lacks_are_named(page: Any) -> None:
    def run_of(*names: str) -> Run:
        run = Watched(cluster_of(CLUSTER), [chain(name) for name in names], SimSettings())
        run.run()
        return Run(of_simulation(names[0], "capacity", run))

    unlike = [run_of("shared", "old"), run_of("shared", "new")]
    served = Served(lambda: make_player(unlike, WebSettings(port=0, plan_limit_s=0)))
    try:
        open_player(page, served)
        said = page.get_by_text("1 job of B is not in A: new; 1 job of A is not in B.")
        assert said.is_visible()
    finally:
        served.close()


def test_it_plays_by_keyboard_faster_and_slower_and_stops_at_the_end(
    page: Any, served: Served
) -> None:
    open_player(page, served)
    page.keyboard.press("Space")
    clock = page.locator(".transport .time").first
    playwright.expect(clock).not_to_have_text("0:00.00")
    page.keyboard.press("Space")
    assert page.get_by_role("button", name="Play", exact=True).is_visible()
    before = page.get_by_role("combobox", name="Speed").input_value()
    for _ in range(9):
        page.keyboard.press(".")
    assert float(page.get_by_role("combobox", name="Speed").input_value()) > float(before)
    page.keyboard.press("Space")
    end = page.locator(".transport .time").last.inner_text()
    playwright.expect(clock).to_have_text(end, timeout=PATIENCE_MS)
    page.wait_for_selector(".transport button[aria-label=Play]")
    page.keyboard.press("?")
    assert page.get_by_role("dialog").get_by_text("Previous or next decision").is_visible()


def test_the_pages_of_the_cluster_show_the_moment(
    page: Any, served: Served, runs: list[Run]
) -> None:
    timeline = runs[0].timeline
    at_s = 40.0
    open_player(page, served, f"?t={at_s}")
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_url("**/cluster")
    page.wait_for_selector(".card .value")
    tasks = running(timeline, timeline.first_s + at_s)
    masters = sum(
        timeline.start[row] <= timeline.first_s + at_s < timeline.end[row]
        for row, stage in enumerate(timeline.stage)
        if stage == MASTER
    )
    page.wait_for_selector(f".card:has-text('Containers') .value:has-text('{tasks + masters}')")
    page.keyboard.press("End")
    page.wait_for_selector(
        f".card:has-text('Applications') .more:has-text('{len(timeline.jobs)} ended')"
    )
    page.get_by_role("link", name=timeline.jobs[-1]["name"], exact=True).first.click()
    page.wait_for_selector(".dag .stage")
    assert not page.get_by_role("button", name="Kill").is_visible()
    page.get_by_role("link", name="Player").click()
    page.wait_for_selector("canvas.cluster[aria-label]")


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_its_window_in_both_themes(
    page: Any, served: Served, served_one: Served, size: tuple[int, int], theme: str
) -> None:
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": size[0], "height": size[1]})
    for server in (served, served_one):
        open_player(page, server, "?decision=300")
        page.wait_for_selector(".candidates tbody tr")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        high = page.locator(".transport").bounding_box()
        assert high is not None
        assert high["height"] < 140


@pytest.mark.parametrize("at_s", ["NaN", "Infinity", "-1e999", "9" * 400, "true", '"5"', "null"])
def test_a_moment_that_is_none_is_refused(served: Served, at_s: str) -> None:
    body = f'{{"run": 0, "at_s": {at_s}}}'.encode()
    asked = urllib.request.Request(
        f"{served.url}/api/play/at", body, {"Content-Type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(asked)
    assert caught.value.code == 400
    assert "seconds on its clock" in caught.value.read().decode()


def test_queues_that_changed_while_it_ran_are_those_of_the_moment(browser: Any) -> None:
    jobs = synthetic(np.random.default_rng(3), jobs=6, interarrival_s=2.0, smaller=7)
    tree = QueueSpec("root", children=(QueueSpec("default", 0.25), QueueSpec("new", 0.75)))
    script = (Fault(6.0, FaultKind.QUEUES, queues=tree),)
    settings = SimSettings(preset("capacity"), prompt=True, faults=Faults(script))
    run = Watched(cluster_of(CLUSTER), jobs, settings)
    run.run()
    shown = [Run(of_simulation("capacity", "capacity", run))]
    made = Served(lambda: make_player(shown, WebSettings(port=0, plan_limit_s=0)))
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    try:
        for at_s, told in (
            (1.0, ["root.default guaranteed 100 %"]),
            (9.0, ["root.default guaranteed 25 %", "root.new guaranteed 75 %"]),
            (0.5, ["root.default guaranteed 100 %"]),
        ):
            open_player(page, made, f"?t={at_s}")
            lines = page.locator("section:has-text('Queues now') .line")
            playwright.expect(lines).to_have_count(len(told))
            assert [" ".join(line.split()) for line in lines.all_inner_texts()] == told
    finally:
        page.close()
        made.close()
