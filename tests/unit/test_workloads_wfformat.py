"""WfFormat workflows keep exactly the edges of the file, in as few stages as say them."""

import json

import pytest

from weft.model.errors import InputError
from weft.model.job import Edge, EdgeKind
from weft.workloads import wfformat
from weft.workloads.stage_grouping import group_tasks


def workflow(edges, runtimes, programs=None, **extra):
    """A document with tasks named by the keys of `runtimes`."""
    return {
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": [
                    {
                        "id": name,
                        "name": f"{name}_ID0001",
                        "parents": [p for p, c in edges if c == name],
                        "children": [c for p, c in edges if p == name],
                    }
                    for name in runtimes
                ]
            },
            "execution": {
                "tasks": [
                    {
                        "id": name,
                        "runtimeInSeconds": runtime,
                        "command": {"program": (programs or {}).get(name, name)},
                        **extra,
                    }
                    for name, runtime in runtimes.items()
                ]
            },
        },
    }


def read(tmp_path, document, **options):
    path = tmp_path / "flow.json"
    path.write_text(json.dumps(document))
    return wfformat.read([path], **options)


def test_a_fork_and_join_is_three_stages_with_barriers(tmp_path):
    names = [f"m{i}" for i in range(4)]
    edges = [("split", n) for n in names] + [(n, "join") for n in names]
    runtimes = {"split": 1.0, **dict.fromkeys(names, 2.0), "join": 3.0}
    result = read(tmp_path, workflow(edges, runtimes, dict.fromkeys(names, "map")))
    (job,) = result.jobs
    assert job.name == "flow"
    assert [(s.name, s.tasks) for s in job.stages] == [("split", 1), ("map", 4), ("join", 1)]
    assert job.stages[1].actual_duration_s == (2.0,) * 4
    assert {e.kind for s in job.stages for e in s.parents} == {EdgeKind.ALL_TO_ALL}


def test_chains_side_by_side_are_one_to_one(tmp_path):
    edges = [(f"a{i}", f"b{2 - i}") for i in range(3)]
    runtimes = {**{f"a{i}": 1.0 for i in range(3)}, **{f"b{i}": i + 1.0 for i in range(3)}}
    programs = {name: name[0] for name in runtimes}
    (job,) = read(tmp_path, workflow(edges, runtimes, programs)).jobs
    assert [(s.name, s.tasks) for s in job.stages] == [("a", 3), ("b", 3)]
    assert job.stages[1].parents[0].kind is EdgeKind.ONE_TO_ONE
    assert job.stages[1].actual_duration_s == (3.0, 2.0, 1.0)


def test_uneven_fans_are_listed_task_by_task_rather_than_changed():
    # two splits with 3 and 1 children, each child with a follower of its own
    kinds = ["split"] * 2 + ["map"] * 4 + ["next"] * 4
    parents = [[], [], [0], [0], [1], [0], [2], [3], [4], [5]]
    groups = group_tasks(kinds, parents)
    assert [len(g.tasks) for g in groups] == [2, 4, 4]
    assert [[kind for _, kind, _ in g.parents] for g in groups] == [
        [],
        [EdgeKind.PAIRS],
        [EdgeKind.ONE_TO_ONE],
    ]
    assert edges_of(groups) == {(p, c) for c, above in enumerate(parents) for p in above}


def edges_of(groups):
    edges = set()
    for group in groups:
        for number, kind, pairs in group.parents:
            above = groups[number].tasks
            edge = Edge("", kind, pairs)
            for position, child in enumerate(group.tasks):
                wanted = edge.parent_tasks(len(above), len(group.tasks), position)
                edges |= {(above[i], child) for i in wanted}
    return edges


def test_demands_are_the_largest_tasks_and_the_rest_is_said(tmp_path):
    document = workflow([], {"a1": 0, "a2": 4.0}, {"a1": "a", "a2": "a"}, avgCPU=145.5)
    document["workflow"]["execution"]["tasks"][1]["memoryInBytes"] = 3 * 2**20 + 1
    result = read(tmp_path, document)
    assert result.jobs[0].stages[0].demand == {"vcores": 2.0, "memory_mb": 4.0}
    assert any("runtime of exactly 0" in warning for warning in result.warnings)
    document = workflow([], {"a": 1.0}, coreCount=3)
    result = read(tmp_path, document, memory_mb=77.0)
    assert result.jobs[0].stages[0].demand == {"vcores": 3.0, "memory_mb": 77.0}
    assert any("no memory is given for 1 tasks: 77 MB" in warning for warning in result.warnings)


def test_whole_scripts_are_no_program_names(tmp_path):
    document = workflow([], {"FASTQC": 1.0}, {"FASTQC": "mkdir x\ntar x"})
    assert read(tmp_path, document).jobs[0].stages[0].name == "FASTQC"


def broken(change):
    document = workflow([("a", "b")], {"a": 1.0, "b": 1.0})
    change(
        document["workflow"]["specification"]["tasks"],
        document["workflow"]["execution"]["tasks"],
        document,
    )
    return document


BAD = {
    "other version": (lambda s, e, d: d.update(schemaVersion="1.3"), "expected '1.5'"),
    "parent missing": (lambda s, e, d: s[1].update(parents=["x"]), "no task 'x'"),
    "run missing": (lambda s, e, d: e.pop(), "no task 'b'"),
    "id twice": (lambda s, e, d: s[1].update(id="a"), "not an id of its own"),
    "lists disagree": (lambda s, e, d: s[1].update(parents=[]), "disagree on 'a' -> 'b'"),
    "negative": (lambda s, e, d: e[0].update(runtimeInSeconds=-1), "non-negative"),
    "no runtime": (lambda s, e, d: e[0].pop("runtimeInSeconds"), "is missing"),
    "no tasks": (lambda s, e, d: s.clear(), "has no task"),
    "cycle": (
        lambda s, e, d: (s[0].update(parents=["b"]), s[1].update(children=["a"])),
        "cycle",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_workflow_that_contradicts_itself_is_refused(tmp_path, case):
    change, message = BAD[case]
    with pytest.raises(InputError, match=message):
        read(tmp_path, broken(change))
