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

# Each address receives the message beside it.
Arrivals = list[tuple[Address, object]]
# Makes arrivals of a message that was seen.
Change = Callable[[np.random.Generator, Address, object], Arrivals]
# No such attempt ever was.
UNKNOWN_ATTEMPT = attempt_id(99, 1)
# No attempt of any run has so many containers.
UNUSED_CONTAINERS_FROM = 1_000_000


def hostile(rng: np.random.Generator, to: Address, message: object, epoch: int) -> Arrivals:
    """Return what an attacker makes of a message that it saw; `epoch` is the manager's."""
    made = _bent(rng, message, epoch)
    return [] if made is None else [(to if to != MANAGER else MANAGER, made)]


def _bent(rng: np.random.Generator, message: object, epoch: int) -> object:
    foreign = container_id(UNKNOWN_ATTEMPT, int(rng.integers(1, 100)))
    if isinstance(message, NodeHeartbeated):
        # The application is there, and the container was not granted to anybody yet.
        if rng.random() < 0.5:
            number = number_in_life(
                epoch, int(rng.integers(UNUSED_CONTAINERS_FROM, 2 * UNUSED_CONTAINERS_FROM))
            )
            foreign = container_id(attempt_id(int(rng.integers(1, 4)), 1), number)
        task = int(rng.integers(3))
        ends = (ContainerEnd(foreign, Outcome.SUCCEEDED, 0, 0, task),)
        tasks = (TaskEnd(foreign, 0, task, 0, Outcome.SUCCEEDED, 0, 1.0),)
        return replace(message, request_id=1, acks=(), ended=ends, tasks_ended=tasks)
    if isinstance(message, NodeRegistered):
        running = (RunningContainer(foreign, (1.0,) * len(message.capacity), ()),)
        return replace(message, node_id=f"stranger{int(rng.integers(3))}", running=running)
    if isinstance(message, AttemptRegistered):
        return replace(message, attempt_id=UNKNOWN_ATTEMPT)
    if isinstance(message, AttemptFinished):
        return replace(message, attempt_id=UNKNOWN_ATTEMPT)
    if isinstance(message, ContainersAsked):
        number = UNKNOWN_ATTEMPT if rng.random() < 0.5 else message.attempt_id + 50
        return replace(message, attempt_id=number, releases=(foreign,))
    if isinstance(message, StartContainers | StopContainers):
        return (
            replace(message, attempt_id=UNKNOWN_ATTEMPT)
            if isinstance(message, StopContainers)
            else None
        )
    return None
