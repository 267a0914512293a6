"""The figures of chapter 2 of the thesis on Alibaba 2018, as expressions over a trace.

Xue, "An analysis and application of Graphene on Alibaba" (UC Santa Cruz, 2025). Each figure says
what it needs, and is refused where the trace has not that. Everything is aggregated where the data
lie; what comes back is small. An instance's queueing delay is from when it could have started, the
end of the last task that its task waits for, or the start of its job, to when it did.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lab.analysis.tables import Table, Trace, edges_of, ibis_module, with_numbers
from weft.model.errors import InputError

PUBLISHED_CLUSTER_MACHINES = 4023
CORES_PER_MACHINE = 96.0
UTILISATION_STEP_S = 300.0
LOG_BINS_PER_DOUBLING = 4
PATH_TASKS_MAX = 1_000
NEEDS: Mapping[str, str] = {
    "tasks": "start_time and end_time of tasks (batch_task.csv)",
    "instances": "start_time and end_time of instances (batch_instance.csv)",
    "machines": "machine_id of instances (batch_instance.csv)",
    "plans": "plan_cpu and plan_mem of tasks (batch_task.csv)",
    "use": "cpu_avg and mem_avg of instances (batch_instance.csv)",
}


@dataclass(frozen=True, slots=True)
class Options:
    """What the trace itself does not say.

    `job` is the one of figure 2.11; empty: the one with most instances.
    """

    machines: int = PUBLISHED_CLUSTER_MACHINES
    cores: float = CORES_PER_MACHINE
    job: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: `make` returns a small table; `x`, `y`, `size` name columns of the picture.

    `kind` is bars, steps, cells or lines.
    """

    number: str
    title: str
    needs: frozenset[str]
    make: Callable[["Facts"], Table]
    kind: str
    x: str
    y: str

    def missing(self, trace: Trace) -> str:
        """Return what the trace lacks for it, in words; empty where it can be made."""
        return "; ".join(NEEDS[need] for need in sorted(self.needs - trace.has))


class Facts:
    """Tables that figures share, each worked out once and kept where the data lie."""

    def __init__(self, trace: Trace, options: Options) -> None:
        self.trace = trace
        self.options = options
        self._kept: dict[str, Table] = {}
        self._tables = 0

    def _keep(self, name: str, make: Callable[[], Table]) -> Table:
        if name not in self._kept:
            self._kept[name] = self._made(name, make())
        return self._kept[name]

    def _made(self, name: str, table: Table) -> Table:
        """Return a temporary table of its own name: not every backend replaces one."""
        self._tables += 1
        where = f"weft_{name}_{self._tables}"
        return self.trace.connection.create_table(where, obj=table, temp=True)

    @property
    def tasks(self) -> Table:
        """`Trace.tasks`, with the numbers in the names."""
        return self._keep("tasks", lambda: with_numbers(self.trace.tasks))

    @property
    def spans(self) -> Table:
        """Table by task of when its first instance began and its last ended, as recorded."""
        found = self.trace.instances
        assert found is not None
        return self._keep(
            "spans",
            lambda: with_numbers(
                found.group_by("job", "task").agg(
                    first_s=found.start_s.min(),
                    last_s=found.end_s.max(),
                    instances=found.count().cast("float64"),
                )
            ),
        )

    @property
    def edges(self) -> Table:
        """(job, child, parent), with the parent's end."""
        spans = self.spans

        def make() -> Table:
            each = edges_of(spans.select("job", "task"))
            ends = spans.select("job", parent=spans.number, end_s=spans.last_s)
            return each.join(ends, ["job", "parent"])

        return self._keep("edges", make)

    @property
    def ready(self) -> Table:
        """Table by task of when it could have started, s."""
        spans, edges = self.spans, self.edges

        def make() -> Table:
            after = edges.group_by("job", number=edges.child).agg(after_s=edges.end_s.max())
            jobs = spans.group_by("job").agg(
                job_s=spans.first_s.min(), job_instances=spans.instances.sum()
            )
            if "plans" in self.trace.has:
                # Tasks are known before their first instance.
                told = self.tasks.group_by("job").agg(told_s=self.tasks.start_s.min())
                jobs = jobs.left_join(told, "job")
                jobs = jobs.select("job", "job_instances", job_s=jobs.told_s.fill_null(jobs.job_s))
            found = spans.left_join(after, ["job", "number"]).drop("job_right", "number_right")
            found = found.join(jobs, "job")
            return found.select(
                "job",
                "task",
                "number",
                "job_instances",
                ready_s=found.after_s.fill_null(found.job_s),
            )

        return self._keep("ready", make)

    @property
    def delays(self) -> Table:
        """Table by instance of queueing delay, run time and completion, s; instances of its job."""
        found = self.trace.instances
        assert found is not None

        def make() -> Table:
            each = found.join(self.ready, ["job", "task"])
            delay = ibis_module().greatest(each.start_s - each.ready_s, 0.0)
            run_s = each.end_s - each.start_s
            return each.select(
                "job",
                "task",
                "number",
                "ready_s",
                "job_instances",
                "cpu",
                "mem",
                delay_s=delay,
                run_s=run_s,
                completion_s=delay + run_s,
            )

        return self._keep("delays", make)

    @property
    def critical(self) -> Table:
        """(job, number) of the tasks on critical paths.

        A path goes from the task that ended last, always to the parent that ended last.
        """
        return self._keep("critical", self._critical)

    def _critical(self) -> Table:
        edges = self.edges
        spans = self.spans.filter(self.spans.number.notnull())
        at = self._made("level", _last(spans.select("job", "number", end_s=spans.last_s)))
        found = at
        for _ in range(PATH_TASKS_MAX):
            above = edges.join(at, [edges.job == at.job, edges.child == at.number])
            above = above.select(job=edges.job, number=edges.parent, end_s=edges.end_s)
            last = _last(above)
            # The anti-join ends circles, as no task is taken twice.
            at = self._made("level", last.anti_join(found, ["job", "number"]))
            if not int(at.count().execute()):
                return found
            found = self._made("found", found.union(at))
        raise InputError("figure 2.9", f"a job has a path of more than {PATH_TASKS_MAX:,} tasks")

    @property
    def use(self) -> Table:
        """Table by second of a start or end: cores and memory used, % of a machine."""

        def make() -> Table:
            found = self.trace.instances
            if found is None:
                tasks = self.tasks
                many = tasks.instances
                found = tasks.select(
                    "start_s", "end_s", cpu=tasks.cpu_used * many, mem=tasks.mem_used * many
                )
            began = found.select(at_s=found.start_s, cpu=found.cpu, mem=found.mem)
            ended = found.select(at_s=found.end_s, cpu=-found.cpu, mem=-found.mem)
            both = began.union(ended)
            steps = both.group_by("at_s").agg(cpu=both.cpu.sum(), mem=both.mem.sum())
            window = ibis_module().cumulative_window(order_by=steps.at_s)
            return steps.select(
                "at_s", cpu=steps.cpu.sum().over(window), mem=steps.mem.sum().over(window)
            )

        return self._keep("use", make)

    @property
    def binned_use(self) -> Table:
        """Mean use over time by bins of `UTILISATION_STEP_S` in which something starts or ends."""
        use = self.use

        def make() -> Table:
            ibis = ibis_module()
            bin_ = (use.at_s / UTILISATION_STEP_S).floor()
            after_s = use.at_s.lead().over(ibis.window(order_by=use.at_s))
            end_s = ibis.least(after_s.fill_null(use.at_s + 1.0), (bin_ + 1.0) * UTILISATION_STEP_S)
            each = use.mutate(bin=bin_, for_s=end_s - use.at_s)
            return each.group_by("bin").agg(
                cpu=(each.cpu * each.for_s).sum() / each.for_s.sum(),
                mem=(each.mem * each.for_s).sum() / each.for_s.sum(),
            )

        return self._keep("binned", make)


def _last(table: Table) -> Table:
    """Return by job the number with the latest end; the larger number of several."""
    ranked = table.mutate(
        place=ibis_module()
        .row_number()
        .over(group_by=table.job, order_by=[table.end_s.desc(), table.number.desc()])
    )
    return ranked.filter(ranked.place == 0).select("job", "number")


# -- figures ---------------------------------------------------------------------------------------


def _log_bin(value: Any) -> Any:
    """Return the lower end of a value's bin from 1 on, 0 below (`LOG_BINS_PER_DOUBLING`)."""
    at = (value.log2() * LOG_BINS_PER_DOUBLING).floor() / LOG_BINS_PER_DOUBLING
    return ibis_module().ifelse(value >= 1.0, ibis_module().literal(2.0) ** at, 0.0)


def job_sizes(facts: Facts) -> Table:
    """Return figure 2.1: jobs by how long they took."""
    tasks = facts.tasks
    jobs = tasks.group_by("job").agg(took_s=tasks.end_s.max() - tasks.start_s.min())
    size = ibis_module().cases(
        (jobs.took_s < 60, "1: under a minute"),
        (jobs.took_s < 3600, "2: under an hour"),
        else_="3: an hour and more",
    )
    counted = jobs.group_by(size=size).agg(jobs=jobs.count())
    return counted.mutate(share=counted.jobs / counted.jobs.sum().over()).order_by("size")


def delay_distribution(facts: Facts) -> Table:
    """Return figure 2.2: share of instances with at most so much queueing delay, s."""
    delays = facts.delays
    binned = delays.group_by(delay_s=_log_bin(delays.delay_s)).agg(instances=delays.count())
    window = ibis_module().cumulative_window(order_by=binned.delay_s)
    share = binned.instances.sum().over(window) / binned.instances.sum().over()
    return binned.mutate(share=share).order_by("delay_s")


def delay_by_instances(facts: Facts) -> Table:
    """Return figure 2.3: instances by queueing delay and by the instances of their job."""
    return _cells(facts.delays, "job_instances", "delay_s")


def delay_by_completion(facts: Facts) -> Table:
    """Return figure 2.5: instances by queueing delay and completion time, with mean run times."""
    return _cells(facts.delays, "completion_s", "delay_s")


def critical_delays(facts: Facts) -> Table:
    """Return figure 2.9: as 2.5, of instances of tasks on the critical path of their job."""
    delays = facts.delays
    return _cells(delays.semi_join(facts.critical, ["job", "number"]), "completion_s", "delay_s")


def _cells(delays: Table, across: str, up: str) -> Table:
    x, y = _log_bin(delays[across].cast("float64")), _log_bin(delays[up])
    found = delays.group_by(**{across: x, up: y}).agg(
        instances=delays.count(), mean_run_s=delays.run_s.mean()
    )
    return found.order_by(across, up)


def delay_and_instances(facts: Facts) -> Table:
    """Return figure 2.4: the correlation matrix of both, logged."""
    delays = facts.delays
    return _matrix(
        delays,
        {
            "queueing_delay": (delays.delay_s + 1.0).ln(),
            "instance_num": delays.job_instances.ln(),
        },
    )


def correlations(facts: Facts) -> Table:
    """Return figure 2.6: Pearson's coefficients; delay, plans and instance_num logged."""
    ibis = ibis_module()
    delays = facts.delays
    free = facts.binned_use
    each = delays.mutate(bin=(delays.ready_s / UTILISATION_STEP_S).floor()).left_join(free, "bin")
    columns = {
        "queueing_delay": (each.delay_s + 1.0).ln(),
        "instance_num": each.job_instances.ln(),
        "run_time": each.run_s,
        "completion_time": each.completion_s,
        "used_cores": each.cpu_right,
        "used_memory": each.mem_right,
        "cpu_avg": each.cpu,
        "mem_avg": each.mem,
    }
    if "plans" in facts.trace.has:
        tasks = facts.tasks.select("job", "task", "plan_cpu", "plan_mem")
        each = each.mutate(**columns).left_join(tasks, ["job", "task"])
        columns = {name: each[name] for name in columns}
        for name in ("plan_cpu", "plan_mem"):
            columns[name] = ibis.greatest(each[name], 1e-6).ln()
    return _matrix(each, columns)


def _matrix(table: Table, columns: Mapping[str, Any]) -> Table:
    """Return (a, b, r) for every pair, in one pass."""
    names = list(columns)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i:]]
    whole = table.select(**columns)
    said = whole.aggregate(
        [whole[a].corr(whole[b], how="pop").name(f"r{i}") for i, (a, b) in enumerate(pairs)]
    )
    row = said.execute().iloc[0]
    rows = [{"a": a, "b": b, "r": float(row[f"r{i}"])} for i, (a, b) in enumerate(pairs)]
    return ibis_module().memtable(rows)


def delay_by_memory(facts: Facts) -> Table:
    """Return figure 2.7: instances by delay and by memory left, in machines, when ready."""
    delays, used, options = facts.delays, facts.binned_use, facts.options
    each = delays.mutate(bin=(delays.ready_s / UTILISATION_STEP_S).floor()).join(used, "bin")
    left = (options.machines - each.mem_right / 100.0).round()
    found = each.group_by(left_machines=left, delay_s=_log_bin(each.delay_s)).agg(
        instances=each.count()
    )
    return found.order_by("left_machines", "delay_s")


def utilisation(facts: Facts) -> Table:
    """Return figure 2.8: cores and memory used over time, of the whole cluster."""
    used, options = facts.binned_use, facts.options
    return used.select(
        at_s=used.bin * UTILISATION_STEP_S,
        cores=used.cpu / (options.machines * options.cores),
        memory=used.mem / (100.0 * options.machines),
    ).order_by("at_s")


def oversubscription(facts: Facts) -> Table:
    """Return figure 2.10: tasks by what they ask for over what they use (above 1: too much)."""
    tasks = facts.tasks
    if "instances" in facts.trace.has:
        found = facts.trace.instances
        assert found is not None
        used = found.group_by("job", "task").agg(c=found.cpu.mean(), m=found.mem.mean())
        tasks = tasks.drop("cpu_used", "mem_used").join(used, ["job", "task"])
        tasks = tasks.rename(cpu_used="c", mem_used="m")
    both = []
    for what, asked, held in (("cpu", "plan_cpu", "cpu_used"), ("memory", "plan_mem", "mem_used")):
        known = tasks.filter(tasks[asked] > 0, tasks[held] > 0)
        ratio = (
            (known[asked] / known[held]).log2() * LOG_BINS_PER_DOUBLING
        ).floor() / LOG_BINS_PER_DOUBLING
        both.append(
            known.group_by(log2_of_asked_over_used=ratio)
            .agg(tasks=known.count())
            .mutate(of=ibis_module().literal(what))
        )
    return both[0].union(both[1]).order_by("of", "log2_of_asked_over_used")


def machines_of_job(facts: Facts) -> Table:
    """Return figure 2.11: of one task, on how many machines so many of its instances ran."""
    found = facts.trace.instances
    assert found is not None
    job = facts.options.job
    if job:
        found = found.filter(found.job == job)
    tasks = found.group_by("job", "task").agg(n=found.count())
    largest = tasks.order_by(tasks.n.desc(), "job", "task").limit(1)
    mine = found.semi_join(largest, ["job", "task"])
    each = mine.group_by("machine").agg(instances=mine.count())
    return each.group_by("instances").agg(machines=each.count()).order_by("instances")


def machine_counts(facts: Facts) -> Table:
    """Return figure 2.12: machines by how many instances ran on them."""
    found = facts.trace.instances
    assert found is not None
    each = found.group_by("machine").agg(n=found.count())
    return (
        each.group_by(instances=_log_bin(each.n.cast("float64")))
        .agg(machines=each.count())
        .order_by("instances")
    )


def _needs(*names: str) -> frozenset[str]:
    return frozenset(names)


FIGURES: tuple[Figure, ...] = (
    Figure(
        "2.1", "jobs by how long they took", _needs("tasks"), job_sizes, "bars", "size", "share"
    ),
    Figure(
        "2.2",
        "queueing delay of instances",
        _needs("instances"),
        delay_distribution,
        "steps",
        "delay_s",
        "share",
    ),
    Figure(
        "2.3",
        "queueing delay by the instances of the job",
        _needs("instances"),
        delay_by_instances,
        "cells",
        "job_instances",
        "delay_s",
    ),
    Figure(
        "2.4",
        "correlation of delay and instances of the job",
        _needs("instances"),
        delay_and_instances,
        "matrix",
        "a",
        "b",
    ),
    Figure(
        "2.5",
        "queueing delay by completion time",
        _needs("instances"),
        delay_by_completion,
        "cells",
        "completion_s",
        "delay_s",
    ),
    Figure(
        "2.6",
        "correlations of queueing delay",
        _needs("instances", "use"),
        correlations,
        "matrix",
        "a",
        "b",
    ),
    Figure(
        "2.7",
        "queueing delay by the memory left",
        _needs("instances", "use"),
        delay_by_memory,
        "cells",
        "left_machines",
        "delay_s",
    ),
    Figure(
        "2.8",
        "utilisation over time",
        _needs("tasks", "use"),
        utilisation,
        "lines",
        "at_s",
        "cores,memory",
    ),
    Figure(
        "2.9",
        "queueing delay on critical paths",
        _needs("instances"),
        critical_delays,
        "cells",
        "completion_s",
        "delay_s",
    ),
    Figure(
        "2.10",
        "asked for over used",
        _needs("tasks", "plans", "use"),
        oversubscription,
        "groups",
        "log2_of_asked_over_used",
        "tasks",
    ),
    Figure(
        "2.11",
        "instances of one task on a machine",
        _needs("machines"),
        machines_of_job,
        "bars",
        "instances",
        "machines",
    ),
    Figure(
        "2.12",
        "instances on a machine",
        _needs("machines"),
        machine_counts,
        "bars",
        "instances",
        "machines",
    ),
)
