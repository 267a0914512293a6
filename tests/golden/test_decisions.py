"""What the schedulers decide on small runs, recorded: no decision changes unnoticed.

`recorded/decisions.json` says nothing about what is right; other tests do. Where a change of a
decision is meant, WEFT_RECORD=1 records anew, and the CHANGELOG says why.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from am.plan.bounds.bounds import bounds_of
from am.plan.registry import PlanRequest, planner
from sim.cluster import Simulation
from sim.recorder import Recorder
from sim.results import Run, jct_s
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec, NodeSpec
from weft.model.dag import Dag, Link, Machines, StageEdge
from weft.model.job import Edge, EdgeKind, Job, Preference, Stage
from weft.model.queues import QueueSpec
from weft.model.resources import DEFAULT_RESOURCE_TYPES
from weft.policies.presets import PRESETS, preset, with_options

FILE = Path(__file__).parent / "recorded" / "decisions.json"
RECORD = os.environ.get("WEFT_RECORD", "0") not in ("", "0")
KNOWN: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}

CAPACITY = (8.0, 32768.0, 400.0, 500.0)
TREE = QueueSpec(
    "root",
    children=(
        QueueSpec("a", 0.5, 0.8, children=(QueueSpec("a1", 0.6, 0.9), QueueSpec("a2", 0.4))),
        QueueSpec("b", 0.3, 0.6, user_limit=0.4, user_limit_factor=1.5),
        QueueSpec("default", 0.2),
    ),
)
LEAVES = ("a1", "a2", "b", "default")
NAMES = tuple(DEFAULT_RESOURCE_TYPES.names)


def cluster(tree: bool) -> ClusterSpec:
    """Four machines of three sizes on two racks; one has a label."""
    sizes = (1.0, 0.5, 1.5, 1.0)
    nodes = tuple(
        NodeSpec(
            f"n{i}",
            tuple(size * amount for amount in CAPACITY),
            f"r{i % 2}",
            ("gpu",) if i == 3 else (),
        )
        for i, size in enumerate(sizes)
    )
    return (
        ClusterSpec(DEFAULT_RESOURCE_TYPES, nodes, TREE)
        if tree
        else ClusterSpec(DEFAULT_RESOURCE_TYPES, nodes)
    )


def stage(rng: np.random.Generator, at: int, plain: bool) -> Stage:
    """A stage of identical tasks; not `plain`: some with a label, a preference, or all or none."""
    parents = tuple(
        Edge(f"s{p}", EdgeKind.ONE_TO_ONE if rng.random() < 0.5 else EdgeKind.ALL_TO_ALL)
        for p in sorted({int(rng.integers(0, at)) for _ in range(2)} if at else ())
    )
    share = rng.choice([0.05, 0.1, 0.2, 0.3, 0.45], len(NAMES))
    share[int(rng.integers(len(NAMES)))] = rng.choice([0.3, 0.45, 0.5])
    demand = {n: float(s * c) for n, s, c in zip(NAMES, share, CAPACITY, strict=True)}
    tasks, kind = int(rng.integers(1, 9)), rng.random()
    duration = float(rng.choice([3.0, 6.0, 12.0, 25.0]))
    actual = tuple(float(duration * f) for f in rng.uniform(0.7, 1.5, tasks))
    more: dict[str, Any] = {}
    if not plain and kind < 0.12:
        more["label"] = "gpu"
    elif not plain and kind < 0.4:
        node = int(rng.integers(3))
        racks = (f"r{node % 2}",) if kind < 0.3 else ()
        more["prefer"] = Preference((f"n{node}",), racks)
    elif not plain and kind < 0.5:
        more["gang"] = True
    return Stage(f"s{at}", tasks, duration, demand, parents, actual, **more)


def jobs(seed: int, plain: bool, tree: bool) -> list[Job]:
    """Seven jobs in a quarter of a minute, of three users, in four queues or one."""
    rng = np.random.default_rng(seed)
    return [
        Job(
            f"j{number}",
            tuple(stage(rng, at, plain) for at in range(int(rng.integers(1, 5)))),
            queue=LEAVES[int(rng.integers(4))] if tree else "default",
            user=f"u{rng.integers(3)}",
            priority=int(rng.choice([0, 0, 0, 2])),
            arrival_s=float(rng.uniform(0, 15)),
        )
        for number in range(7)
    ]


G = "graphene"
LATER = (
    "drf_strict",
    "tez_p90",
    "yarn",
    "yarn_fair",
)  # a case's jobs go by its place, so new presets stand last
# name -> preset, its options, prompt pace, a tree of queues, settings of the manager
CASES: dict[str, tuple[str, dict[str, Any], bool, bool, dict[str, Any]]] = {
    **{name: (name, {}, False, True, {}) for name in PRESETS if name not in LATER},
    **{
        f"{name}, one queue, prompt": (name, {}, True, False, {})
        for name in ("fifo", "capacity", "fair", "drf", "sjf", "tetris", G, "carbyne", "cobra")
    },
    "capacity, short delays": (
        "capacity",
        {"node_locality_delay": 2, "rack_locality_delay": 1},
        False,
        True,
        {},
    ),
    "fair, short delays": (
        "fair",
        {"node_locality_delay": 1, "rack_locality_delay": 2},
        True,
        True,
        {},
    ),
    "tetris, half fair": ("tetris", {"fairness": 0.5}, False, True, {}),
    "graphene, slots": (G, {"deficit_unit": "slots", "kappa": 2}, False, True, {}),
    "graphene, drf": (G, {"deficit_unit": "drf", "kappa": 0.05}, False, True, {}),
    "graphene, by application": (G, {"group": "app", "kappa": 0.02}, False, True, {}),
    "graphene, no bound, fixed eta": (G, {"kappa": -1, "eta": 0.3}, False, True, {}),
    "graphene, figure 15": (G, {"priority_from": "all", "eta_m": 0.2}, True, True, {}),
    "graphene, no overbooking": (G, {"overbook": ""}, False, True, {}),
    "graphene, network alone": (G, {"overbook": "network_mbps"}, False, True, {}),
    "graphene, terms off": (
        G,
        {"use_packing": False, "use_priority": False, "overbook": ""},
        False,
        True,
        {},
    ),
    "carbyne, mix": ("carbyne", {"leftover": "mix", "leftover_mix": 0.3}, False, True, {}),
    "carbyne, least share": ("carbyne", {"leftover": "least_share"}, True, True, {}),
    "carbyne, packing": ("carbyne", {"leftover": "packing", "packing": False}, False, False, {}),
    "carbyne, half altruism": (
        "carbyne",
        {"asker.altruism": 0.5},
        False,
        True,
        {},
    ),
    "carbyne, promised": (
        "carbyne",
        {"asker.promise": 0.5, "asker.packer": "plan"},
        True,
        False,
        {},
    ),
    "cobra, short periods": (
        "cobra",
        {"asker.period_s": 2.0, "asker.surplus_release": True, "asker.tau": 0.5},
        False,
        True,
        {},
    ),
    "cobra, little patience": ("cobra", {"asker.tau": 0.1}, True, False, {}),
    "drs, soon idle": ("drs", {"asker.idle_s": 2.0, "asker.backlog_s": 0.5}, False, True, {}),
    "sjf, two a node": ("sjf", {}, True, True, {"node_containers_max": 2}),
    "capacity, preemption": (
        "capacity",
        {},
        False,
        True,
        {"preemption": True, "preemption_intra_queue": True, "preemption_grace_s": 3.0},
    ),
    "drf, early reservations": ("drf", {}, False, True, {"reserve_after_s": 3.0}),
    "tetris, four a node": (
        "tetris",
        {},
        True,
        True,
        {"node_containers_max": 4},
    ),
    **{name: (name, {}, False, True, {}) for name in LATER[:2]},
    "drf_strict, equal shares": ("drf_strict", {"share": "equal"}, True, False, {}),
    "tez_p90, blind": ("tez_p90", {"asker.sees": "vcores"}, False, True, {}),
    "fifo, its job fills": ("fifo", {"fill": "job"}, False, False, {}),
    "fifo, all fill": ("fifo", {"fill": "all"}, True, True, {}),
    "yarn": ("yarn", {}, False, True, {}),
    "yarn_fair": ("yarn_fair", {}, False, True, {}),
}


def check(group: str, name: str, found: dict[str, Any]) -> None:
    """Compare with what is recorded, or record."""
    if RECORD:
        assert "PYTEST_XDIST_WORKER" not in os.environ, "record without -n: workers overwrite"
        KNOWN.setdefault(group, {})[name] = found
        FILE.write_text(json.dumps(KNOWN, indent=1, sort_keys=True) + "\n")
    assert found == KNOWN[group][name]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_cluster_decides_as_recorded(name: str) -> None:
    chosen, options, prompt, tree, manager = CASES[name]
    named = {key if "." in key else f"matcher.{key}": value for key, value in options.items()}
    scheduler = with_options(preset(chosen), named)
    plain = preset(chosen).asker not in ("all_ready", "carbyne")
    settings = SimSettings(scheduler, seed=5, prompt=prompt, manager=manager, until_s=5000.0)
    recorder = Recorder()
    where = cluster(tree)
    Simulation(where, jobs(list(CASES).index(name), plain, tree), settings, recorder).run()
    run = Run(where, recorder.jobs, recorder.columns())
    times = [round(jct_s(row), 6) for row in run.jobs]
    check("runs", name, {"jct_s": times, "digest": recorder.digest()[:16]})


def dag(seed: int) -> Dag:
    """Up to six stages of up to six tasks; every kind of edge, tasks of a stage alike or not."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, int(rng.integers(3, 7)))
    first = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    duration, demand = np.empty(first[-1]), np.empty((int(first[-1]), 2))
    for at, size in enumerate(sizes.tolist()):
        rows = slice(int(first[at]), int(first[at + 1]))
        kinds = 1 if rng.random() < 0.7 else size
        duration[rows] = rng.choice([0.5, 1.0, 1.7, 3.0, 5.0], kinds)
        demand[rows] = rng.choice([0.05, 0.2, 1 / 3, 0.4, 0.5, 0.7], (kinds, 2))
    edges = []
    for child in range(1, len(sizes)):
        for parent in sorted({int(rng.integers(child)) for _ in range(2)}):
            link = (Link.ALL, Link.ONE, Link.SOME)[int(rng.integers(3))]
            pairs = None
            if link is Link.SOME:
                ends = [rng.integers(first[s], first[s + 1], 4) for s in (parent, child)]
                pairs = np.unique(np.column_stack(ends), axis=0).astype(np.int64)
            edges.append(StageEdge(parent, child, link, pairs))
    names = tuple(f"s{i}" for i in range(len(sizes)))
    return Dag(("a", "b"), names, first, duration, demand, tuple(edges))


MACHINES = {
    "one": Machines(np.array([[1.0, 1.0]])),
    "three alike": Machines(np.ones((3, 2))),
    "three sizes": Machines(np.array([[1.0, 1.0], [0.5, 0.8], [1.5, 0.7]])),
}
PLANS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ("bfs", "critical_path", "random", "tetris")},
    "coffman_graham": ("coffman_graham", {}),
    "strip_part": ("strip_part", {}),
    "graphene": ("graphene", {}),
    "graphene, as in the paper": (
        "graphene",
        {"candidates": "paper", "frag": "ratio", "t_both": False, "early_stop": False},
    ),
    "graphene, all tried": (
        "graphene",
        {"rule": "both", "bound": "strong", "thresholds": 3, "early_stop": False},
    ),
    "graphene, few": (
        "graphene",
        {"orders": "TSPC,TCSP", "frag": "steady", "rule": "cp"},
    ),
    "graphene_plus": ("graphene_plus", {"iterations": 5}),
}
SEEDS = range(4)
WORK = 20_000  # steps of refuting spans


@pytest.mark.slow
@pytest.mark.parametrize("where", MACHINES)
@pytest.mark.parametrize("name", PLANS)
def test_a_planner_plans_as_recorded(name: str, where: str) -> None:
    found = []
    for seed in SEEDS:
        chosen, options = PLANS[name]
        rng = np.random.default_rng(seed)
        plan = planner(chosen)(PlanRequest(dag(seed), MACHINES[where], rng, options))
        text = f"{plan.order.tolist()} {plan.machine.tolist()} {np.round(plan.start_s, 6).tolist()}"
        text += json.dumps(plan.explain, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        found.append([round(plan.makespan_s, 6), digest])
    check("plans", f"{name} on {where}", {"makespan_s, digest": found})


LACKING = {
    "one lacks": Machines(np.array([[1.0, 1.0], [1.0, 0.0]])),
    "the first lacks": Machines(np.array([[0.0, 1.0], [1.0, 1.0]])),
}


@pytest.mark.parametrize("where", [*MACHINES, *LACKING])
def test_bounds_are_as_recorded(where: str) -> None:
    found = []
    for seed in range(20):
        bounds = bounds_of(dag(seed), (MACHINES | LACKING)[where], WORK)
        numbers = (
            bounds.cp_len_s,
            bounds.t_work_s,
            bounds.mod_cp_s,
            bounds.new_lb_s,
            bounds.strong_lb_s,
        )
        found.append([round(number, 6) for number in numbers])
    check("bounds", where, {"cp_len, t_work, mod_cp, new, strong, s": found})
