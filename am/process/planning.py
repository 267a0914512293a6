"""Building plans off the loop's thread: cheap planners on a thread, expensive ones in processes.

Plans of recurring jobs are kept, so that their next run need not wait for one, and made better
while nobody waits.
"""

import asyncio
import contextlib
import math
import multiprocessing
import os
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from am.plan.machines import machines_of
from am.plan.registry import QUICK, PlanRequest, planned
from am.plan.reuse import PlanShelf, structure_key
from weft.model.dag import Dag, Machines, dag_of_job
from weft.model.errors import WeftError
from weft.protocol.effects import MakePlan, PlanReady
from weft.runtime.other_process import end_with

_IMPROVED = frozenset({"graphene", "graphene_plus"})
# The plan of a job with more tasks is made by a process of its own.
_OWN_PROCESS_TASKS = 200_000
_IMPROVEMENTS_PER_RUN_MAX = 4
_EXECUTOR_END_WAIT_S = 1.0
# Wall clock: a master that comes meanwhile waits no longer than this.
_IMPROVEMENT_LIMIT_S = 2.0
_DUE_MAX = 200


def make_plan(order: MakePlan, limit_s: float = math.inf) -> PlanReady:
    """Build one plan; whatever goes wrong becomes the answer's error.

    A planner that improves its plan for as long as it may is asked to stop after `limit_s`.
    """
    began_s = time.perf_counter()
    try:
        dag, machines = _read(order)
        request = PlanRequest(
            dag,
            machines,
            np.random.default_rng(order.seed),
            order.options,
            time_left_s=lambda: limit_s - (time.perf_counter() - began_s),
        )
        plan = planned(order.planner, request)
    except WeftError as error:
        return PlanReady(None, str(error), time.perf_counter() - began_s)
    except Exception as error:
        # A planner's bug must not cost the job, which is then asked for breadth first.
        return PlanReady(None, f"{type(error).__name__}: {error}", time.perf_counter() - began_s)
    return PlanReady(plan, "", time.perf_counter() - began_s)


def _read(order: MakePlan) -> tuple[Dag, Machines]:
    return dag_of_job(order.job, order.types), machines_of(order)


@dataclass(slots=True)
class _Due:
    """A recurring job whose plan may be made better: what was asked for, and tries so far."""

    order: MakePlan
    digest: str
    tries: int = 0


class Planning:
    """Executors, made when first used. `workers` 0: everything on one thread."""

    def __init__(self, workers: int, limit_s: float, shelf: PlanShelf | None = None) -> None:
        self._workers = workers
        self._limit_s = limit_s
        self._shelf = shelf or PlanShelf()
        self._due: dict[str, _Due] = {}
        self._begun: set[asyncio.Task[PlanReady]] = set()
        self._thread: Executor | None = None
        self._pool: Executor | None = None
        # Other plans must not wait behind large ones.
        self._large: Executor | None = None

    def elsewhere(self, name: str) -> bool:
        """Return whether a planner's plans are built by other processes."""
        return name not in QUICK and self._workers > 0

    def begin(self, order: MakePlan) -> None:
        """Have a worker process load what plans take by building one that nobody waits for."""
        work = asyncio.get_running_loop().create_task(self._build(order, self._limit_s))
        self._begun.add(work)
        work.add_done_callback(self._begun.discard)

    async def make(self, order: MakePlan) -> PlanReady:
        """Return the plan kept for a recurring job at once, else one built elsewhere."""
        key, digest, dag_tasks = "", "", order.job.task_count
        if order.job.history_key and order.planner not in QUICK:
            with contextlib.suppress(WeftError):
                dag, machines = _read(order)
                digest = dag.digest()
                name = order.job.history_key
                key = structure_key(name, dag, machines, order.planner, order.options)
        kept = self._shelf.find(key)
        if kept is not None and len(kept.plan.order) != dag_tasks:
            # The file belongs to another job.
            kept = None
        if kept is None:
            ready = await self._build(order, self._limit_s)
            if ready.plan is not None:
                self._shelf.keep(key, ready.plan, digest)
        else:
            ready = PlanReady(kept.served)
        if key and ready.plan is not None:
            self._due[key] = _Due(order, digest)
            while len(self._due) > _DUE_MAX:
                del self._due[next(iter(self._due))]
        return ready

    async def improve(self) -> bool:
        """Spend a moment on one kept plan: on new estimates, or for a shorter one; False: none due.

        `graphene` is improved by `graphene_plus`, which begins with the same search. Others, and
        one that was given its candidates, are asked again only where estimates have changed.
        """
        if not self._due:
            return False
        key = next(iter(self._due))
        due = self._due.pop(key)
        kept = self._shelf.find(key)
        fresh = kept is None or kept.digest != due.digest
        wanted = due.order.options.get("candidates", "all")
        better = due.order.planner in _IMPROVED and wanted == "all"
        if fresh or better:
            order = due.order
            if better and not fresh:
                order = replace(order, planner="graphene_plus", seed=order.seed + due.tries)
            ready = await self._build(order, min(self._limit_s, _IMPROVEMENT_LIMIT_S))
            if ready.plan is not None:
                self._shelf.keep(key, ready.plan, due.digest)
        if better and due.tries + 1 < _IMPROVEMENTS_PER_RUN_MAX and key not in self._due:
            self._due[key] = replace(due, tries=due.tries + 1)
        return True

    async def _build(self, order: MakePlan, limit_s: float) -> PlanReady:
        loop = asyncio.get_running_loop()
        executor = self._executor(order.planner, order.job.task_count)
        try:
            return await loop.run_in_executor(executor, make_plan, order, limit_s)
        except (OSError, RuntimeError) as error:
            # The pool broke because a worker was killed.
            self._pool = self._large = None
            return PlanReady(None, f"planning process ended: {error}")

    def _executor(self, name: str, tasks: int) -> Executor:
        if tasks > _OWN_PROCESS_TASKS and self._workers > 0:
            self._large = self._large or _processes(1)
            return self._large
        if not self.elsewhere(name):
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "planning")
            return self._thread
        self._pool = self._pool or _processes(self._workers)
        return self._pool

    def close(self) -> None:
        """End the executors; a process that still plans after _EXECUTOR_END_WAIT_S is killed.

        Idle ones end at once. Waiting for that keeps the interpreter, as it exits, from waking a
        pool that is just closing its pipes (a traceback in Python 3.11), and from waiting for a
        plan that nobody wants any more.
        """
        for executor in (self._thread, self._pool, self._large):
            if executor is not None:
                ending = threading.Thread(target=_end, args=(executor,), daemon=True)
                ending.start()
                ending.join(_EXECUTOR_END_WAIT_S)
                if ending.is_alive() and executor is not self._thread:
                    for worker in multiprocessing.active_children():
                        worker.kill()
                    ending.join(_EXECUTOR_END_WAIT_S)


def _processes(count: int) -> Executor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(count, context, end_with, (os.getpid(),))


def _end(executor: Executor) -> None:
    with contextlib.suppress(OSError):
        executor.shutdown(wait=True, cancel_futures=True)
