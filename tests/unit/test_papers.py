"""Pages of papers: what runs, what is kept, what is printed."""

import json
import math
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from click.testing import CliRunner

from lab.cli import weft as commands
from lab.commands.paper import PAPERS, paper_of
from lab.papers.carbyne import later, slower
from lab.papers.carbyne_sweeps import most
from lab.papers.cobra import least_mean_response_s
from lab.papers.digest import Case
from lab.papers.graphene import drawn, gap, in_containers, planned, saved
from lab.papers.kept import History, Kept
from lab.papers.page import (
    ClaimRow,
    Figure,
    Line,
    Paper,
    against,
    bars,
    draw,
    text_of,
    write_whole,
)
from lab.papers.runs import span_gain, trials
from lab.papers.verdict import FACTOR, MEASURES, claim_of
from lab.studies.trials import Rows, interval
from weft.model.errors import InputError, WeftError
from weft.model.job import Edge, Job, Stage
from weft.workloads.synth import PRIVATE_STACK

DATA = Path(os.environ.get("WEFT_DATA", "../shared/data")) / "carbyne-workloads"
HERE = Path(__file__).resolve().parents[2] / "docs/papers"


def number(seed: int) -> Mapping[str, Any]:
    return {"value": 10.0 + seed}


def twice(seed: int) -> Mapping[str, Any]:
    return {"value": 20.0 + 2 * seed}


def lines(rows: Rows) -> list[Line]:
    ratio = against(rows, "b", "a", lambda base, own: own["value"] / base["value"])
    return [Line("ratio", "2", ratio, FACTOR, "as it was made"), Line("other", "", ratio, FACTOR)]


def picture(rows: Rows, axes: Any) -> None:
    bars(axes, ["x"], {"b": [against(rows, "b", "a", lambda b, o: o["value"])]}, {"b": [30.0]})


class Made(History):
    """Whatever is checked out here: rows are of one commit, which this history has."""

    def __init__(self, commit: str = "abc", known: tuple[str, ...] = ("abc",)) -> None:
        self.now, self.known = commit, known

    def commit(self) -> str:
        return self.now

    def has(self, commit: str) -> bool:
        return commit in self.known


def kept_in(path: Path, seeds: int) -> Kept:
    return Kept(path, seeds, Made())


CASES = {"a": Case(number), "b": Case(twice)}
FIGURE = Figure("figure 4", "of numbers", CASES, lines, "", picture, 3.0)
SAME = Figure("table 9", "the same runs", {"a": Case(number)}, lambda rows: [])
CLAIMS = (
    ClaimRow("1: twice", "figure 4", ("ratio",)),
    ClaimRow("2: as much again", "table 9", ("again",)),
    ClaimRow("3: for ever", "", ()),
)
ABSENT = {"figure 1": "a drawing"}
PAGE = Paper("made", "A made paper", "Of two figures.", (FIGURE, SAME), ABSENT, CLAIMS)


def test_runs_are_shared_kept_and_not_made_again(tmp_path: Path) -> None:
    kept = kept_in(tmp_path / "rows.jsonl", 3)
    assert len(kept.missing(PAGE.figures)) == 6
    assert kept.cost_s(PAGE.figures) == pytest.approx(6 * 3.0)
    kept.run([SAME])
    assert len(kept.missing(PAGE.figures)) == 3
    kept.run(PAGE.figures)
    again = kept_in(kept.path, 3)
    assert not again.missing(PAGE.figures)
    assert again.rows(FIGURE) == kept.rows(FIGURE)
    assert [row["seed"] for row in again.rows(FIGURE)["b"]] == [0, 1, 2]
    rows = [json.loads(line) for line in kept.path.read_text().splitlines()]
    assert {"key", "of", "seed", "cpu_s", "commit", "value"} == set(rows[0])
    more = kept_in(kept.path, 4)  # one more seed: only its runs are missing, and no row is half
    assert len(more.missing([FIGURE])) == 2
    assert len(more.rows(FIGURE)["a"]) == 3


def test_rows_of_other_digests_changed_trees_and_unknown_commits_are_no_results(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rows.jsonl"
    kept_in(path, 2).run([FIGURE])
    assert not kept_in(path, 2).missing([FIGURE])
    other = replace(FIGURE, cases=CASES | {"b": Case(twice, modules=("lab.papers.page",))})
    assert len(kept_in(path, 2).missing([other])) == 2
    assert len(Kept(path, 2, Made(known=("def",))).missing([FIGURE])) == 4
    with pytest.raises(InputError, match="has changed code; commit it"):
        Kept(path, 3, Made(commit="abc+")).run([FIGURE])
    said = text_of(replace(PAGE, figures=(other, SAME)), kept_in(path, 2), {})
    assert "2 of 4 runs (2 seeds) are kept of code that decides as this does (commits abc)" in said
    assert "the other 2 take about" in said
    kept_in(path, 2).run([other])
    kept_in(path, 3).run([other])
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 6, "rows that others took the place of go"


def test_a_history_has_its_own_commits_only(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        mine = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run([*mine, *words], check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    (tmp_path / "lab/papers").mkdir(parents=True)
    code = tmp_path / "lab/papers/kept.py"
    code.write_text("a = 1\n")
    git("add", "-A")
    git("commit", "-qm", "one")
    history = History(tmp_path)
    commit = history.commit()
    assert history.has(commit)
    assert not any(history.has(each) for each in ("", "0123456789ab", f"{commit}+"))
    (tmp_path / "rows.jsonl").write_text("rows do not change the code")
    assert history.commit() == commit
    code.write_text("a = 2\n")
    assert history.commit() == f"{commit}+"
    git("checkout", "-q", "--orphan", "other")
    git("commit", "-qam", "another history")
    assert not History(tmp_path).has(commit)


def test_a_package_without_a_history_takes_rows_at_their_word(tmp_path: Path) -> None:
    history = History(tmp_path)
    assert history.commit() == ""
    assert history.has("0123456789ab")
    assert not history.has("0123456789ab+")


def test_a_torn_row_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    kept_in(path, 2).run([FIGURE])
    path.write_text(path.read_text()[:-9])
    torn = kept_in(path, 2)
    assert len(torn.missing([FIGURE])) == 1
    torn.run([FIGURE])
    assert not kept_in(path, 2).missing([FIGURE])


def test_the_estimate_is_the_median_of_kept_rows_of_the_case_or_of_the_figure(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rows.jsonl"
    spent_s = (2.0, 2.0, 50.0)  # the last compiled kernels, as rows of before counted
    rows = [
        {"key": f"old/{n}", "of": "number:", "seed": n, "cpu_s": s} for n, s in enumerate(spent_s)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert kept_in(path, 4).cost_s([SAME]) == 4 * 2.0
    assert kept_in(path, 4).cost_s([FIGURE]) == 8 * 2.0
    assert kept_in(path, 4).cost_s([SAME, FIGURE, FIGURE]) == 8 * 2.0


@pytest.mark.slow
def test_a_run_that_compiles_kernels_does_not_cost_what_they_cost(tmp_path: Path) -> None:
    took: list[float] = []

    def compiles(seed: int) -> Mapping[str, Any]:
        start_s = time.process_time()
        assert numba.njit(lambda x: x.sum() + np.sort(x)[0])(np.ones(4)) == 5.0
        took.append(time.process_time() - start_s)
        return {"value": 1.0}

    kept = kept_in(tmp_path / "rows.jsonl", 1)
    kept.run([Figure("figure 1", "", {"c": Case(compiles)}, lambda rows: [])])
    assert next(iter(kept.known.values()))["cpu_s"] < took[0] / 3


def test_the_page_says_paper_ours_and_why(tmp_path: Path) -> None:
    kept = kept_in(tmp_path / "rows.jsonl", 2)
    assert (
        "No seed has all runs of this code: `weft paper made --figure 'figure 4'` makes them in "
        "about 12 s" in text_of(PAGE, kept, {})
    )
    kept.run([FIGURE])
    text = text_of(PAGE, kept, {"figure 4": "x.svg"})
    assert "| ratio | 2 | 2.00 | equivalent | as it was made |" in text
    assert "| other |  | 2.00 |  |  |" in text
    assert "Of 1 numbers of the paper that have runs, 1 are equivalent, 0 differ" in text
    assert text.index("| 1: twice (figure 4) | 2 | 2.00 | equivalent |") < text.index("## Figure 4")
    assert "| 2: as much again (table 9) |  |  | no runs of this code |" in text
    assert "| 3: for ever |  |  | not tested |" in text
    assert "![of numbers](x.svg)" in text
    assert "| figure 1 | a drawing |" in text
    draw(FIGURE, kept.rows(FIGURE), tmp_path / "a.svg")
    draw(FIGURE, kept.rows(FIGURE), tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize("name", PAPERS)
def test_claims_are_of_lines_that_figures_have_and_of_numbers(name: str) -> None:
    page = paper_of(name)
    assert page.claims
    for claim in page.claims:
        if not claim.figure:
            assert not claim.lines
            continue
        (figure,) = (each for each in page.figures if each.number == claim.figure)
        made = {line.what: line for line in figure.lines(pretended(figure))}
        for what in claim.lines:
            assert claim_of(made[what].paper), f"{claim.says}: {what}"


def pretended(figure: Figure) -> Rows:
    """Rows of two seeds with every number that a figure reads."""
    jobs = {"jct_s": [10.0, 20.0], "makespan_s": 30.0, "jain": 0.5, "used": 0.5, "bound_s": 5.0}
    dags = {key: [2.0, 3.0] for key in ("cp_len_s", "t_work_s", "new_lb_s", "strong_lb_s")}
    names = "depth_p50 deeper_than_10 trees cycles_3 tasks_p50 stages_p50 barriers four_parts"
    drawn: dict[str, Any] = dict.fromkeys(names.split(), 1.0)
    shares = {"rows": [{"size": "1: under a minute", "share": 0.4}]}
    run = figure.cases[next(iter(figure.cases))].run.__name__
    row: dict[str, Any] = jobs | dags | drawn | {"cov": dict.fromkeys(PRIVATE_STACK, 1.0)} | shares
    if run == "run" and figure.number == "table 5":
        row["jain"] = [0.5] * 3
    if run in ("planned", "bounded"):
        row["makespan_s"] = [4.0, 5.0]
    if figure.number == "figure 2.10":
        use = {"tasks": 1, "log2_of_asked_over_used": 1.0}
        row["rows"] = [{"of": of, **use} for of in ("cpu", "memory")]
    return {name: [row, row] for name in figure.cases}


def test_the_docs_have_the_margins() -> None:
    text = (HERE.parent / "papers.md").read_text()
    for each in MEASURES:
        margin = f"{each.margin:.0%}".replace("%", " %") if each.is_relative else f"{each.margin:g}"
        assert f"| {each.name} | {margin}" in text


def test_factors_of_carbyne_by_job_and_by_percentile() -> None:
    def row(*times: float) -> dict[str, Any]:
        return {"jct_s": list(times)}

    rows = {
        "carbyne": [row(10, 10, 20, 30), row(10, 10, 10, 10)],
        "drf": [row(10, 20, 10, 30), row(8, 20, 20, 7)],
        "tetris": [row(5, 10, 20, 40), row(10, 10, 11, 12)],
    }
    assert slower(0.999, rows["drf"][0], rows["carbyne"][0]) == 25.0
    assert slower(0.8, rows["drf"][1], rows["carbyne"][1]) == 25.0
    pairs = [("carbyne", "drf"), ("carbyne", "tetris")]
    over_drf = interval([70 / 70, 55 / 40])
    assert most(rows, pairs) == over_drf
    found = later(rows["tetris"][0], rows["carbyne"][0])
    assert len(found) == 100
    assert found[-1] == 30 / 40
    assert found[9] == np.percentile([10, 10, 20, 30], 10) / np.percentile([5, 10, 20, 40], 10) > 1


def test_figures_are_found_by_number_and_absent_ones_say_why() -> None:
    assert PAGE.chosen("4") == [FIGURE] == PAGE.chosen("Figure 4")
    assert len(PAGE.chosen("")) == 2
    with pytest.raises(InputError, match="a drawing"):
        PAGE.chosen("figure 1")
    with pytest.raises(InputError, match="figure 4, table 9"):
        PAGE.chosen("17")


def test_ranges_of_numbers_are_known_with_and_without_their_word() -> None:
    absent = {"figures 1, 8 to 10, table 2": "one", "figures 2.2 to 2.4, 2.9": "two"}
    also = Figure("table 7", "", {}, lambda rows: [], also="figure 21")
    page = Paper("made", "", "", (FIGURE, also), absent)
    assert page.chosen("21") == [also] == page.chosen("Figure 21")
    for words, why in (("1", "one"), ("figure 9", "one"), ("table 2", "one"), ("2.3", "two")):
        with pytest.raises(InputError, match=why):
            page.chosen(words)
    assert [f.number for f in paper_of("graphene").chosen("21")] == ["table 7"]
    assert [f.number for f in paper_of("graphene").chosen("9")] == ["figure 25"]
    assert [f.number for f in paper_of("graphene").chosen("Section 8.4")] == ["figure 23"]
    for words in ("figure 11", "figure 2", "2.5", "table 1"):
        with pytest.raises(InputError, match="it has figure 4"):
            page.chosen(words)


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "{}",
        "5",
        "null",
        '{"key": 5}',
        '{"key": "a/0"}',
        '{"key": "a/0", "cpu_s": "x"}',
        "\udcff\udcfe",
    ],
)
def test_lines_that_are_no_rows_are_no_rows(line: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(line.encode("utf-8", "surrogateescape") + b"\n")
    kept = kept_in(path, 1)
    assert len(kept.missing([FIGURE])) == 2
    kept.run([FIGURE])
    assert not kept_in(path, 1).missing([FIGURE])


def test_two_at_once_do_not_write_the_same_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"

    def meanwhile(seed: int) -> Mapping[str, Any]:
        with pytest.raises(InputError, match="another weft paper writes to it"):
            kept_in(path, 1).run([FIGURE])
        return {"value": 1.0}

    kept_in(path, 1).run([Figure("figure 1", "", {"c": Case(meanwhile)}, lambda rows: [])])
    kept_in(path, 1).run([FIGURE])
    assert path.read_text().count("\n") == 3


def test_a_page_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("old")

    def full(path: Path) -> None:
        path.write_text("new, ha")
        raise OSError(28, "No space left on device")

    with pytest.raises(WeftError, match=r"page\.md: cannot be written: No space left"):
        write_whole(page, full)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["old"]


def test_intervals_are_students_at_any_number_of_seeds() -> None:
    for seeds, t in ((10, 2.262), (31, 2.042), (41, 2.021), (61, 2.000), (121, 1.980)):
        values = np.arange(seeds, dtype=float)
        half = interval(values.tolist())[1]
        assert half * math.sqrt(seeds) / values.std(ddof=1) == pytest.approx(t, abs=1e-3)


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is not there")
@pytest.mark.parametrize("name", PAPERS)
def test_one_kept_row_of_every_figure_comes_out_again(name: str) -> None:
    """Where this fails although no digest changed, raise `lab.papers.digest.EDITION`."""
    kept = Kept(HERE / f"{name}.jsonl", 1)
    cheapest: dict[str, Case] = {}
    for figure in paper_of(name).figures:
        rows = {kept.key(case, 0): case for case in figure.cases.values()}
        found = {key: float(kept.known[key]["cpu_s"]) for key in rows if key in kept.known}
        if found:
            key = min(found, key=lambda key: found[key])
            cheapest[key] = rows[key]
    for key, case in cheapest.items():
        made = json.loads(json.dumps(case(0)))
        assert made == {name: kept.known[key][name] for name in made}, str(case)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPERS)
def test_every_page_can_be_made_from_what_is_kept(name: str, tmp_path: Path) -> None:
    page = paper_of(name)
    assert len({f.number for f in page.figures}) == len(page.figures)
    rows = tmp_path / f"{name}.jsonl"
    rows.write_bytes((HERE / f"{name}.jsonl").read_bytes())
    words = ["paper", name, "--kept", "--out", str(tmp_path)]
    done = CliRunner().invoke(commands, words)
    assert done.exit_code == 0, done.output
    made = (tmp_path / f"{name}.md").read_text()
    how = f"the page is not what its rows say: `weft paper {name} --kept` writes it"
    assert made == (HERE / f"{name}.md").read_text(), how
    shown = {each.name for each in HERE.glob(f"{name}-*.svg") if f"]({each.name})" in made}
    assert shown == {each.name for each in HERE.glob(f"{name}-*.svg")}, "pictures of no page"
    assert shown == {each.name for each in tmp_path.glob("*.svg")}


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is not there")
def test_a_tez_with_one_container_size_is_slower_on_the_same_jobs() -> None:
    made = trials("TPC-DS", 4, 2, ("graphene", "tez, largest containers"), scale=24)
    own, largest = made["graphene"](0), made["tez, largest containers"](0)
    assert len(own["jct_s"]) == 4
    assert span_gain(largest, own) > 0
    assert own == made["graphene"](0)


@pytest.mark.slow
def test_a_dag_in_one_container_size_leaves_larger_gaps() -> None:
    dag, _ = drawn(0)[0]
    larger = in_containers(dag, "p90").demand
    assert (larger >= dag.demand).all()
    most = np.sort(dag.demand, axis=0)[-1]
    assert (in_containers(dag, "largest").demand == most).all()
    sound, uniform = planned("bfs", 0), planned("bfs, largest", 0)
    assert gap("cp_len_s", 50, uniform) > gap("cp_len_s", 50, sound)
    assert saved(50, uniform, sound) > 0


def test_the_bound_of_a_batch_is_its_spans_or_its_work_the_smallest_first() -> None:
    """25 machines of 8 cores: 1,600 tasks of a core and 10 s keep all of them busy for 80 s."""
    chain = Job(
        "chain",
        (
            Stage("a", 1, 30.0, {"vcores": 1.0, "memory_mb": 1.0}),
            Stage("b", 1, 20.0, {"vcores": 1.0, "memory_mb": 1.0}, (Edge("a"),)),
        ),
    )
    assert least_mean_response_s([chain, chain]) == 50.0
    wide = [
        Job("wide", (Stage("s", tasks, 10.0, {"vcores": 1.0, "memory_mb": 1.0}),))
        for tasks in (3200, 1600)
    ]
    assert least_mean_response_s(wide) == pytest.approx((80.0 + 240.0) / 2)
