"""What a job with a master of its own asked for, once it ran: enough to simulate it.

Such a job is open: nobody but its master knows its tasks. What the Resource Manager saw of a run
says when containers were asked for and how long each was held, and that is run again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from weft.model.errors import InputError
from weft.model.json_types import Json, Table
from weft.model.reading import read_name, read_table
from weft.model.resources import read_amount

LIST_ROWS_MAX = 100_000
_KEYS = {"lasted_s", "tail_s", "succeeded", "requests", "asks", "told"}
_REQUEST_KEYS = {"demand", "label", "nodes", "racks", "strict", "held_s"}


@dataclass(frozen=True, slots=True)
class Request:
    """Containers of one kind. `held_s`: how long each was held that was granted, in that order."""

    demand: Mapping[str, float]
    held_s: tuple[float, ...] = ()
    label: str = ""
    nodes: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()
    strict: bool = False


class Asked(NamedTuple):
    """A request as it was said at a time.

    `at_s` counts from the start of the master's container. `request` is a position in
    `Recording.requests`, `total` how many were ever wanted, as a master's asks count. One is
    expected to be held for `duration_s`. `pri_score` lies in (0, 1].
    """

    at_s: float
    request: int
    total: int
    duration_s: float
    pri_score: float


class Told(NamedTuple):
    """What the master told of its job at a time.

    `progress` goes from 0 to 1, `work_s` is the remaining work and `path_s` the remaining path.
    """

    at_s: float
    progress: float
    work_s: float
    path_s: float


@dataclass(frozen=True, slots=True)
class Recording:
    """One attempt, from the start of its master's container (0 s) to its end.

    `asks` are in order of time. `tail_s` is from the end of its last container to its own.
    """

    lasted_s: float
    requests: tuple[Request, ...] = ()
    asks: tuple[Asked, ...] = ()
    told: tuple[Told, ...] = ()
    tail_s: float = 0.0
    succeeded: bool = True

    @property
    def containers(self) -> int:
        """Number of containers that it was granted."""
        return sum(len(request.held_s) for request in self.requests)


def read_recording(data: object, place: str) -> Recording:
    """Read a job file's `master.recorded`; raises InputError."""
    table = read_table(data, place, _KEYS)
    requests = tuple(
        _request(item, f"{place}.requests[{i}]")
        for i, item in enumerate(_list(table, "requests", place))
    )
    asks = []
    for i, row in enumerate(_list(table, "asks", place)):
        where = f"{place}.asks[{i}]"
        at_s, number, total, duration_s, score = _row(row, 5, where)
        if number != int(number) or not 0 <= number < len(requests):
            raise InputError(where, f"there is no request {number:g}")
        if total != int(total):
            raise InputError(where, f"expected a whole number of containers, got {total:g}")
        if not 0 < score <= 1:
            raise InputError(where, f"expected a score above 0, at most 1, got {score:g}")
        asks.append(Asked(at_s, int(number), int(total), duration_s, score))
    told = []
    for i, row in enumerate(_list(table, "told", place)):
        at_s, progress, work_s, path_s = _row(row, 4, f"{place}.told[{i}]")
        if progress > 1:
            raise InputError(f"{place}.told[{i}]", f"a progress of {progress:g} is above 1")
        told.append(Told(at_s, progress, work_s, path_s))
    for name, times in (("asks", [a.at_s for a in asks]), ("told", [t.at_s for t in told])):
        if times != sorted(times):
            raise InputError(f"{place}.{name}", "the times are not in order")
    _check_totals(requests, asks, place)
    succeeded = table.get("succeeded", True)
    if not isinstance(succeeded, bool):
        raise InputError(f"{place}.succeeded", f"expected true or false, got {succeeded!r}")
    return Recording(
        read_amount(table.get("lasted_s"), f"{place}.lasted_s"),
        requests,
        tuple(asks),
        tuple(told),
        read_amount(table.get("tail_s", 0.0), f"{place}.tail_s"),
        succeeded,
    )


def recording_to_dict(recording: Recording) -> Json:
    """Write a recording as plain data, leaving out what has its default."""
    data: Json = {"lasted_s": recording.lasted_s}
    if recording.tail_s:
        data["tail_s"] = recording.tail_s
    if not recording.succeeded:
        data["succeeded"] = False
    data["requests"] = [_request_to_dict(request) for request in recording.requests]
    data["asks"] = [list(row) for row in recording.asks]
    data["told"] = [list(row) for row in recording.told]
    return {key: value for key, value in data.items() if value != []}


def _check_totals(requests: tuple[Request, ...], asks: list[Asked], place: str) -> None:
    """Raise unless what was granted was asked for: else it would be waited for without end."""
    most = [0] * len(requests)
    for ask in asks:
        # A later ask replaces an earlier one.
        most[ask.request] = ask.total
    for i, request in enumerate(requests):
        if len(request.held_s) > most[i]:
            text = f"{len(request.held_s)} containers were held, {most[i]} asked for"
            raise InputError(f"{place}.requests[{i}]", text)


def _request(data: object, place: str) -> Request:
    table = read_table(data, place, _REQUEST_KEYS)
    demand = table.get("demand", {})
    if not isinstance(demand, dict):
        raise InputError(f"{place}.demand", "expected amounts by resource")
    strict = table.get("strict", False)
    if not isinstance(strict, bool):
        raise InputError(f"{place}.strict", f"expected true or false, got {strict!r}")
    return Request(
        demand={
            read_name(name, f"{place}.demand"): read_amount(amount, f"{place}.demand.{name}")
            for name, amount in demand.items()
        },
        held_s=tuple(
            read_amount(one, f"{place}.held_s[{i}]")
            for i, one in enumerate(_list(table, "held_s", place))
        ),
        label=read_name(table.get("label", ""), f"{place}.label", empty=True),
        nodes=_names(table, "nodes", place),
        racks=_names(table, "racks", place),
        strict=strict,
    )


def _request_to_dict(request: Request) -> Json:
    data: Json = {"demand": dict(request.demand)}
    for key in ("held_s", "nodes", "racks"):
        if value := getattr(request, key):
            data[key] = list(value)
    if request.label:
        data["label"] = request.label
    if request.strict:
        data["strict"] = True
    return data


def _names(table: Table, key: str, place: str) -> tuple[str, ...]:
    found = _list(table, key, place)
    return tuple(read_name(one, f"{place}.{key}[{i}]") for i, one in enumerate(found))


def _list(table: Table, key: str, place: str) -> list[object]:
    found = table.get(key, [])
    if not isinstance(found, list):
        raise InputError(f"{place}.{key}", "expected a list")
    if len(found) > LIST_ROWS_MAX:
        raise InputError(f"{place}.{key}", f"{len(found)} rows are more than {LIST_ROWS_MAX}")
    return found


def _row(row: object, count: int, place: str) -> list[float]:
    if not isinstance(row, list) or len(row) != count:
        raise InputError(place, f"expected {count} numbers")
    return [read_amount(one, f"{place}[{i}]") for i, one in enumerate(row)]
