"""Messages as a hostile peer sends them: whole by the table of rules, then a field or two wrong.

The same table that the gate checks by (`weft.wire.rules`) says how to make a field and how to break
it, so a rule that is added there is attacked as well. Chance is an argument.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from weft.model.ids import attempt_id, container_id
from weft.model.job import Job, Stage
from weft.model.queues import QueueSpec
from weft.model.resources import DEFAULT_RESOURCE_TYPES, ResourceTypes
from weft.protocol.messages import AskType, Outcome
from weft.wire import rules

_STRANGE = (
    0,
    -1,
    1,
    2**31,
    2**53,
    2**53 + 2,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
    0.5,
    -0.0,
    1e-320,
    1e308,
    -1e308,
    math.nan,
    math.inf,
    -math.inf,
)
_TEXTS = ("", "\0", "\x1b[2J", "a\nb", "x" * 5_000, "\u202e", "\u00e9" * 600, "../..", "*")


@dataclass
class Pool:
    """What a peer may know of the cluster, so that some of what it says hits something.

    `batches` are numbers of messages that were seen.
    """

    types: ResourceTypes = DEFAULT_RESOURCE_TYPES
    nodes: list[str] = field(default_factory=lambda: ["n1", "n2", "n3", "x1", "x2"])
    apps: list[int] = field(default_factory=lambda: [1, 2, 3])
    containers: list[int] = field(default_factory=list)
    batches: list[int] = field(default_factory=lambda: [1, 2, 3])
    epochs: list[int] = field(default_factory=lambda: [0])
    queues: list[str] = field(default_factory=lambda: ["default", "root.default"])

    def attempt(self, rng: random.Random) -> int:
        """Return an attempt that may well exist."""
        return attempt_id(rng.choice(self.apps), rng.choice((1, 1, 1, 2)))

    def container(self, rng: random.Random) -> int:
        """Return a container that may well exist."""
        if self.containers and rng.random() < 0.6:
            return rng.choice(self.containers)
        return container_id(self.attempt(rng), rng.randrange(1, 12))


Maker = Callable[[random.Random, Pool], Any]


def _vector(rng: random.Random, pool: Pool) -> tuple[float, ...]:
    high = rng.choice((0.0, 1.0, 4.0, 1000.0))
    return tuple(round(rng.uniform(0, high), 3) for _ in pool.types)


def _job(rng: random.Random, pool: Pool) -> Job:
    demand = {"vcores": rng.choice((0.0, 0.5, 2.0)), "memory_mb": rng.choice((0.0, 64.0, 900.0))}
    known = {name: amount for name, amount in demand.items() if name in pool.types.names}
    stages = [
        Stage(
            f"s{n}",
            rng.choice((1, 3, 40)),
            rng.choice((0.0, 0.01, 5.0)),
            known,
            gang=rng.random() < 0.1,
        )
        for n in range(rng.randrange(1, 4))
    ]
    return Job(f"job-{rng.randrange(1000)}", tuple(stages), rng.choice(pool.queues))


def _queues(rng: random.Random, _: Pool) -> QueueSpec:
    """Return a tree with the queue that jobs go to, alone or beside another, or without it."""
    names = rng.choice((("default",), ("default", "other"), ("default", "other"), ("other",)))
    part = 1 / len(names)
    most = rng.choice((part, 1.0))
    children = tuple(QueueSpec(name, part, most) for name in names)
    return QueueSpec("root", 1.0, 1.0, children=children)


_MAKERS: Mapping[str, Maker] = {
    "name": lambda rng, pool: rng.choice(("", "a", "r1", *pool.nodes)),
    "named": lambda rng, pool: rng.choice(pool.nodes),
    "status": lambda rng, pool: rng.choice(rules.FINAL_STATUSES),
    "text": lambda rng, pool: rng.choice(("", "why not", "two\nlines")),
    "id": lambda rng, pool: rng.choice((0, 1, *pool.batches, rng.randrange(2**40))),
    "container": lambda rng, pool: pool.container(rng),
    "attempt": lambda rng, pool: pool.attempt(rng),
    "app": lambda rng, pool: rng.choice(pool.apps),
    "count": lambda rng, pool: rng.choice((0, 1, 2, 7, *pool.epochs)),
    "stage": lambda rng, pool: rng.choice((-1, 0, 0, 0, 1, 2, 9)),
    "many": lambda rng, pool: rng.choice((1, 1, 2, 5)),
    "position": lambda rng, pool: rng.choice((0, 1, 2, 9)),
    "exit": lambda rng, pool: rng.choice((0, 1, -9, 137)),
    "duration": lambda rng, pool: rng.choice((0.0, 0.01, 1.0, 1e6, 2.0**53)),
    "pace": lambda rng, pool: rng.choice((0.5, 1.0, 60.0)),
    "speed": lambda rng, pool: rng.choice((1.0, 0.25, 3.0)),
    "moment": lambda rng, pool: rng.choice((0.0, 12.5, -3.0, 1e9)),
    "number": lambda rng, pool: rng.choice((0.0, 0.5, 1.0, -4.0)),
    "part": lambda rng, pool: rng.random(),
    "work": lambda rng, pool: rng.choice((0.0, 1.5, 1e12)),
    "demand": _vector,
    "share": lambda rng, pool: rng.choice(((), _vector(rng, pool))),
    "granted": lambda rng, pool: rng.choice(((), _vector(rng, pool))),
    "use": lambda rng, pool: rng.choice(((), _vector(rng, pool), (-1.0,) * len(pool.types))),
    "capacity": lambda rng, pool: {n: rng.choice((1.0, 8.0, 4096.0)) for n in pool.types.names},
    "amounts": lambda rng, pool: rng.choice(({}, {"vcores": 1.0}, {"memory_mb": 1024.0})),
    "blacklist": lambda rng, pool: rng.choice((None, (), (rng.choice(pool.nodes),))),
    "words": lambda rng, pool: (),
    "types": lambda rng, pool: pool.types,
}
_GIVEN: Mapping[str, Maker] = {
    "kind": lambda rng, pool: rng.choice(list(AskType)),
    "outcome": lambda rng, pool: rng.choice(list(Outcome)),
    "job": _job,
    "queues": _queues,
    "boot": lambda rng, pool: rng.randrange(2**64),
    "finished": lambda rng, pool: (),
}


def make(kind: type, rng: random.Random, pool: Pool) -> Any:
    """Return a message that keeps every rule, of one of the types in the table."""
    values = {name: _value(name, rule, rng, pool) for name, rule in rules.RULES[kind].items()}
    return kind(**values)


def _value(name: str, rule: rules.Rule, rng: random.Random, pool: Pool) -> Any:
    if rule.name == "given":
        maker = _GIVEN.get(name)
        return rng.random() < 0.3 if maker is None else maker(rng, pool)
    if rule.name == "list":
        count = rng.choice((0, 0, 1, 1, 2, 5))
        return tuple(_item(rule, rng, pool) for _ in range(count))
    if rule.name == "rows":
        count = rng.choice((0, 0, 1, 2))
        return tuple(tuple(_value("", one, rng, pool) for one in rule.row) for _ in range(count))
    return _MAKERS[rule.name](rng, pool)


def _item(rule: rules.Rule, rng: random.Random, pool: Pool) -> Any:
    if isinstance(rule.item, type):
        return make(rule.item, rng, pool)
    assert rule.item is not None
    return _value("", rule.item, rng, pool)


def broken(message: Any, rng: random.Random, pool: Pool) -> Any:
    """Return the message with one or two fields wrong, or at least strange."""
    for _ in range(rng.choice((1, 1, 2))):
        message = _break(message, rng, pool)
    return message


def _break(message: Any, rng: random.Random, pool: Pool) -> Any:
    names = [n for n, rule in rules.RULES[type(message)].items() if rule.name != "given"]
    if not names:
        return message
    name = rng.choice(names)
    rule, value = rules.RULES[type(message)][name], getattr(message, name)
    if rule.name == "list" and isinstance(rule.item, type):
        items: Sequence[Any] = value or (make(rule.item, rng, pool),)
        at = rng.randrange(len(items))
        fresh: Any = (*items[:at], _break(items[at], rng, pool), *items[at + 1 :])
        if rng.random() < 0.1:
            fresh = fresh * 50
    elif isinstance(value, str):
        fresh = rng.choice(_TEXTS)
    elif isinstance(value, Mapping):
        fresh = rng.choice(
            ({}, {"vcores": rng.choice(_STRANGE)}, {"\0": 1.0}, dict.fromkeys(value, -1.0))
        )
    elif isinstance(value, tuple) and rule.name != "rows":
        fresh = _broken_tuple(value, rng)
    elif isinstance(value, int | float):
        fresh = _like(value, rng.choice(_STRANGE))
    else:
        fresh = value
    if hasattr(message, "_replace"):
        return message._replace(**{name: fresh})
    return replace(message, **{name: fresh})


def _broken_tuple(value: tuple[Any, ...], rng: random.Random) -> tuple[Any, ...]:
    """Return another length, or one strange item."""
    if value and rng.random() < 0.5:
        at = rng.randrange(len(value))
        if isinstance(value[at], tuple):
            return (*value[:at], _broken_tuple(value[at], rng), *value[at + 1 :])
        strange = rng.choice(_TEXTS) if isinstance(value[at], str) else rng.choice(_STRANGE)
        return (*value[:at], _like(value[at], strange), *value[at + 1 :])
    return rng.choice(((), value[:-1], value * 2, value * 300))


def _like(old: Any, strange: Any) -> Any:
    """Return a strange value of the type that the wire has for it."""
    if isinstance(old, float):
        return float(strange)
    if isinstance(old, int) and isinstance(strange, float):
        return 0 if not math.isfinite(strange) or abs(strange) > 2**63 else int(strange)
    return strange
