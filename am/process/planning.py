"""Building plans off the loop's thread: quick planners on a thread, dear ones on other cores."""

import asyncio
import contextlib
import math
import multiprocessing
import os
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np

from am.plan.registry import PlanRequest, planner
from weft.dag import Machines, dag_of_job
from weft.effects import MakePlan, PlanReady
from weft.errors import WeftError

# These take well under a second for thousands of tasks: another process would cost more.
QUICK = frozenset({"bfs", "critical_path", "random", "tetris", "coffman_graham"})


def make_plan(order: MakePlan, limit_s: float = math.inf) -> PlanReady:
    """Build one plan; whatever goes wrong becomes the answer's error.

    A planner that improves its plan for as long as it may is told to stop after `limit_s`.
    """
    began_s = time.perf_counter()
    try:
        dag = dag_of_job(order.job, order.types)
        capacity = [vector for vector, count in order.machines for _ in range(count)]
        machines = Machines(np.array(capacity, dtype=np.float64).reshape(-1, len(order.types)))
        rng = np.random.default_rng(order.seed)
        request = PlanRequest(
            dag,
            machines,
            rng,
            order.options,
            time_left_s=lambda: limit_s - (time.perf_counter() - began_s),
        )
        plan = planner(order.planner)(request)
    except WeftError as error:
        return PlanReady(None, str(error), time.perf_counter() - began_s)
    except Exception as error:  # a planner's bug must not cost the job: breadth first instead
        return PlanReady(None, f"{type(error).__name__}: {error}", time.perf_counter() - began_s)
    return PlanReady(plan, "", time.perf_counter() - began_s)


class Planning:
    """Executors, made when first used. `workers` 0: everything on one thread."""

    def __init__(self, workers: int, limit_s: float) -> None:
        self._workers = workers
        self._limit_s = limit_s
        self._thread: Executor | None = None
        self._pool: Executor | None = None

    async def make(self, order: MakePlan) -> PlanReady:
        """Build one plan elsewhere."""
        loop = asyncio.get_running_loop()
        executor = self._executor(order.planner)
        try:
            return await loop.run_in_executor(executor, make_plan, order, self._limit_s)
        except (OSError, RuntimeError) as error:  # the pool broke: a worker was killed
            self._pool = None
            return PlanReady(None, f"planning process ended: {error}")

    def _executor(self, name: str) -> Executor:
        if name in QUICK or self._workers == 0:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "planning")
            return self._thread
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._workers, context, _follow_parent)
        return self._pool

    def close(self) -> None:
        """End the executors without waiting for plans."""
        for executor in (self._thread, self._pool):
            if executor is not None:
                with contextlib.suppress(OSError):
                    executor.shutdown(wait=False, cancel_futures=True)


def _follow_parent() -> None:
    """A worker ends with its parent, even one that was killed."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
