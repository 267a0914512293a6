"""What rows of papers are kept by: the digest of what decides them."""

import textwrap
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from am.plan import bfs, critical_path
from lab.papers import cobra, digest
from lab.papers.cobra import BUSY, DEFAULT, case, run
from lab.papers.digest import Case, canonical_jobs, code_of, content, decided, plain, planned
from lab.papers.runs import scheduler, trials
from lab.studies import matching, runs
from weft.model.errors import InputError
from weft.policies.presets import preset


def own(**changed: Any) -> Case:
    return trials("TPC-DS", 4, 2, ("tez",), **changed)["tez"]


def test_comments_docstrings_and_layout_are_no_code() -> None:
    def source(text: str) -> str:
        return plain(textwrap.dedent(text))

    documented = source(
        '''
        """A module."""
        def f(x):
            """Return x."""
            # Nothing is added.
            return (x
                + 1)
        '''
    )
    assert documented == source("def f(x): return x + 1")
    assert documented != source("def f(x): return x + 2")
    assert source('def f():\n    """Nothing."""') == source("def f():\n    pass")


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (runs, "WINDOW_S", 30.0),  # of what is measured, two calls away
        (runs, "FILES", {"TPC-DS": "queries_tpch.txt"}),
        (matching, "thinned", lambda job, scale: job),
    ],
)
def test_the_code_of_a_row_is_all_that_its_function_leads_to(
    module: ModuleType, name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = own()
    before = code_of((made.run, made.arguments))
    assert before == code_of((made.run, made.arguments))
    where = "lab.papers.runs" if name == "thinned" else module.__name__
    monkeypatch.setattr(f"{where}.{name}", value)
    assert code_of((made.run, made.arguments)) != before


def test_constants_of_a_trial_count(monkeypatch: pytest.MonkeyPatch) -> None:
    made = case(run, BUSY, 1.0, scheduler(DEFAULT))
    before = made.digest()
    monkeypatch.setattr(cobra, "TASKS_MAX", 31)
    assert made.digest() != before


def test_parameters_and_schedulers_make_other_rows() -> None:
    assert own().digest() == own().digest()
    others = [
        own(mean_s=1.0),
        own(scale=8),
        own(error=0.25),
        own(options={"asker.sees": "cpu"}),
        trials("TPC-DS", 5, 2, ("tez",))["tez"],
        trials("TPC-H", 4, 2, ("tez",))["tez"],
        trials("TPC-DS", 4, 2, ("drf",))["drf"],
        replace(own(), planners=("bfs",)),
        replace(own(), modules=("weft.workloads.alibaba2018",)),
    ]
    assert len({each.digest() for each in (own(), *others)}) == len(others) + 1


def test_a_file_counts_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "carbyne-workloads/queries_tpch.txt"
    monkeypatch.setenv("WEFT_DATA", str(tmp_path))
    published = content(name)
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text("other queries")
    assert content(name) != published


def test_what_is_published_is_at_hand() -> None:
    try:
        runs.public_files("carbyne-workloads/*")
    except InputError as error:
        pytest.skip(str(error))
    assert {name: content(name) for name in digest.PUBLIC} == digest.PUBLIC


def test_a_scheduler_that_decides_otherwise_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    before = decided(preset("tez"))
    assert decided(preset("tez_cp")) != before
    monkeypatch.setattr(digest, "_DECIDED", {})
    assert decided(preset("tez")) == before
    # The cores' code changes: the planner of the preset is now another one's.
    monkeypatch.setattr(digest, "_DECIDED", {})
    monkeypatch.setattr(bfs, "plan", critical_path.plan)
    assert decided(preset("tez")) != before


def test_plans_differ_by_planner() -> None:
    names = ("bfs", "critical_path", "tetris", "graphene")
    assert len({planned(name) for name in names}) == len(names)


def test_canonical_jobs_compete_and_have_every_kind_of_edge() -> None:
    jobs = canonical_jobs("ab")
    kinds = {edge.kind.value for job in jobs for stage in job.stages for edge in stage.parents}
    assert kinds == {"all_to_all", "one_to_one", "broadcast"}
    assert {job.queue for job in jobs} == {"a", "b"}
