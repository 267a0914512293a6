"""fair-scheduler.xml: queues, their shares and limits, and who may use them.

Each queue gets what Weft's own matchers go by (a part of the queue above, by weight, and at most),
and under `fair` what the matcher `yarn_fair` goes by, as YARN's Fair Scheduler does.
"""

import re
from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element

from weft.model.errors import InputError
from weft.workloads.yarn_access import EVERYBODY, who_may
from weft.workloads.yarn_properties import FAIR
from weft.workloads.yarn_queues import check_depth
from weft.workloads.yarn_words import read_number, read_switch

_TYPES = {
    "memory": "memory_mb",
    "memory-mb": "memory_mb",
    "mb": "memory_mb",
    "cpu": "vcores",
    "vcores": "vcores",
    "vcore": "vcores",
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_OLD = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)\s*(mb|vcores?|memory|cpu)\b")
_QUEUES = ("queue", "pool")
_POLICIES = {"fair": "fair", "fifo": "fifo", "drf": "drf"}
# Parts of the cluster and amounts, by resource type.
Amounts = tuple[dict[str, float], dict[str, float]]
# Who may submit and who may administer; None: nobody said.
Lists = tuple[tuple[str, ...], tuple[str, ...]]


def fair_queues(
    root: Element, given: Mapping[str, str], left_out: dict[str, str], total: Mapping[str, float]
) -> dict[str, Any]:
    """Return the queue tree below root of an `<allocations>`, and root's own settings."""
    reader = _Reader(root, given, left_out, total)
    rows = [item for item in root if item.tag in _QUEUES]
    top = root
    if len(rows) == 1 and rows[0].get("name", "").strip().lower() == "root":
        top = rows[0]
    made = reader.terms(top, "root")
    everybody: Lists = (EVERYBODY, EVERYBODY)
    if top is not root:
        everybody = reader.lists(top, "root", made, everybody)
        reader.name_unknown(top, "root")
    reader.say_when_all_starve(top, made)
    made |= reader.below(top, "root", dict.fromkeys(total, 1.0), everybody)
    _check_policies("root", made)
    # What the file says of all queues is of those that a submission makes, too.
    if usual := reader.terms(Element("queue"), "root"):
        made["creates"] = {"leaf": usual, "parent": usual, "expires_s": 10.0, "depth": 50}
    for item in root:
        if item.tag not in (*_QUEUES, *_Reader.defaults, "user", "queuePlacementPolicy"):
            left_out[item.tag] = _why(item.tag)
    return made


def _check_policies(path: str, queue: Mapping[str, Any]) -> None:
    """Raise InputError for queues that the Fair Scheduler does not create, by their policies."""
    policy = queue.get("fair", {}).get("policy", "fair")
    below = {
        name: child
        for name, child in queue.items()
        if isinstance(child, dict) and name not in ("fair", "creates", "placement")
    }
    for name, child in below.items():
        own = child.get("fair", {}).get("policy", "fair")
        if policy == "fifo":
            raise InputError(f"{path}.schedulingPolicy", "fifo is for leaf queues alone")
        if policy == "fair" and own == "drf":
            raise InputError(f"{path}.{name}.schedulingPolicy", f"drf below {path}, which is fair")
        _check_policies(f"{path}.{name}", child)


def fair_limits(root: Element) -> dict[str, Any]:
    """Return how many applications of users run, as parameters of the matcher `yarn_fair`."""
    found: dict[str, Any] = {}
    usual = root.findtext("userMaxAppsDefault")
    if usual is not None:
        found["user_max_running"] = max(0, int(read_number(usual, "userMaxAppsDefault")))
    users = [
        f"{user.get('name', '').strip()}={max(0, int(read_number(most, 'maxRunningApps')))}"
        for user in root.iter("user")
        if (most := user.findtext("maxRunningApps")) is not None
    ]
    return found | ({"users_max_running": ",".join(users)} if users else {})


class _Reader:
    defaults = (
        "queueMaxResourcesDefault",
        "queueMaxAppsDefault",
        "queueMaxAMShareDefault",
        "userMaxAppsDefault",
        "defaultQueueSchedulingPolicy",
        "defaultQueueSchedulingMode",
        "fairSharePreemptionTimeout",
        "defaultFairSharePreemptionTimeout",
        "defaultMinSharePreemptionTimeout",
        "defaultFairSharePreemptionThreshold",
    )
    starving = (
        ("minSharePreemptionTimeout", "min_share_timeout_s"),
        ("fairSharePreemptionTimeout", "fair_share_timeout_s"),
        ("fairSharePreemptionThreshold", "fair_share_threshold"),
    )
    known = (
        "weight",
        "minResources",
        "maxResources",
        "maxRunningApps",
        "maxAMShare",
        "schedulingPolicy",
        "schedulingMode",
        "aclSubmitApps",
        "aclAdministerApps",
        "maxChildResources",
        "maxContainerAllocation",
        "allowPreemptionFrom",
        *[tag for tag, _ in starving],
        *_QUEUES,
    )

    def __init__(
        self,
        root: Element,
        given: Mapping[str, str],
        left_out: dict[str, str],
        total: Mapping[str, float],
    ) -> None:
        self.root = root
        self.given = given
        self.left_out = left_out
        self.total = total

    def below(
        self, item: Element, path: str, above: Mapping[str, float], lists: Lists
    ) -> dict[str, Any]:
        """Return the queues below one; `above` is its part of the cluster, by type."""
        check_depth(path)
        rows = [child for child in item if child.tag in _QUEUES]
        names = [child.get("name", "").strip() for child in rows]
        if not all(names) or len(set(names)) != len(names):
            raise InputError(f"queues of {path}", f"each needs a name of its own, got {names}")
        weights = [
            read_number(child.findtext("weight", "1"), f"{path}.{name}.weight")
            for name, child in zip(names, rows, strict=True)
        ]
        if min(weights, default=0.0) < 0:
            raise InputError(f"queues of {path}", f"weights are not negative, got {min(weights):g}")
        made: dict[str, Any] = {}
        for name, child, weight in zip(names, rows, weights, strict=True):
            where = f"{path}.{name}"
            part = weight / sum(weights) if any(weights) else 0.0
            entry = self.terms(child, where)
            most = self._cap(entry.get("fair", {}), above)
            # A cap below a queue's share is all that it gets.
            entry["capacity"] = round(min(part, most), 9)
            if most < 1.0:
                entry["max_capacity"] = round(max(most, entry["capacity"]), 9)
            if (largest := child.findtext("maxContainerAllocation")) is not None:
                place = f"{where}.maxContainerAllocation"
                entry["max_allocation"] = read_amounts(largest, place)[1]
            mine = self.lists(child, where, entry, lists)
            parts = {kind: each * part for kind, each in above.items()}
            if child.get("type", "").lower() == "parent":
                entry["creates"] = self._created(child, where)
            elif child.findtext("maxChildResources") is not None:
                # They are of queues that submissions make.
                self.left_out[f"{where}.maxChildResources"] = "no queue is made below this one"
            made[name] = entry | self.below(child, where, parts, mine)
            self.name_unknown(child, where)
        return made

    def name_unknown(self, item: Element, path: str) -> None:
        """Name what a queue says that nobody reads."""
        for field in item:
            if field.tag not in self.known:
                self.left_out[f"{path}.{field.tag}"] = _why(field.tag)

    def _cap(self, fair: Mapping[str, Any], above: Mapping[str, float]) -> float:
        """Return what a queue may hold at most, as a part of the queue above: its largest type."""
        said = dict(fair.get("max_parts", {}))
        for name, amount in fair.get("max_resources", {}).items():
            if self.total.get(name):
                said[name] = amount / self.total[name]
        shares = [part / above[name] for name, part in said.items() if above.get(name)]
        return min(max(shares, default=1.0), 1.0)

    def _created(self, item: Element, path: str) -> dict[str, Any]:
        """Return what queues are like that submissions make below one."""
        most = item.findtext("maxChildResources")
        if most is None:
            return {}
        parts, amounts = read_amounts(most, f"{path}.maxChildResources")
        return {"leaf": {"fair": _named(max_parts=parts, max_resources=amounts)}}

    def terms(self, item: Element, path: str) -> dict[str, Any]:
        """Return what a queue says for the Fair Scheduler."""
        root, leaf = self.root, not any(child.tag in _QUEUES for child in item)
        fair: dict[str, Any] = {}
        if (weight := item.findtext("weight")) is not None:
            fair["weight"] = read_number(weight, f"{path}.weight")
        if (least := item.findtext("minResources")) is not None:
            place = f"{path}.minResources"
            parts, amounts = read_amounts(least, place)
            fair |= _named(min_resources=amounts)
            if parts:
                self.left_out[place] = f"a percentage is 0 there, as in YARN: {least.strip()}"
        most = item.findtext("maxResources")
        usual = root.findtext("queueMaxResourcesDefault")
        if most is not None or usual is not None:
            parts, amounts = read_amounts(most or usual or "", f"{path}.maxResources")
            fair |= _named(max_parts=parts, max_resources=amounts)
        running = item.findtext("maxRunningApps", root.findtext("queueMaxAppsDefault"))
        if running is not None:
            most_running = int(read_number(running, f"{path}.maxRunningApps"))
            fair["max_running_apps"] = max(0, most_running)
        share = item.findtext("maxAMShare", root.findtext("queueMaxAMShareDefault"))
        if share is not None and leaf:
            fair["max_am_share"] = min(read_number(share, f"{path}.maxAMShare"), 1.0)
        policy = item.findtext("schedulingPolicy", item.findtext("schedulingMode"))
        if policy is None:
            policy = root.findtext(
                "defaultQueueSchedulingPolicy", root.findtext("defaultQueueSchedulingMode", "fair")
            )
        short = policy.strip().rpartition(".")[2].lower()
        short = {"fairsharepolicy": "fair", "fifopolicy": "fifo"}.get(short, short)
        short = "drf" if short == "dominantresourcefairnesspolicy" else short
        if short not in _POLICIES:
            raise InputError(f"{path}.schedulingPolicy", f"{policy!r} is not known")
        if short != "fair":
            fair["policy"] = short
        if item is not root:
            fair |= self._starves(item, path)
        whole = FAIR + "am.preemption"
        names = [name for name in (f"{whole}.{path}", whole) if name in self.given]
        if leaf and names and not read_switch(self.given[names[0]], names[0]):
            fair["am_preemption"] = False
        made: dict[str, Any] = {"fair": fair} if fair else {}
        # A queue below one that keeps what it holds keeps it, too.
        if item.findtext("allowPreemptionFrom", "true").strip().lower() != "true":
            made["disable_preemption"] = True
        return made

    def _starves(self, item: Element, path: str, prefix: str = "") -> dict[str, float]:
        """Return when a queue starves, in what it says itself."""
        found = {}
        for tag, to in self.starving:
            name = prefix + tag[:1].upper() + tag[1:] if prefix else tag
            if (text := item.findtext(name)) is not None:
                found[to] = max(read_number(text, f"{path}.{name}"), 0.0)
        return found

    def say_when_all_starve(self, top: Element, made: dict[str, Any]) -> None:
        """Let root say what the file says of all queues, where it says nothing itself."""
        usual = self._starves(self.root, "root", "default")
        if (older := self.root.findtext("fairSharePreemptionTimeout")) is not None:
            usual.setdefault("fair_share_timeout_s", read_number(older, "root"))
        if fair := usual | made.get("fair", {}):
            made["fair"] = fair

    def lists(self, item: Element, path: str, entry: dict[str, Any], above: Lists) -> Lists:
        """Set who may do what; as in YARN, who may in a queue may in those below it."""
        found: list[tuple[str, ...]] = []
        for tag, to, upper in (
            ("aclSubmitApps", "submit", above[0]),
            ("aclAdministerApps", "administer", above[1]),
        ):
            said, place = item.findtext(tag), f"{path}.{tag}"
            found.append(who_may(said, upper, place, self.left_out, root=path == "root"))
            if said is not None:
                entry[to] = list(found[-1])
        return found[0], found[1]


def _named(**rows: dict[str, float]) -> dict[str, dict[str, float]]:
    return {name: row for name, row in rows.items() if row}


def read_amounts(text: str, place: str) -> Amounts:
    """Return the parts and amounts of a text in any of the documented forms.

    `60%`, `55.0% memory, 30.0% cpu`, `vcores=60%, memory-mb=60%`, `10000 mb, 10 vcores`,
    `vcores=10, memory-mb=5000`; raises InputError for others.
    """
    parts: dict[str, float] = {}
    amounts: dict[str, float] = {}
    said = text.strip().lower()
    if whole := _PART.fullmatch(said):
        return dict.fromkeys(("memory_mb", "vcores"), float(whole[1]) / 100), {}
    if "=" in said:
        for row in said.split(","):
            name, _, value = (word.strip() for word in row.partition("="))
            part = _PART.fullmatch(value)
            to = parts if part else amounts
            number = read_number(part[1] if part else value, place)
            if not name or number < 0:
                raise InputError(place, f"expected amounts or percentages, got {text!r}")
            to[_TYPES.get(name, name)] = number / 100 if part else number
        return parts, amounts
    rows = list(_OLD.finditer(said))
    rest = _OLD.sub("", said).replace(",", "").strip()
    if not rows or rest:
        raise InputError(place, f"expected amounts or percentages, got {text!r}")
    for found in rows:
        to = parts if found[2] else amounts
        number = float(found[1])
        to[_TYPES[found[3]]] = number / 100 if found[2] else number
    return parts, amounts


def _why(tag: str) -> str:
    if "eserv" in tag or "reservation" in tag:
        return "no reservations in advance (yarn.resourcemanager.reservation-system)"
    return "no counterpart"
