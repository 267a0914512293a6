"""Tables of Alibaba's cluster-trace-v2018 as Ibis expressions, whichever forms are there.

Forms are told apart by their columns (schema: `trace_2018.md` of the trace): `batch_instance` and
`batch_task` have no header, derived files have one. What a form lacks is NULL nowhere but named in
`Trace.has`, so that a figure can refuse instead of showing an empty plot.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

from lab.analysis.files import FORMS, TEXT, clear_errors, form_of, groups_of
from weft.model.errors import InputError
from weft.model.extras import require

# `J3_1_2` is task 3, which waits for the tasks 1 and 2.
_TASK_NAME_PATTERN = r"^[A-Za-z]+([0-9]{1,9})((_[0-9]{1,9})*)(_.*)?$"
# A time in s or an amount above this is a mistake, as is NaN.
_PLAUSIBLE_MAX = 1e12
_TIMES = {
    "task_usage": ("start_time", "end_time"),
    "batch_task": ("start_time", "end_time"),
    "batch_instance": ("start_time", "end_time"),
}
_AMOUNTS = {
    "task_usage": ("cpu_requested", "cpu_usage", "mem_requested", "mem_usage"),
    "batch_task": ("instance_num", "plan_cpu", "plan_mem"),
    "hour_slice": ("job_submit_s", "duration_s", "plan_cpu", "plan_mem", "instance_num"),
    "batch_instance": ("cpu_avg", "mem_avg"),
}
_NEEDED = {"hour_slice": ("job_submit_s", "duration_s"), "task_usage": ("instances",)}
# An Ibis table: none of its types reach ours.
Table = Any


def ibis_module() -> Any:
    """Return Ibis; raises WeftError where it is not installed."""
    return require("ibis", "analyse", "weft analyse")


@dataclass(slots=True)
class Trace:
    """A trace's tables by form, and the connection that answers."""

    connection: Any
    forms: dict[str, Table] = field(default_factory=dict)

    @property
    def tasks(self) -> Table:
        """Table by task, from whichever form there is.

        Its columns are job, task, instances, start_s, end_s, plan_cpu, plan_mem, cpu_used and
        mem_used (of one instance, in cores and percent of a machine).
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
        """Table by instance: job, task, start_s, end_s, machine, cpu, mem; None if not there."""
        table = self.forms.get("batch_instance")
        if table is None:
            return None
        ended = table.filter(_usable("batch_instance", table))
        return ended.select(
            job=ended.job_name,
            task=ended.task_name,
            start_s=ended.start_time.cast("float64"),
            end_s=ended.end_time.cast("float64"),
            machine=ended.machine_id,
            cpu=ended.cpu_avg / 100.0,
            mem=ended.mem_avg,
        )

    def used(self) -> dict[str, tuple[int, int]]:
        """Return by form how many rows are used, of how many; durations have none."""
        found = {}
        for form, table in self.forms.items():
            if form == "durations":
                continue
            counts = table.aggregate(
                used=table.count(where=_usable(form, table)), rows=table.count()
            )
            row = counts.execute().iloc[0]
            found[form] = int(row["used"]), int(row["rows"])
        return found

    @property
    def has(self) -> set[str]:
        """Needs of figures that are met: `instances`, `machines`, `plans`, `use`, `tasks`."""
        found = {"tasks"} if set(self.forms) - {"durations"} else set()
        if "batch_instance" in self.forms:
            found |= {"instances", "machines", "use"}
        if {"batch_task", "task_usage", "hour_slice"} & set(self.forms):
            found.add("plans")
        if "task_usage" in self.forms:
            found.add("use")
        return found


def edges_of(tasks: Table) -> Table:
    """Return (job, child, parent) by task number, from the names; without such a name: none."""
    named = _numbered(tasks).filter(lambda t: t.number.notnull())
    each = named.select("job", child="number", parent=named.behind.split("_").unnest())
    each = each.filter(each.parent != "")
    return each.select("job", "child", parent=each.parent.cast("int64"))


def _numbered(tasks: Table) -> Table:
    """Return tasks with their number (NULL without one) and the text of what they wait for."""
    number = tasks.task.re_extract(_TASK_NAME_PATTERN, 1)
    return tasks.mutate(
        number=number.nullif("").cast("int64"), behind=tasks.task.re_extract(_TASK_NAME_PATTERN, 2)
    )


def with_numbers(tasks: Table) -> Table:
    """Return tasks with their number in the job, NULL where the name has none."""
    return _numbered(tasks).drop("behind")


def _of_batch(table: Table) -> Table:
    null = ibis_module().null("float64")
    ended = table.filter(_usable("batch_task", table))
    return ended.select(
        job=ended.job_name,
        task=ended.task_name,
        instances=ended.instance_num.cast("float64"),
        start_s=ended.start_time.cast("float64"),
        end_s=ended.end_time.cast("float64"),
        plan_cpu=ended.plan_cpu / 100.0,
        plan_mem=ended.plan_mem,
        cpu_used=null,
        mem_used=null,
    )


def _of_slice(table: Table) -> Table:
    null = ibis_module().null("float64")
    table = table.filter(_usable("hour_slice", table))
    start = table.job_submit_s.cast("float64")
    return table.select(
        job=table.job_name,
        task=table.task_name,
        instances=table.instance_num.cast("float64"),
        start_s=start,
        end_s=start + table.duration_s,
        plan_cpu=table.plan_cpu / 100.0,
        plan_mem=table.plan_mem,
        cpu_used=null,
        mem_used=null,
    )


def _of_usage(table: Table) -> Table:
    """Return tasks of a table whose uses are sums over the instances."""
    ended = table.filter(_usable("task_usage", table))
    return ended.select(
        job=ended.job,
        task=ended.name,
        instances=ended.instances,
        start_s=ended.start_time.cast("float64"),
        end_s=ended.end_time.cast("float64"),
        plan_cpu=ended.cpu_requested / 100.0,
        plan_mem=ended.mem_requested,
        cpu_used=ended.cpu_usage / 100.0 / ended.instances,
        mem_used=ended.mem_usage / ended.instances,
    )


def _of_instances(table: Table) -> Table:
    null = ibis_module().null("float64")
    ended = table.filter(_usable("batch_instance", table))
    found = ended.group_by(job=ended.job_name, task=ended.task_name).agg(
        instances=ended.count().cast("float64"),
        start_s=ended.start_time.min().cast("float64"),
        end_s=ended.end_time.max().cast("float64"),
        cpu_used=ended.cpu_avg.mean() / 100.0,
        mem_used=ended.mem_avg.mean(),
    )
    return found.mutate(plan_cpu=null, plan_mem=null)


def _usable(form: str, table: Table) -> Any:
    """Return which rows are used: Terminated, with times, amounts blank or numbers >= 0."""
    wanted = []
    if form.startswith("batch_"):
        wanted.append(table.status == "Terminated")
    for name in _AMOUNTS[form]:
        wanted.append(table[name].isnull() | table[name].between(0, _PLAUSIBLE_MAX))
    if form in _TIMES:
        start, end = (table[name] for name in _TIMES[form])
        wanted.append((start >= 0) & (end >= start) & (end < _PLAUSIBLE_MAX))
    for name in _NEEDED.get(form, ()):
        wanted.append(table[name].notnull())
    if form == "task_usage":
        wanted.append((table.instances > 0) & (table.instances < _PLAUSIBLE_MAX))
    return reduce(and_, wanted)


# -- opening ---------------------------------------------------------------------------------------


def open_trace(
    sources: Sequence[str], connect: str = "", memory_mb: int = 700, threads: int = 2
) -> Trace:
    """Open files (CSV, packed or not, Parquet), or with `connect` tables of that database.

    DuckDB keeps to `memory_mb` and spills to a temporary folder. Raises InputError for a file that
    is no form of the trace, and WeftError where Ibis is not there.
    """
    ibis = ibis_module()
    if connect:
        with clear_errors("--connect"):
            connection = ibis.connect(connect)
        trace = Trace(connection)
        for name in sources:
            with clear_errors(f"--connect, table {name}"):
                table = connection.table(name)
            form = form_of(tuple(table.columns), name)
            if form in trace.forms:
                raise InputError(name, f"a second table of {form}")
            trace.forms[form] = _typed(form, table)
        return trace
    groups = groups_of([Path(source) for source in sources])
    connection = ibis.duckdb.connect(threads=threads, memory_limit=f"{memory_mb}MB")
    connection.raw_sql("SET preserve_insertion_order = false")
    trace = Trace(connection)
    for number, (group, paths) in enumerate(groups.items()):
        name, names = f"{group.form}_{number}", group.columns
        with clear_errors(paths[0]):
            if group.kind == "parquet":
                table = connection.read_parquet(paths, table_name=name)
            else:
                kinds = {
                    each: "VARCHAR" if each not in FORMS[group.form] or each in TEXT else "DOUBLE"
                    for each in names
                }
                table = connection.read_csv(
                    paths,
                    table_name=name,
                    header=group.header,
                    columns=kinds,
                    auto_detect=False,
                    compression=group.kind,
                    quote='"',
                    delim=",",
                )
            table = _typed(group.form, table)
        before = trace.forms.get(group.form)
        trace.forms[group.form] = table if before is None else before.union(table)
    return trace


def _typed(form: str, table: Table) -> Table:
    """Return the form's columns, typed: a warehouse may have exported all as texts."""
    columns = {}
    for name in FORMS[form]:
        column = table[name]
        if name in TEXT:
            columns[name] = column if column.type().is_string() else column.cast("string")
        else:
            columns[name] = column if column.type().is_float64() else column.cast("float64")
    return table.select(**columns)
