"""Hostile messages, to the cores and to live services: `python -m tools.message_fuzz --help`.

Half of what a core is told is what an honest peer would say, so that there is something to hit; the
other half is made by the table of rules and then broken (`testkit.mutations`). What the gate lets
through must leave a core whose books agree (`check`), whose listings can be written, and, for what
a node said, no other node's holdings changed. Live services must go on, and run a job afterwards.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from am.ask.registry import asker
from am.core import ApplicationMaster
from am.settings import MasterSettings
from nm.core import NodeManager
from nm.settings import NodeSettings
from rm.core import ResourceManager
from rm.match.registry import make_matcher
from rm.settings import ManagerSettings
from testkit.mutations import Pool, broken, make
from tools.live_fuzz import FACES, FuzzError, tell_live
from weft.model.job import Job, Stage
from weft.model.queues import DEFAULT_QUEUES
from weft.model.resources import DEFAULT_RESOURCE_TYPES as TYPES
from weft.protocol import messages, requests
from weft.protocol.effects import (
    ClientRequested,
    Effect,
    Recovered,
    Send,
    SetTimer,
    Started,
    TimerFired,
)
from weft.protocol.record import changed
from weft.wire import codec, rules

MATCHERS = ("fifo", "capacity", "fair", "drf", "sjf", "tetris", "graphene", "carbyne")
# The most frequent messages are listed several times.
TO_MANAGER = (
    *get_args(messages.FromNode),
    *get_args(messages.FromMaster),
    messages.NodeHeartbeated,
    messages.ContainersAsked,
    messages.ContainersAsked,
    *codec.CALLS,
)
TO_NODE = (
    *get_args(messages.MasterToNode),
    *get_args(messages.ToNode),
    messages.StartContainers,
)
TO_MASTER = (
    *get_args(messages.ToMaster),
    *get_args(messages.NodeToMaster),
    messages.ContainersGranted,
)
READS = (
    requests.ListApplications(),
    requests.ListNodes(),
    requests.ListQueues(),
    requests.GetMetrics(),
)


@dataclass
class Tally:
    """What was said, and what became of it."""

    sent: int = 0
    refused: int = 0
    kinds: Counter[str] = field(default_factory=Counter)


class ManagerBed:
    """A Resource Manager with honest nodes and masters, of whom some are impersonated."""

    def __init__(self, seed: int, tally: Tally) -> None:
        self.rng = random.Random(seed)
        self.tally = tally
        settings = ManagerSettings(
            prompt=self.rng.random() < 0.5, node_expiry_s=50, master_expiry_s=50, max_attempts=50
        )
        self.core = ResourceManager(
            7,
            TYPES,
            DEFAULT_QUEUES,
            make_matcher(self.rng.choice(MATCHERS)),
            settings,
            np.random.default_rng(seed),
        )
        self.now = 0.0
        self.pool = Pool(apps=[1, 2, 3])
        self.told: list[Effect] = []
        self.acks: dict[str, list[int]] = {}
        self.numbers = 0
        self.handle(Recovered(()))
        for name in ("n1", "n2", "n3"):
            self.handle(self.registration(name))

    def registration(self, name: str) -> messages.NodeRegistered:
        """Return what an honest node says first; its containers are forgotten."""
        capacity = dict(zip(TYPES.names, (16.0, 65536.0, 800.0, 1000.0), strict=True))
        return messages.NodeRegistered(name, f"{name}:1", "r1", (), capacity, boot=1)

    def handle(self, event: Any) -> list[Effect]:
        """Tell the core; timers that are due at once fire."""
        effects = self.core.handle(event, self.now)
        for effect in effects:
            if isinstance(effect, SetTimer) and effect.delay_s == 0:
                effects = effects + self.core.handle(TimerFired(effect.key), self.now)
        for effect in effects:
            if isinstance(effect, Send):
                self.learn(effect.message)
        return effects

    def learn(self, message: Any) -> None:
        """Remember what an eavesdropper would."""
        pool = self.pool
        if isinstance(message, requests.ApplicationAccepted):
            pool.apps = [*pool.apps[-5:], message.app_id]
        elif isinstance(message, messages.ContainersGranted):
            pool.containers.extend(c.container_id for c in message.containers[:20])
            pool.batches = [*pool.batches[-5:], message.response_id]
        elif isinstance(message, messages.NodeAnswered):
            pool.containers.extend(item.container_id for item in message.start)
            pool.batches = [*pool.batches[-5:], message.response_id]
            self.acks.setdefault(message.node_id, []).append(message.response_id)
        del pool.containers[:-60]

    def step(self) -> None:
        """Send one honest or one hostile word."""
        self.now += self.rng.choice((0.0, 0.01, 0.3, 2.0))
        self.tally.sent += 1
        if self.rng.random() < 0.5:
            self.honest()
            return
        kind = self.rng.choice(TO_MANAGER)
        message = broken(make(kind, self.rng, self.pool), self.rng, self.pool)
        self.tally.kinds[kind.__name__] += 1
        if rules.problem_of(message, len(TYPES)) is not None:
            self.tally.refused += 1
            return
        before = self.core.books.ledger.nodes.held.copy()
        if kind in codec.CALLS:
            self.handle(ClientRequested("t", message))
        elif kind in get_args(messages.FromNode):
            self.core.handle(message, self.now)
            node = self.core.books.nodes.get(message.node_id)
            after = self.core.books.ledger.nodes.held
            same = (after[: len(before)] == before).all(axis=1)
            if node is not None and node.slot < len(same):
                same[node.slot] = True
            if not same.all():
                raise FuzzError(f"another node's holdings changed by {message!r:.400}")
        else:
            self.handle(message)

    def honest(self) -> None:
        """Send what an honest peer says next."""
        books, rng = self.core.books, self.rng
        what = rng.random()
        name = rng.choice(("n1", "n2", "n3"))
        node = books.nodes.get(name)
        self.numbers += 1
        if node is None or not node.present or what < 0.02:
            self.handle(self.registration(name))
        elif what < 0.45:
            held = [number for number in node.holdings if rng.random() < 0.3][:50]
            ended = tuple(
                messages.ContainerEnd(n, messages.Outcome.SUCCEEDED, 0, 0, 0) for n in held
            )
            acks, self.acks[name] = tuple(self.acks.get(name, ())), []
            self.handle(messages.NodeHeartbeated(name, self.numbers, acks, ended))
        elif what < 0.55:
            job = Job("j", (Stage("a", 5, 1.0, {"vcores": 1.0}), Stage("b", 2, 1.0, {})))
            self.handle(ClientRequested("t", requests.SubmitApplication(job, "")))
        elif what < 0.6:
            self.handle(TimerFired("liveness"))
        else:
            live = [app for app in books.app_at if app is not None and app.attempt is not None]
            if live:
                attempt = rng.choice(live).attempt
                assert attempt is not None
                self.master(attempt.attempt_id)

    def master(self, number: int) -> None:
        """Have an honest master register, ask or finish."""
        what = self.rng.random()
        if what < 0.3:
            self.handle(messages.AttemptRegistered(number))
        elif what < 0.95:
            demand = (1.0, 64.0, 0.0, 0.0)
            ask = messages.Ask(
                1, self.rng.randrange(1, 9), demand, 1.0, 1.0, messages.AskType.DEFAULT, 0
            )
            epoch = self.core.books.epoch
            self.handle(messages.ContainersAsked(number, self.numbers, (), (ask,), epoch=epoch))
        else:
            self.handle(messages.AttemptFinished(number, True))

    def look(self) -> None:
        """Check that the books agree, and that every listing can be written."""
        self.core.check()
        apps = list(self.core.books.apps)[-3:]
        asked = [
            make(app)
            for app in apps
            for make in (
                requests.GetApplication,
                requests.Explain,
                requests.ListContainers,
                requests.GetJob,
            )
        ]
        for request in (*READS, *asked):
            (effect,) = [
                e
                for e in self.core.handle(ClientRequested("t", request), self.now)
                if isinstance(e, Send) and e.to == "client:t"
            ]
            if isinstance(effect.message, requests.Refused):
                if effect.message.code != "not_found":
                    raise FuzzError(f"{request}: {effect.message}")
                continue
            codec.CALLS[type(request)].encode_answer(effect.message).SerializeToString()


class NodeBed:
    """A node manager that anybody gives orders to."""

    def __init__(self, seed: int, tally: Tally) -> None:
        self.rng, self.tally = random.Random(seed), tally
        self.pool = Pool()
        self.now = 0.0
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """Begin with a node that was accepted."""
        capacity = dict(zip(TYPES.names, (16.0, 65536.0, 800.0, 1000.0), strict=True))
        rng = np.random.default_rng(seed)
        self.core = NodeManager("n1", "n1:1", capacity, "r1", (), NodeSettings(), rng)
        self.core.handle(Started(), self.now)
        accepted = messages.NodeAccepted("n1", TYPES, 1.0, self.rng.random() < 0.5, 7, 1)
        self.core.handle(accepted, self.now)

    def step(self) -> None:
        """Send an order, or let time go by."""
        self.now += self.rng.choice((0.0, 0.01, 1.0))
        self.tally.sent += 1
        if self.rng.random() < 0.1:
            self.core.handle(TimerFired(self.rng.choice(("heartbeat", "tasks"))), self.now)
            return
        kind = self.rng.choice(TO_NODE)
        message = make(kind, self.rng, self.pool)
        if self.rng.random() < 0.6:
            message = broken(message, self.rng, self.pool)
        self.tally.kinds[kind.__name__] += 1
        if isinstance(message, messages.StartContainers):
            self.pool.containers = [
                *self.pool.containers[-40:],
                *(i.container_id for i in message.items),
            ]
        if rules.problem_of(message, 0) is not None:
            self.tally.refused += 1
            return
        for effect in self.core.handle(message, self.now):
            if isinstance(effect, Send):
                # Other roles' gates accept what it sends.
                rules.check(effect.message, len(TYPES))
        if getattr(message, "shutdown", ""):
            self.begin(self.rng.randrange(2**31))

    def look(self) -> None:
        """Check that the books agree."""
        self.core.check()


class MasterBed:
    """A master that is told lies by the manager's and the nodes' addresses."""

    def __init__(self, seed: int, tally: Tally) -> None:
        self.rng, self.tally = random.Random(seed), tally
        self.pool = Pool()
        self.now = 0.0
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """Begin with a master whose job is known."""
        number = 1 << 8 | 1
        self.core = ApplicationMaster(
            number,
            MasterSettings(planner=""),
            asker("all_ready", {}),
            np.random.default_rng(seed),
        )
        self.core.handle(Started(), self.now)
        job = Job("j", (Stage("a", 5, 1.0, {"vcores": 1.0}), Stage("b", 2, 1.0, {"vcores": 1.0})))
        capacity = (16.0, 65536.0, 800.0, 1000.0)
        self.core.handle(
            messages.AttemptAccepted(
                number, job, TYPES, ((capacity, 3),), capacity, (), 1.0, True, 7, 1
            ),
            self.now,
        )

    def step(self) -> None:
        """Send a word, or fire a timer."""
        self.now += self.rng.choice((0.0, 0.01, 1.0))
        self.tally.sent += 1
        if self.rng.random() < 0.3:
            self.core.handle(TimerFired(self.rng.choice(("heartbeat", "ask"))), self.now)
            return
        kind = self.rng.choice(TO_MASTER)
        message = make(kind, self.rng, self.pool)
        if self.rng.random() < 0.6:
            message = broken(message, self.rng, self.pool)
        if hasattr(message, "attempt_id"):
            message = changed(message, attempt_id=self.core.attempt_id)
        self.tally.kinds[kind.__name__] += 1
        if rules.problem_of(message, 0) is not None:
            self.tally.refused += 1
            return
        effects = self.core.handle(message, self.now)
        for effect in effects:
            if isinstance(effect, Send):
                rules.check(effect.message, len(TYPES))
                if isinstance(effect.message, messages.StartContainers):
                    self.pool.containers = [i.container_id for i in effect.message.items]
        if self.core.state.name not in ("RUNNING", "REGISTERING", "PLANNING"):
            self.begin(self.rng.randrange(2**31))

    def look(self) -> None:
        """Check that the books agree."""
        self.core.check()


BEDS: dict[str, Callable[[int, Tally], Any]] = {
    "manager": ManagerBed,
    "node": NodeBed,
    "master": MasterBed,
}
# After so many messages to one core, a fresh one takes its place.
MESSAGES_PER_CORE = 400
LOOK_EVERY = 40


def fuzz_core(name: str, seed: int, tally: Tally, steps: int = MESSAGES_PER_CORE) -> None:
    """Give one core so many messages; raises FuzzError that names seed and step."""
    bed = BEDS[name](seed, tally)
    for step in range(steps):
        try:
            bed.step()
            if step % LOOK_EVERY == LOOK_EVERY - 1:
                bed.look()
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise FuzzError(f"{name} core, seed {seed}, step {step}: {what}") from error


def main() -> None:
    """Fuzz for a time, or so many messages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="time for the cores, s")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--live", type=int, default=0, help="messages to each live service")
    parser.add_argument("--only", choices=[*BEDS], help="one core")
    parser.add_argument("--face", choices=FACES, action="append", help="live: of these only")
    options = parser.parse_args()
    tally, began_s, seed = Tally(), time.monotonic(), options.seed
    try:
        if options.live:
            asyncio.run(tell_live(options.seed, options.live, options.face or FACES))
            return
        while time.monotonic() - began_s < options.seconds:
            for name in [options.only] if options.only else BEDS:
                fuzz_core(name, seed, tally)
            seed += 1
    except FuzzError as error:
        again = "" if options.live else f"\nagain: --seed {seed} --seconds 1"
        raise SystemExit(f"{error}{again}") from error
    finally:
        if not options.live:
            print(
                f"{tally.sent} messages, {tally.refused} refused, seeds {options.seed} to {seed}, "
                f"{time.monotonic() - began_s:.0f} s",
                file=sys.stderr,
            )


if __name__ == "__main__":
    main()
