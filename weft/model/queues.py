"""The queues of a cluster: who may use how much, as a cluster file or a client says it.

`queues_from_dict` is the only reader of a tree, so its rules hold wherever one comes from, and
`queues_to_dict` writes what it reads.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import is_

from weft.model.errors import InputError
from weft.model.json_types import Json, Table
from weft.model.placement import PlacementRules, placement_from_dict, placement_to_dict
from weft.model.reading import read_integer, read_name, read_table, read_text
from weft.model.resources import read_amount

QUEUES_MAX = 10_000
# Queues may lie so deep below each other.
DEPTH_MAX = 50
RUNNING, STOPPED = "RUNNING", "STOPPED"
_QUEUE_KEYS = {
    "capacity",
    "max_capacity",
    "user_limit",
    "user_limit_factor",
    "max_applications",
    "max_user_applications",
    "max_am_share",
    "default_lifetime_s",
    "max_lifetime_s",
    "submit",
    "administer",
    "priority",
    "order",
    "labels",
    "absolute",
    "user_weights",
    "default_label",
    "disable_preemption",
    "disable_intra_queue_preemption",
    "max_parallel_apps",
    "max_allocation",
    "fair",
    "state",
    "weight",
    "expires_s",
    "creates",
    "placement",
    "whole_capacity",
}
_FAIR_KEYS = {
    "weight",
    "min_resources",
    "max_resources",
    "max_parts",
    "max_running_apps",
    "max_am_share",
    "policy",
    "min_share_timeout_s",
    "fair_share_timeout_s",
    "fair_share_threshold",
    "am_preemption",
}
_POLICIES = ("fair", "fifo", "drf")
_ORDERS = ("", "utilization", "priority", "fair", "weighted")
_PERCENT = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*%\s*")
_APPLICATIONS_MAX = 2**31 - 1
_PRIORITY_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class FairTerms:
    """What YARN's Fair Scheduler goes by in a queue, which the matcher `yarn_fair` alone reads.

    Its `weight` is that of the queue, or 1, where it says none. Its share lies between
    `min_resources` and `max_resources`, amounts by type, or `max_parts`, fractions of the cluster
    by type; what is not named is 0 or without end. It divides by `policy` (fair, fifo, drf).
    At most `max_running_apps` of its applications run, and their masters hold at most
    `max_am_share` of its share; -1: any number, and all.
    Where preemption is on, it starves after `min_share_timeout_s` below its minimum share, and an
    application after `fair_share_timeout_s` below `fair_share_threshold` of its own fair share; -1:
    as the queue above says, at the root never, and half. Masters may be taken with `am_preemption`.
    """

    weight: float = 1.0
    min_resources: Mapping[str, float] = field(default_factory=dict)
    max_resources: Mapping[str, float] = field(default_factory=dict)
    max_parts: Mapping[str, float] = field(default_factory=dict)
    max_running_apps: int = -1
    max_am_share: float = 0.5
    policy: str = "fair"
    min_share_timeout_s: float = -1.0
    fair_share_timeout_s: float = -1.0
    fair_share_threshold: float = -1.0
    am_preemption: bool = True


@dataclass(frozen=True, slots=True)
class Creates:
    """How queues are made below one at a submission (YARN's auto-queue-creation-v2).

    One is like `leaf`, or like `parent` where others are to lie below it; the leaf lies at most
    `depth` below. Where the queue has `most` below it, no other is made. One that is empty for
    `expires_s` goes; 0: it stays.
    """

    depth: int = 2
    most: int = 1000
    expires_s: float = 0.0
    leaf: "QueueSpec | None" = None
    parent: "QueueSpec | None" = None


@dataclass(frozen=True, slots=True)
class Absolute:
    """What a queue is guaranteed and may hold at most of nodes with one label, in amounts by type.

    YARN's absolute resource configuration: they stay the same when nodes come and go. Where those
    of all queues below one exceed what that has, each is scaled down. No `max`: as the queue above.
    """

    min: Mapping[str, float] = field(default_factory=dict)
    max: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue; `capacity` (guaranteed) and `max_capacity` are fractions of the parent's.

    With n active users each may hold max(1/n, user_limit) of the queue, and none more than
    user_limit_factor times its capacity (YARN's minimum-user-limit-percent, user-limit-factor).
    It and those below it take `max_applications` that have not ended (0: any number) and refuse
    more, and of a user `max_user_applications` (-1: any number); their masters hold `max_am_share`
    of its guarantee at most, but one may always run: the others wait (YARN's maximum-applications,
    maximum-am-resource-percent).
    No container here and below has more than `max_allocation`, by type; what a queue does not name
    is as above (YARN's maximum-allocation).
    Queues without a `capacity` share by `weight` what the others leave (YARN's weights), where a
    tree is read, and where a queue beside them is made or goes at runtime (`creates`). One that was
    made so has `expires_s` of 0 or more, as `Creates` has it; -1: it was said. The root says to
    which queue an application goes (`placement`; None: to the one that it names).
    Where a cluster has members, a router moves guarantees between them: `capacity` is then what
    the queue has in this member, and `whole_capacity` what it was said to have over all of them;
    -1: `capacity` is both.
    Applications that say no lifetime have the default, s, and none has more than the most (YARN's
    default- and maximum-application-lifetime); 0: as the queue above says, at the root without end.
    `administer` names the users who may do everything with the applications here and below, and
    `submit` those who may submit besides (None: as the queue above says, at the root everybody);
    "*" is everybody. Both hold where callers are known.
    One whose `state` is STOPPED, and all below it, take no applications; those there go on.
    The matcher `yarn` alone goes by the rest: `priority` among queues whose parent has the `order`
    "priority" (YARN's priority-utilization; "" is as above, "utilization" without); the `order` of
    a leaf's applications, "fair" (least used first) or "weighted" (over the logarithm of what they
    want) instead of by submission; (capacity, max_capacity) of nodes with a label; `absolute`
    amounts instead of both, by label ("": nodes without one); how much more
    than others a user may hold; the label that asks without one need; whether preemption takes
    nothing from it, for other queues or within (None: as the queue above says); how many
    applications run at once here and below (-1: any number). `yarn_fair` goes by `fair`, and by
    `max_capacity` where that names no maximum.
    """

    name: str
    capacity: float = 1.0
    max_capacity: float = 1.0
    user_limit: float = 1.0
    user_limit_factor: float = math.inf
    max_applications: int = 0
    max_user_applications: int = -1
    max_am_share: float = 1.0
    default_lifetime_s: float = 0.0
    max_lifetime_s: float = 0.0
    submit: tuple[str, ...] | None = None
    administer: tuple[str, ...] = ()
    priority: int = 0
    order: str = ""
    labels: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    absolute: Mapping[str, Absolute] = field(default_factory=dict)
    user_weights: Mapping[str, float] = field(default_factory=dict)
    default_label: str = ""
    disable_preemption: bool | None = None
    disable_intra_queue_preemption: bool | None = None
    max_parallel_apps: int = -1
    max_allocation: Mapping[str, float] = field(default_factory=dict)
    fair: FairTerms = FairTerms()
    state: str = RUNNING
    weight: float = 0.0
    expires_s: float = -1.0
    creates: Creates | None = None
    placement: PlacementRules | None = None
    whole_capacity: float = -1.0
    children: tuple["QueueSpec", ...] = ()

    @property
    def is_leaf(self) -> bool:
        """Return whether it takes applications."""
        return not self.children and self.creates is None

    def walk(self, above: str = "") -> Iterator[tuple[str, "QueueSpec"]]:
        """Yield every queue with its path (`root.prod`), parents first."""
        path = f"{above}.{self.name}" if above else self.name
        yield path, self
        for child in self.children:
            yield from child.walk(path)

    def leaves(self) -> Iterator[tuple[str, "QueueSpec"]]:
        """Return the queues that take jobs, with their paths, in file order."""
        return ((path, queue) for path, queue in self.walk() if queue.is_leaf)


DEFAULT_QUEUES = QueueSpec("root", children=(QueueSpec("default"),))


def queues_from_dict(value: object, place: str = "queues") -> QueueSpec:
    """Read a tree of queues, `{root: {...}}`; raises InputError with the place of a problem."""
    table = read_table(value, place)
    if list(table) != ["root"]:
        raise InputError(place, "expected one queue at the top, named root")
    return _Reader().queue("root", table["root"], 1.0, f"{place}.root", 0)


def read_queue_name(name: str, place: str) -> str:
    """Check the name of a queue, which a tree can be written and read with; raises InputError."""
    if "." in name or not name:
        raise InputError(f"{place}.{name}", "a queue's name has no dot and is not empty")
    if name in _QUEUE_KEYS:
        raise InputError(place, f"no queue is named {name!r}: that is a setting of queues")
    return read_name(name, place)


def queues_to_dict(root: QueueSpec) -> Json:
    """Return the data that `queues_from_dict` reads as this tree."""
    return {root.name: _queue_to_dict(root)}


def as_set(queue: QueueSpec) -> QueueSpec:
    """Return a queue, and those below it, with their guarantees over all members."""
    said = queue.whole_capacity
    below = tuple(map(as_set, queue.children))
    if said < 0 and all(map(is_, below, queue.children)):
        return queue
    return replace(
        queue, capacity=queue.capacity if said < 0 else said, whole_capacity=-1.0, children=below
    )


def digest_of(root: QueueSpec) -> str:
    """Return what tells a tree from every other one, the same in every process."""
    text = json.dumps(queues_to_dict(root), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _queue_to_dict(queue: QueueSpec) -> Json:
    found: Json = {}
    for name, default in _USUAL.items():
        value = getattr(queue, name)
        # What a queue without a capacity gets depends on those beside it.
        if value != default or name == "capacity":
            found[name] = list(value) if isinstance(value, tuple) else value
    if queue.labels:
        found["labels"] = {
            label: {"capacity": least, "max_capacity": most}
            for label, (least, most) in queue.labels.items()
        }
    if queue.absolute:
        found["absolute"] = {
            label: {key: dict(row) for key in ("min", "max") if (row := getattr(said, key))}
            for label, said in queue.absolute.items()
        }
    usual = FairTerms(weight=queue.weight or 1.0)
    if queue.fair != usual:
        found["fair"] = {
            one.name: dict(value) if isinstance(value, Mapping) else value
            for one in fields(FairTerms)
            if (value := getattr(queue.fair, one.name)) != getattr(usual, one.name)
        }
    for name in ("user_weights", "max_allocation"):
        if getattr(queue, name):
            found[name] = dict(getattr(queue, name))
    if queue.creates is not None:
        found["creates"] = {
            one.name: _queue_to_dict(value) if isinstance(value, QueueSpec) else value
            for one in fields(Creates)
            if (value := getattr(queue.creates, one.name)) != one.default
        }
    if queue.placement is not None:
        found["placement"] = placement_to_dict(queue.placement)
    return found | {child.name: _queue_to_dict(child) for child in queue.children}


_OWN = {
    "name",
    "children",
    "labels",
    "absolute",
    "user_weights",
    "max_allocation",
    "fair",
    "creates",
    "placement",
}
_USUAL = {one.name: one.default for one in fields(QueueSpec) if one.name not in _OWN}


def _lifetime(table: Table, key: str, place: str) -> float:
    return read_amount(table.get(key, 0.0), f"{place}.{key}")


def _users(value: object, place: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InputError(place, "expected a list of users, or of * for everybody")
    return tuple(read_text(user, f"{place}[{i}]") for i, user in enumerate(value))


class _Reader:
    """Reads queues one by one; what refers to itself, as YAML may, ends at the bounds."""

    def __init__(self) -> None:
        self._left = QUEUES_MAX

    def queue(self, name: str, value: object, share: float, place: str, depth: int) -> QueueSpec:
        """Return a queue; `share` is its capacity where it says none."""
        self._left -= 1
        if self._left < 0:
            raise InputError(place, f"a cluster has at most {QUEUES_MAX} queues")
        if depth > DEPTH_MAX:
            raise InputError(place[:100], f"lies more than {DEPTH_MAX} queues below root")
        table = {} if value is None else read_table(value, place)
        below = {key: entry for key, entry in table.items() if key not in _QUEUE_KEYS}
        for key, entry in below.items():
            if entry is not None and not isinstance(entry, Mapping):
                known = ", ".join(sorted(_QUEUE_KEYS))
                raise InputError(f"{place}.{key}", f"neither a queue nor a setting; known: {known}")
            read_queue_name(key, place)
        capacity = _fraction(table, "capacity", share, place)
        factor = table.get("user_limit_factor", math.inf)
        if factor != math.inf:
            factor = read_amount(factor, f"{place}.user_limit_factor", positive=True)
        weight = read_amount(table.get("weight", 0.0), f"{place}.weight")
        return QueueSpec(
            name=name,
            capacity=capacity,
            max_capacity=_fraction(table, "max_capacity", 1.0, place),
            user_limit=_fraction(table, "user_limit", 1.0, place),
            user_limit_factor=factor,
            max_applications=read_integer(
                table.get("max_applications", 0), f"{place}.max_applications", 0, _APPLICATIONS_MAX
            ),
            max_user_applications=read_integer(
                table.get("max_user_applications", -1),
                f"{place}.max_user_applications",
                -1,
                _APPLICATIONS_MAX,
            ),
            max_am_share=_fraction(table, "max_am_share", 1.0, place),
            default_lifetime_s=_lifetime(table, "default_lifetime_s", place),
            max_lifetime_s=_lifetime(table, "max_lifetime_s", place),
            submit=_users(table["submit"], f"{place}.submit") if "submit" in table else None,
            administer=_users(table.get("administer", []), f"{place}.administer"),
            priority=read_integer(
                table.get("priority", 0), f"{place}.priority", -_PRIORITY_MAX, _PRIORITY_MAX
            ),
            order=_one_of(table, "order", "", _ORDERS, place),
            labels=_labels(table.get("labels", {}), f"{place}.labels"),
            absolute=_absolute(table.get("absolute", {}), f"{place}.absolute"),
            user_weights=_weights(table.get("user_weights", {}), f"{place}.user_weights"),
            default_label=read_text(table.get("default_label", ""), place, empty=True),
            disable_preemption=_switch(table, "disable_preemption", place),
            disable_intra_queue_preemption=_switch(table, "disable_intra_queue_preemption", place),
            max_parallel_apps=read_integer(
                table.get("max_parallel_apps", -1),
                f"{place}.max_parallel_apps",
                -1,
                _APPLICATIONS_MAX,
            ),
            max_allocation=_amounts(table, "max_allocation", place),
            fair=_fair(table.get("fair", {}), weight, f"{place}.fair"),
            state=_one_of(table, "state", RUNNING, (RUNNING, STOPPED), place),
            weight=weight,
            expires_s=_or_as_above(table, "expires_s", place),
            creates=self._creates(table, place, depth),
            placement=_placement(table, place, depth),
            whole_capacity=(
                _fraction(table, "whole_capacity", 1.0, place)
                if table.get("whole_capacity", -1) != -1
                else -1.0
            ),
            children=self._children(below, place, depth),
        )

    def _creates(self, table: Table, place: str, depth: int) -> Creates | None:
        if "creates" not in table:
            return None
        place = f"{place}.creates"
        said = read_table(table["creates"] or {}, place, {one.name for one in fields(Creates)})
        like = {
            name: self.queue(name, said[name], 0.0, f"{place}.{name}", depth + 1)
            for name in ("leaf", "parent")
            if name in said
        }
        return Creates(
            read_integer(said.get("depth", 2), f"{place}.depth", 1, DEPTH_MAX),
            read_integer(said.get("most", 1000), f"{place}.most", 0, QUEUES_MAX),
            read_amount(said.get("expires_s", 0.0), f"{place}.expires_s"),
            **like,
        )

    def _children(self, below: Table, place: str, depth: int) -> tuple[QueueSpec, ...]:
        """Return child queues; those that say no capacity share what the others leave of 1.

        They do by weight, as in YARN; one that says none, either, counts as one of weight 1.
        """
        taken, weights = 0.0, dict.fromkeys(below, 0.0)
        for key, entry in below.items():
            said, own = entry or {}, f"{place}.{key}"
            if "capacity" in said:
                taken += _fraction(said, "capacity", 0.0, own)
            else:
                weights[key] = read_amount(said.get("weight", 1.0), f"{own}.weight")
        if taken > 1 + 1e-9:
            raise InputError(place, f"the capacities of its queues sum to {taken:g}, more than 1")
        # Where all weights are 0, so is each queue's share.
        share = max(0.0, 1.0 - taken) / (sum(weights.values()) or 1.0)
        return tuple(
            self.queue(key, entry, share * weights[key], f"{place}.{key}", depth + 1)
            for key, entry in below.items()
        )


def _placement(table: Table, place: str, depth: int) -> PlacementRules | None:
    if "placement" not in table:
        return None
    if depth:
        raise InputError(f"{place}.placement", "belongs to the root queue")
    return placement_from_dict(table["placement"], f"{place}.placement")


def _fair(value: object, weight: float, place: str) -> FairTerms:
    """Return a queue's fair terms; where they name no weight, the queue's own counts."""
    table = read_table(value, place, _FAIR_KEYS)
    share = table.get("max_am_share", 0.5)
    return FairTerms(
        weight=read_amount(table.get("weight", weight or 1.0), f"{place}.weight"),
        min_resources=_amounts(table, "min_resources", place),
        max_resources=_amounts(table, "max_resources", place),
        max_parts=_amounts(table, "max_parts", place),
        max_running_apps=read_integer(
            table.get("max_running_apps", -1), f"{place}.max_running_apps", -1, _APPLICATIONS_MAX
        ),
        max_am_share=-1.0 if share == -1 else _fraction(table, "max_am_share", 0.5, place),
        policy=_one_of(table, "policy", "fair", _POLICIES, place),
        min_share_timeout_s=_or_as_above(table, "min_share_timeout_s", place),
        fair_share_timeout_s=_or_as_above(table, "fair_share_timeout_s", place),
        fair_share_threshold=min(_or_as_above(table, "fair_share_threshold", place), 1.0),
        am_preemption=_switch(table, "am_preemption", place) is not False,
    )


def _or_as_above(table: Table, key: str, place: str) -> float:
    """Return an amount; -1: what the queue above says."""
    value = table.get(key, -1)
    return -1.0 if value == -1 else read_amount(value, f"{place}.{key}")


def _amounts(table: Table, key: str, place: str) -> dict[str, float]:
    rows = read_table(table.get(key, {}), f"{place}.{key}")
    return {name: read_amount(amount, f"{place}.{key}.{name}") for name, amount in rows.items()}


def _switch(table: Table, key: str, place: str) -> bool | None:
    value = table.get(key)
    if value is not None and not isinstance(value, bool):
        raise InputError(f"{place}.{key}", f"expected true or false, got {value!r}")
    return value


def _one_of(table: Table, key: str, usual: str, known: tuple[str, ...], place: str) -> str:
    word = table.get(key, usual)
    if not isinstance(word, str) or word not in known:
        raise InputError(f"{place}.{key}", f"expected one of {', '.join(filter(None, known))}")
    return word


def _labels(value: object, place: str) -> dict[str, tuple[float, float]]:
    """Return what a queue may use of the nodes of each label: guaranteed, at most."""
    found: dict[str, tuple[float, float]] = {}
    for label, entry in read_table(value, place).items():
        table = read_table(entry, f"{place}.{label}", {"capacity", "max_capacity"})
        least = _fraction(table, "capacity", 0.0, f"{place}.{label}")
        found[label] = (least, _fraction(table, "max_capacity", 1.0, f"{place}.{label}"))
    return found


def _absolute(value: object, place: str) -> dict[str, Absolute]:
    """Return a queue's amounts by label."""
    found = {}
    for label, entry in read_table(value, place).items():
        own = f"{place}.{label}"
        table = read_table(entry, own, {"min", "max"})
        found[label] = Absolute(_amounts(table, "min", own), _amounts(table, "max", own))
    return found


def _weights(value: object, place: str) -> dict[str, float]:
    table = read_table(value, place)
    return {user: read_amount(weight, f"{place}.{user}") for user, weight in table.items()}


def _fraction(table: Table, key: str, default: float, place: str) -> float:
    value = table.get(key, default)
    if isinstance(value, str) and (said := _PERCENT.fullmatch(value)):
        part = float(said[1]) / 100
        raise InputError(f"{place}.{key}", f"expected a fraction: {part:g} for {value.strip()}")
    number = read_amount(value, f"{place}.{key}")
    if number > 1:
        raise InputError(f"{place}.{key}", f"expected a fraction from 0 to 1, got {number:g}")
    return number
