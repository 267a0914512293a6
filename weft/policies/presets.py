"""Scheduler presets: a matcher, a planner and an asker that together are one scheduler of a paper.

The names are the contract with users; each part can be exchanged (`--matcher`, `--planner`,
`--asker`) and its parameters set (`--set`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from weft.model.errors import InputError
from weft.model.json_types import Options

PARTS = ("matcher", "planner", "asker")


@dataclass(frozen=True, slots=True)
class Preset:
    """One scheduler: the names of its parts and the parameters that differ from their defaults."""

    matcher: str
    planner: str
    asker: str
    text: str = ""
    matcher_options: Options = field(default_factory=dict)
    planner_options: Options = field(default_factory=dict)
    asker_options: Options = field(default_factory=dict)


_ALL = "all_ready"
PRESETS: dict[str, Preset] = {
    "fifo": Preset("fifo", "bfs", _ALL, "strict order: wait until the head fits"),
    "capacity": Preset("capacity", "bfs", _ALL, "YARN's Capacity Scheduler"),
    "yarn": Preset("yarn", "bfs", _ALL, "as YARN 3.5's Capacity Scheduler decides"),
    "yarn_fair": Preset("yarn_fair", "bfs", _ALL, "as YARN 3.5's Fair Scheduler decides"),
    "fair": Preset("fair", "bfs", _ALL, "the largest share deficit goes first"),
    "drf": Preset("drf", "bfs", _ALL, "dominant resource fairness"),
    # These are baselines as papers ran them, not as they would run best (docs/papers.md).
    "drf_strict": Preset("drf", "bfs", _ALL, "DRF that lends nothing", {"lend": False}),
    "sjf": Preset("sjf", "critical_path", _ALL, "shortest job (by critical path) first"),
    "tetris": Preset("tetris", "bfs", _ALL, "multi-resource packing with srpt"),
    "tetris_fair": Preset("tetris", "bfs", _ALL, "Tetris with strict fairness", {"fairness": 1.0}),
    "tez": Preset("capacity", "bfs", _ALL, "Tez's order on YARN, asking for what each task needs"),
    "tez_p90": Preset(
        "capacity",
        "bfs",
        _ALL,
        "Tez with one container size for all tasks of a job, as Hive on Tez",
        asker_options={"container": "p90"},
    ),
    "tez_cp": Preset("capacity", "critical_path", _ALL, "as tez, critical path first"),
    "tez_tetris": Preset("tetris", "bfs", _ALL, "Tez with Tetris in the Resource Manager"),
    "tez_g_cs": Preset("capacity", "graphene", _ALL, "Graphene's order on the Capacity Scheduler"),
    "tez_g_tetris": Preset("tetris", "graphene", _ALL, "Graphene's order on Tetris"),
    # The paper's m is 0.2 and its order counts from all of a job's tasks. On public DAGs DRF beats
    # this, and an m of 1 with the order of what is left beats DRF. Deficits that count how long
    # a task holds keep queues together at the same speed (docs/matching.md, docs/simulation.md).
    "graphene": Preset(
        "graphene",
        "graphene",
        _ALL,
        "Graphene in full",
        {"eta_m": 1.0, "priority_from": "left", "deficit_unit": "time"},
    ),
    "carbyne": Preset("carbyne", "tetris", "carbyne", "Carbyne with Tetris inside the job"),
    "carbyne_graphene": Preset(
        "carbyne",
        "graphene",
        "carbyne",
        "Carbyne with Graphene inside",
        asker_options={"packer": "plan"},
    ),
    "cobra": Preset("fair", "bfs", "cobra", "COBRA's elastic allocation"),
    "srs": Preset("fair", "bfs", "static", "Spark's static allocation"),
    "drs": Preset("fair", "bfs", "dynamic", "Spark's dynamic allocation"),
    "default_container": Preset("fair", "bfs", "disposable", "one task a container, given back"),
}

# Those under which every job ends. As in a real YARN cluster, one that needs a whole node waits for
# ever under `yarn` where each node has a master of others that wait for the same.
PROMISING = tuple(name for name in PRESETS if name not in ("yarn", "yarn_fair"))


def preset(name: str) -> Preset:
    """Look a preset up; raises InputError naming the known ones."""
    if name not in PRESETS:
        like = get_close_matches(name, PRESETS, 1)
        hint = f" (did you mean {like[0]}?)" if like else ""
        known = ", ".join(PRESETS)
        raise InputError("scheduler", f"unknown scheduler {name!r}{hint}; known: {known}")
    return PRESETS[name]


def choose(
    name: str = "capacity", *, matcher: str = "", planner: str = "", asker: str = ""
) -> Preset:
    """Return a preset with some parts exchanged; an exchanged part forgets the preset's options."""
    chosen = preset(name)
    if matcher and matcher != chosen.matcher:
        chosen = replace(chosen, matcher=matcher, matcher_options={})
    if planner and planner != chosen.planner:
        chosen = replace(chosen, planner=planner, planner_options={})
    if asker and asker != chosen.asker:
        chosen = replace(chosen, asker=asker, asker_options={})
    return chosen


def label(chosen: Preset) -> str:
    """Return the preset that has these very parts and parameters, or else the parts by name."""
    for name, known in PRESETS.items():
        if replace(chosen, text="") == replace(known, text=""):
            return name
    for name, known in PRESETS.items():
        if all(getattr(chosen, part) == getattr(known, part) for part in PARTS):
            return name
    return "+".join(getattr(chosen, part) for part in PARTS)


def short_labels(labels: Iterable[str]) -> dict[str, str]:
    """Return a short form of each label, for where there is little room; others stay different.

    Of a policy of another package it is the class, and alone where that tells it from all others.
    """
    whole = set(labels)
    plain = {one: "+".join(part.rpartition(":")[2] for part in one.split("+")) for one in whole}
    own = {
        one: "+".join(part.rpartition(":")[2] for part in one.split("+") if ":" in part) or one
        for one in whole
    }
    for short in (own, plain):
        if len(set(short.values())) == len(whole):
            return short
    return {one: one for one in whole}


def with_options(chosen: Preset, settings: Options, parts: tuple[str, ...] = PARTS) -> Preset:
    """Add parameters named `<part>.<name>`; raises InputError for any but these `parts`."""
    options = {part: dict(getattr(chosen, f"{part}_options")) for part in PARTS}
    for key, value in settings.items():
        part, dot, name = key.partition(".")
        if not dot or part not in parts or not name:
            raise InputError(f"--set {key}", f"expected {', '.join(f'{p}.<name>' for p in parts)}")
        options[part][name] = value
    return replace(
        chosen,
        matcher_options=options["matcher"],
        planner_options=options["planner"],
        asker_options=options["asker"],
    )
