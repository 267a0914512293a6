"""Messages that no honest node or master sends, made from honest ones.

They name strangers, or containers and tasks that do not exist, or come from an attempt or a node
that was never known; or they say that a task succeeded in a container that was never granted. What
only a liar about its own work could say (a task that it did not run has succeeded), and what
somebody says in another's name, is left out: against that nothing but measurement and
authentication helps. Fields that break a rule of the wire are the wire's to refuse.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from weft.model.ids import attempt_id, container_id, number_in_life
from weft.protocol.messages import (
    MANAGER,
    Address,
    AttemptFinished,
    AttemptRegistered,
    ContainerEnd,
    ContainersAsked,
    NodeHeartbeated,
    NodeRegistered,
    Outcome,
    RunningContainer,
    StartContainers,
    StopContainers,
    TaskEnd,
)

Arrivals = list[tuple[Address, object]]  # to whom, and which message
Change = Callable[[np.random.Generator, Address, object], Arrivals]  # of one that was seen
NOBODY = attempt_id(99, 1)  # an attempt that never was
NOT_YET = 1_000_000  # containers of one attempt, of which no run has so many


def hostile(rng: np.random.Generator, to: Address, message: object, epoch: int) -> Arrivals:
    """Return what an attacker makes of a message that it saw; `epoch` is the manager's."""
    made = _bent(rng, message, epoch)
    return [] if made is None else [(to if to != MANAGER else MANAGER, made)]


def _bent(rng: np.random.Generator, message: object, epoch: int) -> object:
    foreign = container_id(NOBODY, int(rng.integers(1, 100)))
    if isinstance(message, NodeHeartbeated):
        if rng.random() < 0.5:  # of an application that is there, and not granted to anybody yet
            number = number_in_life(epoch, int(rng.integers(NOT_YET, 2 * NOT_YET)))
            foreign = container_id(attempt_id(int(rng.integers(1, 4)), 1), number)
        task = int(rng.integers(3))
        ends = (ContainerEnd(foreign, Outcome.SUCCEEDED, 0, 0, task),)
        tasks = (TaskEnd(foreign, 0, task, 0, Outcome.SUCCEEDED, 0, 1.0),)
        return replace(message, request_id=1, acks=(), ended=ends, tasks_ended=tasks)
    if isinstance(message, NodeRegistered):
        running = (RunningContainer(foreign, (1.0,) * len(message.capacity), ()),)
        return replace(message, node_id=f"stranger{int(rng.integers(3))}", running=running)
    if isinstance(message, AttemptRegistered):
        return replace(message, attempt_id=NOBODY)
    if isinstance(message, AttemptFinished):
        return replace(message, attempt_id=NOBODY)
    if isinstance(message, ContainersAsked):
        number = NOBODY if rng.random() < 0.5 else message.attempt_id + 50
        return replace(message, attempt_id=number, releases=(foreign,))
    if isinstance(message, StartContainers | StopContainers):
        return replace(message, attempt_id=NOBODY) if isinstance(message, StopContainers) else None
    return None
