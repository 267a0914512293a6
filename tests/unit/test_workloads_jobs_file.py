"""Job files come back as they were written, in every form, and faults name file and place."""

import json
from pathlib import Path

import pytest

from weft.model.errors import InputError, WeftError
from weft.model.job import Edge, EdgeKind, Job, Preference, Stage
from weft.model.jobfile import job_from_dict
from weft.workloads.jobs_file import load_jobs, read, read_jobs, write_jobs

DEMAND = {"vcores": 1.0, "memory_mb": 2048.0}
JOBS = [
    Job(
        f"job {number} \u00e9",
        (
            Stage("Map", 3, 2.5, DEMAND, actual_duration_s=(1.0, 2.0, 4.5)),
            Stage(
                "Reduce",
                1,
                1.0,
                DEMAND,
                (Edge("Map", EdgeKind.ONE_TO_ONE),),
                prefer=Preference(("n1",)),
            ),
        ),
        arrival_s=float(number),
    )
    for number in range(3)
]
SUFFIXES = [
    f"{kind}{pack}" for kind in (".jsonl", ".json", ".yaml") for pack in ("", ".gz", ".zst")
]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("count", [1, 3])
def test_jobs_come_back_as_they_were_written(tmp_path, suffix, count):
    path = tmp_path / f"jobs{suffix}"
    assert write_jobs(path, iter(JOBS[:count])) == count
    assert load_jobs([path]) == JOBS[:count]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_jobs_give_the_same_bytes(tmp_path, suffix):
    one, two = tmp_path / f"one{suffix}", tmp_path / f"two{suffix}"
    write_jobs(one, JOBS)
    write_jobs(two, JOBS)
    assert one.read_bytes() == two.read_bytes()


def test_a_failing_source_leaves_no_file_behind(tmp_path):
    def failing():
        yield JOBS[0]
        raise InputError("x", "is bad")

    with pytest.raises(InputError):
        write_jobs(tmp_path / "a.jsonl", failing())
    assert list(tmp_path.iterdir()) == []


def test_the_example_of_the_format_is_read(tmp_path):
    path = tmp_path / "q05.yaml"
    path.write_text(
        """
name: q05
resources: [vcores, memory_mb]
stages:
  - {name: Map0, tasks: 4, duration_s: 1, demand: {vcores: 1}}
  - {name: Map2, tasks: 4, duration_s: 1, demand: {vcores: 1}}
  - name: Map1
    tasks: 120
    duration_s: 12.5
    demand: {vcores: 1, memory_mb: 2048, disk_mbps: 40, network_mbps: 0}
    parents: [Map0, {stage: Map2, edge: one_to_one}]
    actual_duration_s: 14.1
    prefer: {nodes: [n3], racks: [r1]}
    command: ["sh", "-c", "true"]
"""
    )
    (job,) = read_jobs(path)
    assert job.stage("Map1").parents == (Edge("Map0"), Edge("Map2", EdgeKind.ONE_TO_ONE))


def test_documents_lists_and_tables_of_jobs_are_all_read(tmp_path):
    one = json.dumps({"name": "a", "stages": [{"name": "s", "tasks": 1, "duration_s": 1}]})
    for name, text in {
        "list.json": f"[{one}, {one}]",
        "table.json": f'{{"jobs": [{one}, {one}]}}',
        "documents.yaml": f"{one}\n---\n{one}\n",
        "lines.jsonl": f"{one}\n\n{one}",
    }.items():
        path = tmp_path / name
        path.write_text(text)
        assert len(read([path]).jobs) == 2


def test_a_jsonl_file_is_read_as_it_is_consumed(tmp_path):
    path = tmp_path / "a.jsonl"
    write_jobs(path, JOBS[:1])
    path.write_text(path.read_text() + '{"name": 3}\n')
    jobs = read_jobs(path)
    assert next(jobs) == JOBS[0]
    with pytest.raises(InputError, match=r"a\.jsonl line 2: stages: expected a list"):
        next(jobs)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", '{"jobs": [{"name": ""}]}', r"a\.json: jobs\[0\]\.stages"),
        ("a.json", '{"jobs": 3}', "expected a list of jobs"),
        ("a.json", "[]", "holds no job"),
        ("a.jsonl", "\n\n", "holds no job"),
        ("a.jsonl", '{"name": 1', r"line 1 column 11: not valid JSON"),
        ("a.yaml", "name: a\nstages: [{name: s, tasks: 0, duration_s: 1}]", r"stages\[0\]\.tasks"),
        (
            "a.json",
            '{"name": "a", "stages": [{"name": "s", "tasks": 1, "duration_s": 1e999}]}',
            r"stages\[0\]\.duration_s: expected a finite number",
        ),
        (
            "a.json",
            '{"name": "a", "stages": [{"name": "s", "tasks": 1, "duration_s": 1%s}]}' % ("0" * 400),
            r"stages\[0\]\.duration_s: expected a finite number",
        ),
    ],
)
def test_a_fault_names_file_and_place(tmp_path: Path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        load_jobs([path])
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value)) < 500


def test_the_name_decides_the_form_to_write(tmp_path):
    with pytest.raises(InputError, match=r"must end in \.jsonl"):
        write_jobs(tmp_path / "jobs.txt", JOBS)
    with pytest.raises(WeftError, match="cannot be written"):
        write_jobs(tmp_path / "no" / "jobs.jsonl", JOBS)


def test_a_number_over_the_range_of_floats_is_an_input_error():
    stage = {"name": "s", "tasks": 1, "duration_s": 10**400}
    with pytest.raises(InputError, match="finite"):
        job_from_dict({"name": "a", "stages": [stage]})
