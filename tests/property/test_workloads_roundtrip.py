"""Any job comes back from its file as it was."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft.model.job import Edge, EdgeKind, Job, Preference, Stage, TaskOverride, TaskPairs
from weft.model.jobfile import job_from_dict, job_to_dict
from weft.workloads.jobs_file import load_jobs, write_jobs

# no name may hold a control character (weft/model/reading.py); a command's words may, but for NUL
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
words = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8
)
amounts = st.floats(0, 1e12, allow_nan=False)
demands = st.dictionaries(names, amounts, max_size=3)
preferences = st.builds(
    Preference, st.lists(names, max_size=2).map(tuple), st.lists(names, max_size=2).map(tuple)
)
commands = st.lists(words, max_size=3).map(tuple)


def maybe(strategy):
    return st.none() | strategy


overrides = st.builds(
    TaskOverride,
    maybe(amounts),
    maybe(demands),
    maybe(amounts),
    maybe(demands),
    maybe(preferences),
    maybe(commands),
)


@st.composite
def edges(draw, parent: Stage, tasks: int) -> Edge:
    kind = draw(st.sampled_from(EdgeKind))
    if kind is not EdgeKind.PAIRS:
        return Edge(parent.name, kind)
    pair = st.tuples(st.integers(0, parent.tasks - 1), st.integers(0, tasks - 1))
    return Edge(parent.name, kind, TaskPairs.of(draw(st.sets(pair, min_size=1, max_size=9))))


@st.composite
def stages(draw, name: str, earlier: list[Stage]) -> Stage:
    tasks = draw(st.integers(1, 4))
    chosen = (
        draw(st.lists(st.sampled_from(earlier), unique_by=lambda s: s.name, max_size=3))
        if earlier
        else []
    )
    own = st.lists(overrides, min_size=tasks, max_size=tasks).map(tuple)
    each = st.lists(amounts, min_size=tasks, max_size=tasks).map(tuple)
    return Stage(
        name,
        tasks,
        draw(amounts),
        draw(demands),
        tuple(draw(edges(parent, tasks)) for parent in chosen),
        draw(st.none() | amounts | each),
        draw(maybe(demands)),
        draw(preferences),
        draw(commands),
        draw(st.just("") | names),
        draw(st.booleans()),
        draw(st.just(()) | own),
    )


@st.composite
def jobs(draw) -> Job:
    known = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    made: list[Stage] = []
    for name in known:
        made.append(draw(stages(name, made)))
    return Job(
        draw(names),
        tuple(made),
        queue=draw(names),
        user=draw(st.just("") | names),
        priority=draw(st.integers(-5, 5)),
        arrival_s=draw(amounts),
        max_task_attempts=draw(st.integers(1, 9)),
        history_key=draw(st.just("") | names),
        input_mb=draw(amounts),
        resources=tuple(draw(st.lists(names, max_size=2))),
    )


@pytest.mark.slow
@given(jobs())
@settings(max_examples=80, deadline=None)
def test_a_job_comes_back_from_plain_data(job):
    assert job_from_dict(job_to_dict(job)) == job


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".json", ".yaml"])
@given(st.lists(jobs(), min_size=1, max_size=2))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_jobs_come_back_from_a_file(tmp_path, suffix, some):
    path = tmp_path / f"jobs{suffix}"
    write_jobs(path, some)
    assert load_jobs([path]) == some
