"""YARN's rules of placement: mapping rules of its CapacityScheduler, a policy of its FairScheduler.

Both become `weft.model.placement`, which says what holds.
"""

import json
from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element

from weft.model.errors import InputError
from weft.workloads.yarn_properties import CAPACITY, FAIR

_MAPPINGS = CAPACITY + "queue-mappings"
_RULES = "yarn.scheduler.queue-placement-rules"
_BY_NAME = _RULES + ".app-name"
_JSON = CAPACITY + "mapping-rule-json"
_GROUPS = "hadoop.user.group.static.mapping.overrides"
_KINDS = {"u": "user", "g": "group"}
# The targets of JSON rules by policy, below the queue that they name as parent.
_TARGETS = {
    "primaryGroup": "%primary_group",
    "secondaryGroup": "%secondary_group",
    "primaryGroupUser": "%primary_group.%user",
    "secondaryGroupUser": "%secondary_group.%user",
    "user": "%user",
    "applicationName": "%application",
}
_OTHERWISE = {"skip": "skip", "placeDefault": "default", "reject": "reject"}
_FAIR_RULES = {
    "user": "%user",
    "nestedUserQueue": "%user",
    "primaryGroup": "%primary_group",
    "secondaryGroupExistingQueue": "%existing_group",
    "specified": "%specified",
}


def capacity_placement(given: Mapping[str, str], left_out: dict[str, str]) -> dict[str, Any]:
    """Return the placement that a CapacityScheduler's properties say; empty: none.

    Raises InputError for what YARN refuses, too.
    """
    form = given.get(CAPACITY + "mapping-rule-format", "legacy")
    if form not in ("legacy", "json"):
        raise InputError(CAPACITY + "mapping-rule-format", f"is legacy or json, got {form!r}")
    kinds = _listed(given, _RULES)
    if unknown := [kind for kind in kinds if kind not in ("user-group", "app-name")]:
        left_out[_RULES] = f"classes of Java are not run: {', '.join(unknown)}"
    rules = _json_rules(given, left_out) if form == "json" else _legacy_rules(given)
    if not rules:
        return {}
    found: dict[str, Any] = {"rules": rules}
    if given.get(_MAPPINGS + "-override.enable", "false").lower() == "true":
        found["overrides"] = True
    return found | _groups(given, rules, left_out)


def fair_placement(
    root: Element, given: Mapping[str, str], left_out: dict[str, str]
) -> dict[str, Any]:
    """Return the placement of `<allocations>`, or else what FairScheduler's properties say."""
    create = given.get(FAIR + "allow-undeclared-pools", "true").lower() == "true"
    by_user = given.get(FAIR + "user-as-default-queue", "true").lower() == "true"
    policy = root.find("queuePlacementPolicy")
    if policy is not None:
        rules = [_fair_rule(item) for item in policy if item.tag.lower() == "rule"]
        if not rules:
            raise InputError("queuePlacementPolicy", "has no rule")
    else:
        rules = [{"queue": "%specified"} | ({} if create else {"create": False})]
        if by_user:
            rules.append({"queue": "root.%user"} | ({} if create else {"create": False}))
        # Under YARN each application has a user.
        rules.append({"queue": "root.default"})
    return {"fair": True, "rules": rules} | _groups(given, rules, left_out)


def _legacy_rules(given: Mapping[str, str]) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = []
    for text in _listed(given, _MAPPINGS):
        kind, name, queue = _split(text, 3, _MAPPINGS)
        if kind not in _KINDS:
            raise InputError(_MAPPINGS, f"a mapping begins with u or g, got {text!r}")
        whom = {} if (kind, name) == ("u", "%user") else {_KINDS[kind]: name}
        rules.append({**whom, "queue": queue, "otherwise": "default"})
    for text in _listed(given, _BY_NAME):
        name, queue = _split(text, 2, _BY_NAME)
        rules.append({"application": name, "queue": queue, "otherwise": "default"})
    return rules


def _listed(given: Mapping[str, str], name: str) -> list[str]:
    return [one.strip() for one in given.get(name, "").split(",") if one.strip()]


def _split(text: str, count: int, place: str) -> list[str]:
    parts = [part.strip() for part in text.split(":")]
    if len(parts) != count or not all(parts):
        raise InputError(place, f"expected {count} words with colons between, got {text!r}")
    return parts


def _json_rules(given: Mapping[str, str], left_out: dict[str, str]) -> list[dict[str, Any]]:
    if _JSON not in given:
        if _JSON + "-file" in given:
            left_out[_JSON + "-file"] = f"give its text as {_JSON}"
        return []
    try:
        rows = json.loads(given[_JSON])["rules"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InputError(_JSON, 'expected {"rules": [...]}') from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(_JSON, "rules are objects")
    return [_json_rule(row) for row in rows]


def _json_rule(row: dict[str, Any]) -> dict[str, Any]:
    kind, matches, policy = (str(row.get(key) or "") for key in ("type", "matches", "policy"))
    if kind not in ("user", "group", "application") or not matches:
        raise InputError(_JSON, f"a rule has a type and says what matches, got {row!r}")
    if kind == "group" and matches == "*":
        raise InputError(_JSON, "no rule is for the groups *")
    otherwise = str(row.get("fallbackResult") or "skip")
    if otherwise not in _OTHERWISE:
        raise InputError(_JSON, f"fallbackResult is skip, placeDefault or reject: {otherwise!r}")
    made: dict[str, Any] = {} if (kind, matches) == ("user", "*") else {kind: matches}
    made["otherwise"] = _OTHERWISE[otherwise]
    if row.get("create") is False:
        made["create"] = False
    above, value = row.get("parentQueue"), row.get("value")
    if policy == "reject":
        made["then"] = "reject"
    elif policy == "setDefaultQueue" and value:
        made |= {"then": "default", "queue": value}
    elif policy == "defaultQueue":
        made |= {"queue": "%default", "create": False}
    elif policy == "specified":
        made["queue"] = "%specified"
    elif policy == "custom" and row.get("customPlacement"):
        made["queue"] = row["customPlacement"]
    elif policy in _TARGETS:
        made["queue"] = f"{above}.{_TARGETS[policy]}" if above else _TARGETS[policy]
    else:
        raise InputError(_JSON, f"the policy {policy!r} is not known, or says no queue")
    return made


def _fair_rule(item: Element) -> dict[str, Any]:
    name = item.get("name", "")
    creates = item.get("create", "true").lower() == "true"
    made: dict[str, Any] = {} if creates else {"create": False}
    if name == "reject":
        return {"then": "reject"}
    if name == "default":
        queue = item.get("queue", "").strip() or "default"
        return made | {"queue": queue if queue.startswith("root.") else f"root.{queue}"}
    if name not in _FAIR_RULES:
        raise InputError("queuePlacementPolicy", f"the rule {name!r} is not known")
    inside = [child for child in item if child.tag.lower() == "rule"]
    if name == "nestedUserQueue" and not inside:
        raise InputError("queuePlacementPolicy", "nestedUserQueue has a rule inside")
    if not inside:
        target = _FAIR_RULES[name]
        return made | {"queue": target if name == "specified" else f"root.{target}"}
    if name == "specified":
        raise InputError("queuePlacementPolicy", "specified has no rule inside")
    # Of several, YARN takes the last.
    upper = inside[-1]
    if upper.get("name") in ("reject", "nestedUserQueue"):
        raise InputError("queuePlacementPolicy", f"{upper.get('name')} is not inside of a rule")
    above = _fair_rule(upper)
    if not above.get("create", True):
        made["create_parent"] = False
    return made | {"queue": f"{above['queue']}.{_FAIR_RULES[name]}"}


def _groups(
    given: Mapping[str, str], rules: list[dict[str, Any]], left_out: dict[str, str]
) -> dict[str, Any]:
    """Return the groups of users that the properties say, the primary one first."""
    found: dict[str, list[str]] = {}
    for row in given.get(_GROUPS, "").split(";"):
        user, _, names = row.partition("=")
        groups = [name.strip() for name in names.split(",") if name.strip()]
        if user.strip() and groups:
            found[user.strip()] = groups
    words = [word for rule in rules for word in (rule.get("queue", ""), *rule)]
    if any("group" in word for word in words):
        left_out["groups of users"] = f"known are those of {_GROUPS} alone, no host is asked"
        return {"groups": found} if found else {}
    return {}
