"""Tables with numbers that no trace has, and without a column: each is told with file and place."""

import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from lab.cli import weft as commands
from weft.model.errors import InputError
from weft.model.job import Job, Stage
from weft.workloads.imported import Imported
from weft.workloads.jobs_file import write_jobs
from weft.workloads.registry import import_jobs

VM_TYPES = ("id,vmTypeId,machineId,core,memory,hdd,ssd,nic", ["1,3,0,0.1,0.1,,,0.1"])
TABLES = {  # format: header, rows, a column that each needs, the column of an amount
    "alibaba2018": (
        "job_submit_s,job_name,task_name,duration_s,plan_cpu,plan_mem,instance_num",
        ["0,a,M1,10,50,1,3"],
        "duration_s",
        "plan_mem",
    ),
    "alibaba_gpu2020": (
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type",
        ["j,t,2,Terminated,1,10,600,20,50,V100"],
        "inst_num",
        "plan_mem",
    ),
    "alibaba_gpu2023": (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time",
        ["p0,1000,2048,1,500,,LS,Succeeded,0,100,5"],
        "pod_phase",
        "cpu_milli",
    ),
    "azure_packing2020": (
        "vmId,tenantId,vmTypeId,priority,starttime,endtime",
        ["1,7,3,1,0.5,0.9"],
        "endtime",
        "endtime",
    ),
    "google2019": (
        "time,type,collection_id,collection_type,instance_index,resource_request.cpus,"
        "resource_request.memory",
        ["1000000,0,5,0,0,0.1,0.1", "2000000,3,5,0,0,0.1,0.1", "9000000,6,5,0,0,0.1,0.1"],
        "collection_id",
        "resource_request.cpus",
    ),
}


def put(path: Path, header: str, rows: list[str]) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def sources(form: str, folder: Path, header: str, rows: list[str]) -> list[Path]:
    found = [put(folder / "x.csv", header, rows)]
    if form == "azure_packing2020":
        found.append(put(folder / "types.csv", *VM_TYPES))
    return found


def with_cell(header: str, rows: list[str], column: str, text: str) -> list[str]:
    at = header.split(",").index(column)
    return [
        ",".join(text if i == at else cell for i, cell in enumerate(row.split(","))) for row in rows
    ]


@pytest.mark.parametrize("form", TABLES)
@pytest.mark.parametrize("text", ["1e308", "9" * 40, "inf", "-1e5", "nan\x00"])
def test_a_number_that_no_trace_has_is_refused_with_its_line(
    text: str, form: str, tmp_path: Path
) -> None:
    header, rows, _, amount = TABLES[form]
    files = sources(form, tmp_path, header, rows)
    assert list(import_jobs(form, files, {}, Imported()))
    files = sources(form, tmp_path, header, with_cell(header, rows, amount, text))
    words = ["import", form, *map(str, files), "--out", str(tmp_path / "jobs.jsonl")]
    done = CliRunner().invoke(commands, words)
    assert isinstance(done.exception, InputError), done.output
    assert "x.csv line 2" in str(done.exception)


@pytest.mark.parametrize("form", TABLES)
def test_a_column_that_lacks_is_named(form: str, tmp_path: Path) -> None:
    header, rows, needed, _ = TABLES[form]
    at = header.split(",").index(needed)

    def without(line: str) -> str:
        return ",".join(cell for i, cell in enumerate(line.split(",")) if i != at)

    files = sources(form, tmp_path, without(header), [without(row) for row in rows])
    with pytest.raises(InputError, match=needed):
        list(import_jobs(form, files, {}, Imported()))


@pytest.mark.parametrize("suffix", ["jsonl", "json", "yaml"])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_no_job_file_holds_what_is_no_number(value: float, suffix: str, tmp_path: Path) -> None:
    job = Job("j", (Stage("s", 1, 1.0, {"vcores": value}),))
    with pytest.raises(InputError, match="job 'j': s: holds a number"):
        write_jobs(tmp_path / f"x.{suffix}", [job])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "made",
    [
        "CREATE VIEW vm AS WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) "
        "SELECT n AS vmId, 1 AS tenantId, 3 AS vmTypeId, 1 AS priority, 0.1 AS starttime, "
        "0.2 AS endtime FROM t",
        "CREATE TABLE vm(vmId, tenantId, vmTypeId, priority, starttime, "
        "endtime AS (length(zeroblob(900000000))))",
    ],
)
def test_a_database_that_works_rows_out_is_refused(made: str, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE vmType(id,vmTypeId,machineId,core,memory,hdd,ssd,nic)")
    connection.execute("INSERT INTO vmType VALUES(1, 3, 0, 0.1, 0.1, 0, 0, 0.1)")
    connection.execute(made)
    if "TABLE" in made:
        connection.execute("INSERT INTO vm VALUES(1, 7, 3, 1, 0.5)")
    connection.commit()
    connection.close()
    with pytest.raises(InputError, match="table vm: is no plain table"):
        next(import_jobs("azure_packing2020", [path], {"jobs_max": "1"}, Imported()))
