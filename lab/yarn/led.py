"""Weft asked in YARN's own state: after each heartbeat it is brought to where YARN is.

Two schedulers that run freely differ in all that follows a first difference. So Weft decides, the
answer is compared, and where it differs it is taken back and YARN's is booked instead.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.yarn.cases import Case
from lab.yarn.weft_side import Loop, Row, WatchedMatcher
from rm.ledger.view import View
from rm.match.protocol import Held, PreemptionTerms
from rm.match.yarn.books import Machine, Request
from rm.match.yarn.decisions import Taken
from rm.match.yarn.matcher import YarnMatcher

# "granted" or "reserved", application, priority.
Decision = tuple[Any, ...]


@dataclass(slots=True)
class Tally:
    """What was compared, and the first difference."""

    decisions: int = 0
    identical: int = 0
    classes: dict[str, int] = field(default_factory=dict)
    first: str = ""

    def note(self, where: str, yarn: list[Decision], weft: list[Decision], kind: str) -> None:
        """Count one heartbeat's decisions; `kind` is the class of its first difference."""
        same = 0
        while same < min(len(yarn), len(weft)) and yarn[same] == weft[same]:
            same += 1
        self.decisions += max(len(yarn), len(weft))
        self.identical += same
        if kind:
            self.classes[kind] = self.classes.get(kind, 0) + max(len(yarn), len(weft)) - same
            self.first = self.first or f"{where}: YARN {yarn[same:][:1]}, Weft {weft[same:][:1]}"


class LedMatcher(WatchedMatcher):
    """Answers what YARN did, and notes what it would have done itself."""

    loop: "Led"

    def preempt(
        self,
        view: View,
        held: Callable[[int], Iterable[Held]],
        terms: PreemptionTerms,
        now: float,
    ) -> tuple[list[int], list[int]]:
        """Choose, compare, and answer with what YARN chose."""
        since = dict(self._monitor.since)
        told, killed = YarnMatcher.preempt(self, view, held, terms, now)
        theirs = self.loop.compare_preempted(told, killed)
        if theirs is None:
            return told, killed
        self._monitor.since = since
        runs = self._runs(view, held)
        found: tuple[list[int], list[int]] = ([], [])
        for what, *place in theirs:
            kill = what == "KILL_CONTAINER"
            there = [n for at, n in runs if at == tuple(place)]
            there = [n for n in there if n not in (*found[0], *found[1])]
            # One that was told of while it was a reservation is killed without another word.
            fits = [n for n in there if (n in since) == kill] or there
            if not fits:
                raise LookupError(f"nothing of {place} is there to be preempted")
            found[kill].append(fits[0])
            if kill:
                self._monitor.since.pop(fits[0], None)
            else:
                self._monitor.since[fits[0]] = now
        return found

    def _runs(
        self, view: View, held: Callable[[int], Iterable[Held]]
    ) -> list[tuple[tuple[str, int, int], int]]:
        """Return all that runs, the latest first, with its node, application and priority."""
        rows = []
        for slot, app in self._state.apps.items():
            for one in held(slot):
                made = self._live(view, app, one).made
                rows.append((-made, self.loop.place_of(one.number), one.number))
        return [(place, number) for _, place, number in sorted(rows)]

    def _decide(self, machine: Machine) -> list[Taken]:
        """Decide, compare, and return YARN's decisions."""
        before = machine.reservation.request if machine.reservation is not None else None
        taken = self._walk.node(machine)
        told = self.loop.compare(machine, self._walk.decided)
        if told is not None:
            self._undo(machine, before)
            taken = self._force(machine, told)
        return taken

    def wants(self, view: View, node: int) -> bool:
        """Return True: YARN may have done something that Weft would not."""
        return True

    def _undo(self, machine: Machine, before: Request | None) -> None:
        state, calc = self._state, self._state.rules.calculator
        for one in reversed(self._walk.decided):
            request = one.request
            if one.reserved:
                if machine.reservation is not None:
                    state.unreserve(machine.reservation)
                continue
            state.hold(machine, request.app, calc.sub(calc.none, request.amount))
            request.app.made.pop()
            names = ((machine.name, machine.rack), (machine.rack,), ())[one.place]
            for name in names:
                request.places[name] = request.places.get(name, 0) + 1
            state.set_count(request, request.count + 1)
            if one.freed is not None and one.freed.node.reservation is None:
                state.reserve(one.freed.node, one.freed.request)
        if before is not None and machine.reservation is None:
            state.reserve(machine, before)

    def _force(self, machine: Machine, told: "Told") -> list[Taken]:
        state, taken = self._state, []
        for name, app, priority in told.freed:
            for kept in [m.reservation for m in state.machines.values() if m.name == name]:
                if kept is not None and self.loop.is_of(kept.request, app, priority):
                    state.unreserve(kept)
        for (app, priority), place in zip(told.grants, told.places, strict=True):
            request = self.loop.request_of(app, priority)
            kept = machine.reservation
            fulfilled = kept is not None and kept.request is request
            if fulfilled and kept is not None:
                state.unreserve(kept)
            self._walk.count_down(request, machine, place)
            state.hold(machine, request.app, request.amount)
            state.number(request.app, kept if fulfilled else None)
            taken.append(Taken(request, place, fulfilled=fulfilled))
        kept = machine.reservation
        if kept is not None and told.kept is not None and self.loop.is_of(kept.request, *told.kept):
            return taken
        if kept is not None:
            state.unreserve(kept)
        if told.kept is not None:
            state.reserve(machine, self.loop.request_of(*told.kept))
        return taken


@dataclass(slots=True)
class Told:
    """What YARN did at one heartbeat.

    `reserved` are those of this heartbeat, `kept` is the reservation after it.
    """

    grants: list[tuple[int, int]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    reserved: list[tuple[int, int]] = field(default_factory=list)
    kept: tuple[int, int] | None = None
    freed: list[tuple[str, int, int]] = field(default_factory=list)


class Led(Loop):
    """The loop, led by what the driver told of YARN."""

    def __init__(self, case: Case, yarn: Mapping[str, Any]) -> None:
        super().__init__(case)
        self.tally = Tally()
        self.number = 0
        self.told: defaultdict[tuple[int, str], Told] = defaultdict(Told)
        for row, place in zip(yarn["grants"], yarn["places"], strict=True):
            one = self.told[row[0], row[1]]
            one.grants.append((row[2], row[3]))
            one.places.append(place)
        for number, node, app, priority in yarn["reservations"]:
            self.told[number, node].reserved.append((app, priority))
        for number, node, app, priority in yarn["reserved_after"]:
            self.told[number, node].kept = (app, priority)
        self.chosen: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for number, *row in yarn["preemptions"]:
            self.chosen[number].append(tuple(row))
        self._queues = {a["id"]: a.get("queue", "default") for a in case.data["applications"]}

    def make_matcher(self, options: Mapping[str, Any]) -> YarnMatcher:
        """Return the matcher that is led."""
        made = LedMatcher(**dict(options))
        made.loop = self
        return made

    def heartbeat(self, number: int, node: str) -> None:
        """Note the round, for what is compared in it."""
        self.number = number
        super().heartbeat(number, node)

    def _in_order(self, rows: list[Row]) -> list[Row]:
        return rows

    def compare(self, machine: Machine, decided: list[Taken]) -> Told | None:
        """Count a heartbeat's decisions; return YARN's where they differ."""
        told = self.told[self.number, machine.name]
        yarn: list[Decision] = [("granted", *one) for one in told.grants]
        yarn += [("reserved", *one) for one in told.reserved]
        weft: list[Decision] = [
            ("reserved" if one.reserved else "granted", *self.names(one.request)) for one in decided
        ]
        kind = "" if yarn == weft else self._class(yarn, weft)
        self.tally.note(f"round {self.number}, {machine.name}", yarn, weft, kind)
        return None if yarn == weft else told

    def compare_preempted(self, told: list[int], killed: list[int]) -> list[tuple[Any, ...]] | None:
        """Count a round's preemptions; return YARN's where they differ."""
        number = int(self.now)
        yarn = sorted(self.chosen[number])
        weft = sorted(
            [("PREEMPT_CONTAINER", *self.place_of(one)) for one in told]
            + [("KILL_CONTAINER", *self.place_of(one)) for one in killed]
        )
        self.tally.note(f"round {number}", yarn, weft, "" if yarn == weft else "preempted")
        return None if yarn == weft else yarn

    def _class(self, yarn: list[Decision], weft: list[Decision]) -> str:
        at = 0
        while at < min(len(yarn), len(weft)) and yarn[at] == weft[at]:
            at += 1
        theirs, ours = (rows[at] if at < len(rows) else None for rows in (yarn, weft))
        if theirs is None or ours is None:
            one, who = (ours, "Weft") if theirs is None else (theirs, "YARN")
            return f"{who} alone {'' if one is None else one[0]}"
        if theirs[0] != ours[0]:
            return f"{theirs[0]} by YARN, {ours[0]} by Weft"
        if theirs[1] == ours[1]:
            return "another request of the same application"
        same = self._queues[theirs[1]] == self._queues[ours[1]]
        return "another application of the queue" if same else "another queue"

    def is_of(self, request: Request, app: int, priority: int) -> bool:
        """Return whether a request is this application's at this priority."""
        return self.names(request) == (app, priority)

    def request_of(self, app: int, priority: int) -> Request:
        """Return an application's request at a priority; raises LookupError."""
        matcher = self.matcher
        assert isinstance(matcher, YarnMatcher)
        for known in matcher.applications():
            for request in known.requests:
                if self.is_of(request, app, priority):
                    return request
        raise LookupError(f"application {app} asks for nothing at priority {priority}")
