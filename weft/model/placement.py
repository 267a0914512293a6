"""Which queue an application goes to: rules in the order in which they are tried.

They are those of YARN's CapacityScheduler (mapping rules) or, if `fair`, of its FairScheduler
(queuePlacementPolicy); `rm.placement` carries them out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.model.errors import InputError
from weft.model.json_types import Json, Table
from weft.model.reading import read_table, read_text

PLACE, DEFAULT, REJECT = "place", "default", "reject"
_THEN = (PLACE, DEFAULT, REJECT)
_OTHERWISE = ("skip", DEFAULT, REJECT)
_TEXTS = ("queue", "user", "group", "application")
_RULE_KEYS = {*_TEXTS, "then", "otherwise", "create", "create_parent"}
_RULES_MAX, _USERS_MAX = 10_000, 100_000


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; without `user`, `group` and `application` it is for everybody.

    `then` place: into `queue`, a path whose parts may be %user, %primary_group, %secondary_group,
    %application, %specified, %default, or (fair) %existing_group. Default: `queue` is %default from
    here on. Reject: the application. Where the queue is not there and may not be made (`create`;
    fair: also the one above it, `create_parent`), `otherwise` holds: skip, default, reject.
    """

    queue: str = ""
    user: str = ""
    group: str = ""
    application: str = ""
    then: str = PLACE
    otherwise: str = "skip"
    create: bool = True
    create_parent: bool = True


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """The rules, and `groups` of users, the primary one first.

    If it `overrides`, they hold for applications that name a queue as well.
    """

    rules: tuple[Rule, ...] = ()
    overrides: bool = False
    fair: bool = False
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def placement_from_dict(value: object, place: str) -> PlacementRules:
    """Read rules as `placement_to_dict` writes them; raises InputError."""
    table = read_table(value, place, {"rules", "overrides", "fair", "groups"})
    rules = table.get("rules", [])
    if not isinstance(rules, list) or len(rules) > _RULES_MAX:
        raise InputError(f"{place}.rules", f"expected a list of at most {_RULES_MAX} rules")
    groups = read_table(table.get("groups", {}), f"{place}.groups")
    if len(groups) > _USERS_MAX:
        raise InputError(f"{place}.groups", f"at most {_USERS_MAX} users have groups")
    return PlacementRules(
        tuple(_rule(rule, f"{place}.rules[{at}]") for at, rule in enumerate(rules)),
        _flag(table, "overrides", False, place),
        _flag(table, "fair", False, place),
        {user: _names(names, f"{place}.groups.{user}") for user, names in groups.items()},
    )


def placement_to_dict(placement: PlacementRules) -> Json:
    """Return the data that `placement_from_dict` reads."""
    rules = [
        {
            name: getattr(rule, name)
            for name in sorted(_RULE_KEYS)
            if getattr(rule, name) != getattr(_USUAL, name)
        }
        for rule in placement.rules
    ]
    found: Json = {"rules": rules}
    for name in ("overrides", "fair"):
        if getattr(placement, name):
            found[name] = True
    if placement.groups:
        found["groups"] = {user: list(names) for user, names in placement.groups.items()}
    return found


_USUAL = Rule()


def _rule(value: object, place: str) -> Rule:
    table = read_table(value, place, _RULE_KEYS)
    texts = {name: read_text(table.get(name, ""), f"{place}.{name}", empty=True) for name in _TEXTS}
    then, otherwise = str(table.get("then", PLACE)), str(table.get("otherwise", "skip"))
    for name, said, known in (("then", then, _THEN), ("otherwise", otherwise, _OTHERWISE)):
        if said not in known:
            raise InputError(f"{place}.{name}", f"expected one of {', '.join(known)}")
    if then != REJECT and not texts["queue"]:
        raise InputError(f"{place}.queue", "is missing")
    return Rule(
        **texts,
        then=then,
        otherwise=otherwise,
        create=_flag(table, "create", True, place),
        create_parent=_flag(table, "create_parent", True, place),
    )


def _flag(table: Table, key: str, usual: bool, place: str) -> bool:
    value = table.get(key, usual)
    if not isinstance(value, bool):
        raise InputError(f"{place}.{key}", f"expected true or false, got {value!r}")
    return value


def _names(value: object, place: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InputError(place, "expected a list of groups, the primary one first")
    return tuple(read_text(name, place) for name in value)
