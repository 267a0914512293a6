"""The queue tree of capacity-scheduler.xml, as a cluster file has them."""

import re
from collections.abc import Mapping
from typing import Any

from weft.model.errors import InputError
from weft.model.queues import RUNNING, STOPPED
from weft.workloads.yarn_properties import CAPACITY, Noted, why_left_out

# Queues may lie so deep below each other.
DEPTH_MAX = 50
# YARN's default for the whole cluster.
CLUSTER_APPLICATIONS_MAX = 10_000.0
_ORDERS = {
    "fifo": "",
    "utilization": "utilization",
    "priority-utilization": "priority",
    "fair": "fair",
}
# What is said of queues that are made at submissions.
_MADE = "auto-queue-creation-v2."
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
    """Return capacity-scheduler.xml's queue tree, root's own settings and what lies below."""
    return _Capacity(given, left_out).queue("root", 1.0, {"": 1.0}, total, ((), ()))


# Who may submit and who may administer, as the queues above have it.
Lists = tuple[tuple[str, ...], tuple[str, ...]]


class _Capacity:
    """Reads queues one by one; each property that it asks for is taken."""

    def __init__(self, given: Mapping[str, str], left_out: dict[str, str]) -> None:
        self.given = given
        self.left_out = left_out

    def queue(
        self,
        path: str,
        capacity: float,
        absolute: Mapping[str, float],
        amounts: Mapping[str, float],
        above: Lists,
    ) -> dict[str, Any]:
        """Return a queue and all below it; `absolute` its part of the cluster by label."""
        check_depth(path)
        prefix = f"{CAPACITY}{path}."
        made: dict[str, Any] = {}
        if path != "root":
            made["capacity"] = round(capacity, 9)
            most = self.given.get(f"{prefix}maximum-capacity", "100")
            most_part = max(_share(most, f"{prefix}maximum-capacity", amounts), capacity)
            made["max_capacity"] = round(most_part, 9)
            made |= self._labels(prefix)
        if largest := self._most(prefix):
            made["max_allocation"] = largest
        if self._makes(path):
            made["creates"] = self._creates(path)
        lists = self._lists(prefix, made, above)
        made |= self._lifetimes(prefix)
        every = self.given.get(CAPACITY + "max-parallel-apps", "-1")
        parallel = self.given.get(f"{prefix}max-parallel-apps", every)
        if (at_once := int(read_number(parallel, f"{prefix}max-parallel-apps"))) >= 0:
            made["max_parallel_apps"] = at_once
        for key in ("disable_preemption", "intra-queue-preemption.disable_preemption"):
            if said := self.given.get(prefix + key, ""):
                to = "disable_intra_queue_preemption" if "." in key else key
                made[to] = said.lower() == "true"
        if self.given.get(f"{prefix}state", RUNNING).upper() != RUNNING:
            made["state"] = STOPPED
        if priority := int(
            read_number(self.given.get(f"{prefix}priority", 0), f"{prefix}priority")
        ):
            made["priority"] = priority
        if order := self._order(prefix):
            made["order"] = order
        within = {name: each * capacity for name, each in amounts.items()}
        children = self._below(path, absolute, within, lists)
        if children or path == "root" or "creates" in made:
            return made | children
        return made | self._leaf(prefix, absolute)

    def _below(
        self, path: str, absolute: Mapping[str, float], amounts: Mapping[str, float], above: Lists
    ) -> dict[str, Any]:
        names = [n.strip() for n in self.given.get(f"{CAPACITY}{path}.queues", "").split(",")]
        names = [name for name in names if name]
        if len(set(names)) != len(names):
            raise InputError(f"{CAPACITY}{path}.queues", "a queue occurs twice")
        parts = {name: _part(self.given, f"{path}.{name}", amounts) for name in names}
        weights = sum(amount for kind, amount in parts.values() if kind == "w")
        left = max(0.0, 1.0 - sum(amount for kind, amount in parts.values() if kind == "%"))
        # Where all weights are 0, each queue's part is, too.
        weights = weights or 1.0
        found: dict[str, Any] = {}
        for name, (kind, amount) in parts.items():
            part = left * amount / weights if kind == "w" else amount
            own = {"": absolute[""] * part}
            labels = self._labels(f"{CAPACITY}{path}.{name}.").get("labels", {})
            for label, entry in labels.items():
                own[label] = absolute.get(label, float(path == "root")) * entry["capacity"]
            found[name] = self.queue(f"{path}.{name}", part, own, amounts, above)
            if kind == "w" and self._makes(path):
                found[name]["weight"] = amount
        return found

    def _most(self, prefix: str) -> dict[str, float]:
        """Return the most that a container may have (QueueAllocationSettings)."""
        text = self.given.get(f"{prefix}maximum-allocation", "")
        rows = {
            name.strip(): amount
            for name, _, amount in (r.partition("=") for r in text.split(",") if r)
        }
        if not rows:
            keys = {"memory-mb": "mb", "vcores": "vcores"}
            places = {name: f"{prefix}maximum-allocation-{key}" for name, key in keys.items()}
            rows = {name: self.given[at] for name, at in places.items() if at in self.given}
        place = f"{prefix}maximum-allocation"
        return {_NAMES.get(name, name): read_number(one, place) for name, one in rows.items()}

    def _makes(self, path: str) -> bool:
        return self.given.get(f"{CAPACITY}{path}.{_MADE}enabled", "false").lower() == "true"

    def _creates(self, path: str) -> dict[str, Any]:
        """Return how queues are made below one at submissions."""
        prefix = f"{CAPACITY}{path}.{_MADE}"
        whole = f"{CAPACITY}{_MADE}maximum-queue-depth"
        depth = int(read_number(self.given.get(whole, 2), whole))
        depth = int(read_number(self.given.get(f"{prefix}maximum-queue-depth", depth), prefix))
        most = f"{prefix}max-queues"
        expires = f"{CAPACITY}{_MADE}queue-expiration-time"
        expires_s = read_number(self.given.get(expires, 300), expires)
        policies = self.given.get("yarn.resourcemanager.scheduler.monitor.policies", "")
        removes = "AutoCreatedQueueDeletionPolicy" in policies
        made: dict[str, Any] = {
            "depth": depth,
            "most": int(read_number(self.given.get(most, 1000), most)),
            "expires_s": expires_s if removes else 0.0,
            "leaf": self._template(path, depth, "leaf-template."),
        }
        if depth > 1:
            made["parent"] = self._template(path, depth, "parent-template.")
            made["parent"]["creates"] = {
                **{key: made[key] for key in ("depth", "most", "expires_s")},
                "leaf": self._template(f"{path}.*", depth, "leaf-template."),
            }
        return made

    def _template(self, path: str, depth: int, kind: str) -> dict[str, Any]:
        """Return what a queue is like that is made below one (AutoCreatedQueueTemplate)."""
        own: dict[str, str] = {}
        parts = path.split(".")
        for stars in range(min(depth, len(parts) - 1) + 1):
            above = ".".join(parts[: len(parts) - stars] + ["*"] * stars)
            for which in (kind, "template."):
                start = f"{CAPACITY}{above}.{_MADE}{which}"
                for name in [name for name in self.given if name.startswith(start)]:
                    own.setdefault(name.removeprefix(start), self.given[name])
        prefix = f"{CAPACITY}root.made."
        said = {prefix + key: value for key, value in own.items()}
        weight = _WEIGHT.fullmatch(own.get("capacity", "1w"))
        if weight is None:
            place = f"{CAPACITY}{path}.{_MADE}template.capacity"
            raise InputError(place, f"expected a weight, got {own['capacity']!r}")
        if kind == "leaf-template.":
            said = {
                f"{prefix}user-limit-factor": "-1",
                f"{prefix}maximum-am-resource-percent": "1",
                f"{prefix}maximum-applications": "0",
            } | said
        usual = {name: value for name, value in self.given.items() if "root" not in name}
        sub = Noted(usual | said)
        sub.get(f"{prefix}capacity")
        made = _Capacity(sub, self.left_out).queue("root.made", 0.0, {"": 0.0}, {}, ((), ()))
        for name in sub.unread():
            if (key := name.removeprefix(prefix)) in own:
                place = f"{CAPACITY}{path}.{_MADE}template.{key}"
                self.left_out[place] = why_left_out(place)
        if kind != "leaf-template.":
            for key in ("user_limit", "user_limit_factor", "max_applications", "max_am_share"):
                made.pop(key, None)
            made.pop("max_user_applications", None)
        elif not int(said[f"{prefix}maximum-applications"]):
            made.pop("max_user_applications", None)
        made["weight"] = read_number(weight[1], f"{path}.capacity")
        return made

    def _leaf(self, prefix: str, absolute: Mapping[str, float]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        percent = self._number(prefix, "minimum-user-limit-percent", 100.0)
        made["user_limit"] = min(percent, 100.0) / 100
        factor = self._number(prefix, "user-limit-factor", 1.0)
        # A factor of -1 means that there is none.
        if factor > 0:
            made["user_limit_factor"] = factor
        own = f"{prefix}maximum-applications"
        if own in self.given:
            made["max_applications"] = int(read_number(self.given[own], own))
        else:
            whole = CAPACITY + "maximum-applications"
            most = read_number(self.given.get(whole, CLUSTER_APPLICATIONS_MAX), whole)
            made["max_applications"] = int(most * max(absolute.values()) + 1e-6)
        applications = made["max_applications"]
        if factor > 0:
            each = int(applications * percent / 100 * factor + 1e-6)
            made["max_user_applications"] = min(applications, each)
        # Here an absent number stands for any number, so none is written as 0.
        if not applications:
            made["max_user_applications"] = 0
        made["max_am_share"] = min(self._number(prefix, "maximum-am-resource-percent", 0.1), 1.0)
        if weights := self._weights(prefix):
            made["user_weights"] = weights
        return made

    def _number(self, prefix: str, key: str, usual: float) -> float:
        """Return a queue's own number, or else that of all queues."""
        whole = read_number(self.given.get(CAPACITY + key, usual), CAPACITY + key)
        return read_number(self.given.get(prefix + key, whole), prefix + key)

    def _order(self, prefix: str) -> str:
        name = f"{prefix}ordering-policy"
        order = self.given.get(name, "fifo")
        sized = self.given.get(f"{name}.fair.enable-size-based-weight", "false").lower() == "true"
        if order.lower() not in _ORDERS:
            self.left_out[name] = f"the order {order} is not known"
        found = _ORDERS.get(order.lower(), "")
        return "weighted" if found == "fair" and sized else found

    def _labels(self, prefix: str) -> dict[str, Any]:
        made: dict[str, Any] = {}
        named = self.given.get(f"{prefix}accessible-node-labels", "")
        labels = [label.strip() for label in named.split(",") if label.strip() not in ("", "*")]
        own = re.compile(
            re.escape(f"{prefix}accessible-node-labels.") + r"([^.]+)\.(?:maximum-)?capacity"
        )
        labels += [found[1] for name in self.given if (found := own.fullmatch(name))]
        for label in dict.fromkeys(labels):
            place = f"{prefix}accessible-node-labels.{label}."
            least, most = (
                read_number(self.given.get(place + key, usual).rstrip("%"), place + key) / 100
                for key, usual in (("capacity", "0"), ("maximum-capacity", "100"))
            )
            entry = {
                "capacity": round(min(least, 1.0), 9),
                "max_capacity": round(min(most, 1.0), 9),
            }
            made.setdefault("labels", {})[label] = entry
        usual = self.given.get(f"{prefix}default-node-label-expression", "").strip()
        return made | ({"default_label": usual} if usual else {})

    def _lists(self, prefix: str, made: dict[str, Any], above: Lists) -> Lists:
        """Set who may do what; as in YARN, who may in a queue may in those below it."""
        found: list[tuple[str, ...]] = []
        for key, to, upper in (
            ("acl_submit_applications", "submit", above[0]),
            ("acl_administer_queue", "administer", above[1]),
        ):
            said = self.given.get(prefix + key)
            users, _, groups = (said or "").partition(" ")
            if groups.strip():
                self.left_out[prefix + key] = f"groups are not known: {groups.strip()}"
            own = tuple(user.strip() for user in users.split(",") if user.strip())
            both = tuple(dict.fromkeys((*own, *upper)))
            if said is not None:
                made[to] = list(both)
            found.append(both if said is not None else upper)
        return found[0], found[1]

    def _lifetimes(self, prefix: str) -> dict[str, Any]:
        made = {}
        for key, to in (
            ("maximum-application-lifetime", "max_lifetime_s"),
            ("default-application-lifetime", "default_lifetime_s"),
        ):
            lasts_s = read_number(self.given.get(prefix + key, -1), prefix + key)
            if lasts_s > 0:
                made[to] = lasts_s
        return made

    def _weights(self, prefix: str) -> dict[str, float]:
        own = re.compile(re.escape(f"{prefix}user-settings.") + r"(.+)\.weight")
        named = {found[1]: name for name in self.given if (found := own.fullmatch(name))}
        return {user: read_number(self.given[name], name) for user, name in named.items()}


def check_depth(path: str) -> None:
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


def read_switch(value: str, place: str) -> bool:
    """Read true or false; raises InputError."""
    if value.lower() not in ("true", "false"):
        raise InputError(place, f"expected true or false, got {value!r}")
    return value.lower() == "true"


def read_number(value: Any, place: str) -> float:
    """Read a finite number; raises InputError."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(place, f"expected a number, got {value!r}") from None
    if not abs(number) < 2**53:
        raise InputError(place, f"expected a number, got {value!r}")
    return number
