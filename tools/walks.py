"""How far an engineer has to walk: the functions and files that one event passes through.

`make walks` runs a two-stage job in the simulator under a profiler and prints, for three paths, the
events, calls, functions and files, and how many of the calls leave the file, and the folder, that
they are made in. Files differ in size from one project to the next: the share that leaves a file is
also one of how long files are.
The simulator's own files do not count, nor do compiled kernels and the way into them
(`weft.policies.compiled`).
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from sim.cluster import Simulation
from sim.engine import Actor, Effects
from sim.recorder import Recorder
from sim.settings import SimSettings
from weft.model.cluster import cluster_from_text
from weft.model.job import Edge, Job, Stage
from weft.policies.presets import preset
from weft.protocol.effects import Note, Send
from weft.protocol.facts import Placed, PlacedRun, TaskStopped, facts_of
from weft.protocol.messages import MANAGER, NodeHeartbeated, StartContainers

ROOT = Path(__file__).resolve().parents[1]
CORES = tuple(f"{ROOT}/{name}/" for name in ("rm", "am", "nm", "weft"))
CLUSTER = "2x8vcores,16384memory_mb"


@dataclass(slots=True)
class Event:
    """One event of one core: what it was, what it led to, and which functions it went through.

    `calls` are (from file, to file, function).
    """

    address: str
    kind: type
    effects: Effects = field(default_factory=list)
    calls: list[tuple[str, str, str]] = field(default_factory=list)


class Watched(Simulation):
    """A simulation whose cores are profiled, event by event."""

    def run(self) -> Recorder:
        """Run it; `walked` has every event of a core."""
        self.walked: list[Event] = []
        inner = self._hand_over

        def hand_over(actor: Actor, event: object, now: float) -> None:
            handle = actor.handle
            actor.handle = lambda told, at: self._watch(actor, handle, told, at)
            try:
                inner(actor, event, now)
            finally:
                actor.handle = handle

        self._hand_over = hand_over  # type: ignore[method-assign]
        return super().run()

    def _watch(
        self, actor: Actor, handle: Callable[[object, float], Effects], event: object, now: float
    ) -> Effects:
        seen = Event(actor.address, type(event))
        self.walked.append(seen)

        def profile(frame: FrameType, what: str, argument: object) -> None:
            code, caller = frame.f_code, frame.f_back
            if what == "call" and _counts(code.co_filename) and code.co_name[0] != "<":
                while caller is not None and caller.f_code.co_name[0] == "<":
                    # A comprehension is part of what it stands in.
                    caller = caller.f_back
                source = "" if caller is None else caller.f_code.co_filename
                seen.calls.append((source, code.co_filename, code.co_qualname))

        sys.setprofile(profile)
        try:
            seen.effects = handle(event, now)
        finally:
            sys.setprofile(None)
        return seen.effects


def _counts(file: str) -> bool:
    return file.startswith(CORES) and not file.endswith(
        ("_kernels.py", "weft/policies/compiled.py")
    )


def watched(scheduler: str, *, prompt: bool) -> list[Event]:
    """Run two stages of a few tasks, one after the other; return the events of all cores."""
    demand = {"vcores": 1.0, "memory_mb": 1024.0}
    stages = (Stage("a", 4, 10.0, demand), Stage("b", 2, 5.0, demand, (Edge("a"),)))
    settings = SimSettings(scheduler=preset(scheduler), prompt=prompt)
    run = Watched(cluster_from_text(CLUSTER), [Job("two", stages)], settings)
    run.run()
    return run.walked


def heartbeat(events: list[Event]) -> list[Event]:
    """Return a node's heartbeat on which tasks are placed, in the manager."""
    # The last such heartbeat places the second stage.
    for event in reversed(events):
        if event.kind is NodeHeartbeated and _notes(event, Placed, PlacedRun):
            return [event]
    raise SystemExit("no heartbeat led to a placement")


def task_end(events: list[Event]) -> list[Event]:
    """Return the events from the first stage's last end to the second's first start."""
    ends = [i for i, event in enumerate(events) if _notes(event, TaskStopped)]
    starts = [i for i, event in enumerate(events) if _sends(event, StartContainers)]
    end = max(i for i in ends if i < starts[-1])
    start = min(i for i in starts if i > end)
    return events[end : start + 1]


def submission(events: list[Event]) -> list[Event]:
    """Return the events from the submission to the first order to start tasks."""
    first = next(i for i, event in enumerate(events) if event.kind.__name__ == "ClientRequested")
    start = next(i for i, event in enumerate(events) if _sends(event, StartContainers))
    return events[first : start + 1]


def files(walk: list[Event]) -> Counter[str]:
    """Count how often each file is entered on the way."""
    return Counter(to for event in walk for _, to, _ in event.calls)


def _notes(event: Event, *kinds: type) -> bool:
    return any(
        isinstance(fact, kinds) and getattr(fact, "stage", 0) >= 0
        for effect in event.effects
        if isinstance(effect, Note)
        for fact in (effect.fact, *facts_of(effect.fact))
    )


def _sends(event: Event, kind: type) -> bool:
    return any(isinstance(e, Send) and isinstance(e.message, kind) for e in event.effects)


def main(arguments: list[str]) -> None:
    """Print the figures of the three paths; with `--files`, how often each file is entered."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scheduler", default="graphene")
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--calls", action="store_true")
    chosen = parser.parse_args(arguments)
    # The first run imports and compiles, which is no part of a walk.
    watched(chosen.scheduler, prompt=False)
    slow, quick = (watched(chosen.scheduler, prompt=prompt) for prompt in (False, True))
    paths = (
        ("submission -> first start, prompt", submission(quick)),
        (f"heartbeat -> placement, {MANAGER} alone", heartbeat(slow)),
        ("task end -> next stage's start, prompt", task_end(quick)),
    )
    for name, walk in paths:
        calls = [call for event in walk for call in event.calls]
        entered = files(walk)
        leaving = sum(here != there for here, there, _ in calls)
        moving = sum(Path(here).parent != Path(there).parent for here, there, _ in calls)
        print(
            f"{name}: {len(walk)} events, {len(calls)} calls, "
            f"{len({(to, what) for _, to, what in calls})} functions, {len(entered)} files, "
            f"{leaving / max(1, len(calls)):.0%} of calls leave their file, "
            f"{moving / max(1, len(calls)):.0%} their folder"
        )
        if chosen.files:
            for file, times in entered.most_common():
                print(f"    {times:4} {Path(file).relative_to(ROOT)}")
        if chosen.calls:
            for here, there, what in calls:
                print(
                    f"    {Path(here).name if here != there else '':20} {Path(there).name} {what}"
                )


if __name__ == "__main__":
    main(sys.argv[1:])
