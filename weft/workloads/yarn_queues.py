"""The queue trees of capacity-scheduler.xml and fair-scheduler.xml, as a cluster file has them."""

import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from weft.model.errors import InputError

CAPACITY = "yarn.scheduler.capacity."
QUEUE_KEYS = {
    "queues",
    "capacity",
    "maximum-capacity",
    "minimum-user-limit-percent",
    "user-limit-factor",
    "state",
    "maximum-applications",
    "maximum-am-resource-percent",
}
DEPTH_MAX = 50  # queues below each other
_ORDERS = {
    "fifo": "",
    "utilization": "",
    "fair": "applications of a queue are served by priority, then in the order of submission",
    "priority-utilization": "queues have no priorities: who uses least of its guarantee goes first",
}
_WEIGHT = re.compile(r"(\d+(?:\.\d+)?)\s*w")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%?")
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z][\w.-]*)|([A-Za-z][\w.-]*)\s*=\s*(\d+)")
_NAMES = {
    "memory": "memory_mb",
    "memory-mb": "memory_mb",
    "mb": "memory_mb",
    "vcores": "vcores",
    "vcore": "vcores",
}


def capacity_queues(
    given: Mapping[str, str], left_out: dict[str, str], total: Mapping[str, float]
) -> dict[str, Any]:
    """Return capacity-scheduler.xml's queue tree, below root, as a cluster file has it."""

    def below(path: str, amounts: Mapping[str, float]) -> dict[str, Any]:
        _check_depth(path)
        order = given.get(f"{CAPACITY}{path}.ordering-policy", "fifo")
        if why := _ORDERS.get(order.lower(), f"the order {order} is not known"):
            left_out[f"{CAPACITY}{path}.ordering-policy"] = why
        names = [n.strip() for n in given.get(f"{CAPACITY}{path}.queues", "").split(",")]
        names = [name for name in names if name]
        if len(set(names)) != len(names):
            raise InputError(f"{CAPACITY}{path}.queues", "a queue occurs twice")
        parts = {name: _part(given, f"{path}.{name}", amounts) for name in names}
        weights = sum(amount for kind, amount in parts.values() if kind == "w")
        left = max(0.0, 1.0 - sum(amount for kind, amount in parts.values() if kind == "%"))
        weights = weights or 1.0  # each is 0 then, and so is its part
        return {
            name: queue(
                f"{path}.{name}", left * amount / weights if kind == "w" else amount, amounts
            )
            for name, (kind, amount) in parts.items()
        }

    def queue(path: str, capacity: float, amounts: Mapping[str, float]) -> dict[str, Any]:
        prefix = f"{CAPACITY}{path}."
        made: dict[str, Any] = {"capacity": round(capacity, 9)}
        most = given.get(f"{prefix}maximum-capacity", "100")
        made["max_capacity"] = round(
            max(_share(most, f"{prefix}maximum-capacity", amounts), capacity), 9
        )
        children = below(path, {name: each * capacity for name, each in amounts.items()})
        if children:
            return made | children
        user = read_number(
            given.get(f"{prefix}minimum-user-limit-percent", 100),
            prefix + "minimum-user-limit-percent",
        )
        made["user_limit"] = min(user, 100.0) / 100
        factor = read_number(
            given.get(f"{prefix}user-limit-factor", 1), f"{prefix}user-limit-factor"
        )
        if factor > 0:  # -1: none
            made["user_limit_factor"] = factor
        if f"{prefix}maximum-applications" in given:
            place = f"{prefix}maximum-applications"
            made["max_applications"] = int(read_number(given[place], place))
        if f"{prefix}maximum-am-resource-percent" in given:
            place = f"{prefix}maximum-am-resource-percent"
            made["max_am_share"] = min(read_number(given[place], place), 1.0)
        if given.get(f"{prefix}state", "RUNNING").upper() != "RUNNING":
            left_out[f"{prefix}state"] = "queues cannot be stopped"
        return made

    return below("root", total)


def _check_depth(path: str) -> None:
    """Raise InputError for a queue that lies deeper than anybody's."""
    if path.count(".") > DEPTH_MAX:
        place = f"queue {path[:60]}..."
        raise InputError(place, f"lies more than {DEPTH_MAX} queues below root")


def _part(given: Mapping[str, str], path: str, amounts: Mapping[str, float]) -> tuple[str, float]:
    """Return a queue's capacity: ("w", weight) or ("%", fraction of its parent)."""
    place = f"{CAPACITY}{path}.capacity"
    text = given.get(place, "")
    if not text:
        raise InputError(place, "is missing")
    weight = _WEIGHT.fullmatch(text)
    if text.strip().startswith("-"):
        raise InputError(place, f"expected a percentage, a weight or amounts, got {text!r}")
    return ("w", read_number(weight[1], place)) if weight else ("%", _share(text, place, amounts))


def _share(text: str, place: str, amounts: Mapping[str, float]) -> float:
    """Return a fraction of the parent: a percentage, or amounts as `[memory=1024,vcores=2]`."""
    if text.strip().startswith("-"):
        return 1.0
    percent = _PERCENT.fullmatch(text.strip())
    if percent:
        return min(float(percent[1]) / 100, 1.0)
    shares = []
    for found in _AMOUNT.finditer(text):
        name = _NAMES.get((found[2] or found[3]).lower(), found[2] or found[3])
        if not amounts.get(name):
            raise InputError(place, f"{text!r} is an amount of {name}, and no node offers any")
        shares.append(float(found[1] or found[4]) / amounts[name])
    if not shares:
        raise InputError(place, f"expected a percentage, a weight or amounts, got {text!r}")
    return min(max(shares), 1.0)


def fair_queues(
    root: ElementTree.Element, left_out: dict[str, str], total: Mapping[str, float], path: str
) -> dict[str, Any]:
    """Return fair-scheduler.xml's queue tree: weights over those of their siblings."""
    _check_depth(path)
    rows = [item for item in root if item.tag in ("queue", "pool")]
    if path == "root" and len(rows) == 1 and rows[0].get("name") == "root":
        return fair_queues(rows[0], left_out, total, path)
    names = [item.get("name", "") for item in rows]
    if not all(names) or len(set(names)) != len(names):
        raise InputError(f"queues of {path}", f"each needs a name of its own, got {names}")
    weights = [
        read_number(item.findtext("weight", "1"), f"{path}.{name}.weight")
        for name, item in zip(names, rows, strict=True)
    ]
    if min(weights, default=0.0) < 0:
        raise InputError(f"queues of {path}", f"weights are not negative, got {min(weights):g}")
    made: dict[str, Any] = {}
    for name, item, weight in zip(names, rows, weights, strict=True):
        where = f"{path}.{name}"
        entry: dict[str, Any] = {
            "capacity": round(weight / sum(weights), 9) if any(weights) else 0.0
        }
        most = item.findtext("maxResources")
        if most is not None:
            entry["max_capacity"] = round(
                max(_share(most, f"{where}.maxResources", total), entry["capacity"]), 9
            )
        for child in item:
            if child.tag not in ("queue", "pool", "weight", "maxResources", "schedulingMode"):
                left_out[f"{where}.{child.tag}"] = _fair_why(child.tag)
        amounts = {resource: each * entry["capacity"] for resource, each in total.items()}
        made[name] = entry | fair_queues(item, left_out, amounts, where)
    for item in root:
        if path == "root" and item.tag not in ("queue", "pool"):
            left_out[item.tag] = _fair_why(item.tag)
    return made


def _fair_why(tag: str) -> str:
    if tag == "minResources":
        return "a queue's guarantee is its weight's share"
    if "Preemption" in tag:
        return "one grace period for all queues (manager.preemption_grace_s)"
    if "max" in tag.lower():
        return "limits of applications are of all queues alike"
    return "no counterpart"


def read_number(value: Any, place: str) -> float:
    """Read a finite number; raises InputError."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(place, f"expected a number, got {value!r}") from None
    if not abs(number) < 2**53:
        raise InputError(place, f"expected a number, got {value!r}")
    return number
