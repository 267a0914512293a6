"""Tables of Alibaba's cluster-trace-v2018 as Ibis expressions, whichever forms are there.

Forms are told apart by their columns (schema: `trace_2018.md` of the trace): `batch_instance` and
`batch_task` have no header, derived files have one. What a form lacks is NULL nowhere but named in
`Trace.has`, so that a figure can refuse instead of showing an empty plot.
"""

import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from weft.errors import InputError, WeftError
from weft.workloads.alibaba2018 import BATCH_TASK, DURATIONS, HOUR_SLICE, TASK_USAGE

BATCH_INSTANCE = (
    "instance_name", "task_name", "job_name", "task_type", "status", "start_time", "end_time",
    "machine_id", "seq_no", "total_seq_no", "cpu_avg", "cpu_max", "mem_avg", "mem_max",
)  # fmt: skip
FORMS: dict[str, tuple[str, ...]] = {
    "batch_instance": BATCH_INSTANCE,
    "batch_task": BATCH_TASK,
    "hour_slice": HOUR_SLICE,
    "task_usage": TASK_USAGE,
    "durations": DURATIONS,
}
_TEXT = {
    "instance_name", "task_name", "job_name", "task_type", "status", "machine_id", "job", "name",
}  # fmt: skip
_NAME = r"^[A-Za-z]+([0-9]+)((_[0-9]+)*)"  # `J3_1_2`: task 3 waits for 1 and 2
Table = Any  # an Ibis table: no types of theirs reach ours


def ibis_module() -> Any:
    """Ibis; raises WeftError where it is not installed."""
    try:
        return import_module("ibis")
    except ImportError:
        why = "weft analyse needs Ibis and DuckDB: pip install 'weft-rm[analyse]'"
        raise WeftError(why) from None


@dataclass(slots=True)
class Trace:
    """A trace's tables by form, and the connection that answers."""

    connection: Any
    forms: dict[str, Table] = field(default_factory=dict)

    @property
    def tasks(self) -> Table:
        """By task, from whichever form there is: job, task, instances, start_s, end_s, plan_cpu,
        plan_mem, cpu_used, mem_used (of one instance, in cores and percent of a machine).
        """
        if "task_usage" in self.forms:
            return _of_usage(self.forms["task_usage"])
        if "batch_task" in self.forms:
            return _of_batch(self.forms["batch_task"])
        if "hour_slice" in self.forms:
            return _of_slice(self.forms["hour_slice"])
        if "batch_instance" in self.forms:
            return _of_instances(self.forms["batch_instance"])
        raise InputError("trace", f"no table of tasks; forms: {', '.join(self.forms) or 'none'}")

    @property
    def instances(self) -> Table | None:
        """By instance: job, task, start_s, end_s, machine, cpu, mem; None without that form."""
        table = self.forms.get("batch_instance")
        if table is None:
            return None
        ended = table.filter(table.status == "Terminated", table.end_time >= table.start_time)
        return ended.select(
            job=ended.job_name, task=ended.task_name,
            start_s=ended.start_time.cast("float64"), end_s=ended.end_time.cast("float64"),
            machine=ended.machine_id, cpu=ended.cpu_avg / 100.0, mem=ended.mem_avg,
        )  # fmt: skip

    @property
    def has(self) -> set[str]:
        """What figures may need: `instances`, `machines`, `plans`, `use`, `tasks`."""
        found = {"tasks"} if set(self.forms) - {"durations"} else set()
        if "batch_instance" in self.forms:
            found |= {"instances", "machines", "use"}
        if {"batch_task", "task_usage", "hour_slice"} & set(self.forms):
            found.add("plans")
        if "task_usage" in self.forms:
            found.add("use")
        return found


def edges_of(tasks: Table) -> Table:
    """(job, child, parent) by task number, from the names; tasks without such a name have none."""
    named = _numbered(tasks).filter(lambda t: t.number.notnull())
    each = named.select("job", child="number", parent=named.behind.split("_").unnest())
    each = each.filter(each.parent != "")
    return each.select("job", "child", parent=each.parent.cast("int64"))


def _numbered(tasks: Table) -> Table:
    """The tasks with their number (NULL without one) and the text of those that they wait for."""
    number = tasks.task.re_extract(_NAME, 1)
    return tasks.mutate(
        number=number.nullif("").cast("int64"), behind=tasks.task.re_extract(_NAME, 2)
    )


def with_numbers(tasks: Table) -> Table:
    """The tasks with their number in the job, NULL where the name has none."""
    return _numbered(tasks).drop("behind")


def _of_batch(table: Table) -> Table:
    null = ibis_module().null("float64")
    ended = table.filter(table.status == "Terminated", table.end_time >= table.start_time)
    return ended.select(
        job=ended.job_name, task=ended.task_name, instances=ended.instance_num.cast("float64"),
        start_s=ended.start_time.cast("float64"), end_s=ended.end_time.cast("float64"),
        plan_cpu=ended.plan_cpu / 100.0, plan_mem=ended.plan_mem, cpu_used=null, mem_used=null,
    )  # fmt: skip


def _of_slice(table: Table) -> Table:
    null = ibis_module().null("float64")
    start = table.job_submit_s.cast("float64")
    return table.select(
        job=table.job_name, task=table.task_name, instances=table.instance_num.cast("float64"),
        start_s=start, end_s=start + table.duration_s, plan_cpu=table.plan_cpu / 100.0,
        plan_mem=table.plan_mem, cpu_used=null, mem_used=null,
    )  # fmt: skip


def _of_usage(table: Table) -> Table:
    """Uses are sums over the instances there."""
    ended = table.filter(table.end_time >= table.start_time, table.instances > 0)
    return ended.select(
        job=ended.job, task=ended.name, instances=ended.instances,
        start_s=ended.start_time.cast("float64"), end_s=ended.end_time.cast("float64"),
        plan_cpu=ended.cpu_requested / 100.0, plan_mem=ended.mem_requested,
        cpu_used=ended.cpu_usage / 100.0 / ended.instances,
        mem_used=ended.mem_usage / ended.instances,
    )  # fmt: skip


def _of_instances(table: Table) -> Table:
    null = ibis_module().null("float64")
    ended = table.filter(table.status == "Terminated", table.end_time >= table.start_time)
    found = ended.group_by(job=ended.job_name, task=ended.task_name).agg(
        instances=ended.count().cast("float64"), start_s=ended.start_time.min().cast("float64"),
        end_s=ended.end_time.max().cast("float64"), cpu_used=ended.cpu_avg.mean() / 100.0,
        mem_used=ended.mem_avg.mean(),
    )  # fmt: skip
    return found.mutate(plan_cpu=null, plan_mem=null)


# -- opening ---------------------------------------------------------------------------------------


def open_trace(
    sources: Sequence[str], connect: str = "", memory_mb: int = 700, threads: int = 2
) -> Trace:
    """Open files (CSV, gzipped or not, Parquet), or with `connect` tables of that database.

    DuckDB keeps to `memory_mb` and spills to a temporary folder. Raises InputError for a file that
    is no form of the trace, and WeftError where Ibis is not there.
    """
    ibis = ibis_module()
    if connect:
        connection = ibis.connect(connect)
        trace = Trace(connection)
        for name in sources:
            table = connection.table(name)
            trace.forms[_form_of(tuple(table.columns), name)] = table
        return trace
    connection = ibis.duckdb.connect(threads=threads, memory_limit=f"{memory_mb}MB")
    connection.raw_sql("SET preserve_insertion_order = false")
    trace = Trace(connection)
    by_form: dict[str, list[str]] = {}
    headed: dict[str, bool] = {}
    for source in sources:
        form, header = _look(Path(source))
        by_form.setdefault(form, []).append(source)
        headed[form] = header
    for form, paths in by_form.items():
        trace.forms[form] = _read(connection, form, paths, headed[form])
    return trace


def _look(path: Path) -> tuple[str, bool]:
    """The form of a file, and whether its first line names the columns."""
    if not path.is_file():
        raise InputError(str(path), "is not there")
    if path.suffix == ".parquet":
        names = import_module("pyarrow.parquet").read_schema(path).names
        return _form_of(tuple(names), str(path)), True
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="") as file:
            first = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"cannot be read: {error}") from None
    for form, names in FORMS.items():
        if tuple(first) == names:
            return form, True
    for form in ("batch_instance", "batch_task"):
        if len(first) == len(FORMS[form]):
            return form, False
    raise InputError(str(path), f"has {len(first)} columns: no form of {', '.join(FORMS)}")


def _form_of(names: tuple[str, ...], place: str) -> str:
    for form, known in FORMS.items():
        if set(known) <= set(names):
            return form
    raise InputError(place, f"columns {', '.join(names)}: no form of {', '.join(FORMS)}")


def _read(connection: Any, form: str, paths: Sequence[str], header: bool) -> Table:
    if paths[0].endswith(".parquet"):
        return connection.read_parquet(list(paths), table_name=form)
    kinds = {name: "VARCHAR" if name in _TEXT else "DOUBLE" for name in FORMS[form]}
    return connection.read_csv(
        list(paths), table_name=form, header=header, columns=kinds, auto_detect=False
    )
