"""What people see: harmless names, readable amounts, tables that fit their terminal."""

import re
import unicodedata
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from lab.commands import simulate
from weft.client import show, tables, terms, text
from weft.client.facts import app_of
from weft.client.tables import Column, table
from weft.model.errors import InputError
from weft.protocol.requests import (
    ApplicationReport,
    ClusterMetrics,
    ContainerReport,
    Contender,
    Explanation,
    NodeReport,
    QueueReport,
    StageExplanation,
    Turn,
)
from weft.web.facts import told

ANSI = re.compile(r"\x1b\[[0-9;]*m")
WIDTHS = (40, 60, 80, 120, 200)


def report(number: int = 1, **changes: Any) -> ApplicationReport:
    values: dict[str, Any] = {
        "app_id": number,
        "name": f"job-{number}",
        "user": "ann",
        "queue": "root.prod",
        "priority": 0,
        "state": "RUNNING",
        "final_status": "UNDEFINED",
        "progress": 0.5,
        "attempt_id": number << 8 | 1,
        "master_node": "n1",
        "submitted_s": 10.0,
        "started_s": 11.0,
        "finished_s": 0.0,
        "tasks": 203,
        "finished_tasks": 202,
        "running_containers": 41,
        "pending_containers": 0,
        "allocated": {"vcores": 40.1, "memory_mb": 65536.0},
        "cluster_ts": 1763769600000,
        **changes,
    }
    return ApplicationReport(**values)


def node(name: str, **changes: Any) -> NodeReport:
    values: dict[str, Any] = {
        "node_id": name,
        "address": "10.0.0.1:8041",
        "rack": "r1",
        "labels": (),
        "state": "DECOMMISSIONING",
        "capacity": {"vcores": 16.0, "memory_mb": 65536.0, "disk_mbps": 800.0, "network_mbps": 1e3},
        "allocated": {"vcores": 12.5, "memory_mb": 32768.0, "disk_mbps": -3.183e-13},
        "use": {"vcores": 3.25, "memory_mb": 12000.0},
        "containers": 13,
        "last_heartbeat_s": 1.0,
        **changes,
    }
    return NodeReport(**values)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Call something as at a terminal of a width; returns what it printed, without colours."""

    def shown(width: int, call: Any, *arguments: Any) -> list[str]:
        monkeypatch.setattr(tables, "terminal_width", lambda: width)
        call(*arguments)
        return ANSI.sub("", capsys.readouterr().out).splitlines()

    return shown


def test_an_application_that_had_a_master_and_waits_for_its_word_is_recovering(lines: Any) -> None:
    waits = {"state": "ACCEPTED", "running_containers": 0, "finished_tasks": 7}
    line = lines(120, show.show_apps, [report(**waits)], 100.0)[-1]
    assert re.search(r"RECOVERING +50% +7/203 +- ", line), line
    assert show.state_of(report(**waits, started_s=0.0)) == "ACCEPTED"
    assert " 40 " in lines(120, show.show_apps, [report(state="ACCEPTED")], 100.0)[-1]


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        ("plain", "plain"),
        ("j\x1b[31m red \n newline", "j\\x1b[31m red \\n newline"),
        ("a\tb\rc\0", "a\\tb\\rc\\x00"),
        ("größe 作业", "größe 作业"),
        ("evil\u202egnp", "evil\\u{202e}gnp"),
        ("zero\u200bwidth", "zero\\u{200b}width"),
        ("c1\x9b31m", "c1\\x9b31m"),
    ],
)
def test_names_move_no_cursor(given_: str, wanted: str) -> None:
    assert text.safe(given_) == wanted


@given(st.text())
def test_no_text_whatever_escapes(name: str) -> None:
    kinds = {unicodedata.category(c) for c in text.safe(name)}
    assert not kinds & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(st.text(), st.integers(1, 60))
def test_a_cut_name_fits_and_keeps_both_ends(name: str, width: int) -> None:
    plain = text.safe(name)
    shown = text.cut(plain, width)
    assert cell_len(shown) <= width
    if cell_len(plain) <= width:
        assert shown == plain


def test_names_that_differ_at_their_ends_stay_apart() -> None:
    names = [f"NFCORE_VIRALRECON.ILLUMINA.{part}" for part in ("ALIGN", "TRIM", "CALL")]
    assert len({text.cut(name, 20) for name in names}) == 3


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("vcores", 12.5, "12.5 vcores"),
        ("vcores", 1.0, "1 vcore"),
        ("vcores", 0.25, "0.25 vcores"),
        ("memory_mb", 65536.0, "64 GB"),
        ("memory_mb", 512.0, "512 MB"),
        ("memory_mb", 1310720.0, "1.2 TB"),
        ("memory_mb", 4.915e4, "48 GB"),
        ("gpus", 2.0, "2 gpus"),
        ("disk_mbps", 800.0, "800 disk_mbps"),
    ],
)
def test_amounts_are_for_people(name: str, value: float, wanted: str) -> None:
    assert text.amount(name, value) == wanted


def test_noise_of_rounding_is_nothing() -> None:
    assert text.amounts({"vcores": -3.183e-13, "memory_mb": -5.86e-07}) == "-"
    assert text.number(-3.183e-13) == "0"


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        (0.4, "0.4 s"),
        (9.99, "10 s"),
        (58.2, "58 s"),
        (185, "3m05s"),
        (7800, "2h10m"),
        (356_400, "4d03h"),
    ],
)
def test_durations(seconds: float, wanted: str) -> None:
    assert text.duration(seconds) == wanted


def test_only_what_is_whole_is_a_hundred_percent() -> None:
    assert text.percent(202 / 203) == "99%"
    assert text.percent(1.0) == "100%"
    assert text.percent(2 / 3) == "67%"
    assert text.percent(0.333) == "33%"
    assert show.progress_of(report(progress=0.9999)) == "99%"
    assert show.progress_of(report(final_status="SUCCEEDED", progress=0.0)) == "100%"


def test_nodes_come_in_natural_order_or_as_asked() -> None:
    rows = [node(f"n{i}", containers=i) for i in (1, 10, 2, 20, 3)]
    assert [r.node_id for r in show.sort_nodes(rows, "name")] == ["n1", "n2", "n3", "n10", "n20"]
    assert [r.containers for r in show.sort_nodes(rows, "-containers")] == [20, 10, 3, 2, 1]
    rows[0] = node("n1", containers=1, use={"vcores": 16.0})
    assert show.sort_nodes(rows, "-in use")[0].node_id == "n1"
    with pytest.raises(InputError, match="known: node, state, tasks, vcores"):
        show.sort_nodes(rows, "size")


RUN = {
    "jobs": 12,
    "tasks": 640,
    "makespan_s": 1234.5,
    "jct_s": {"mean": 98.7, "p50": 80.1, "p95": 333.3},
    "jain": {"10": 0.5, "60": 0.75, "240": None},
    "utilisation": {"memory_mb": 0.87},
    "wall_s": 1.2,
    "digest": "0123456789abcdef",
    "states": {"SUCCEEDED": 11, "FAILED": 1},
}
NOTES = ["", "other jobs succeeded than in the first"]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100])
def test_no_word_of_a_table_is_broken(
    lines: Any, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """Headers and reasons go over several lines; the columns that are needed least leave."""
    monkeypatch.setattr(simulate, "table", table)
    rows = [("graphene", RUN), ("a-folder-of-a-long-name/of-the-second-run", RUN)]
    found = lines(width, simulate._show, rows, NOTES)
    assert max(map(cell_len, found)) <= width, "\n".join(found)
    printed = set(" ".join(found).replace(",", " ").split())
    heads = "run succeeded tasks makespan s JCT p50 p95 Jain 10 60 240 busiest wall digest ranked"
    words = {*heads.split(), "graphene", "11/12", "640", "1", "234.5", "98.7", "80.1", "333.3"}
    words |= {"0.50", "0.75", "-", "memory_mb", "87%", "1.2", "01234567", "yes", "no:"}
    words |= {*NOTES[1].split(), *["not", "shown", "at", "this", "width:"]}
    assert {word for word in printed if "…" not in word} <= words, "\n".join(found)
    assert {"makespan", "JCT", "98.7"} <= printed


def test_a_table_in_a_file_has_its_headers_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    simulate._show([("graphene", RUN)] * 2, NOTES)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_every_header_of_a_listing_can_be_sorted_by(lines: Any) -> None:
    for listing, headers in (
        (lambda: show.show_apps([report()], 100.0), show.APP_SORTS),
        (lambda: show.show_nodes([node("n1")]), show.NODE_SORTS),
    ):
        shown = re.split(r"  +", lines(400, listing)[0])
        words = set(shown) - {"labels", "address", "disk_mbps", "network_mbps"}
        assert words <= set(headers)
    ranked = show.sort_apps([report(1), report(2, allocated={})], "allocated", 0.0)
    assert [one.app_id for one in ranked] == [2, 1]
    for key in show.APP_SORTS:
        show.sort_apps([report(1), report(2)], f"-{key}", 0.0)
    for key in show.NODE_SORTS:
        show.sort_nodes([node("n1"), node("n2")], f"-{key}")


def test_how_an_application_ended_has_one_word(lines: Any) -> None:
    over = Explanation(1, "FINISHED", "it ended: SUCCEEDED", ())
    assert lines(80, show.show_explanation, over) == ["it ended: SUCCEEDED"]
    counts = {"RUNNING": 2, "FINISHED": 3, "KILLED": 1}
    values = {field.name: 0 for field in fields(ClusterMetrics)}
    values |= {"scheduler": "drf", "nodes": {}, "apps": counts, "capacity": {}, "allocated": {}}
    assert "apps 2 RUNNING, 4 ended" in lines(80, show.show_metrics, ClusterMetrics(**values))


def test_facts_have_one_name_and_their_stages_theirs_on_the_page_too() -> None:
    fact = {
        "fact": "Closed",
        "now_s": 3.0,
        "container": 7 << 24 | 1 << 16 | 1,
        "node": "n1",
        "stage": 1,
        "task": 44,
        "attempt": 0,
    }
    app = app_of(fact)
    row = told(fact, 1, ("vcores",), {app: "j"}, {app: ["map", "read"]})
    assert (row[1], row[3]) == ("Closed", "j")
    assert "read[44], attempt 0" in row[5]
    assert "stage 1" not in row[5]
    assert "stage 1, task 44" in told(fact, 1, ("vcores",), {}, {})[5]
    assert "run s" not in told({**fact, "run_s": 0.0}, 1, ("vcores",), {}, {})[5], "not known"
    assert "run s 2.5" in told({**fact, "run_s": 2.5}, 1, ("vcores",), {}, {})[5]


LONG = "a-very-long-job-name-that-nobody-can-want-in-a-table-" * 3 + "END"
QUEUE = QueueReport(
    "root.research-and-development", 1.0, 1.0, 0.123, "RUNNING", 3, 14, {"vcores": 48.0}, 1234, -0.0
)
WHY = Explanation(
    1,
    "RUNNING",
    "1 stages are pending",
    (
        StageExplanation(
            LONG,
            7,
            {f"would fit: outscored by stage {LONG} of job {LONG}": 3},
            2,
            (
                Turn(
                    "n1",
                    6,
                    120,
                    {"vcores": 1200.0, "memory_mb": 7200.0 * 1024},
                    False,
                    {"perf": 0.3125, "pri": 0.5},
                    (Contender(2, LONG, LONG, 3, {"perf": 0.4375, "pri": 0.7}),),
                    135.0,
                ),
            ),
        ),
    ),
    100.0,
)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_listing_fits(lines: Any, width: int) -> None:
    for call, arguments in (
        (show.show_apps, ([report(name=LONG), report(2, state="ACCEPTED")], 100.0)),
        (show.show_nodes, ([node("n1"), node("worker-0123456789.rack-17.example.org")],)),
        (show.show_queues, (QUEUE,)),
        (show.show_explanation, (WHY,)),
    ):
        found = lines(width, call, *arguments)
        assert max(map(cell_len, found)) <= width, "\n".join(found)


def test_who_goes_first_is_told_with_the_scores_and_the_start(lines: Any) -> None:
    """Before it are 6 stages with 1,200 vcore s; it starts at 135 s, which is in 35 s.

    The memory, 7,200 GB s, is better told in hours, so all is.
    """
    told = " ".join(" ".join(lines(200, show.show_explanation, WHY)).split())
    before = "6 stages go first (120 containers, 0.33 vcore h, 2 GB h)"
    starts = "its first container starts in about 35 s, in room that they leave"
    assert f"{before}; {starts} (order on n1)" in told
    (stage,) = WHY.stages
    moving = replace(stage, turns=(replace(stage.turns[0], if_it_lasts=True),))
    told_so = " ".join(
        " ".join(lines(200, show.show_explanation, replace(WHY, stages=(moving,)))).split()
    )
    assert f"{starts}, if this order lasts (order on n1)" in told_so
    assert "perf 0.4375, pri 0.7" in told
    assert re.search(
        r" 7 this one \S+ 7 perf 0.3125, pri 0.5 perf: .* pri: preferred order: ", told
    )
    assert f" 1 0002 {LONG[:8]}" in told


def test_one_stage_with_one_container_is_told_in_the_singular(lines: Any) -> None:
    (stage,) = WHY.stages
    one = replace(stage, turns=(replace(stage.turns[0], asks=1, containers=1, beyond=False),))
    told = " ".join(lines(200, show.show_explanation, replace(WHY, stages=(one,))))
    assert "1 stage goes first (1 container, " in told


def test_its_own_other_stages_are_named_as_its_own_and_the_rule_where_a_score_is_odd(
    lines: Any,
) -> None:
    """With the eta of the first choice, 0.1, the second has 0.6 - 0.4 x 0.1 / 0.01 = -3.4."""
    (stage,) = WHY.stages
    first = (
        Contender(1, LONG, "fetch", 3, {"perf": -0.1, "work": 0.5, "eta": 0.1}),
        Contender(2, "other", "map", 3, {"perf": 0.2, "work": 0.4, "eta": 0.01}),
    )
    turn = replace(stage.turns[0], asks=2, first=first, scores={"perf": 0.1, "work": 0, "eta": 0.1})
    why = replace(WHY, app_id=1, stages=(replace(stage, turns=(turn,)),))
    told = " ".join(" ".join(lines(200, show.show_explanation, why)).split())
    assert " 1 this one fetch 3 perf -0.1, " in told
    assert " 2 0002 other map 3 perf 0.2, " in told
    assert " 3 this one " in told
    odd = "1 goes before 2 by eta: in this choice, with eta 0.1, the perf of the next one is -3.4"
    assert odd in told
    assert "2 goes before 3 by" not in told


@pytest.mark.parametrize(
    ("mine", "its", "wanted"),
    [
        ({"perf": 0.5}, {"perf": 0.25}, "perf: 0.5 is more than 0.25"),
        (
            {"perf": 0.1, "deficit": 3.0, "bound": 2.0},
            {"perf": 0.25, "deficit": 0.0, "bound": 2.0},
            "deficit: its group is owed 3; from 2 on it goes before any perf",
        ),
        # Below the bound the deficit decides nothing.
        (
            {"perf": 0.1, "deficit": 1.0, "bound": 2.0, "eta": 2.0},
            {"perf": 0.25, "deficit": 0.0, "bound": 2.0, "eta": 1.0, "work": 0.2},
            "eta: in this choice, with eta 2, the perf of the next one is 0.05",
        ),
        ({"perf": 0.1}, {"perf": 0.1}, "submission: "),
        ({"perf": 0.1}, {"perf": 0.25}, "bundle: "),
        (
            {"used of root.a": 0.5, "dominant_share": 0.75},
            {"used of root.b": 1.5, "dominant_share": 0.25},
            "used of root.a: 0.5, less than 1.5 (used of root.b)",
        ),
        ({"place": 1.0, "containers": 2.0}, {"containers": 5.0}, "containers: 2 goes before 5"),
        ({"priority": 5.0, "submission": 3.0}, {"priority": 0.0, "submission": 1.0}, "priority: 5"),
        ({"containers": 5.0}, {"containers": 2.0}, ""),
    ],
)
def test_the_term_that_puts_one_first_is_named(
    mine: dict[str, float], its: dict[str, float], wanted: str
) -> None:
    assert terms.put_first(mine, its).startswith(wanted)
    assert bool(terms.put_first(mine, its)) == bool(wanted)


def test_what_remains_of_a_sum_that_comes_out_even_is_nothing() -> None:
    assert show._terms({"deficit": -2.8e-17, "eta": 2.5e-3}) == "deficit 0, eta 0.0025"


def test_of_one_job_the_next_stage_counts_for_less_while_the_first_waits() -> None:
    """Its pri is 1 once the first is gone; before, 0.5 over 0.8: 0.625 x 1 - 0.25 = 0.375."""
    mine = {"perf": 0.5, "pri": 1.0, "pri_score": 0.8, "pack": 0.75, "work": 0.25, "eta": 0.1}
    its = {"perf": 0.75, "pri": 1.0, "pri_score": 0.5, "pack": 1.0, "work": 0.25, "eta": 0.1}
    wanted = "pri: in this choice, with pri 0.625, the perf of the next one is 0.375"
    assert terms.put_first(mine, its, alike=True) == wanted
    assert terms.put_first(mine, its).startswith("bundle: ")


def test_a_stage_that_has_begun_waits_for_its_next_container(lines: Any) -> None:
    """What comes next is told at once, what waits for others at most, as each grant moves them."""
    (stage,) = WHY.stages
    first = replace(stage.turns[0], asks=0, containers=0, first=(), scores={"used of root.a": 0.5})
    why = replace(WHY, stages=(replace(stage, turns=(first,)),))
    told = " ".join(" ".join(lines(200, show.show_explanation, why, {stage.stage})).split())
    assert "it is next; its next container starts in about 35 s" in told
    assert "used of QUEUE: of what it is guaranteed: least goes first, before" in told


def test_tasks_that_a_table_of_containers_leaves_out_are_counted(lines: Any) -> None:
    ended = [
        ContainerReport(number, "n1", "a", number, 0, "SUCCEEDED", 1.0, 2.0, "", 0, 1.0, "")
        for number in range(3)
    ]
    some = replace(report(), finished_tasks=44)
    (told,) = lines(200, show.show_unlisted, some, ended)
    assert told.startswith("41 more finished tasks are not listed: ")
    assert not any(lines(200, show.show_unlisted, replace(some, finished_tasks=3), ended))


def test_work_is_told_in_one_unit() -> None:
    small, large = {"vcores": 40.0, "memory_mb": 10240.0}, {"vcores": 36000.0, "memory_mb": 0.0}
    assert not text.is_long(small)
    assert text.is_long(large)
    assert text.work(small, hours=False) == "40 vcore s, 10 GB s"
    assert text.work(small, hours=True) == "0.01 vcore h"
    assert text.work({"memory_mb": 1024 * 7200 * 2048.0}, hours=True) == "4,100 GB h"


def test_commands_and_pages_say_the_same_of_terms() -> None:
    page = (Path(terms.__file__).parents[1] / "web/static/terms.js").read_text("utf-8")
    said = re.findall(r'^  (\w+): \["[^"]+", "([^"]+)"\],$', page, re.MULTILINE)
    assert dict(said) == terms.TERMS
    assert f'const USED = "{terms.USED}";' in page


def test_at_80_columns_the_words_that_matter_are_whole(lines: Any) -> None:
    found = "\n".join(lines(80, show.show_apps, [report(name=LONG)], 195.0))
    assert "RUNNING" in found
    assert "202/203" in found
    assert "3m05s" in found
    assert "0001" in found  # the id's last part, which every command takes
    assert "END" in found
    assert " 40 " in found  # tasks, without the master
    found = "\n".join(lines(80, show.show_nodes, [node("n1")]))
    assert "DECOMMISSIONING" in found
    assert "12.5/16 vcores" in found
    assert "32/64 GB" in found
    assert "not shown at this width" in found


def test_nothing_is_left_out_where_there_is_room(lines: Any) -> None:
    found = lines(200, show.show_nodes, [node("n1")])
    assert len(found) == 2
    assert "3.25 vcores, 11.7 GB" in found[1]
    assert "10.0.0.1:8041" in found[1]


def test_into_a_file_nothing_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    show.show_apps([report(name=LONG)], 100.0)
    assert LONG in capsys.readouterr().out


def test_states_have_their_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(click, "echo", lambda text="", **_: said.append(text))
    table((Column("name"), Column("state", kind="state")), [("j", "FAILED")])
    assert click.style("FAILED", fg="red") in said[1]


@pytest.mark.parametrize("status", ["UNDEFINED", "SUCCEEDED"])
def test_a_master_that_has_not_left_yet_is_no_running_task(status: str) -> None:
    kept = report(final_status=status, running_containers=1)
    assert show.running_tasks(kept) == 0
