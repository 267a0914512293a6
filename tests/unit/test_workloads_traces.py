"""Traces of clusters after 2018: rows of their published columns, made by hand, read as stated."""

import csv
import json
import sqlite3

import pytest
from click.testing import CliRunner

from lab.commands.simulate import commands as simulation
from weft.model.errors import InputError
from weft.workloads import (
    alibaba_gpu2020,
    alibaba_gpu2023,
    azure_packing2020,
    google2019,
    table_rows,
)
from weft.workloads.cluster_file import load_cluster
from weft.workloads.imported import Imported
from weft.workloads.registry import format_of, import_jobs

US = 1_000_000


def write(path, text):
    path.write_text(text)
    return path


def lines(path, rows):
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def imported(*paths, form="auto", **options):
    result = Imported()
    texts = {key: str(value).lower() for key, value in options.items()}
    result.jobs.extend(import_jobs(form, list(paths), texts, result))
    return result


def said(result, text):
    return any(text in warning for warning in result.warnings)


# -- Google 2019 -----------------------------------------------------------------------------------


def event(time_s, kind, collection, index, request=None, **more):
    """A line as BigQuery exports it: whole numbers are texts."""
    row = {
        "time": str(time_s * US),
        "type": str(kind),
        "collection_id": str(collection),
        "scheduling_class": "1",
        "collection_type": "0",
        "priority": "103",
        "alloc_collection_id": "0",
        "instance_index": str(index),
        "machine_id": "7",
        "constraint": [],
    }
    if request:
        row["resource_request"] = {"cpus": request[0], "memory": request[1]}
    return row | more


EVENTS = [
    event(1, 0, 11, 0, (0.1, 0.2)),
    event(2, 3, 11, 0),
    event(12, 6, 11, 0),
    event(1, 0, 11, 1, (0.3, 0.2)),
    event(2, 3, 11, 1),
    event(3, 4, 11, 1),
    event(4, 3, 11, 1),
    event(6, 6, 11, 1),
    event(5, 0, 12, 0, (0.1, 0.1)),
    event(13, 3, 12, 0),
    event(15, 6, 12, 0),
    event(6, 0, 13, 0, (0.1, 0.1)),
    event(7, 3, 13, 0),
    event(9, 7, 13, 0),
    event(6, 0, 14, 0, (0.1, 0.1), collection_type="1"),
]


def collection(time_s, number, after=(), **more):
    return {
        "time": str(time_s * US),
        "type": "0",
        "collection_id": str(number),
        "collection_type": "0",
        "priority": "103",
        "user": "u",
        "collection_name": f"n{number}",
        "collection_logical_name": f"L{number}",
        "start_after_collection_ids": [str(each) for each in after],
    } | more


def test_a_google_collection_is_a_job_whose_instances_last_as_their_last_run(tmp_path):
    path = lines(tmp_path / "events.json", EVENTS)
    assert format_of(path) == "google2019"
    result = imported(path)
    first, second = result.jobs
    assert (first.name, second.name) == ("11", "12")
    assert (first.arrival_s, second.arrival_s) == (0.0, 4.0)
    (stage,) = first.stages
    assert stage.tasks == 2
    assert stage.actual_duration_s == (10.0, 2.0)
    assert stage.duration_s == 6.0
    assert [stage.demand_of(i)["cpus"] for i in range(2)] == [0.1, 0.3]
    assert result.dropped == {"event of an instance that did not finish (last event KILL)": 3}
    assert said(result, "1 runs before an instance's last one")
    assert said(result, "1 events of alloc sets")
    assert said(result, "no collection_events")
    assert [job.name for job in imported(path, killed=True).jobs] == ["11", "12", "13"]


def test_google_collections_that_start_after_others_are_one_job(tmp_path):
    paths = [
        lines(tmp_path / "events.json", EVENTS),
        lines(tmp_path / "more.json", [collection(1, 11), collection(1, 12, (11, 99))]),
    ]
    assert {format_of(path) for path in paths} == {"google2019"}
    result = imported(*paths)
    (job,) = result.jobs
    assert [(s.name, [e.stage for e in s.parents]) for s in job.stages] == [
        ("c11", []),
        ("c12", ["c11"]),
    ]
    assert (job.user, job.priority, job.arrival_s) == ("u", 103, 0.0)
    assert said(result, "1 collections to start after are not in the files")


def test_a_circle_of_google_collections_is_dropped_and_counted(tmp_path):
    events = [*EVENTS, event(7, 0, 20, 0, (0.1, 0.1)), event(8, 3, 20, 0), event(9, 6, 20, 0)]
    circle = [collection(1, 11, (12,)), collection(1, 12, (11,)), collection(7, 20)]
    result = imported(
        lines(tmp_path / "events.json", events), lines(tmp_path / "more.json", circle)
    )
    assert [(job.name, job.history_key) for job in result.jobs] == [("20", "L20")]
    assert result.dropped["event of collections that are no job"] == 11


def test_google_requests_become_units_where_the_machine_is_said(tmp_path):
    path = lines(tmp_path / "events.json", EVENTS)
    demand = imported(path, machine_vcores=40, machine_memory_mb=1000).jobs[1].stages[0].demand
    assert demand == {"vcores": 4.0, "memory_mb": 100.0}
    with pytest.raises(InputError, match="belong together"):
        imported(path, machine_vcores=40)


def test_google_tables_are_read_as_parquet_and_as_flattened_csv(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    typed = [
        {k: int(v) if isinstance(v, str) else v for k, v in row.items() if k != "constraint"}
        for row in EVENTS
    ]
    columns = list(dict.fromkeys(key for row in typed for key in row))
    table = arrow.table({name: [row.get(name) for row in typed] for name in columns})
    parquet.write_table(table, tmp_path / "events.parquet")
    flat = tmp_path / "events.csv"
    with flat.open("w", newline="") as file:
        writer = csv.writer(file)
        names = [name for name in columns if name != "resource_request"]
        writer.writerow([*names, "resource_request_cpus", "resource_request_memory"])
        for row in typed:
            request = row.get("resource_request") or {}
            writer.writerow(
                [*(row[n] for n in names), request.get("cpus", ""), request.get("memory", "")]
            )
    wanted = imported(lines(tmp_path / "events.json", EVENTS)).jobs
    assert format_of(tmp_path / "events.parquet") == "google2019"
    assert imported(tmp_path / "events.parquet").jobs == wanted
    assert imported(flat).jobs == wanted
    whole = (tmp_path / "events.parquet").read_bytes()
    (tmp_path / "events.parquet").write_bytes(whole[:-30])
    with pytest.raises(InputError, match=r"events\.parquet.*Parquet"):
        imported(tmp_path / "events.parquet", form="google2019")


def test_a_bad_google_row_says_what_and_where(tmp_path):
    bad = [*EVENTS, event(1, 77, 30, 0), event(2, 0, 31, 0, (-1, 0.1)), event(3, 0, "x", 0)]
    path = lines(tmp_path / "events.json", bad)
    path.write_text(path.read_text() + '{"time": \n[1]\n')
    result = imported(path, form="google2019")
    assert [job.name for job in result.jobs] == ["11", "12"]
    assert result.dropped == {
        "event of an instance that did not finish (last event KILL)": 3,
        "malformed row of instance_events": 3,
        "malformed row": 2,
    }
    assert said(result, "line 16: type: expected a type of event from 0 to 10, got '77'")
    only = lines(tmp_path / "only.json", [event(1, 77, 30, 0)])
    with pytest.raises(InputError, match=r"no job that can be used.*line 1: type"):
        imported(only, form="google2019")
    with pytest.raises(InputError, match="no instance_events"):
        imported(lines(tmp_path / "c.json", [collection(1, 11)]), form="google2019")


# -- Alibaba's GPU clusters ------------------------------------------------------------------------

PAI_TASKS = """j1,ps,1.0,Terminated,110.0,170.0,600.0,29.296875,,
j1,worker,2.0,Terminated,110.0,160.0,400.0,10,50.0,MISC
j2,tensorflow,3.0,Failed,150.0,151.0,,,200.0,V100
j3,worker,1.0,Running,160.0,,600.0,10,100.0,T4
"""
PAI_JOBS = "j1,i1,u1,Terminated,100.0,170.0\nj2,i2,u2,Failed,148.0,151.0\n"
PAI_INSTANCES = """j1,worker,a,b,i1,Terminated,110.0,130.0,m1
j1,worker,c,d,i1,Terminated,115.0,160.0,m2
j2,tensorflow,c,d,i1,Terminated,115.0,160.0,m2
"""


def test_a_pai_job_has_a_stage_for_each_role(tmp_path):
    tasks = write(tmp_path / "pai_task_table.csv", PAI_TASKS)
    assert format_of(tasks) == "alibaba_gpu2020"
    result = imported(tasks)
    first, second = result.jobs
    assert (first.arrival_s, second.arrival_s) == (0.0, 40.0)
    ps, worker = first.stages
    assert (ps.name, ps.tasks, ps.duration_s) == ("ps", 1, 60.0)
    assert ps.demand == {"vcores": 6.0, "memory_mb": 30000.0}
    assert worker.demand == {"vcores": 4.0, "memory_mb": 10240.0, "gpus": 0.5}
    assert not worker.parents
    assert not worker.gang
    assert second.stages[0].demand == {"vcores": 6.0, "memory_mb": 29.3 * 1024, "gpus": 2.0}
    assert result.dropped == {
        "row without a start and an end (status Running)": 1,
    }
    for text in (
        "no pai_job_table",
        "no pai_instance_table",
        "1 rows with a blank plan_cpu",
        "1 rows of status Failed are used",
    ):
        assert said(result, text), text
    assert imported(tasks, gang=True).jobs[0].stages[1].gang


def test_pai_tables_of_jobs_and_instances_say_when_and_how_long(tmp_path):
    header = ",".join(alibaba_gpu2020.TASKS) + "\n"  # some hand the tables on with a header
    result = imported(
        write(tmp_path / "pai_task_table.csv", header + PAI_TASKS),
        write(tmp_path / "pai_job_table.csv", PAI_JOBS),
        write(tmp_path / "pai_instance_table.csv", PAI_INSTANCES),
        form="alibaba_gpu2020",
    )
    first, second = result.jobs
    assert (first.arrival_s, first.user, second.arrival_s) == (0.0, "u1", 48.0)
    worker = first.stage("worker")
    assert (worker.actual_duration_s, worker.duration_s) == ((20.0, 45.0), 32.5)
    assert second.stages[0].actual_duration_s is None
    assert said(result, "1 tasks have other numbers of instances")


def test_bad_pai_rows_and_missing_tables_are_named(tmp_path):
    rows = PAI_TASKS + "j1,x,0,Terminated,1,2,1,1,,\nj9,y,1,Odd,1,2,1,1,,\nshort,row\n"
    result = imported(write(tmp_path / "t.csv", rows), form="alibaba_gpu2020")
    assert [job.name for job in result.jobs] == ["j2"]
    assert result.dropped["malformed row"] == 2
    assert result.dropped["row that has not 10 columns"] == 1
    assert result.dropped["row of a job that has an unusable row"] == 2
    assert said(result, "t.csv line 5: inst_num: expected a count")
    with pytest.raises(InputError, match="no pai_task_table"):
        imported(write(tmp_path / "j.csv", PAI_JOBS), form="alibaba_gpu2020")
    with pytest.raises(InputError, match="zero bytes; an archive"):
        imported(write(tmp_path / "t.tar", "pai_task_table.csv\0\0\0"), form="alibaba_gpu2020")


PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,\
creation_time,deletion_time,scheduled_time
openb-pod-0001,6000,12288,1,460,,LS,Running,500,900,510
openb-pod-0000,12000,16384,2,1000,V100M16|V100M32,LS,Succeeded,400,1000,400
openb-pod-0002,1500,1024,0,0,,BE,Failed,700,800,700
openb-pod-0003,1500,1024,0,0,,BE,Pending,710,,
"""
NODES = """sn,cpu_milli,memory_mib,gpu,model
openb-node-0000,32000,262144,0,
openb-node-0001,64000,262144,2,P100
openb-node-0002,64000,262144,2,T4
"""


def test_an_openb_pod_is_a_job_of_one_task(tmp_path):
    path = write(tmp_path / "pods.csv", PODS)
    assert format_of(path) == "alibaba_gpu2023"
    result = imported(path)
    assert [(job.name, job.arrival_s) for job in result.jobs] == [
        ("openb-pod-0000", 0.0),
        ("openb-pod-0001", 100.0),
        ("openb-pod-0002", 300.0),
    ]
    one, shared, none = (job.stages[0] for job in result.jobs)
    assert one.demand == {"vcores": 12.0, "memory_mb": 16384.0, "gpus": 2.0}
    assert (shared.demand["gpus"], shared.duration_s) == (0.46, 390.0)
    assert none.demand == {"vcores": 1.5, "memory_mb": 1024.0}
    assert result.dropped == {"pod that was never scheduled or deleted (phase Pending)": 1}
    for text in ("1 pods name types of GPU", "1 pods of phase Failed", "is not kept"):
        assert said(result, text), text
    assert len(imported(path, jobs_max=2).jobs) == 2


def test_bad_pods_are_named(tmp_path):
    bad = PODS + "p,x,1,0,0,,BE,Failed,7,8,7\np,1,1,1,4600,,BE,Failed,7,8,7\np,1\n"
    result = imported(write(tmp_path / "pods.csv", bad))
    assert len(result.jobs) == 3
    assert result.dropped["malformed row"] == 2
    assert said(result, "line 6: cpu_milli: expected a number, got 'x'")
    with pytest.raises(InputError, match="no column cpu_milli"):
        alibaba_gpu2023.read([write(tmp_path / "n.csv", "name,x\na,1\n")])


def test_lists_of_nodes_are_clusters(tmp_path):
    spec = load_cluster(str(write(tmp_path / "openb_node_list_all_node.csv", NODES)))
    assert len(spec.nodes) == 3
    assert spec.types.names == ("vcores", "memory_mb", "gpus")
    assert sorted(node.capacity for node in spec.nodes) == [
        (32.0, 262144.0, 0.0),
        (64.0, 262144.0, 2.0),
        (64.0, 262144.0, 2.0),
    ]
    spec = load_cluster(str(write(tmp_path / "pai_machine_spec.csv", "m1,T4,96,512,2\n")))
    assert spec.nodes[0].capacity == (96.0, 524288.0, 2.0)
    for text, why in (("a,b\n1,2\n", "expected the columns"), (NODES + "n,x,1,1,\n", "line 5")):
        with pytest.raises(InputError, match=why):
            load_cluster(str(write(tmp_path / "bad.csv", text)))


# -- Azure's virtual machines ----------------------------------------------------------------------

TYPES = [
    (1, 7, 0, 0.5, 0.25, 0.0, 0.1, 0.5),
    (2, 7, 1, 0.25, 0.125, None, 0.05, 0.25),
    (3, 8, 1, 0.1, 0.1, None, 0.0, 0.1),
]
MACHINES = [
    (1, 100, 7, 0, -2.0, 0.5),
    (2, 100, 8, 1, 0.25, 0.5),
    (3, 101, 8, 0, 1.0, None),
    (4, 101, 9, 0, 1.0, 2.0),
    (5, 101, 8, 5, 1.0, 2.0),
]


def database(path, machines=MACHINES):
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE vmType ({', '.join(azure_packing2020.VM_TYPE)})")
    connection.execute(f"CREATE TABLE vm ({', '.join(azure_packing2020.VM)})")
    connection.executemany("INSERT INTO vmType VALUES (?,?,?,?,?,?,?,?)", TYPES)
    connection.executemany("INSERT INTO vm VALUES (?,?,?,?,?,?)", machines)
    connection.commit()
    connection.close()
    return path


def test_an_azure_machine_is_a_job_in_parts_of_one_kind_of_node(tmp_path):
    path = database(tmp_path / "packing_trace_zone_a_v1.sqlite")
    assert format_of(path) == "azure_packing2020"
    result = imported(path)
    first, second = result.jobs
    assert (first.name, first.user, first.priority, first.arrival_s) == ("1", "100", 1, 0.0)
    assert (second.priority, second.arrival_s) == (0, 21600.0)
    assert first.stages[0].duration_s == 43200.0
    assert first.stages[0].demand == {
        "core": 0.25,
        "memory": 0.125,
        "hdd": 0.0,
        "ssd": 0.05,
        "nic": 0.25,
    }
    assert result.dropped == {
        "virtual machine without an end (option end_days)": 1,
        "virtual machine of a type that the kind of machine does not host": 1,
        "malformed row of vm": 1,
    }
    for text in (
        "machines of kind 1",
        "1 machines ran before the trace began",
        "row 5: priority: expected 0 (high) or 1 (low), got 5",
    ):
        assert said(result, text), text
    assert imported(path, machine=0).jobs[0].stages[0].demand["core"] == 0.5
    assert len(imported(path, end_days=90).jobs) == 3
    with pytest.raises(InputError, match="no machineId '9'; there are 0, 1"):
        imported(path, machine=9)


def test_azure_tables_are_read_as_csv_and_damage_is_named(tmp_path):
    for name, columns, rows in (
        ("vm", azure_packing2020.VM, MACHINES),
        ("vmType", azure_packing2020.VM_TYPE, TYPES),
    ):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([columns, *rows])
    tables = [tmp_path / "vm.csv", tmp_path / "vmType.csv"]
    wanted = imported(database(tmp_path / "a.sqlite")).jobs
    assert imported(*tables).jobs == wanted
    with pytest.raises(InputError, match="no table vmType"):
        imported(tables[0])
    with pytest.raises(InputError, match="no virtual machine that can be used"):
        imported(tables[1])
    data = (tmp_path / "a.sqlite").read_bytes()
    (tmp_path / "bad.sqlite").write_bytes(data[:4096])
    with pytest.raises(InputError, match=r"bad\.sqlite"):
        imported(tmp_path / "bad.sqlite", form="azure_packing2020")


# -- all of them -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("form", ["google", "pai", "openb", "azure"])
def test_a_trace_is_simulated_from_its_file(tmp_path, form):
    path, cluster = {
        "google": lambda: (lines(tmp_path / "e.json", EVENTS), "2x1cpus,1memory"),
        "pai": lambda: (write(tmp_path / "t.csv", PAI_TASKS), "2x96vcores,524288memory_mb,2gpus"),
        "openb": lambda: (
            write(tmp_path / "p.csv", PODS),
            str(write(tmp_path / "nodes.csv", NODES)),
        ),
        "azure": lambda: (database(tmp_path / "a.sqlite"), "2x1core,1memory,1hdd,1ssd,1nic"),
    }[form]()
    command = next(each for each in simulation if each.name == "simulate")
    arguments = [
        str(path),
        "--cluster",
        cluster,
        "--scheduler",
        "tetris",
        "--pace",
        "prompt",
        "--json",
    ]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    states = json.loads(result.stdout)["states"]
    assert set(states) == {"SUCCEEDED"}
    assert states["SUCCEEDED"] == len(imported(path).jobs)


def test_negative_options_are_refused(tmp_path):
    path = write(tmp_path / "t.csv", PAI_TASKS)
    for module in (google2019, alibaba_gpu2020, alibaba_gpu2023, azure_packing2020):
        with pytest.raises(InputError, match="options"):
            list(module.stream([path], Imported(), jobs_max=-1))


def test_cells_are_read_strictly():
    row = {"a": "12", "b": 3.5, "c": "nan", "d": "1e400", "e": True, "f": "-4", "g": "2.0"}
    assert table_rows.whole(row, "a") == 12
    assert table_rows.whole(row, "f") == -4
    assert table_rows.whole(row, "g") == 2
    assert table_rows.whole(row, "c") is None
    assert table_rows.amount(row, "b") == 3.5
    for name in ("b", "d", "e"):
        with pytest.raises(InputError, match=name):
            table_rows.whole(row, name)
