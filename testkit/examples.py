"""Worked examples: read by tests that must look at every key of them.

The examples are files of `tests/golden/data`, or of the folder that WEFT_GOLDEN names. One file
holds `family`, `input`, `expected`, `tolerance`, and in words `derivation` and `underdetermined`.
A reader that leaves a key out would pass whatever the key says, so `reading` fails on it.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.model.dag import Dag, Link, Machines, StageEdge
from weft.model.resources import Kind, ResourceType, ResourceTypes

FOLDER = Path(
    os.environ.get("WEFT_GOLDEN") or Path(__file__).resolve().parents[1] / "tests/golden/data"
)
FAMILIES = (
    "bounds",
    "carbyne",
    "cobra_af",
    "cobra_fig2",
    "cobra_pdelay",
    "deficit",
    "drf",
    "eta",
    "fig10",
    "fig18",
    "fig2",
    "fig3",
    "fig3_scored",
    "fig9",
    "jain",
    "lemma1",
    "match",
    "overbook",
    "priscore",
    "scores",
    "srpt",
    "subsets",
)
_WORDS = ("id", "family", "split", "source", "derivation", "underdetermined")
_PARTS = ("input", "expected", "tolerance")


class Table(dict[str, Any]):
    """A JSON object that remembers which of its keys were read."""

    def __init__(self, data: dict[str, Any]) -> None:
        # Tables inside are wrapped as well; `dict.items` does not count their keys as read.
        super().__init__({key: _wrapped(value) for key, value in dict.items(data)})
        self.unread = set(self)

    def __getitem__(self, key: str) -> Any:
        self.unread.discard(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or the default; either way the key counts as read."""
        self.unread.discard(key)
        return super().get(key, default)

    def items(self) -> Any:
        """Return all pairs; all keys count as read."""
        self.unread.clear()
        return super().items()

    def values(self) -> Any:
        """Return all values; all keys count as read."""
        self.unread.clear()
        return super().values()

    def prose(self, *keys: str) -> None:
        """Pass over keys that only explain; raises AssertionError where one is not a text."""
        for key in keys:
            if key in self:
                assert isinstance(self[key], str), f"{key} is more than words"


def _wrapped(value: Any) -> Any:
    if isinstance(value, dict):
        return Table(value)
    return [_wrapped(each) for each in value] if isinstance(value, list) else value


def unread(value: Any, place: str) -> list[str]:
    """Return every key below a value that nobody has read, with its place."""
    found: list[str] = []
    if isinstance(value, Table):
        for key, below in dict.items(value):
            if key in value.unread:
                found.append(f"{place}.{key}")
            else:
                found += unread(below, f"{place}.{key}")
    elif isinstance(value, list):
        for number, below in enumerate(value):
            found += unread(below, f"{place}[{number}]")
    return found


def load(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Return every example of a folder; a file holds one or a list of them."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text())
        found += data if isinstance(data, list) else [data]
    return found


def examples(*families: str) -> Any:
    """Mark a test to run once for each example of some families, as `case`."""
    assert set(families) <= set(FAMILIES), families
    chosen = [c for c in load() if c["family"] in families]
    assert chosen, f"no worked examples of {families} in {FOLDER}"
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case["id"])


@contextmanager
def reading(case: dict[str, Any]) -> Iterator[tuple[Table, Table, Table]]:
    """Hand out input, expected values and tolerance; fail where a key was not looked at."""
    assert set(case) <= {*_WORDS, *_PARTS}, f"unknown parts: {set(case) - {*_WORDS, *_PARTS}}"
    parts = tuple(Table(case[name]) for name in _PARTS)
    yield parts  # type: ignore[misc]
    left = [at for part, name in zip(parts, _PARTS, strict=True) for at in unread(part, name)]
    assert not left, f"{case['id']}: keys that no test has read: {', '.join(left)}"


def read_types(names: Sequence[str]) -> ResourceTypes:
    """Return resource types by name, all divisible."""
    return ResourceTypes(tuple(ResourceType(name, Kind.DIVISIBLE) for name in names))


def read_dag(table: Table) -> tuple[Dag, list[str]]:
    """Return the DAG of an example, and the names of its tasks or stages in the DAG's order.

    An example lists stages (`num_tasks`, edges `all` or `one`) or tasks with every edge.
    """
    table.prose("name")
    names = table["resources"]
    by_stage = "stages" in table
    rows = table["stages"] if by_stage else table["tasks"]
    if not by_stage:
        # The tasks of a stage stand together in a DAG.
        kin = list(dict.fromkeys(row.get("stage", row["id"]) for row in rows))
        rows = sorted(rows, key=lambda row: kin.index(row.get("stage", row["id"])))
    ids = [row["name"] if by_stage else row["id"] for row in rows]
    stage_of = [row.get("stage", name) for row, name in zip(rows, ids, strict=True)]
    stages = list(dict.fromkeys(stage_of))
    sizes = [row.get("num_tasks", 1) for row in rows]
    every = [row for row, size in zip(rows, sizes, strict=True) for _ in range(size)]
    count = [sum(n for n, s in zip(sizes, stage_of, strict=True) if s == x) for x in stages]
    edges: dict[tuple[int, int], list[tuple[int, int]]] = {}
    kinds: dict[tuple[int, int], Link] = {}
    for child, row in enumerate(rows):
        for parent in row.get("parents", []):
            name = parent["stage"] if isinstance(parent, Table) else parent
            kind = parent.get("type", "all") if isinstance(parent, Table) else "all"
            at = (stages.index(stage_of[ids.index(name)]), stages.index(stage_of[child]))
            link = Link.ONE if kind.startswith("one") else Link.ALL
            kinds[at] = link if by_stage else Link.SOME
            edges.setdefault(at, []).append((ids.index(name), child))
    dag = Dag(
        resources=tuple(names),
        stage_names=tuple(stages),
        first=np.cumsum([0, *count]).astype(np.int64),
        duration_s=np.array([float(row["duration"]) for row in every]),
        demand=np.array([[float(row["demand"].get(name, 0)) for name in names] for row in every]),
        edges=tuple(
            StageEdge(*at, kinds[at], np.array(pairs) if kinds[at] is Link.SOME else None)
            for at, pairs in edges.items()
        ),
    )
    return dag, ids


def read_machines(table: Table, names: Sequence[str]) -> Machines:
    """Return the identical machines of an example."""
    return Machines.alike(table["num_machines"], [table["capacity"][name] for name in names])
