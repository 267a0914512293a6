"""Facts of the manager as rows of a page: when, what, about whom, and the rest in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from weft.client.facts import app_of, is_told
from weft.client.text import number
from weft.model.ids import format_app, format_container

_ABOUT = {"fact", "now_s", "app", "attempt", "container", "node", "queue"}
_OF_TASK = {"stage", "task"}


def told(
    fact: Mapping[str, Any],
    cluster_ts: int,
    types: Sequence[str],
    names: Mapping[int, str],
    stages: Mapping[int, Sequence[str]],
) -> list[Any]:
    """Return (time, kind, application's id, its name, node, the rest in words).

    `names` are those of applications, `stages` the names of their stages, by the same numbers.
    """
    app = app_of(fact)
    words = []
    if "container" in fact:
        words.append(format_container(cluster_ts, int(fact["container"])))
    if fact.get("queue"):
        words.append(str(fact["queue"]))
    known, stage = stages.get(app, ()), fact.get("stage", -1)
    named = isinstance(stage, int) and 0 <= stage < len(known)
    if named:
        task = int(fact.get("task", -1))
        words.append(known[stage] + (f"[{task}]" if task >= 0 else ""))
        if task >= 0 and "attempt" in fact:
            words.append(f"attempt {fact['attempt']}")
    words += [
        f"{key.replace('_', ' ')} {_value(key, value, types)}"
        for key, value in fact.items()
        if key not in _ABOUT
        and not (named and key in _OF_TASK)
        and value != -1
        and is_told(key, value)
    ]
    where = str(fact.get("node") or fact.get("node_id") or "")
    return [
        round(float(fact["now_s"]), 3),
        str(fact["fact"]),
        format_app(cluster_ts, app) if app else "",
        names.get(app, ""),
        where,
        ", ".join(words),
    ]


def _value(key: str, value: Any, types: Sequence[str]) -> str:
    if key in ("demand", "capacity") and isinstance(value, list):
        pairs = zip(types, value, strict=False)
        return " ".join(f"{name} {number(amount)}" for name, amount in pairs if amount)
    if isinstance(value, list):
        return " ".join(_value("", item, types) for item in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
