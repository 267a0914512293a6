"""Lower bounds on the time of one DAG on given machines (Graphene section 6, figure 17).

The paper's formulas are made sound for every kind of edge by docs/rules.md, rules 8 to 14.
"""

from dataclasses import asdict, dataclass, replace

import numpy as np

from am.plan.bounds.cuts import cut, split
from am.plan.bounds.destructive_bound import PROOF_STEPS_MAX, Spans
from am.plan.bounds.stage_groups import Groups, groups_of, work_s
from am.plan.bounds.strong_bound import strong_bound
from am.plan.paths import Dependencies, dependencies_of, heads
from weft.model.dag import Dag, Floats, Machines


@dataclass(frozen=True, slots=True)
class Bounds:
    """Times that no schedule can beat, s; each of the last two is at least all before it.

    Equations 1a to 1d, and `strong_lb_s` (waves, heads and tails): stop searching there. `parts` is
    the number of parts that sound cuts leave.
    """

    cp_len_s: float
    t_work_s: float
    mod_cp_s: float
    new_lb_s: float
    strong_lb_s: float
    parts: int = 1

    def as_dict(self) -> dict[str, float]:
        """Return the five bounds by name, as commands print them."""
        data = asdict(self)
        del data["parts"]
        return data


def bounds_of(dag: Dag, machines: Machines, work: int = PROOF_STEPS_MAX) -> Bounds:
    """Return every bound of a DAG; raises InputError where a task fits on no machine.

    The strong bound may spend `work` steps on refuting spans, some 10**9 a second; 0: none.
    Machines of unlike speeds count as if each were as fast as the fastest.
    """
    if machines.unlike:
        alike = Machines(machines.capacity)
        dag = replace(dag, duration_s=dag.duration_s / machines.speed.max())
        return bounds_of(dag, alike, work)
    machines.check_fits(dag)
    if dag.tasks == 0:
        return Bounds(0.0, 0.0, 0.0, 0.0, 0.0, 0)
    total = machines.total
    dependencies = dependencies_of(dag)
    cp_len = _longest(dependencies, dag.duration_s)
    t_work = work_s(dag.duration_s, dag.demand, total)
    mod_cp = _mod_cp(dag, dependencies, total)
    parts = cut(dag)
    new_lb = strong_lb = 0.0
    doubtful: list[tuple[float, Spans]] = []
    for part in split(dag, parts) if len(parts) > 1 else [dag]:
        paper = _part_bound(part, total)
        new_lb += paper
        least, spans = strong_bound(part, machines, refute=work > 0)
        if spans is None:
            strong_lb += max(paper, least)
        else:
            doubtful.append((paper, spans))
    for paper, spans in doubtful:
        spans.deepen(work // len(doubtful))
        strong_lb += max(paper, spans.bound_s)
    # The sums round, but the bounds must keep their order.
    new_lb = max(new_lb, cp_len, t_work)
    return Bounds(cp_len, t_work, mod_cp, new_lb, max(strong_lb, new_lb), len(parts))


def _part_bound(part: Dag, total: Floats) -> float:
    """Return one summand of eq. 1d: group, replace barriers, take the largest of 1a, 1b and 1c."""
    dependencies = dependencies_of(part)
    best = work_s(part.duration_s, part.demand, total)
    for merge in (False, True):
        groups = groups_of(part, dependencies, total, merge=merge)
        best = max(best, _longest(dependencies, _with_barriers(part, dependencies, groups)))
        best = max(best, _heaviest_path(groups))
    return best


def _mod_cp(dag: Dag, dependencies: Dependencies, total: Floats) -> float:
    """Return eq. 1c of the whole DAG, merged or unmerged, whichever is larger."""
    return max(
        _heaviest_path(groups_of(dag, dependencies, total, merge=merge)) for merge in (False, True)
    )


def _longest(dependencies: Dependencies, weight: Floats) -> float:
    return float((heads(dependencies, weight) + weight).max(initial=0.0))


def _with_barriers(dag: Dag, dependencies: Dependencies, groups: Groups) -> Floats:
    """Return durations for eq. 1a: tasks of a barrier group last as long as the group."""
    weight = dag.duration_s.copy()
    for stage, group in enumerate(groups.of_stage):
        if groups.barrier[group]:
            weight[dependencies.span(stage)] = groups.whole[group]
    return weight


def _heaviest_path(groups: Groups) -> float:
    """Return eq. 1c over covering edges: barrier groups count whole, one other group may too."""
    base = np.where(groups.barrier, groups.whole, groups.least)
    into: list[list[int]] = [[] for _ in groups.of_stage]
    for parent, child in groups.edges:
        into[child].append(parent)
    plain = base.copy()
    best_replaced = groups.whole.copy()
    for group in groups.order:
        if into[group]:
            before = max(plain[parent] for parent in into[group])
            plain[group] = before + base[group]
            best_replaced[group] = max(
                before + groups.whole[group],
                max(best_replaced[parent] for parent in into[group]) + base[group],
            )
    return float(max(best_replaced.max(initial=0.0), plain.max(initial=0.0)))
