"""How far off estimates are: ratios of run time to estimate, as tasks that ended or run show.

A task's ratio is its job's factor times its stage's times what it differs from its stage by.
Factors are of means, so that the work that is drawn is right, and what tasks differ by is taken
from one whole stage that ended, as stages differ in how wide their tasks spread. A stage or job of
which a part is known is between that and what others have, by how far others differ and how many of
its tasks tell (empirical Bayes; Efron and Morris 1973). Tasks that run tell as well, or the short
ones, which end first, would tell alone (expectation maximisation for what is cut off; Dempster,
Laird and Rubin 1977).
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from statistics import fmean
from typing import TypeVar

import numpy as np

from sim.replay.snapshot import Learned, OpenApplication
from weft.model.ids import AppId

_K = TypeVar("_K")
# Fewer ended tasks of a stage do not tell how tasks differ.
_SPREAD_TASKS_MIN = 3
_EM_ROUNDS = 10
# Standard deviations of the logarithms of tasks are at least this.
_LOG_DEVIATION_MIN = 0.02
# The longest running tasks of a stage, so many, tell well enough which stage is like it.
_COMPARED_TASKS_MAX = 50
_ROOT2 = math.sqrt(2.0)


@dataclass(slots=True)
class _Seen:
    """What is known of a stage: ratios of tasks that ended, and of those that run so far.

    `whole`: no other task is to come.
    """

    key: str = ""
    ended: list[float] = field(default_factory=list)
    running: list[float] = field(default_factory=list)
    whole: bool = True

    @property
    def factor(self) -> float:
        """The logarithm of the mean of tasks that ended."""
        return log(fmean(self.ended))


class Ratios:
    """Factors as logarithms, by application, stage and history key.

    Of a stage that nothing is known of, the job's factor is its own, that of its key or another
    job's, and the stage's what it was in earlier runs of the key, or another stage's.
    """

    def __init__(
        self,
        learned: Sequence[Learned],
        standing: Sequence[OpenApplication] = (),
        now_s: float = 0.0,
    ) -> None:
        seen = _seen(learned, standing, now_s)
        whole = {k: one for k, one in seen.items() if one.whole and one.ended}
        wide = [one for one in whole.values() if len(one.ended) >= _SPREAD_TASKS_MIN]
        wide = wide or [one for one in seen.values() if len(one.ended) >= _SPREAD_TASKS_MIN]
        self._likes = [_Like(np.array(one.ended)) for one in wide]
        self._single = [log(one.ended[0]) for one in whole.values() if len(one.ended) == 1]
        self._spread = (
            math.sqrt(fmean([o.spread**2 for o in self._likes])) if wide else _LOG_DEVIATION_MIN
        )
        self._offset = fmean([one.offset for one in self._likes]) if wide else 0.0
        told = {key: self._told(one) for key, one in seen.items()}
        told = {key: one for key, one in told.items() if one[1] < math.inf}
        whole_told = {key: told[key] for key in whole if len(whole[key].ended) >= _SPREAD_TASKS_MIN}
        self._levels(whole_told or told, told, {app: one.key for (app, _), one in seen.items()})
        self._weights = {
            key: self._alike(one, self._posterior(key)[0])
            for key, one in seen.items()
            if not one.whole and self._likes
        }

    def _told(self, one: _Seen) -> tuple[float, float]:
        """Return the factor that a stage's own tasks tell, and its variance."""
        if one.whole and one.ended:
            return one.factor, self._spread**2 / len(one.ended)
        ended = [log(ratio) for ratio in one.ended]
        running = [log(ratio) for ratio in one.running if ratio > 0]
        if not ended and not running:
            return 0.0, math.inf
        spread = max(self._spread, _LOG_DEVIATION_MIN)
        mean = fmean(ended) if ended else self._offset
        tells = 0.0
        for _ in range(_EM_ROUNDS):
            parts = [_beyond((cut - mean) / spread) for cut in running]
            mean = (sum(ended) + sum(mean + spread * more for more, _ in parts)) / (
                len(ended) + len(running)
            )
            tells = len(ended) + sum(below for _, below in parts)
        return mean - self._offset, spread**2 / tells if tells > 0 else math.inf

    def _levels(
        self,
        whole: Mapping[tuple[AppId, str], tuple[float, float]],
        told: Mapping[tuple[AppId, str], tuple[float, float]],
        keys: Mapping[AppId, str],
    ) -> None:
        """Split what stages differ by into jobs' and stages' parts."""
        self._told_of = told
        of_app: dict[AppId, list[tuple[float, float]]] = defaultdict(list)
        for (app, _), one in whole.items():
            of_app[app].append(one)
        means = {app: fmean([factor for factor, _ in some]) for app, some in of_app.items()}
        self._by_stage = [
            (factor - means[app]) * math.sqrt(len(some) / (len(some) - 1))
            for app, some in of_app.items()
            if len(some) > 1
            for factor, _ in some
        ]
        noise = fmean([variance for _, variance in whole.values()]) if whole else 0.0
        self._stage_variance = max(0.0, _mean_square(self._by_stage) - noise)
        self._by_stage = _shrunk(self._by_stage, self._stage_variance)
        self.usual = fmean(means.values()) if means else 0.0
        others = [mean - self.usual for mean in means.values()]
        count = len(others)
        between = _mean_square(others) * count / (count - 1) if count > 1 else 0.0
        within = (
            fmean(
                [
                    (self._stage_variance + fmean([v for _, v in some])) / len(some)
                    for some in of_app.values()
                ]
            )
            if of_app
            else 0.0
        )
        self._app_variance = max(0.0, between - within)
        self._by_app = _shrunk(others, self._app_variance)
        # Each application has its factor and the factor's variance.
        self.apps: dict[AppId, tuple[float, float]] = {}
        for app in {app for app, _ in told}:
            self.apps[app] = self._app_of([one for key, one in told.items() if key[0] == app])
        self._of_keys(whole, means, keys)

    def _app_of(self, some: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """Return a job's factor from its stages' and what other jobs have, and its variance."""
        weights = [1.0 / (self._stage_variance + variance + 1e-9) for _, variance in some]
        own = sum(w * f for w, (f, _) in zip(weights, some, strict=True)) / sum(weights)
        return _between(self.usual, self._app_variance, own, 1.0 / sum(weights))

    def _of_keys(
        self,
        whole: Mapping[tuple[AppId, str], tuple[float, float]],
        means: Mapping[AppId, float],
        keys: Mapping[AppId, str],
    ) -> None:
        by_key: dict[str, list[float]] = defaultdict(list)
        by_stage: dict[tuple[str, str], list[float]] = defaultdict(list)
        for app, factor in means.items():
            if keys[app]:
                by_key[keys[app]].append(factor)
        for (app, stage), (factor, _) in whole.items():
            if keys[app]:
                by_stage[keys[app], stage].append(factor - means[app])
        self.keys = {key: fmean(factors) for key, factors in by_key.items()}
        self.key_stages = {key: fmean(factors) for key, factors in by_stage.items()}
        self._by_run, self._by_run_stage = _spread(by_key), _spread(by_stage)

    def _posterior(self, key: tuple[AppId, str]) -> tuple[float, float]:
        """Return a stage's factor where a part of it is known, and its variance."""
        of_app, _ = self.apps.get(key[0], (self.usual, 0.0))
        factor, variance = self._told_of.get(key, (0.0, math.inf))
        return _between(of_app, self._stage_variance, factor, variance)

    def _alike(self, one: _Seen, factor: float) -> list[float]:
        """Return how likely a stage's tasks are, were it like each of those that ended (sums)."""
        ended = np.array([log(ratio) for ratio in one.ended]) - factor
        cuts = sorted((log(r) - factor for r in one.running if r > 0), reverse=True)[
            :_COMPARED_TASKS_MAX
        ]
        logs = np.array([like.log_likelihood(ended, cuts) for like in self._likes])
        weights = np.exp(logs - logs.max())
        return list(np.cumsum(weights / weights.sum()))

    def app(self, app: AppId, key: str, rng: np.random.Generator) -> float:
        """Draw a factor of a job: about its own, that of its key, or another's."""
        if app in self.apps:
            factor, variance = self.apps[app]
            return factor + math.sqrt(variance) * float(rng.standard_normal())
        if key in self.keys:
            return self.keys[key] + _one(self._by_run, rng)
        return self.usual + _one(self._by_app, rng)

    def stage(
        self, app: AppId, key: str, stage: str, of_app: float, rng: np.random.Generator
    ) -> float:
        """Draw a factor of a stage: about its own, or its job's with what stages differ by."""
        if (app, stage) in self._told_of:
            factor, variance = self._told_of[app, stage]
            mean, left = _between(of_app, self._stage_variance, factor, variance)
            return mean + math.sqrt(left) * float(rng.standard_normal())
        usual = self.key_stages.get((key, stage))
        if usual is not None:
            return of_app + usual + _one(self._by_run_stage, rng)
        return of_app + _one(self._by_stage, rng)

    def tasks(
        self, app: AppId, stage: str, count: int, rng: np.random.Generator
    ) -> Sequence[float]:
        """Return factors by which tasks of a stage of `count` differ: those of some stage."""
        if count == 1 and len(self._single) >= _SPREAD_TASKS_MIN:
            around = fmean(self._single)
            return [exp(one - around) for one in self._single]
        if not self._likes:
            return (1.0,)
        sums = self._weights.get((app, stage))
        if sums is None:
            return self._likes[int(rng.integers(len(self._likes)))].parts
        place = int(np.searchsorted(sums, float(rng.random())))
        return self._likes[min(place, len(self._likes) - 1)].parts


class _Like:
    """How the tasks of a stage that ended differ from their mean."""

    def __init__(self, ratios: np.ndarray) -> None:
        parts = ratios / ratios.mean()
        logs = np.log(parts)
        self.parts: list[float] = parts.tolist()
        # The parts' mean is 1, but the mean of their logarithms is below 0.
        self.offset = float(logs.mean())
        self.spread = float(logs.std(ddof=1))

    def log_likelihood(self, ended: np.ndarray, cuts: Sequence[float]) -> float:
        """Return the log-likelihood of tasks that ended, or took longer than a cut (log-normal)."""
        spread = max(self.spread, _LOG_DEVIATION_MIN)
        found = -0.5 * float((((ended - self.offset) / spread) ** 2).sum())
        found -= len(ended) * log(spread)
        for cut in cuts:
            beyond = 0.5 * math.erfc((cut - self.offset) / spread / _ROOT2)
            found += log(max(beyond, 1e-12))
        return found


def _seen(
    learned: Sequence[Learned], standing: Sequence[OpenApplication], now_s: float
) -> dict[tuple[AppId, str], _Seen]:
    seen: dict[tuple[AppId, str], _Seen] = defaultdict(_Seen)
    for told in learned:
        of = seen[told.app, told.stage]
        of.key = told.key
        of.ended.append(told.ratio)
    for one in standing:
        next_task = list(one.finished)
        for held in one.held:
            stage = one.job.stages[held.stage]
            of = seen[one.report.app_id, stage.name]
            of.key = one.job.history_key
            task = min(next_task[held.stage], stage.tasks - 1)
            next_task[held.stage] += 1
            estimate_s = stage.duration_of(task)
            if estimate_s > 0:
                of.running.append(max(0.0, now_s - held.since_s) / estimate_s)
        for stage, finished in zip(one.job.stages, one.finished, strict=True):
            if (one.report.app_id, stage.name) in seen:
                seen[one.report.app_id, stage.name].whole = finished >= stage.tasks
    return dict(seen)


def _beyond(cut: float) -> tuple[float, float]:
    """Return the mean of a standard normal number above a cut, and how likely one is below it."""
    above = 0.5 * math.erfc(cut / _ROOT2)
    if above < 1e-12:
        return cut, 1.0
    return exp(-0.5 * cut * cut) / math.sqrt(2.0 * math.pi) / above, 1.0 - above


def _between(usual: float, spread2: float, own: float, variance: float) -> tuple[float, float]:
    """Return what lies between others and a measurement, by their variances, and what is left."""
    if variance == math.inf or spread2 == 0.0:
        return usual, spread2
    weight = spread2 / (spread2 + variance)
    return usual + weight * (own - usual), weight * variance


def _mean_square(values: Sequence[float]) -> float:
    return fmean([one * one for one in values]) if values else 0.0


def _shrunk(values: Sequence[float], variance: float) -> list[float]:
    """Return differences without the part (of this variance) that few tasks make."""
    found = _mean_square(values)
    return [one * math.sqrt(variance / found) for one in values] if found > 0 else []


def _spread(groups: Mapping[_K, list[float]]) -> list[float]:
    """Return what members of groups differ from their mean, corrected for being part of it."""
    return [
        (one - fmean(group)) * math.sqrt(len(group) / (len(group) - 1))
        for group in groups.values()
        if len(group) > 1
        for one in group
    ]


def _one(values: Sequence[float], rng: np.random.Generator) -> float:
    return values[int(rng.integers(len(values)))] if values else 0.0
