"""The shell does what cores order, in order, and nothing before it is durable."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from weft.protocol.effects import Effect, Kill, Note, Persist, Send, SetTimer, Stop, TimerFired
from weft.protocol.facts import Remark
from weft.runtime.clock import Clock
from weft.runtime.interfaces import Outside
from weft.runtime.shell import ROUND_S, Shell


class Scripted:
    """A core that answers each event with what the script says."""

    def __init__(self, script: Callable[[Any], list[Effect]]) -> None:
        self.seen: list[Any] = []
        self._script = script

    def handle(self, event: Any, now: float) -> list[Effect]:
        self.seen.append(event)
        return self._script(event)

    def check(self) -> None:
        pass


class Recorded(Outside):
    def __init__(self) -> None:
        self.did: list[Any] = []

    def idle(self, cores: Sequence[str]) -> None:
        self.did.append(("idle", tuple(cores)))

    def send(self, sends: Sequence[tuple[str, Any]]) -> None:
        self.did.extend(("send", to, message) for to, message in sends)

    def kill(self, core: str, container: int) -> None:
        self.did.append(("kill", core, container))

    def note(self, core: str, fact: Any, now: float) -> None:
        self.did.append(("note", fact.text))

    def stopped(self, core: str, reason: str) -> None:
        self.did.append(("stopped", core, reason))

    def failed(self, core: str, error: Exception) -> None:
        self.did.append(("failed", core, str(error)))


class SlowStore:
    """A store whose disk waits until the test lets it go on."""

    def __init__(self, outside: Recorded) -> None:
        self.outside = outside
        self.batches: list[list[Any]] = []
        self.go = threading.Event()

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        assert self.go.wait(60)
        self.outside.did.append(("durable", len(records)))
        self.batches.append(list(records))


async def settle(shell: Shell, until: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not until():
            await asyncio.sleep(0.001)


def drive(
    script: Callable[[Any], list[Effect]],
    test: Callable[[Shell, Scripted, Recorded], Any],
    store: bool = False,
    time_scale: float = 1.0,
    exact: bool = False,
) -> Recorded:
    """Run a shell with one scripted core while `test` plays with it."""
    outside = Recorded()

    async def main() -> None:
        slow = SlowStore(outside) if store else None
        shell = Shell(Clock(time_scale=time_scale), outside, slow, exact=exact)
        core = Scripted(script)
        shell.add("core", core)
        running = asyncio.create_task(shell.run())
        await test(shell, core, outside) if slow is None else await test(shell, slow, outside)
        shell.end()
        await running

    asyncio.run(main())
    return outside


def test_effects_are_done_in_order() -> None:
    effects: list[Effect] = [
        Send("a", 1),
        Note(Remark("info", "x")),
        Kill(7),
        Send("b", 2),
    ]

    async def test(shell: Shell, core: Scripted, outside: Recorded) -> None:
        shell.post("core", "go")
        await settle(shell, lambda: len(outside.did) == 4)

    did = drive(lambda event: effects, test).did
    assert [d for d in did if d[0] == "send"] == [("send", "a", 1), ("send", "b", 2)]
    assert [d for d in did if d[0] != "send"] == [("note", "x"), ("kill", "core", 7)]


def test_nothing_after_a_persist_is_done_before_it_is_durable() -> None:
    def script(event: Any) -> list[Effect]:
        if event == "plain":
            return [Send("c", "plain")]
        return [Send("a", "before"), Persist({"n": event}), Send("b", event)]

    async def test(shell: Shell, store: Any, outside: Recorded) -> None:
        shell.post("core", 1)
        await settle(shell, lambda: ("send", "a", "before") in outside.did)
        shell.post("core", "plain")  # later than something that is not durable yet
        shell.post("core", 2)
        await asyncio.sleep(0.02)
        assert outside.did == [("send", "a", "before")]
        store.go.set()
        await shell.settle()
        await settle(shell, lambda: ("send", "b", 2) in outside.did)

    did = drive(script, test, store=True).did
    first, plain, second = (did.index(("send", *x)) for x in (("b", 1), ("c", "plain"), ("b", 2)))
    assert did.index(("durable", 1)) < first < plain < second
    assert [d[0] for d in did].count("durable") == 2


def test_what_persists_together_is_committed_together() -> None:
    async def test(shell: Shell, store: Any, outside: Recorded) -> None:
        for n in range(50):
            shell.post("core", n)
        store.go.set()
        await settle(shell, lambda: len(outside.did) >= 51)
        assert len(store.batches) < 5
        assert [r["n"] for batch in store.batches for r in batch] == list(range(50))

    drive(lambda event: [Persist({"n": event}), Send("b", event)], test, store=True)


def test_a_store_that_cannot_write_ends_the_shell() -> None:
    class Full:
        def append(self, records: Sequence[Mapping[str, Any]]) -> None:
            raise OSError("no space left")

    async def main() -> None:
        outside = Recorded()
        shell = Shell(Clock(), outside, Full())
        shell.add("core", Scripted(lambda event: [Persist({}), Send("b", 1)]))
        shell.post("core", 1)
        with pytest.raises(OSError, match="no space"):
            await asyncio.wait_for(shell.run(), 60)
        assert outside.did == []

    asyncio.run(main())


def test_a_timer_is_replaced_by_a_newer_one_of_its_key_and_cancelled_by_none() -> None:
    orders: dict[Any, list[Effect]] = {
        "set": [SetTimer(0.05, "k"), SetTimer(0.01, "gone")],
        "replace": [SetTimer(0.01, "k"), SetTimer(None, "gone")],
    }

    async def test(shell: Shell, core: Scripted, outside: Recorded) -> None:
        shell.post("core", "set")
        shell.post("core", "replace")
        await settle(shell, lambda: TimerFired("k") in core.seen)
        await asyncio.sleep(0.08)
        assert [e for e in core.seen if isinstance(e, TimerFired)] == [TimerFired("k")]

    drive(lambda event: orders.get(event, []) if isinstance(event, str) else [], test)


def test_a_zero_delay_timer_collects_what_arrived_together() -> None:
    async def test(shell: Shell, core: Scripted, outside: Recorded) -> None:
        for n in range(5):
            shell.post("core", n)
        await settle(shell, lambda: TimerFired("all") in core.seen)
        assert core.seen == [0, 1, 2, 3, 4, TimerFired("all")]

    drive(lambda e: [] if isinstance(e, TimerFired) else [SetTimer(0.0, "all")], test)


@pytest.mark.parametrize("exact", [False, True])
def test_a_round_is_cut_short_by_its_time_unless_it_is_to_be_exact(exact: bool) -> None:
    """What is done on a stepped clock must not go by how fast the machine is."""

    def script(event: Any) -> list[Effect]:
        until = time.perf_counter() + ROUND_S
        while time.perf_counter() < until:
            pass
        return [] if isinstance(event, TimerFired) else [SetTimer(0.0, "all"), Send("a", event)]

    async def test(shell: Shell, core: Scripted, outside: Recorded) -> None:
        for n in range(5):
            shell.post("core", n)
        await settle(shell, lambda: 4 in core.seen and core.seen[-1] == TimerFired("all"))
        assert [one for one in core.seen if isinstance(one, int)] == [0, 1, 2, 3, 4]
        assert (core.seen == [0, 1, 2, 3, 4, TimerFired("all")]) is exact

    did = drive(script, test, exact=exact).did
    assert did == [("send", "a", n) for n in range(5)]


class Counted:
    """A clock that shows the time that a test says was spent, s."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def perf_counter(self) -> float:
        return self.spent_s


def test_beats_wait_their_turn_behind_what_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes whose beats take all of a process would hear no orders, nor that they were heard."""
    watch, fired = Counted(), list[str]()

    def beats(name: str) -> Scripted:
        def script(event: Any) -> list[Effect]:
            watch.spent_s += ROUND_S / 2
            time.sleep(1e-4)  # until the last of them has gone off, the first is due again
            fired.append(name)
            return [SetTimer(0.0005, "heartbeat")]

        return Scripted(script)

    def slow(event: Any) -> list[Effect]:
        watch.spent_s += ROUND_S / 2
        return []

    async def test(shell: Shell, core: Scripted, outside: Recorded) -> None:
        for number in range(50):
            shell.add(f"node-{number}", beats(f"node-{number}"))
            shell.post(f"node-{number}", "begin")
        await settle(shell, lambda: len(fired) >= 100)
        fired.clear()
        for number in range(200):
            shell.post("core", number)
        await settle(shell, lambda: core.seen[-1:] == [199])
        assert len(fired) <= 2 * 50, "no timer goes off a second time before"
        assert core.seen == list(range(200))

    monkeypatch.setattr("weft.runtime.shell.time", watch)
    drive(slow, test)


def test_beats_that_fall_together_leave_turns_to_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch, turns, fired = Counted(), list[int](), list[Any]()

    def script(event: Any) -> list[Effect]:
        if event == "begin":
            return [SetTimer(0.001, "heartbeat")]
        watch.spent_s += ROUND_S / 2
        fired.append(event)
        return []

    async def ticks() -> None:
        while True:
            turns.append(len(fired))
            await asyncio.sleep(0)

    async def test(shell: Shell, core: Scripted, outside: Recorded) -> None:
        for number in range(200):
            shell.add(f"node-{number}", Scripted(script))
            shell.post(f"node-{number}", "begin")
        ticking = asyncio.create_task(ticks())
        await settle(shell, lambda: len(fired) == 200)
        ticking.cancel()
        steps = [after - before for before, after in pairwise(turns)]
        assert max(steps) <= 3, "of half a round each"

    monkeypatch.setattr("weft.runtime.shell.time", watch)
    drive(script, test)


@pytest.mark.parametrize("delay_s", [0.0, 0.001])
def test_other_timers_wait_for_no_messages(delay_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manager that is behind matches all the same, and looks who is silent when it meant to."""
    watch = Counted()

    async def test(shell: Shell, core: Scripted, outside: Recorded) -> None:
        for number in range(1_000):
            shell.post("core", number)
        await settle(shell, lambda: 999 in core.seen)
        assert core.seen.count(TimerFired("match")) > 10

    def script(event: Any) -> list[Effect]:
        watch.spent_s += ROUND_S / 2
        time.sleep(1e-4)
        if isinstance(event, TimerFired) or event == 0:
            return [SetTimer(delay_s, "match")]
        return []

    monkeypatch.setattr("weft.runtime.shell.time", watch)
    drive(script, test)


@pytest.mark.parametrize(("streams_s", "most"), [(0.0, 3), (4 * ROUND_S, 9), (1.0, 11)])
def test_rounds_last_as_long_as_what_streams_do_between_them(
    streams_s: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else streams that bring much, slowly, bring more than is ever handled."""
    watch, turns = Counted(), list[int]()

    def slow(event: Any) -> list[Effect]:
        watch.spent_s += ROUND_S / 2
        return []

    async def test(shell: Shell, core: Scripted, outside: Recorded) -> None:
        async def streams() -> None:
            while True:
                turns.append(len(core.seen))
                watch.spent_s += streams_s
                await asyncio.sleep(0)

        streaming = asyncio.create_task(streams())
        for number in range(100):
            shell.post("core", number)
        await settle(shell, lambda: len(core.seen) == 100)
        streaming.cancel()
        steps = [after - before for before, after in pairwise(turns)]
        assert max(steps) == most

    monkeypatch.setattr("weft.runtime.shell.time", watch)
    drive(slow, test)


def test_timers_run_faster_with_the_time_scale() -> None:
    async def test(shell: Shell, core: Scripted, outside: Recorded) -> None:
        shell.post("core", "go")
        await asyncio.wait_for(settle(shell, lambda: TimerFired("day") in core.seen), 30)

    drive(lambda e: [SetTimer(86_400.0, "day")] if e == "go" else [], test, time_scale=1e7)


def test_a_core_that_stops_says_its_last_words_and_is_gone() -> None:
    async def test(shell: Shell, core: Scripted, outside: Recorded) -> None:
        shell.post("core", "go")
        await settle(shell, lambda: "core" not in shell)
        shell.post("core", "dropped")
        await asyncio.sleep(0.01)
        assert core.seen == ["go"]

    script: list[Effect] = [SetTimer(0.001, "late"), Send("rm", "bye"), Stop("done")]
    did = drive(lambda event: script, test).did
    assert did == [("send", "rm", "bye"), ("stopped", "core", "done")]


def test_one_core_that_raises_leaves_the_others_alone() -> None:
    def script(event: Any) -> list[Effect]:
        raise ValueError("bug")

    async def test(shell: Shell, core: Scripted, outside: Recorded) -> None:
        other = Scripted(lambda event: [Send("x", event)])
        shell.add("other", other)
        shell.post("core", 1)
        shell.post("other", 2)
        await settle(shell, lambda: ("send", "x", 2) in outside.did)

    assert drive(script, test).did[0] == ("failed", "core", "bug")


def test_a_collector_takes_the_answer_of_its_own_event_only() -> None:
    async def test(shell: Shell, core: Scripted, outside: Recorded) -> None:
        taken: list[Any] = []
        done: list[bool] = []

        def collect(to: str, message: Any) -> bool:
            if to == "am:1":
                taken.append(message)
            return to == "am:1"

        shell.post("core", 1, collect, lambda: done.append(True))
        shell.post("core", 2)
        shell.post("nobody", 3, None, lambda: done.append(True))
        await settle(shell, lambda: len(done) == 2 and len(outside.did) == 3)
        assert taken == [1]

    did = drive(lambda event: [Send("am:1", event), Send("rm", event)], test).did
    assert did == [("send", "rm", 1), ("send", "am:1", 2), ("send", "rm", 2)]


def test_who_waits_for_the_mailbox_goes_on_once_what_was_in_it_was_handled() -> None:
    async def test(shell: Shell, core: Scripted, outside: Recorded) -> None:
        assert shell.handled().done(), "there is nothing to wait for"
        shell.post("core", 1)
        first = shell.handled()
        shell.post("core", 2)
        second = shell.handled()
        first.cancel()  # its stream is gone
        shell.post("core", 3)
        assert not second.done()
        await second
        assert core.seen[:2] == [1, 2]

    drive(lambda event: [], test)


def test_beats_keep_their_phase_however_late_each_of_them_is() -> None:
    """A beat is set by its own firing, which the loop, the work and the grid delay each time."""
    times: list[float] = []
    began: list[float] = []

    def script(event: Any) -> list[Effect]:
        loop = asyncio.get_running_loop()
        began.extend([] if began else [loop.time()])
        if event != "go":
            times.append(loop.time())
            until = loop.time() + (0.2 if len(times) == 3 else 0.006)
            while loop.time() < until:
                pass
        return [SetTimer(0.08, "heartbeat")]

    async def test(shell: Shell, core: Scripted, outside: Recorded) -> None:
        shell.post("core", "go")
        await settle(shell, lambda: len(times) >= 12)

    drive(script, test)
    late = sorted((at - began[0]) % 0.08 for at in times)
    assert late[len(late) // 2] < 0.02, late  # of a sum of intervals each would be later yet
    assert times[-1] - began[0] > 0.08 * (len(times) + 1)  # beats that were missed are left out


def test_beats_that_would_say_nothing_are_left_out_and_keep_their_phase() -> None:
    """The first beat is the core's own; then it is left out until it has something to say."""
    outside, silent = Recorded(), True
    seen: list[float] = []
    left_out: list[float] = []

    def script(event: Any) -> list[Effect]:
        if event == "begin":
            return [SetTimer(0.13, "heartbeat")]  # the first of many nodes' beats comes anywhere
        if isinstance(event, TimerFired):
            seen.append(asyncio.get_running_loop().time())
            return [SetTimer(0.2, "heartbeat")]
        nonlocal silent
        silent = event == "hush"
        return []

    asked = 0

    def leaves_out(core: object) -> bool:
        nonlocal asked
        asked += 1
        return silent

    async def main() -> None:
        outside.idle = lambda cores: left_out.append(  # type: ignore[method-assign]
            asyncio.get_running_loop().time()
        )
        shell = Shell(Clock(), outside, leaves_out=leaves_out)
        shell.add("core", Scripted(script))
        running = asyncio.create_task(shell.run())
        shell.post("core", "begin")
        await settle(shell, lambda: len(left_out) >= 4)
        assert asked == 1, "whoever has nothing to say has not until something happens to it"
        shell.post("core", "speak")
        await settle(shell, lambda: len(seen) >= 3)
        shell.post("core", "hush")
        more = len(left_out) + 2
        await settle(shell, lambda: len(left_out) >= more)
        shell.remove("core")
        gone = len(left_out)
        await asyncio.sleep(0.5)
        assert len(left_out) == gone, "whoever is gone beats no more"
        shell.end()
        await running

    asyncio.run(main())
    assert seen[0] < left_out[0] < seen[1]
    for beat_s in [*left_out, *seen]:  # all of them on one grid, up to what the machine is late
        off_s = (beat_s - seen[0] + 0.02) % 0.2
        assert off_s < 0.15, (seen, left_out)


def test_a_beat_that_began_at_once_has_an_interval_as_any_other() -> None:
    async def test(shell: Shell, core: Scripted, outside: Recorded) -> None:
        shell.post("core", "begin")
        await settle(shell, lambda: core.seen.count(TimerFired("heartbeat")) == 3)
        assert not outside.did

    def script(event: Any) -> list[Effect]:
        return [SetTimer(0.0 if event == "begin" else 0.005, "heartbeat")]

    drive(script, test)
