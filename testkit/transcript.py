"""Conversations with a core as text that a person reads: events in, effects out.

A transcript begins with a sentence on what it shows, then `core:` with how the core is made and
lines `name = value` for what is used more than once. Then each line that begins with a time, s, is
an event, written as Python would make it; the indented lines below it are the effects, in order. A
line that begins with `#` is for the reader.

    0.0 TimerFired("liveness")
        SetTimer(0.5, "liveness")

`replay` runs the events through the core, which is checked after each, and returns the text with
the effects as they are now: a test compares it with the file, or writes the file anew.
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from am.ask.registry import asker
from am.core import ApplicationMaster
from am.settings import MasterSettings
from nm.core import NodeManager
from nm.settings import Mode, NodeSettings
from rm.core import ResourceManager
from rm.match.registry import make_matcher
from rm.settings import ManagerSettings
from weft.model import job
from weft.model.ids import (
    app_of_attempt,
    app_of_container,
    attempt_id,
    attempt_of_container,
    container_id,
    number_of_attempt,
    number_of_container,
)
from weft.model.job import Job
from weft.model.plan import Plan
from weft.model.queues import DEFAULT_QUEUES
from weft.model.resources import DEFAULT_RESOURCE_TYPES, ResourceTypes
from weft.protocol import effects, facts, messages, requests

NODE_CAPACITY = {"vcores": 4.0, "memory_mb": 8192.0, "disk_mbps": 100.0, "network_mbps": 100.0}


def _attempt(app: int, number: int = 1) -> int:
    return attempt_id(app, number)


def _container(app: int, attempt: int, number: int) -> int:
    return container_id(attempt_id(app, attempt), number)


def _manager(matcher: str = "fifo", **settings: Any) -> ResourceManager:
    return ResourceManager(
        7,
        DEFAULT_RESOURCE_TYPES,
        DEFAULT_QUEUES,
        make_matcher(matcher),
        ManagerSettings(**settings),
        np.random.default_rng(1),
    )


def _node(name: str = "n1", **settings: Any) -> NodeManager:
    return NodeManager(
        name,
        f"{name}:1",
        NODE_CAPACITY,
        "r1",
        (),
        NodeSettings(**settings),
        np.random.default_rng(1),
        boot=5,
    )


def _master(policy: str = "all_ready", **settings: Any) -> ApplicationMaster:
    return ApplicationMaster(
        attempt_id(1, 1), MasterSettings(**settings), asker(policy), np.random.default_rng(1)
    )


CORES: Mapping[str, Callable[..., Any]] = {"manager": _manager, "node": _node, "master": _master}
WORDS: Mapping[str, Any] = {
    **{
        name: value
        for module in (facts, requests, job, messages, effects)
        for name, value in vars(module).items()
        if isinstance(value, type)
    },
    "Mode": Mode,
    "attempt": _attempt,
    "capacity": NODE_CAPACITY,
    "container": _container,
    "types": DEFAULT_RESOURCE_TYPES,
}


def replay(text: str) -> str:
    """Return a transcript with the effects as they are now; raises where a line makes no sense."""
    words, core = dict(WORDS), None
    out: list[str] = []
    for line in text.splitlines():
        head, _, rest = line.partition(" ")
        if line[:1].isspace():
            # This effect came before.
            continue
        out.append(line)
        if line.startswith("core: "):
            call = ast.parse(rest, mode="eval").body
            core = eval(compile(ast.Expression(call), "core", "eval"), {**WORDS, **CORES})
        elif core is not None and _is_time(head):
            for effect in core.handle(eval(rest, words), float(head)):
                out.append(f"    {say(effect)}")
            core.check()
        elif core is not None and rest.startswith("= "):
            words[head] = eval(rest[2:], words)
    return "\n".join(out) + "\n"


def _is_time(word: str) -> bool:
    return word.replace(".", "", 1).isdigit()


def say(value: Any, name: str = "") -> str:
    """Return a value as a line: records by the fields that are not as usual, ids taken apart."""
    if isinstance(value, Job):
        return f"<job {value.name}>"
    if isinstance(value, ResourceTypes | Plan):
        return f"<{type(value).__name__}>"
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, int) and name in ("container_id", "container"):
        attempt = attempt_of_container(value)
        parts = app_of_container(value), number_of_attempt(attempt), number_of_container(value)
        return f"container{parts}"
    if isinstance(value, int) and name in ("attempt_id", "attempt") and app_of_attempt(value):
        return f"attempt({app_of_attempt(value)}, {number_of_attempt(value)})"
    if is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}({', '.join(_fields(value))})"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        said = (f"{key}={say(item, key)}" for key, item in zip(value._fields, value, strict=True))
        return f"{type(value).__name__}({', '.join(said)})"
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(f"{key!r}: {say(item, str(key))}" for key, item in value.items()) + "}"
        )
    if isinstance(value, tuple | list):
        comma = "," if isinstance(value, tuple) and len(value) == 1 else ""
        open_, close = "()" if isinstance(value, tuple) else "[]"
        inside = ", ".join(say(item, name.removesuffix("s")) for item in value)
        return f"{open_}{inside}{comma}{close}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return repr(value)


def _fields(value: Any) -> list[str]:
    """Return the fields that are not at their default; the first two without their names."""
    said: list[str] = []
    for place, field in enumerate(fields(value)):
        item = getattr(value, field.name)
        usual = field.default_factory() if field.default_factory is not MISSING else field.default
        if usual is MISSING or type(item) is not type(usual) or item != usual:
            text = say(item, field.name)
            said.append(text if place == len(said) and place < 2 else f"{field.name}={text}")
    return said
