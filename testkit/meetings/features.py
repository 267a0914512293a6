"""The features that meet: each dimension has a few values, the first of which is the plain one."""

from collections.abc import Mapping, Sequence

from testkit.meetings.covering import covering

Row = Mapping[str, str]

DIMENSIONS: dict[str, tuple[str, ...]] = {
    "matcher": ("capacity", "fifo", "fair", "drf", "sjf", "tetris", "carbyne", "graphene"),
    "asker": ("all_ready", "carbyne", "cobra", "static", "dynamic", "disposable", "reuse"),
    "planner": ("bfs", "critical_path", "graphene", "heft", "optimal"),
    "pace": ("yarn", "prompt"),
    "line": ("short", "stream", "backlog", "crowd"),
    "sizes": ("small", "large", "mixed", "unlike"),
    "nodes": ("alike", "unlike"),
    "masters": ("few", "many", "foreign"),
    "gang": ("none", "one", "few", "wide"),
    "label": ("none", "one", "half"),
    "place": ("none", "prefer", "node", "rack"),
    "black": ("none", "failing"),
    "tree": ("one", "two", "deep"),
    "weights": ("even", "skewed", "zero"),
    "users": ("one", "shared", "factor"),
    "maximum": ("none", "queue", "masters"),
    "priority": ("none", "mixed"),
    "preemption": ("off", "queues", "users"),
    "lifetime": ("none", "far", "near"),
    "speed": ("same", "mixed"),
    "overbook": ("none", "network"),
    "estimates": ("true", "wrong"),
}
FAULTS = ("crash", "restart", "pause", "decommission", "loss", "gone")
PLAIN: Row = {name: values[0] for name, values in DIMENSIONS.items()} | {"faults": "none"}


def rows(strength: int, *, faults: bool = False) -> list[Row]:
    """Return rows in which every `strength` features meet; with faults these are one of them.

    A fault hides what else goes wrong, as hardly a promise about time holds then. So rows with
    faults are beside those without, and none of these covers for one of those.
    """
    known = {**DIMENSIONS, "faults": FAULTS if faults else ("none",)}
    names, values = list(known), list(known.values())
    found = covering([len(each) for each in values], strength)
    return [
        {name: each[at] for name, each, at in zip(names, values, row, strict=True)} for row in found
    ]


def text_of(row: Row) -> str:
    """Return a row in short: what is not plain."""
    return " ".join(f"{name}={value}" for name, value in row.items() if value != PLAIN[name])


def row_of(words: Sequence[str]) -> Row:
    """Return the row that such words say; raises ValueError for what there is not."""
    row = dict(PLAIN)
    for word in words:
        name, _, value = word.partition("=")
        if value not in (
            *DIMENSIONS.get(name, FAULTS if name == "faults" else ()),
            PLAIN.get(name),
        ):
            raise ValueError(f"there is no {word}")
        row[name] = value
    return row
