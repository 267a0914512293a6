"""A Gymnasium environment over the simulator: an agent chooses which waiting tasks start next.

    import gymnasium, weft.gym
    env = gymnasium.make("weft/Scheduling-v0")
    observation, info = env.reset(seed=1)
    observation, reward, ended, cut, info = env.step(env.unwrapped.action_masks().argmax())

An episode is one run of the very cores that `weft simulate` runs. Whenever a node has room and
more than one ask could use it, the simulation stands still and the agent picks one of them; where
there is nothing to choose it goes on by itself. A trained policy needs no environment: it is a
matcher (`lab.learning.learned`), simulated and live.

Needs the extra `gym` (gymnasium, greenlet).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import index
from typing import Any

import gymnasium
import numpy as np
from greenlet import getcurrent, greenlet

from lab.functions import ClusterLike, JobLike, cluster_of, jobs_of
from rm.ledger.view import View
from rm.match.choice_kernels import FEATURES
from rm.match.choices import Choices
from rm.match.protocol import NOTHING, BaseMatcher, Match
from sim.cluster import Simulation
from sim.recorder import JobRow, Recorder
from sim.settings import SimSettings
from weft.model.errors import InputError
from weft.model.job import Job
from weft.policies.presets import Preset, choose, with_options
from weft.workloads.synth import generate

Observation = dict[str, np.ndarray[Any, np.dtype[Any]]]
Draw = Callable[[np.random.Generator], Sequence[Job]]
CLUSTER = "4x16vcores,65536memory_mb,800disk_mbps,1250network_mbps"
FEATURE_MAX = 1e6


def synthetic(
    rng: np.random.Generator,
    *,
    kind: str = "mapreduce",
    jobs: int = 30,
    interarrival_s: float = 6.0,
    smaller: int = 4,
) -> list[Job]:
    """Draw jobs of a synthetic kind (`weft generate`), with 1 / `smaller` of the tasks each."""
    return [
        replace(job, stages=tuple(replace(s, tasks=-(-s.tasks // smaller)) for s in job.stages))
        for job in generate(kind, jobs, rng, interarrival_s=interarrival_s)
    ]


def quietly(preset: Preset, quiet_s: float = 30.0) -> SimSettings:
    """Return settings in prompt pace in which idle heartbeats come every `quiet_s` only."""
    roles = {"heartbeat_s": quiet_s, "master_heartbeat_s": quiet_s}
    return SimSettings(preset, prompt=True, manager=roles)


class Scheduling(gymnasium.Env[Observation, np.int64]):
    """One cluster, one agent that decides for all of it.

    * Observation: `candidates`, shape (choices, len(FEATURES)), what each ask that could be served
      now looks like (`rm.match.choice_kernels.FEATURES`), in the order of submission, then rows of
      zeros; `mask`, shape (choices,), 1 where there is one to choose; `node`, shape (3,): the part
      of the node that is free (of its scarcest resource), the part of the cluster in use, and how
      many jobs are in the system, as the logarithm of 1 + n.
    * Action: the number of a candidate; it gets one container on the node. One that `mask` rules
      out counts as the first that it does not.
    * Reward: minus the time that jobs spent in the system since the last decision, in job seconds
      over `reward_s`, so that an episode's return is minus the sum of all job completion times.
    * `terminated` after the last job, `truncated` at `until_s` of virtual time.
    * `info`: `now_s`, `hidden` (candidates beyond `choices`), at the end `mean_jct_s` and
      `makespan_s`.

    `jobs` is a function of a NumPy generator that draws an episode's jobs, or jobs as
    `weft.simulate` takes them, the same ones each time. `scheduler` and `pace` are those of
    `weft.simulate`; the matcher is the agent. In prompt pace what happens is told at once, and
    heartbeats that say nothing come every `quiet_s` only: they take most of an episode's time.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  # as Gymnasium declares it

    def __init__(
        self,
        jobs: Draw | JobLike | Sequence[JobLike] = synthetic,
        cluster: ClusterLike = CLUSTER,
        scheduler: str = "capacity",
        *,
        choices: int = 32,
        pace: str = "prompt",
        until_s: float = float("inf"),
        quiet_s: float = 30.0,
        reward_s: float = 1_000.0,
    ) -> None:
        choices = _whole(choices, "choices")
        times = (reward_s, quiet_s, until_s)
        positive = all(isinstance(one, int | float) and one > 0 for one in times)
        if choices < 2 or not positive or pace not in ("yarn", "prompt"):
            raise InputError(
                "gym", "expected choices >= 2, pace yarn or prompt; reward_s, quiet_s, until_s > 0"
            )
        self._draw: Draw = jobs if callable(jobs) else _always(jobs_of(jobs))
        self._cluster = cluster_of(cluster)
        preset = choose(scheduler, matcher="lab.learning.gym:Asking")
        preset = with_options(preset, {"matcher.most": str(choices)})
        self._settings = SimSettings(preset, until_s=until_s)
        if pace == "prompt":
            self._settings = replace(quietly(preset, quiet_s), until_s=until_s)
        self._choices = choices
        self._reward_s = reward_s
        self.observation_space: Any = gymnasium.spaces.Dict(
            {
                "candidates": gymnasium.spaces.Box(
                    -FEATURE_MAX, FEATURE_MAX, (choices, len(FEATURES)), np.float32
                ),
                "mask": gymnasium.spaces.MultiBinary(choices),
                "node": gymnasium.spaces.Box(0.0, FEATURE_MAX, (3,), np.float32),
            }
        )
        self.action_space = gymnasium.spaces.Discrete(choices)
        self._run: greenlet | None = None
        self._asked: Question | None = None
        self._spent = JobSeconds([])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; raises InputError where its jobs leave nothing to decide."""
        super().reset(seed=seed)
        for _ in range(100):
            self.close()
            jobs = self._draw(self.np_random)
            settings = replace(self._settings, seed=int(self.np_random.integers(2**31)))
            self._simulation = Simulation(self._cluster, jobs, settings, Recorder())
            self._spent = JobSeconds([job.arrival_s for job in jobs])
            self._run = greenlet(self._simulation.run)
            self._go_on(None)
            if self._asked is not None:
                # Time spent before the first decision is not a decision's doing.
                self._reward()
                return self._observation(), self._info()
        raise InputError("jobs", "in 100 episodes there was nothing to decide")

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Serve a candidate, and go on to the next decision or to the end."""
        if self._asked is None:
            raise InputError("step", "the episode is over: reset() begins another")
        chosen = _whole(action, "action")
        if not (0 <= chosen < self._choices and self._asked.mask[chosen]):
            chosen = int(np.argmax(self._asked.mask))
        self._go_on(chosen)
        ended = self._asked is None and not self._simulation.recorder.open_jobs
        reward = self._reward()
        return self._observation(), reward, ended, self._asked is None and not ended, self._info()

    def action_masks(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which actions there are now, shape (choices,), as masked agents ask for them."""
        mask = np.zeros(self._choices, np.bool_) if self._asked is None else self._asked.mask
        return mask.astype(np.bool_)

    def close(self) -> None:
        """Give up the run that is under way."""
        if self._run is not None and not self._run.dead:
            self._run.throw()
        self._run = self._asked = None

    def _go_on(self, answer: int | None) -> None:
        assert self._run is not None
        asked = self._run.switch() if answer is None else self._run.switch(answer)
        self._asked = None if self._run.dead else asked

    def _reward(self) -> float:
        now = self._simulation.engine.now
        if now <= self._spent.now:
            # Most decisions fall at one moment.
            return 0.0
        return -self._spent.since(now, self._simulation.recorder.jobs) / self._reward_s

    def _observation(self) -> Observation:
        asked = self._asked
        if asked is None:
            return {
                "candidates": np.zeros((self._choices, len(FEATURES)), np.float32),
                "mask": np.zeros(self._choices, np.int8),
                "node": np.zeros(3, np.float32),
            }
        view = asked.view
        free = min(asked.choices.found.free.tolist())
        amounts = zip(view.by_queue.held[0].tolist(), view.total.tolist(), strict=True)
        used = max([held / max(total, 1e-9) for held, total in amounts])
        node = [max(0.0, free), max(0.0, used), math.log1p(self._spent.open)]
        return {
            "candidates": asked.features,
            "mask": asked.mask,
            "node": np.array(node, np.float32),
        }

    def _info(self) -> dict[str, Any]:
        told: dict[str, Any] = {"now_s": self._simulation.engine.now, "hidden": 0}
        if self._asked is not None:
            return told | {"hidden": self._asked.hidden}
        rows = [row for row in self._simulation.recorder.jobs if row.finish_s >= 0]
        if rows:
            told["mean_jct_s"] = float(np.mean([r.finish_s - r.job.arrival_s for r in rows]))
            told["makespan_s"] = max(row.finish_s for row in rows)
        return told


class Question:
    """What the agent is asked: the first `most` candidates that may be picked."""

    __slots__ = ("choices", "features", "hidden", "mask", "shown", "view")

    def __init__(self, view: View, choices: Choices, most: int) -> None:
        self.view = view
        self.choices = choices
        self.features, self.mask, self.shown = choices.shown(most, FEATURE_MAX)
        self.hidden = max(0, choices.count - most)


class Asking(BaseMatcher):
    """The matcher of an episode: leaves each choice to the greenlet that runs the environment."""

    name = "agent"

    def __init__(self, most: int = 32) -> None:
        self.most = most

    def match(self, view: View, node: int, now: float) -> Match:
        """Ask for one pick after another, as long as there is a choice."""
        choices = Choices(view, node, now)
        parent = getcurrent().parent
        while choices.count:
            if choices.count == 1 or parent is None:
                choices.pick(int(np.argmax(choices.open)))
                continue
            asked = Question(view, choices, self.most)
            choices.pick(int(asked.shown[parent.switch(asked)]))
        return choices.match()

    def would_match(self, view: View, node: int, now: float) -> Match:
        """Return nothing: nobody is asked what would be."""
        return NOTHING


class JobSeconds:
    """The time that jobs spend in the system, from their arrival to their end."""

    def __init__(self, arrivals_s: Sequence[float]) -> None:
        # those that did not end, the one that arrives first last
        self._left = sorted(zip(arrivals_s, range(len(arrivals_s)), strict=True), reverse=True)
        # The jobs that arrived, of those that did not end.
        self._in: list[tuple[float, int]] = []
        self.now = 0.0

    @property
    def open(self) -> int:
        """Number of jobs that arrived and did not end."""
        return len(self._in)

    def since(self, now: float, jobs: Sequence[JobRow]) -> float:
        """Return the job seconds since the last call; `jobs` as they were given at first."""
        left, spent, going_on = self._left, 0.0, []
        while left and left[-1][0] <= now:
            self._in.append(left.pop())
        for arrival_s, number in self._in:
            end_s = jobs[number].finish_s
            spent += max((now if end_s < 0 else end_s) - max(arrival_s, self.now), 0.0)
            if end_s < 0:
                going_on.append((arrival_s, number))
        self._in, self.now = going_on, now
        return spent


def _whole(value: Any, name: str) -> int:
    """Return a whole number of Python's or NumPy's; raises InputError for anything else."""
    try:
        return index(value)
    except TypeError:
        raise InputError(name, f"expected a whole number, got {value!r}") from None


def _always(jobs: Sequence[Job]) -> Draw:
    return lambda rng: jobs


def register() -> None:
    """Make `gymnasium.make("weft/Scheduling-v0")` known; again changes nothing."""
    if "weft/Scheduling-v0" not in gymnasium.registry:
        gymnasium.register("weft/Scheduling-v0", entry_point="lab.learning.gym:Scheduling")


register()
