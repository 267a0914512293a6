"""What a message may hold: one table, from which the services check and the fuzzer breaks.

`RULES` has a rule for every field of every message and request. `check(message, d)` raises
`InputError` with the path of the first field that breaks its rule (`asks[2].demand`); `d` is the
number of the cluster's resource types, 0 where the receiver does not know it yet. Rules that need
the receiver's state (a stage of *this* job, a total within its tasks) are held by the cores; a rule
here needs nothing but the message.

What the wire itself guarantees (a boolean is a boolean, an enum was looked up by the codec) costs
nothing: it is `GIVEN`. The other rules are compiled to one function a message (`quick_rules`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from weft.model.cluster import SPEED_MAX
from weft.model.errors import InputError
from weft.model.ids import app_of_attempt
from weft.model.reading import name_problem
from weft.protocol import messages, requests
from weft.wire.quick_rules import Quick, quick

# A check gets (value, number of resource types) and returns what is wrong, or nothing.
Check = Callable[[Any, int], str]

# Beyond it float64 does not hold every whole number.
EXACT = float(2**53)
# Masters add amounts up over their tasks.
SUM_MAX = 1e30
# Ids and batch numbers are int64 in columns of the manager.
ID_MAX = 2**63 - 1
CONTAINER_MIN = 2**32
# The ids of its containers are then below ID_MAX.
ATTEMPT_MAX = 2**31 - 1
APP_MAX = app_of_attempt(ATTEMPT_MAX)
STAGE_MAX = 2**31 - 1
# A node answers with the number after the last try of a task.
TRIES_MAX = 2**31 - 1
# Such a text is diagnostics: the end of a command's output, or a reason.
TEXT_BYTES_MAX = 64 * 1024
# A list in one message may have so many items, a run counting as many as it stands for.
ITEMS_MAX = 200_000
# A node has at most so many labels.
LABELS_MAX = 16
# Clients know no other status; an empty one is unknown.
FINAL_STATUSES = ("", "SUCCEEDED", "FAILED", "KILLED")


@dataclass(frozen=True, slots=True)
class Rule:
    """What a field may hold. `check` answers what is wrong with a value; empty: nothing.

    By its `name`, as `amount`, the fuzzer knows how to break the rule. `check` is None where the
    wire guarantees it. In a list, `item` is the rule of each item, or for a list of plain tuples
    `row` the rule of each place; `repeats` says that the items' values are often the same. `quick`
    is an expression of {v} and d that is true only where `check` finds nothing wrong.
    """

    name: str
    check: Check | None
    item: "Rule | type | None" = None
    row: tuple["Rule", ...] = ()
    quick: str = ""
    repeats: bool = False


def _number(name: str, low: float, high: float, what: str) -> Rule:
    def check(value: Any, d: int) -> str:
        # A NaN passes no comparison.
        return "" if low <= value <= high else f"expected {what}, got {value!r:.40}"

    return Rule(name, check, quick=f"{low!r} <= {{v}} <= {high!r}")


def _name(value: str, d: int) -> str:
    return "" if not value else name_problem(value)


def _named(value: str, d: int) -> str:
    return name_problem(value) if value else "must not be empty"


def _status(value: str, d: int) -> str:
    if value in FINAL_STATUSES:
        return ""
    return f"expected one of {', '.join(FINAL_STATUSES[1:])} or nothing, got {value!r:.40}"


def _text(value: str, d: int) -> str:
    if len(value) * 4 <= TEXT_BYTES_MAX:
        return ""
    size = len(value.encode("utf-8", "surrogatepass"))
    return "" if size <= TEXT_BYTES_MAX else f"{size} bytes are more than {TEXT_BYTES_MAX}"


def _vector(name: str, least: float, what: str, *, may_be_empty: bool) -> Rule:
    def check(value: tuple[float, ...], d: int) -> str:
        if not value:
            if may_be_empty or d == 0:
                return ""
            return f"expected one amount for each of {d} resource types, got none"
        if d and len(value) != d:
            return f"expected one amount for each of {d} resource types, got {len(value)}"
        # A NaN makes the sum a NaN, which passes no comparison.
        if min(value) >= least and sum(value) <= EXACT:
            return ""
        return f"expected {what}, got {list(value)!r:.80}"

    quick = f"(not d or len({{v}}) == d) and min({{v}}) >= {least!r} and sum({{v}}) <= {EXACT!r}"
    quick = f"not {{v}} or {quick}" if may_be_empty else f"{{v}} and {quick}"
    return Rule(name, check, quick=quick, repeats=True)


def _amounts(value: Mapping[str, float], d: int) -> str:
    if len(value) > 100:
        return f"{len(value)} resources are more than 100"
    for name, amount in value.items():
        if problem := _named(name, d):
            return problem
        if not 0 < amount <= EXACT:
            return f"expected a positive amount of {name}, got {amount!r:.40}"
    return "" if value else "expected at least one resource"


def _list(
    item: "Rule | type", most: int = ITEMS_MAX, counts: Callable[[Any], int] | None = None
) -> Rule:
    """Return a list's rule; `counts` says for how many an item stands that is a run."""
    check = item.check if isinstance(item, Rule) else None

    def each(value: tuple[Any, ...], d: int) -> str:
        if not value:
            return ""
        if len(value) > most:
            return f"{len(value)} items are more than {most}"
        if counts is not None and (total := sum(map(counts, value))) > most:
            return f"runs of {total} are more than {most}"
        if check is not None:
            for position, one in enumerate(value):
                if problem := check(one, d):
                    return f"item {position}: {problem}"
        return ""

    quick = "not {v} or not {check}({v}, d)"
    # The rules of an item bound how many it may stand for.
    if isinstance(item, type):
        quick = f"len({{v}}) <= {most}" if counts is None else "len({v}) == 1 or " + quick
    # They are whole numbers on the wire, so that none is a NaN.
    elif item in (ID, CONTAINER, POSITION):
        low = CONTAINER_MIN if item is CONTAINER else 0
        high = STAGE_MAX if item is POSITION else ID_MAX
        quick = (
            f"not {{v}} or (len({{v}}) == 1 and {low} <= {{v}}[0] <= {high})"
            f" or (len({{v}}) <= {most} and min({{v}}) >= {low} and max({{v}}) <= {high})"
        )
    return Rule("list", each, item, quick=quick)


def _tasks(value: Any) -> int:
    return len(value.tasks) or 1


def _count(value: Any) -> int:
    count: int = value.count
    return max(1, count)


def _row(*rules: Rule, most: int = ITEMS_MAX) -> Rule:
    """Return the rule of a list of plain tuples, with a rule for each place."""
    checks = [rule.check for rule in rules]

    def each(value: tuple[tuple[Any, ...], ...], d: int) -> str:
        if len(value) > most:
            return f"{len(value)} items are more than {most}"
        for position, row in enumerate(value):
            for check, one in zip(checks, row, strict=True):
                if check is not None and (problem := check(one, d)):
                    return f"item {position}: {problem}"
        return ""

    return Rule("rows", each, row=rules, quick="not {v} or not {check}({v}, d)")


def _blacklist(value: tuple[str, ...] | None, d: int) -> str:
    assert NAMES.check is not None
    return "" if value is None else NAMES.check(value, d)


GIVEN = Rule("given", None)
# A NAME may be empty, unlike a NAMED.
NAME = Rule("name", _name, quick="not {v} or {v} in known or is_known({v}, {check})")
NAMED = Rule("named", _named, quick="{v} in known or is_known({v}, {check})")
TEXT = Rule(
    "text",
    _text,
    quick=f"not {{v}} or len({{v}}) <= {TEXT_BYTES_MAX // 4} or not {{check}}({{v}}, d)",
)
STATUS = Rule("status", _status, quick="not {v} or not {check}({v}, d)")
ID = _number("id", 0, ID_MAX, "an id below 2^63")
CONTAINER = _number("container", CONTAINER_MIN, ID_MAX, "a container's id from 2^32 to 2^63 - 1")
# It is the first id of a run, whose last must be an id as well.
FIRST = _number("container", CONTAINER_MIN, ID_MAX - ITEMS_MAX, "a container's id from 2^32 on")
ATTEMPT = _number("attempt", 1, ATTEMPT_MAX, f"an attempt's id from 1 to {ATTEMPT_MAX}")
APP = _number("app", 0, APP_MAX, f"an application's number of at most {APP_MAX}")
COUNT = _number("count", 0, EXACT, "a whole number from 0 to 2^53")
TRY = _number("count", 0, TRIES_MAX, f"a whole number from 0 to {TRIES_MAX}")
NEXT_TRY = _number("count", 0, TRIES_MAX + 1, f"a whole number from 0 to {TRIES_MAX + 1}")
MANY = _number("many", 1, ITEMS_MAX, f"a number of containers from 1 to {ITEMS_MAX}")
POSITION = _number("position", 0, STAGE_MAX, "a position from 0 on")
STAGE = _number("stage", -1, STAGE_MAX, "a position from 0 on, or -1 for none")
EXIT = _number("exit", -(2**31), 2**31 - 1, "an exit code")
DURATION = _number("duration", 0, EXACT, "a finite time from 0 to 2^53 s")
# An interval of 0 would be a busy loop.
PACE = _number("pace", 0.001, EXACT, "a time from 1 ms to 2^53 s")
SPEED = _number("speed", 1 / SPEED_MAX, SPEED_MAX, "a speed from 1e-6 to 1e6")
MOMENT = _number("moment", -EXACT, EXACT, "a finite time within 2^53 s")
NUMBER = _number("number", -EXACT, EXACT, "a finite number within 2^53")
PART = _number("part", 0, 1 + 1e-6, "a number from 0 to 1")
WORK = _number("work", 0, SUM_MAX, "a finite number from 0 on")
DEMAND = _vector("demand", 0.0, "finite amounts from 0 to 2^53", may_be_empty=False)
SHARE = _vector("share", -EXACT, "finite amounts", may_be_empty=True)
GRANTED = _vector("granted", 0.0, "finite amounts from 0 to 2^53", may_be_empty=True)
# An amount below 0 was not measured.
USE = _vector("use", -1.0, "finite amounts, or -1 for not measured", may_be_empty=True)
CAPACITY = Rule("capacity", _amounts)
# It may name none.
AMOUNTS = Rule("amounts", lambda value, d: _amounts(value, d) if value else "")
IDS = _list(ID)
CONTAINERS = _list(CONTAINER)
APPS = _list(APP)
TASKS = _list(POSITION)
NAMES = _list(NAMED)
LABELS = _list(NAMED, LABELS_MAX)
BLACKLIST = Rule("blacklist", _blacklist, quick="not {v} or not {check}({v}, d)")
STATES = _list(NAMED, 100)
WORDS = Rule(
    "words",
    lambda value, d: "" if len(value) <= ITEMS_MAX else "too many words",
    quick=f"len({{v}}) <= {ITEMS_MAX}",
)
TYPES = Rule("types", lambda value, d: "" if len(value) <= 100 else "too many resource types")

RULES: Mapping[type, Mapping[str, Any]] = {
    messages.Ask: {
        "ask_id": ID,
        "total": COUNT,
        "demand": DEMAND,
        "duration_s": DURATION,
        "pri_score": NUMBER,
        "kind": GIVEN,
        "stage": STAGE,
        "nodes": NAMES,
        "racks": NAMES,
        "label": NAME,
        "gang": GIVEN,
        "strict": GIVEN,
        "counts": _list(POSITION),
    },
    messages.Container: {
        "container_id": FIRST,
        "node_id": NAMED,
        "ask_id": ID,
        "boot": ID,
        "count": MANY,
    },
    messages.Preemption: {"container_id": CONTAINER, "by_s": MOMENT},
    messages.AsksRefused: {"request_id": ID, "asks": IDS, "reason": TEXT},
    messages.TaskLaunch: {
        "container_id": FIRST,
        "stage": STAGE,
        "task": STAGE,
        "attempt": TRY,
        "duration_s": DURATION,
        "demand": DEMAND,
        "command": WORDS,
        "environment": WORDS,
        "reusable": GIVEN,
        "remote": GIVEN,
        "granted": GRANTED,
        "tasks": TASKS,
    },
    messages.MasterLaunch: {
        "container_id": CONTAINER,
        "attempt_id": ATTEMPT,
        "demand": DEMAND,
        "command": WORDS,
        "environment": WORDS,
    },
    messages.TaskEnd: {
        "container_id": CONTAINER,
        "stage": STAGE,
        "task": STAGE,
        "attempt": TRY,
        "outcome": GIVEN,
        "exit_code": EXIT,
        "run_s": DURATION,
        "message": TEXT,
        "use": USE,
    },
    messages.ContainerEnd: {
        "container_id": FIRST,
        "outcome": GIVEN,
        "exit_code": EXIT,
        "stage": STAGE,
        "task": STAGE,
        "attempt": TRY,
        "run_s": DURATION,
        "message": TEXT,
        "tasks": TASKS,
    },
    messages.ContainerUse: {"container_id": CONTAINER, "use": USE},
    messages.BegunTask: {
        "container_id": CONTAINER,
        "stage": STAGE,
        "task": STAGE,
        "attempt": TRY,
    },
    messages.RunningContainer: {
        "container_id": CONTAINER,
        "demand": DEMAND,
        "tasks": _row(STAGE, STAGE, COUNT),
        "started_s": DURATION,
    },
    messages.FinishedTask: {"stage": STAGE, "task": STAGE, "run_s": DURATION},
    messages.ItemAnswer: {
        "container_id": CONTAINER,
        "stage": STAGE,
        "task": STAGE,
        "error": TEXT,
        "count": MANY,
        "attempt": NEXT_TRY,
        "granted": GRANTED,
    },
    messages.AttemptRegistered: {
        "attempt_id": ATTEMPT,
        "address": NAME,
        "held": _row(CONTAINER, NAMED),
        "tracking_url": NAME,
        "fresh": GIVEN,
        "takes_over": GIVEN,
    },
    messages.ContainersAsked: {
        "attempt_id": ATTEMPT,
        "request_id": ID,
        "acks": IDS,
        "asks": _list(messages.Ask),
        "releases": CONTAINERS,
        "progress": PART,
        "remaining_work": WORK,
        "blacklist": BLACKLIST,
        "remaining_path_s": WORK,
        "epoch": COUNT,
    },
    messages.AttemptFinished: {
        "attempt_id": ATTEMPT,
        "succeeded": GIVEN,
        "diagnostics": TEXT,
        "tracking_url": NAME,
        "status": STATUS,
    },
    messages.AttemptAccepted: {
        "attempt_id": ATTEMPT,
        "job": GIVEN,
        "types": TYPES,
        "machines": _row(DEMAND, COUNT),
        "share": SHARE,
        "finished": GIVEN,
        "heartbeat_s": PACE,
        "prompt": GIVEN,
        "cluster_ts": ID,
        "seed": ID,
        "epoch": COUNT,
        "racks": _row(NAMED, NAME),
        "held": _list(messages.Container, counts=_count),
        "addresses": _row(NAMED, NAME),
        "speeds": _list(SPEED),
        "labels": _list(LABELS),
    },
    messages.ContainersGranted: {
        "attempt_id": ATTEMPT,
        "response_id": ID,
        "acks": IDS,
        "containers": _list(messages.Container, counts=_count),
        "ended": _list(messages.ContainerEnd, counts=_tasks),
        "share": SHARE,
        "headroom": SHARE,
        "addresses": _row(NAMED, NAME),
        "resync": GIVEN,
        "epoch": COUNT,
        "racks": _row(NAMED, NAME),
        "preempt": _list(messages.Preemption),
        "machines": _row(DEMAND, COUNT),
        "speeds": _list(SPEED),
        "labels": _list(LABELS),
        "refused": _list(messages.AsksRefused),
    },
    messages.AttemptUnregistered: {"attempt_id": ATTEMPT},
    messages.AttemptStopped: {"attempt_id": ATTEMPT, "reason": TEXT},
    messages.NodeRegistered: {
        "node_id": NAMED,
        "address": NAME,
        "rack": NAME,
        "labels": LABELS,
        "capacity": CAPACITY,
        "running": _list(messages.RunningContainer),
        "boot": GIVEN,
        "life": COUNT,
        "token": ID,
        "request_id": ID,
        "unhealthy": TEXT,
        "lacking": TEXT,
        "speed": SPEED,
        "files": GIVEN,
    },
    messages.NodeHeartbeated: {
        "node_id": NAMED,
        "request_id": ID,
        "acks": IDS,
        "ended": _list(messages.ContainerEnd, counts=_tasks),
        "tasks_ended": _list(messages.TaskEnd),
        "use": USE,
        "container_use": _list(messages.ContainerUse),
        "unhealthy": TEXT,
        "begun": _list(messages.BegunTask),
    },
    messages.NodeUnregistered: {"node_id": NAMED},
    messages.NodeAccepted: {
        "node_id": NAMED,
        "types": TYPES,
        "heartbeat_s": PACE,
        "prompt": GIVEN,
        "cluster_ts": ID,
        "life": COUNT,
        "expiry_s": DURATION,
        "request_id": ID,
    },
    messages.NodeAnswered: {
        "node_id": NAMED,
        "response_id": ID,
        "acks": IDS,
        "start": _list(messages.MasterLaunch),
        "stop": CONTAINERS,
        "next_heartbeat_s": DURATION,
        "resync": GIVEN,
        "shutdown": TEXT,
        "life": COUNT,
        "token": ID,
        "over": APPS,
        "spare": CONTAINERS,
    },
    messages.StartContainers: {
        "attempt_id": ATTEMPT,
        "node_id": NAMED,
        "boot": ID,
        "items": _list(messages.TaskLaunch, counts=_tasks),
    },
    messages.StopContainers: {
        "attempt_id": ATTEMPT,
        "node_id": NAMED,
        "containers": CONTAINERS,
    },
    messages.QueryContainers: {
        "attempt_id": ATTEMPT,
        "node_id": NAMED,
        "containers": CONTAINERS,
    },
    messages.StartAnswered: {
        "node_id": NAMED,
        "attempt_id": ATTEMPT,
        "items": _list(messages.ItemAnswer, counts=_count),
    },
    messages.TasksEnded: {
        "node_id": NAMED,
        "attempt_id": ATTEMPT,
        "ended": _list(messages.TaskEnd),
        "container_use": _list(messages.ContainerUse),
        "sent_s": MOMENT,
    },
    # Clients request these; a job is checked where its file is read (`weft.model.jobfile`).
    requests.NewApplication: {},
    requests.SubmitApplication: {
        "job": GIVEN,
        "submission_id": NAME,
        "app_id": APP,
        "fresh": GIVEN,
    },
    requests.FindSubmission: {"submission_id": NAME},
    requests.KillApplication: {"app_id": APP, "diagnostics": TEXT},
    requests.MoveApplication: {"app_id": APP, "queue": NAME},
    requests.SetPriority: {"app_id": APP, "priority": EXIT},
    requests.SetExpiry: {"app_id": APP, "expires_s": DURATION},
    requests.GetApplication: {"app_id": APP},
    requests.GetJob: {"app_id": APP},
    requests.ListApplications: {
        "states": STATES,
        "queue": NAME,
        "user": NAME,
        "limit": COUNT,
        "page": NAME,
    },
    requests.ListNodes: {"states": STATES, "limit": COUNT, "page": NAME, "node": NAME},
    requests.DecommissionNode: {"node_id": NAME, "timeout_s": NUMBER},
    requests.RecommissionNode: {"node_id": NAME},
    requests.UpdateNode: {
        "node_id": NAME,
        "capacity": AMOUNTS,
        "labels": LABELS,
        "relabel": GIVEN,
        "own": GIVEN,
    },
    requests.ListQueues: {},
    # A tree is checked where it is read (`weft.model.queues`).
    requests.SetQueues: {"queues": GIVEN, "dry_run": GIVEN, "base": NAME},
    requests.GetMetrics: {},
    requests.GetManager: {},
    requests.GetSettings: {},
    requests.GetQueues: {},
    requests.Explain: {"app_id": APP},
    requests.ListContainers: {"app_id": APP, "limit": COUNT, "page": NAME},
}


__all__ = ["RULES", "Rule", "check", "field_names", "id_problem", "name_problem", "problem_of"]


def field_names(kind: type) -> tuple[str, ...]:
    """Return the fields of a message's type in order."""
    named: tuple[str, ...] | None = getattr(kind, "_fields", None)
    return tuple(field.name for field in fields(kind)) if named is None else named


def id_problem(number: int) -> str:
    """Return why a number is no id; empty: it is."""
    assert ID.check is not None
    return ID.check(number, 0)


def check(message: Any, d: int) -> None:
    """Raise InputError where a message breaks a rule; `d` resource types, 0: not known."""
    kind = type(message)
    if _QUICK[kind](message, d):
        return
    for name, rule, nested in _PLANS[kind]:
        value = getattr(message, name)
        if rule is not None and (problem := rule(value, d)):
            raise InputError(name, problem)
        if nested is not None and value:
            _check_items(name, value, nested, d)


def problem_of(message: Any, d: int) -> InputError | None:
    """Return what `check` would raise."""
    try:
        check(message, d)
    except InputError as error:
        return error
    return None


_Row = list[tuple[str, Check | None, list[Any] | None]]


def _check_items(name: str, items: tuple[Any, ...], row: _Row, d: int) -> None:
    for position, item in enumerate(items):
        for part, rule, nested in row:
            value = getattr(item, part)
            if rule is not None and (problem := rule(value, d)):
                raise InputError(f"{name}[{position}].{part}", problem)
            if nested is not None and value:
                _check_items(f"{name}[{position}].{part}", value, nested, d)


def _row_of(kind: type) -> _Row:
    """Return the checks of a record's fields, those that check nothing left out."""
    rules = ((name, RULES[kind][name]) for name in field_names(kind))
    return [(name, rule.check, _nested(rule)) for name, rule in rules if rule.check is not None]


def _nested(rule: Rule) -> Any:
    return _row_of(rule.item) if isinstance(rule.item, type) else None


_PLANS: Mapping[type, list[tuple[str, Check | None, Any]]] = {
    kind: [
        (name, rule.check, _nested(rule)) for name, rule in rows.items() if rule.check is not None
    ]
    for kind, rows in RULES.items()
}
_QUICK: Mapping[type, Quick] = {kind: quick(kind, RULES) for kind in RULES}
