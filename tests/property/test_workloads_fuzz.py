"""No file, however damaged, makes an importer fail with anything but an InputError."""

import gzip
import io
import json
import sqlite3
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft.model.errors import InputError
from weft.workloads.imported import Imported
from weft.workloads.registry import detect, import_jobs

HISTORY = "org.apache.hadoop.mapreduce.jobhistory."
TASK = {
    "container.start.ms": 1,
    "container.end.ms": 9,
    "container.type": "map",
    "container.host": "/r/n",
    "container.priority": 2,
}
ATTEMPT = {"result": "SUCCESS", "startTime": 1, "finishTime": 5, "hostName": "/r/h"}
RUNS = {"2": {"fresh_durations": [1], "first_wave": [1], "rest_wave": [2]}}
CLASS = {
    "class_name": "c",
    "tasks": [
        {"type": "map", "count": {"val": 2, "std": 1}, "time": {"val": 3}, "max_vcores": {"val": 1}}
    ],
}
JSON_SEEDS = [
    ("sls", {"am.type": "mapreduce", "job.start.ms": 1, "job.id": "j", "job.tasks": [TASK]}),
    ("sls", {"jobID": "j", "submitTime": 3, "mapTasks": [{"attempts": [ATTEMPT]}]}),
    (
        "sls",
        {
            "num_jobs": 2,
            "rand_seed": 1,
            "workloads": [
                {"job_classes": [CLASS], "time_distribution": [{"time": 1, "weight": 1}]}
            ],
        },
    ),
    (
        "tpch",
        {
            "query": 1,
            "size": "2g",
            "duration_unit": "ms",
            "stages": [
                {"index": 0, "parents": [], "children": [1], "num_tasks": 2, "durations_ms": RUNS},
                {"index": 1, "parents": [0], "children": [], "num_tasks": 2, "durations_ms": RUNS},
            ],
        },
    ),
    (
        "wfformat",
        {
            "schemaVersion": "1.5",
            "workflow": {
                "specification": {
                    "tasks": [
                        {"id": "a", "name": "a1", "parents": [], "children": ["b"]},
                        {"id": "b", "name": "b1", "parents": ["a"], "children": []},
                    ]
                },
                "execution": {
                    "tasks": [
                        {
                            "id": "a",
                            "runtimeInSeconds": 1,
                            "avgCPU": 9,
                            "command": {"program": "p"},
                        },
                        {"id": "b", "runtimeInSeconds": 2, "memoryInBytes": 5},
                    ]
                },
            },
        },
    ),
    (
        "weft",
        {
            "name": "a",
            "stages": [
                {
                    "name": "s",
                    "tasks": [{"duration_s": 1}],
                    "demand": {"c": 1},
                    "prefer": {"nodes": ["n"]},
                    "parents": [],
                    "actual_duration_s": [1],
                }
            ],
        },
    ),
]
EVENT = {
    "type": "0",
    "collection_id": "5",
    "collection_type": "0",
    "instance_index": "0",
    "resource_request": {"cpus": 0.1, "memory": 0.2},
}
TEXT_SEEDS = [
    (
        "google2019",
        "\n".join(
            json.dumps(EVENT | {"time": str(10**6 * time), "type": str(kind)})
            for time, kind in ((1, 0), (2, 3), (5, 6))
        ),
    ),
    (
        "alibaba_gpu2020",
        "j1,ps,1.0,Terminated,10.0,17.0,600.0,29.2,,\n"
        "j1,worker,2.0,Failed,10.0,16.0,400.0,10,50.0,MISC\n",
    ),
    (
        "alibaba_gpu2023",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
        "creation_time,deletion_time,scheduled_time\n"
        "p1,6000,12288,1,460,,LS,Running,500,900,510\n",
    ),
    ("azure_packing2020", "vmId,tenantId,vmTypeId,priority,starttime,endtime\n1,2,3,0,-1,2.5\n"),
    ("carbyne", "# 0: q\n2 0 5\nM 1 0 0 0 0 0 0.5 1\nR 1 0 0 0 0 0 0 2\n1\nM R ata\n"),
    ("alibaba2018", "M1,1,j_1,,Terminated,1,2,100,0.2\nR2_1,,j_1,,Waiting,0,0,,\n"),
    (
        "alibaba2018",
        "job_submit_s,job_name,task_name,duration_s,plan_cpu,plan_mem,instance_num\n"
        "0,j,M1,5,100,1,3\n1,j,R2_1,0,50,,2\n",
    ),
    ("weft", "name: a\nstages:\n- {name: s, tasks: 1, duration_s: 1e0, demand: {c: 1}}\n"),
    ("tpch", "graphs:\n- name: Q1\n  graph:\n  - {name: 0, children: [1]}\n  - name: 1\n"),
    (
        "sls",
        "Avro-Json\n{}\n"
        + "\n".join(
            json.dumps(
                {
                    "type": kind,
                    "event": {
                        HISTORY + "E": {
                            "taskid": "t",
                            "attemptId": "a",
                            "startTime": 1,
                            "finishTime": 3,
                            "submitTime": 1,
                        }
                    },
                }
            )
            for kind in ("JOB_SUBMITTED", "MAP_ATTEMPT_STARTED", "MAP_ATTEMPT_FINISHED")
        ),
    ),
]
SEEDS = TEXT_SEEDS + [(name, json.dumps(data)) for name, data in JSON_SEEDS]
FORMATS = sorted({name for name, _ in SEEDS})
SUFFIX = {"weft": ".jsonl"}
fuzz = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
odd_values = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        10**400,
        1e308,
        "",
        "x",
        "a\0b",
        [],
        {},
        [None],
        {"a": 1},
        "1",
        2.5,
        "\u00e9",
    ]
)


def attempt(tmp_path: Path, name: str, data: bytes) -> None:
    for suffix in ("", ".yaml", SUFFIX.get(name, ".json")):
        path = tmp_path / f"file{suffix}"
        path.write_bytes(data)
        for form in (name, "auto"):
            with suppress(InputError):
                if form != "auto" or detect([path]) in FORMATS:
                    list(import_jobs(form, [path], {}, Imported()))


@pytest.mark.parametrize(("name", "text"), SEEDS)
def test_the_undamaged_seeds_are_read(tmp_path, name, text):
    (tmp_path / "file").write_text(text)
    try:
        assert list(import_jobs(name, [tmp_path / "file"], {}, Imported()))
    except InputError:  # a part of a pair of files, and rows whose job is not whole
        assert name in ("tpch", "alibaba2018", "azure_packing2020")


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.binary(max_size=200), pack=st.booleans())
@fuzz
def test_random_bytes_are_refused(tmp_path, name, data, pack):
    attempt(tmp_path, name, gzip.compress(data) if pack else data)


@pytest.mark.parametrize("seed", range(len(SEEDS)))
@given(data=st.data())
@fuzz
def test_damaged_text_is_refused_or_read(tmp_path, seed, data):
    name, text = SEEDS[seed]
    raw = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 8))] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"\n", b"-", b"9" * 12, b",", b"#", b"nan"])
        )
    attempt(tmp_path, name, bytes(raw))


def places(value, path=()):
    yield path
    children = []
    if isinstance(value, dict | list):
        children = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in children:
        yield from places(child, (*path, key))


@pytest.mark.parametrize("seed", range(len(JSON_SEEDS)))
@given(data=st.data())
@fuzz
def test_documents_with_odd_values_are_refused_or_read(tmp_path, seed, data):
    name, document = JSON_SEEDS[seed]
    document = json.loads(json.dumps(document))
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from([p for p in places(document) if p]))
        target = document
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = json.loads(json.dumps(data.draw(odd_values)))
    attempt(tmp_path, name, json.dumps(document).encode())


@given(data=st.data())
@fuzz
def test_damaged_databases_and_columns_are_refused_or_read(tmp_path, data):
    """Azure's trace is an SQLite file, Google's may be Parquet."""
    for name, packed in (("azure_packing2020", DATABASE), ("google2019", parquet())):
        raw = bytearray(packed)
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, max(len(raw) - 1, 0)))
            if data.draw(st.booleans()):
                raw[at : at + 1] = data.draw(st.binary(min_size=1, max_size=4))
            else:
                del raw[at:]
        attempt(tmp_path, name, bytes(raw))


def database() -> bytes:
    """A machine of one type, as Azure's file has them."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(
        "CREATE TABLE vmType (id, vmTypeId, machineId, core, memory, hdd, ssd, nic);"
        "CREATE TABLE vm (vmId, tenantId, vmTypeId, priority, starttime, endtime);"
        "INSERT INTO vmType VALUES (1, 7, 0, 0.5, 0.25, NULL, 0.1, 0.5);"
        "INSERT INTO vm VALUES (1, 100, 7, 0, 0.5, 2.5);"
    )
    return bytes(connection.serialize())


@cache
def parquet() -> bytes:
    """The events of an instance."""
    arrow, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    target = io.BytesIO()
    writer.write_table(arrow.Table.from_pylist([EVENT | {"time": "1000000"}]), target)
    return target.getvalue()


DATABASE = database()
