"""The queue tree of capacity-scheduler.xml, as a cluster file has them."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from weft.model.errors import InputError
from weft.model.queues import RUNNING, STOPPED
from weft.workloads.yarn_access import EVERYBODY, who_may
from weft.workloads.yarn_modes import (
    AMOUNTS,
    PERCENT,
    WEIGHT,
    Modes,
    Part,
    Said,
    read_capacity,
    read_maximum,
    whole,
)
from weft.workloads.yarn_properties import CAPACITY, Noted, why_left_out
from weft.workloads.yarn_words import read_number

# Queues may lie so deep below each other.
DEPTH_MAX = 50
# YARN's default for the whole cluster.
CLUSTER_APPLICATIONS_MAX = 10_000.0
_ORDERS = {
    "fifo": "",
    "utilization": "utilization",
    "priority-utilization": "priority",
    "fair": "fair",
    "fifo-with-partitions": "",
    "fifo-for-pending-apps": "",
    "fifoorderingpolicy": "",
    "fairorderingpolicy": "fair",
}
_LABELS = "accessible-node-labels."
_LEAF_ORDERS = ("fifo", "fair", "fifo-with-partitions", "fifo-for-pending-apps")
_PARENT_ORDERS = ("utilization", "priority-utilization")
# What is said of queues that are made at submissions.
_MADE = "auto-queue-creation-v2."
_NAMES = {
    "memory": "memory_mb",
    "memory-mb": "memory_mb",
    "mb": "memory_mb",
    "vcores": "vcores",
    "vcore": "vcores",
}


def capacity_queues(
    given: Mapping[str, str], left_out: dict[str, str], nodes: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return capacity-scheduler.xml's queue tree, root's own settings and what lies below.

    `nodes` are groups of nodes as a cluster file has them.
    """
    reader = _Capacity(given, left_out, _totals(nodes))
    parts = {label: whole(total) for label, total in reader.totals.items()}
    return reader.queue("root", parts, HandedDown())


@dataclass(frozen=True, slots=True)
class HandedDown:
    """What a queue has of the one above: who may do what, users' weights, labels.

    `labels` are those that it may use, `*` all, and `label` is the one that requests have which
    name none.
    """

    submit: tuple[str, ...] = EVERYBODY
    administer: tuple[str, ...] = EVERYBODY
    weights: Mapping[str, float] = field(default_factory=dict)
    labels: frozenset[str] = frozenset("*")
    label: str = ""


class _Capacity:
    """Reads queues one by one; each property that it asks for is taken."""

    def __init__(
        self,
        given: Mapping[str, str],
        left_out: dict[str, str],
        totals: Mapping[str, Mapping[str, float]],
        *,
        parents: bool = False,
    ) -> None:
        """Read from properties; `totals` is what the nodes of each label have, by type.

        `parents`: queues that name none below them are not leaves either.
        """
        self._parents = parents
        self.given = given
        self.left_out = left_out
        self.totals = {"": {}, **totals}
        self._known = {name: 0.0 for total in totals.values() for name in total}
        calculator = given.get(CAPACITY + "resource-calculator", "")
        legacy = given.get(CAPACITY + "legacy-queue-mode.enabled", "true")
        zero = ".allow-zero-capacity-sum"
        self._modes = Modes(
            self._known,
            dominant=calculator.endswith("DominantResourceCalculator"),
            mixed=legacy.lower() == "false",
            zero_sums=[
                name.removeprefix(CAPACITY).removesuffix(zero)
                for name in given
                if name.endswith(zero) and given[name].lower() == "true"
            ],
        )

    def queue(self, path: str, parts: Mapping[str, Part], above: HandedDown) -> dict[str, Any]:
        """Return a queue and all below it; `parts` is what it has of the nodes of each label."""
        check_depth(path)
        prefix = f"{CAPACITY}{path}."
        made: dict[str, Any] = {}
        if path == "root":
            made["max_applications"] = int(self._applications_most())
        else:
            made |= self._of_nodes(parts)
        down = self.handed_down(prefix, above)
        if down.label:
            made["default_label"] = down.label
        if largest := self._most(prefix):
            made["max_allocation"] = largest
        if self._makes(path):
            made["creates"] = self._creates(path, down)
        for key, to in (("submit_applications", "submit"), ("administer_queue", "administer")):
            if f"{prefix}acl_{key}" in self.given:
                made[to] = list(getattr(down, to))
        made |= self._lifetimes(prefix)
        every = self.given.get(CAPACITY + "max-parallel-apps", "-1")
        parallel = self.given.get(f"{prefix}max-parallel-apps", every)
        if (at_once := int(read_number(parallel, f"{prefix}max-parallel-apps"))) >= 0:
            made["max_parallel_apps"] = at_once
        for key in ("disable_preemption", "intra-queue-preemption.disable_preemption"):
            if said := self.given.get(prefix + key, ""):
                to = "disable_intra_queue_preemption" if "." in key else key
                made[to] = said.lower() == "true"
        state = self.given.get(f"{prefix}state", RUNNING).upper()
        if state not in (RUNNING, STOPPED):
            raise InputError(f"{prefix}state", f"expected {RUNNING} or {STOPPED}, got {state!r}")
        if state == STOPPED:
            made["state"] = STOPPED
        if priority := int(
            read_number(self.given.get(f"{prefix}priority", 0), f"{prefix}priority")
        ):
            made["priority"] = priority
        if order := self._order(path):
            made["order"] = order
        children = self._below(path, parts, down)
        if children or path == "root" or "creates" in made:
            return made | children
        return made | self._leaf(prefix, parts, down.weights)

    def _of_nodes(self, parts: Mapping[str, Part]) -> dict[str, Any]:
        """Return what a queue has of the nodes of each label."""
        made: dict[str, Any] = {}
        for label, part in parts.items():
            entry = {
                "capacity": round(part.capacity, 9),
                "max_capacity": round(part.max_capacity, 9),
            }
            if label:
                made.setdefault("labels", {})[label] = entry
            else:
                made |= entry
            if part.said.kind == AMOUNTS:
                said = {"min": dict(part.said.amounts), "max": dict(part.said_most)}
                made.setdefault("absolute", {})[label] = {k: v for k, v in said.items() if v}
        return made

    def _below(self, path: str, parts: Mapping[str, Part], above: HandedDown) -> dict[str, Any]:
        names = [n.strip() for n in self.given.get(f"{CAPACITY}{path}.queues", "").split(",")]
        names = [name for name in names if name]
        if len(set(names)) != len(names):
            raise InputError(f"{CAPACITY}{path}.queues", "a queue occurs twice")
        said: dict[str, dict[str, Said]] = {}
        own: dict[str, dict[str, Part]] = {name: {} for name in names}
        labels = {name: ["", *self.labels(f"{CAPACITY}{path}.{name}.")] for name in names}
        for label in dict.fromkeys(label for each in labels.values() for label in each):
            having = [name for name in names if label in labels[name]]
            prefix = f"{CAPACITY}{path}.{{}}." + (f"{_LABELS}{label}." if label else "")
            said[label] = {name: self._said(prefix.format(name), label) for name in having}
            most = {
                name: self.given.get(prefix.format(name) + "maximum-capacity", "100")
                for name in having
            }
            total = self.totals.get(label, {})
            of = parts.get(label) or replace(whole(total), absolute=float(path == "root"))
            both = {name: (said[label][name], most[name]) for name in having}
            found = self._modes.parts(total, of, both, prefix + "maximum-capacity")
            for name, part in found.items():
                own[name][label] = part
                if label and not self._may_use(f"{CAPACITY}{path}.{name}.", label):
                    own[name][label] = Part(0.0, 0.0, 0.0, {}, {}, Said(PERCENT))
        self._modes.check(path, parts, said, f"{CAPACITY}{path}.queues")
        made: dict[str, Any] = {}
        for name in names:
            made[name] = self.queue(f"{path}.{name}", own[name], above)
            capacity = own[name][""].said
            if capacity.kind == WEIGHT:
                made[name]["weight"] = capacity.number
        return made

    def _said(self, prefix: str, label: str) -> Said:
        place = f"{prefix}capacity"
        text = self.given.get(place, "0" if label else "")
        if not text:
            raise InputError(place, "is missing")
        return read_capacity(text, place, self._known)

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

    def _creates(self, path: str, above: HandedDown) -> dict[str, Any]:
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
        }
        leaf, _ = self._template(path, depth, "leaf-template.", above)
        if depth > 1:
            parent, down = self._template(path, depth, "parent-template.", above)
            lower, _ = self._template(f"{path}.*", depth, "leaf-template.", down)
            made["parent"] = parent | {"creates": made | {"leaf": lower}}
        return made | {"leaf": leaf}

    def _template(
        self, path: str, depth: int, kind: str, above: HandedDown
    ) -> tuple[dict[str, Any], HandedDown]:
        """Return what a queue is like that is made below one (AutoCreatedQueueTemplate)."""
        own: dict[str, str] = {}
        parts = path.split(".")
        for stars in range(min(depth, len(parts) - 1) + 1):
            starred = ".".join(parts[: len(parts) - stars] + ["*"] * stars)
            for which in (kind, "template."):
                start = f"{CAPACITY}{starred}.{_MADE}{which}"
                for name in [name for name in self.given if name.startswith(start)]:
                    own.setdefault(name.removeprefix(start), self.given[name])
        is_leaf = kind == "leaf-template."
        template = f"{path}.{_MADE}template"
        prefix = f"{CAPACITY}{template}."
        order = own.get("ordering-policy", "")
        if order in (_PARENT_ORDERS if is_leaf else _LEAF_ORDERS):
            # YARN finds it out at a submission, and makes no such queue.
            what = "queues, not of applications" if is_leaf else "applications, not of queues"
            self.left_out[f"{prefix}ordering-policy"] = f"{order} is an order of {what}"
            del own["ordering-policy"]
        said = {prefix + key: value for key, value in own.items()}
        capacity = read_capacity(own.get("capacity", "1w"), f"{prefix}capacity", {})
        if capacity.kind != WEIGHT:
            raise InputError(f"{prefix}capacity", f"expected a weight, got {own['capacity']!r}")
        if is_leaf:
            said = {
                f"{prefix}user-limit-factor": "-1",
                f"{prefix}maximum-am-resource-percent": "1",
                f"{prefix}maximum-applications": "0",
            } | said
        usual = {name: value for name, value in self.given.items() if "root" not in name}
        sub = Noted(usual | said)
        sub.get(f"{prefix}capacity")
        reader = _Capacity(sub, self.left_out, {}, parents=not is_leaf)
        made_parts = {"": reader.made_part(prefix, capacity)}
        for label in reader.labels(prefix):
            own_prefix = f"{prefix}{_LABELS}{label}."
            text = sub.get(f"{own_prefix}capacity", "0")
            said_of = read_capacity(text, f"{own_prefix}capacity", {})
            made_parts[label] = reader.made_part(own_prefix, said_of)
        made = reader.queue(template, made_parts, above)
        for name in sub.unread():
            if (key := name.removeprefix(prefix)) in own:
                self.left_out[name] = why_left_out(f"{CAPACITY}root.made.{key}")
        for name in usual.keys() - set(sub.unread()):
            # What a template goes by is taken.
            self.given[name]
        if not is_leaf:
            for key in ("user_limit", "user_limit_factor", "max_applications", "max_am_share"):
                made.pop(key, None)
            made.pop("max_user_applications", None)
        elif not int(said[f"{prefix}maximum-applications"]):
            made.pop("max_user_applications", None)
        made["weight"] = capacity.number
        return made, reader.handed_down(prefix, above)

    def made_part(self, prefix: str, said: Said) -> Part:
        """Return what a queue that is made has of nodes; its part by weight is found when it is."""
        place = f"{prefix}maximum-capacity"
        most = read_maximum(self.given.get(place, "100"), place)
        return Part(said.number if said.kind == PERCENT else 0.0, most, 0.0, {}, {}, said)

    def _leaf(
        self, prefix: str, parts: Mapping[str, Part], weights: Mapping[str, float]
    ) -> dict[str, Any]:
        made: dict[str, Any] = {}
        percent = self._number(prefix, "minimum-user-limit-percent", 100.0)
        made["user_limit"] = min(percent, 100.0) / 100
        factor = self._number(prefix, "user-limit-factor", 1.0)
        # A factor of -1 means that there is none; one of 0 or less lets nobody submit.
        if factor > 0:
            made["user_limit_factor"] = factor
        own = f"{prefix}maximum-applications"
        if own in self.given:
            made["max_applications"] = int(read_number(self.given[own], own))
        else:
            name = CAPACITY + "global-queue-max-application"
            each_queue = int(read_number(self.given.get(name, -1), name))
            absolute = max(part.absolute for part in parts.values())
            by_part = int(self._applications_most() * absolute + 1e-6)
            made["max_applications"] = each_queue if each_queue > 0 else by_part
        applications = made["max_applications"]
        if factor != -1:
            each = int(applications * percent / 100 * factor + 1e-6)
            made["max_user_applications"] = max(0, min(applications, each))
        # Here an absent number stands for any number, so none is written as 0.
        if not applications:
            made["max_user_applications"] = 0
        made["max_am_share"] = min(self._number(prefix, "maximum-am-resource-percent", 0.1), 1.0)
        for user, weight in weights.items():
            most_weight = 100 / percent if percent > 0 else math.inf
            if not 0 <= weight <= most_weight:
                name = f"{prefix}user-settings.{user}.weight"
                text = f"a weight is from 0 to {most_weight:g} here, got {weight:g}"
                raise InputError(name, text)
        if weights:
            made["user_weights"] = dict(weights)
        return made

    def _applications_most(self) -> float:
        name = CAPACITY + "maximum-applications"
        return read_number(self.given.get(name, CLUSTER_APPLICATIONS_MAX), name)

    def _number(self, prefix: str, key: str, usual: float) -> float:
        """Return a queue's own number, or else that of all queues."""
        whole = read_number(self.given.get(CAPACITY + key, usual), CAPACITY + key)
        return read_number(self.given.get(prefix + key, whole), prefix + key)

    def _order(self, path: str) -> str:
        name = f"{CAPACITY}{path}.ordering-policy"
        order = self.given.get(name, "")
        below = self.given.get(f"{CAPACITY}{path}.queues", "").strip()
        first = f"{CAPACITY}{path}.auto-create-child-queue.enabled"
        # YARN has a queue above others there, whose order matters only beside what it makes.
        would_make = self.given.get(first, "false").lower() == "true"
        if would_make:
            self.left_out[first] = why_left_out(first)
        makes = would_make or self._makes(path)
        is_parent = bool(below) or path == "root" or self._parents or makes
        known = _PARENT_ORDERS if is_parent else _LEAF_ORDERS
        if order and "." not in order and order not in known:
            raise InputError(name, f"expected one of {', '.join(known)}, got {order!r}")
        # A policy of YARN's may be said by its class.
        short = order.rpartition(".")[2].lower()
        sized = self.given.get(f"{name}.fair.enable-size-based-weight", "false").lower() == "true"
        if short and short not in _ORDERS:
            self.left_out[name] = f"the order {order} is not known"
        found = _ORDERS.get(short, "") if below or not would_make else ""
        return "weighted" if found == "fair" and sized else found

    def labels(self, prefix: str) -> list[str]:
        """Return the labels that a queue names."""
        named = self.given.get(f"{prefix}accessible-node-labels", "")
        labels = [label.strip() for label in named.split(",") if label.strip() not in ("", "*")]
        own = re.compile(re.escape(f"{prefix}{_LABELS}") + r"([^.]+)\.(?:maximum-)?capacity")
        labels += [found[1] for name in self.given if (found := own.fullmatch(name))]
        return list(dict.fromkeys(labels))

    def _may_use(self, prefix: str, label: str) -> bool:
        """Return whether a queue that says which labels it may use names this one."""
        said = self.given.get(f"{prefix}accessible-node-labels")
        named = label if said is None else said
        return bool({"*", label} & {one.strip() for one in named.split(",")})

    def handed_down(self, prefix: str, above: HandedDown) -> HandedDown:
        """Return what a queue hands down; as in YARN, who may in a queue may in those below it."""
        who: list[tuple[str, ...]] = []
        for key, upper in (
            ("acl_submit_applications", above.submit),
            ("acl_administer_queue", above.administer),
        ):
            said, root = self.given.get(prefix + key), prefix == f"{CAPACITY}root."
            who.append(who_may(said, upper, prefix + key, self.left_out, root=root))
        labels = above.labels
        said = self.given.get(f"{prefix}accessible-node-labels")
        # What root says of it is not looked at: all may use all.
        if said is not None and prefix != f"{CAPACITY}root.":
            named = {one.strip() for one in said.split(",") if one.strip()}
            labels = frozenset("*" if "*" in named else named)
        # A queue that may use less than the one above does not have its label either.
        usual = above.label if labels >= above.labels else ""
        label = self.given.get(f"{prefix}default-node-label-expression", usual).strip()
        weights = {**above.weights, **self._weights(prefix)}
        return HandedDown(who[0], who[1], weights, labels, label)

    def _lifetimes(self, prefix: str) -> dict[str, Any]:
        made = {}
        for key, to in (
            ("maximum-application-lifetime", "max_lifetime_s"),
            ("default-application-lifetime", "default_lifetime_s"),
        ):
            lasts_s = read_number(self.given.get(prefix + key, -1), prefix + key)
            if lasts_s > 0:
                made[to] = lasts_s
        if made.get("default_lifetime_s", 0.0) > made.get("max_lifetime_s", math.inf):
            place = f"{prefix}default-application-lifetime"
            raise InputError(place, f"more than the maximum, {made['max_lifetime_s']:g} s")
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


def _totals(nodes: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return what the nodes of each label have, by type; "": those without a label."""
    totals: dict[str, dict[str, float]] = {"": {}}
    for node in nodes:
        for label in node.get("labels") or [""]:
            total = totals.setdefault(label, {})
            for name, amount in node["capacity"].items():
                total[name] = total.get(name, 0.0) + amount * node.get("count", 1)
    return totals
