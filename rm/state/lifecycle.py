"""The life cycles that the Resource Manager keeps, in YARN's states and names.

Left out, because our protocol has no such step: NEW_SAVING, FINAL_SAVING and ALLOCATED_SAVING (a
`Persist` is durable before any later effect of the same answer, so nothing waits for the store);
LAUNCHED of attempts (the order to launch travels in the node's outbox, a master shows itself by
registering); EXPIRED of containers (a master repeats a start until it is answered, and loses its
containers when it is lost itself). `rm.leaving` says where a node that is decommissioned differs
from YARN's; an UNHEALTHY one differs in that what it runs goes on.
"""

from enum import IntEnum, auto
from typing import Never

from weft.protocol.lifecycle import Lifecycle


class AppState(IntEnum):
    """RMApp."""

    NEW = auto()
    SUBMITTED = auto()
    ACCEPTED = auto()
    RUNNING = auto()
    FINISHING = auto()
    FINISHED = auto()
    FAILED = auto()
    KILLING = auto()
    KILLED = auto()


class AppEvent(IntEnum):
    """What happens to an application.

    * SUBMIT, and ACCEPT once it is stored, happen in the event of its submission.
    * ATTEMPT_REGISTERED is of its first master, or the next one.
    * ATTEMPT_UNREGISTERED: a master says how the job ended, which is final from now on.
    * ATTEMPT_FAILED: another attempt follows.
    * ATTEMPTS_EXHAUSTED: none does; what still runs is stopped, and nobody waits for it.
    * CONTAINERS_GONE: the last node said that the last container ended.
    * KILL comes from a client, or when the application's time is over.
    * RECOVER_FINISHED and its kin: it had ended before the manager's start.
    """

    SUBMIT = auto()
    ACCEPT = auto()
    ATTEMPT_REGISTERED = auto()
    ATTEMPT_UNREGISTERED = auto()
    ATTEMPT_FAILED = auto()
    ATTEMPTS_EXHAUSTED = auto()
    CONTAINERS_GONE = auto()
    KILL = auto()
    RECOVER_FINISHED = auto()
    RECOVER_FAILED = auto()
    RECOVER_KILLED = auto()


class AttemptState(IntEnum):
    """RMAppAttempt."""

    NEW = auto()
    SCHEDULED = auto()
    ALLOCATED = auto()
    RUNNING = auto()
    FINISHING = auto()
    FINISHED = auto()
    FAILED = auto()
    KILLED = auto()


class AttemptEvent(IntEnum):
    """What happens to an attempt.

    * SCHEDULE: it waits for a container for its master.
    * CONTAINER_ALLOCATED: it has one, and the node is owed the order to launch the master.
    * RECOVER: its master may live, as it lived before the manager's restart.
    * FAIL: its master ended, fell silent, or could not be launched.
    * KILL: its application is killed.
    """

    SCHEDULE = auto()
    CONTAINER_ALLOCATED = auto()
    RECOVER = auto()
    REGISTERED = auto()
    UNREGISTERED = auto()
    CONTAINERS_GONE = auto()
    FAIL = auto()
    KILL = auto()


class RmContainerState(IntEnum):
    """RMContainer."""

    NEW = auto()
    ALLOCATED = auto()
    ACQUIRED = auto()
    RUNNING = auto()
    STOPPING = auto()
    COMPLETED = auto()
    RELEASED = auto()
    KILLED = auto()


class ContainerEvent(IntEnum):
    """What happens to a container.

    * START: it is granted and booked.
    * ACQUIRED: its master was told of it.
    * LAUNCH_ORDERED is of a master's own container, of which nobody else is told.
    * RECOVER: a node brought it along.
    * STOP_ORDERED: it holds its room until its node confirms.
    * ENDED: it ended without an order, well or not.
    * GIVEN_BACK: its master never started anything in it, or was done with it.
    * WAS_KILLED: it ended on order, or with its node.
    """

    START = auto()
    ACQUIRED = auto()
    LAUNCH_ORDERED = auto()
    RECOVER = auto()
    STOP_ORDERED = auto()
    ENDED = auto()
    GIVEN_BACK = auto()
    WAS_KILLED = auto()


class RmNodeState(IntEnum):
    """RMNode."""

    NEW = auto()
    RUNNING = auto()
    UNHEALTHY = auto()
    DECOMMISSIONING = auto()
    DECOMMISSIONED = auto()
    LOST = auto()
    SHUTDOWN = auto()


class NodeEvent(IntEnum):
    """What happens to a node.

    * REGISTERED: it comes, or comes back after it was given up.
    * RECONNECTED: it registers while it is known; most often, its process started anew.
    * FELL_ILL: its own check says that it is not fit for new work.
    * RECOVERED: it is fit again.
    * EXPIRED: it was silent for too long.
    * UNREGISTERED: it leaves on purpose.
    * DECOMMISSION: an operator takes it out of service, and what runs there may end.
    * DRAINED: nothing is left on it.
    * READMIT: it is recommissioned while it is away.
    """

    REGISTERED = auto()
    RECONNECTED = auto()
    FELL_ILL = auto()
    RECOVERED = auto()
    EXPIRED = auto()
    UNREGISTERED = auto()
    DECOMMISSION = auto()
    DRAINED = auto()
    RECOMMISSION = auto()
    READMIT = auto()
    RECOVER_DECOMMISSIONING = auto()
    RECOVER_DECOMMISSIONED = auto()


class NodeAction(IntEnum):
    """What is done at a step of a node's life (`rm.leaving`).

    * KEEP: it is stored, as a restarted manager has to know whether the node is in service.
    * DRAIN: it is stored, with an alarm for when its time is over; it may be empty already.
    * ALARM: there is an alarm for when its time is over.
    * EXAMINE: it is stored; the node may have fallen ill meanwhile.
    """

    KEEP = auto()
    DRAIN = auto()
    ALARM = auto()
    EXAMINE = auto()


_LIVE_APPS = (AppState.ACCEPTED, AppState.RUNNING)

APP: Lifecycle[AppState, AppEvent, Never] = Lifecycle(
    "Application",
    AppState.NEW,
    {
        (AppState.NEW, AppEvent.SUBMIT): AppState.SUBMITTED,
        (AppState.NEW, AppEvent.RECOVER_FINISHED): AppState.FINISHED,
        (AppState.NEW, AppEvent.RECOVER_FAILED): AppState.FAILED,
        (AppState.NEW, AppEvent.RECOVER_KILLED): AppState.KILLED,
        (AppState.SUBMITTED, AppEvent.ACCEPT): AppState.ACCEPTED,
        (AppState.ACCEPTED, AppEvent.ATTEMPT_REGISTERED): AppState.RUNNING,
        (AppState.RUNNING, AppEvent.ATTEMPT_REGISTERED): AppState.RUNNING,
        (AppState.RUNNING, AppEvent.ATTEMPT_UNREGISTERED): AppState.FINISHING,
        (AppState.FINISHING, AppEvent.CONTAINERS_GONE): AppState.FINISHED,
        **{(state, AppEvent.ATTEMPT_FAILED): AppState.ACCEPTED for state in _LIVE_APPS},
        **{(state, AppEvent.ATTEMPTS_EXHAUSTED): AppState.FAILED for state in _LIVE_APPS},
        **{(state, AppEvent.KILL): AppState.KILLING for state in _LIVE_APPS},
        (AppState.KILLING, AppEvent.CONTAINERS_GONE): AppState.KILLED,
    },
)

_WAITING_ATTEMPTS = (AttemptState.NEW, AttemptState.SCHEDULED)
_LIVE_ATTEMPTS = (*_WAITING_ATTEMPTS, AttemptState.ALLOCATED, AttemptState.RUNNING)

ATTEMPT: Lifecycle[AttemptState, AttemptEvent, Never] = Lifecycle(
    "Attempt",
    AttemptState.NEW,
    {
        (AttemptState.NEW, AttemptEvent.SCHEDULE): AttemptState.SCHEDULED,
        (AttemptState.NEW, AttemptEvent.RECOVER): AttemptState.ALLOCATED,
        (AttemptState.SCHEDULED, AttemptEvent.CONTAINER_ALLOCATED): AttemptState.ALLOCATED,
        (AttemptState.ALLOCATED, AttemptEvent.REGISTERED): AttemptState.RUNNING,
        (AttemptState.RUNNING, AttemptEvent.UNREGISTERED): AttemptState.FINISHING,
        (AttemptState.FINISHING, AttemptEvent.CONTAINERS_GONE): AttemptState.FINISHED,
        **{(state, AttemptEvent.FAIL): AttemptState.FAILED for state in _LIVE_ATTEMPTS},
        **{(state, AttemptEvent.KILL): AttemptState.KILLED for state in _LIVE_ATTEMPTS},
    },
)

_HELD = (RmContainerState.ALLOCATED, RmContainerState.ACQUIRED, RmContainerState.RUNNING)

CONTAINER: Lifecycle[RmContainerState, ContainerEvent, Never] = Lifecycle(
    "Container",
    RmContainerState.NEW,
    {
        (RmContainerState.NEW, ContainerEvent.START): RmContainerState.ALLOCATED,
        (RmContainerState.NEW, ContainerEvent.RECOVER): RmContainerState.RUNNING,
        (RmContainerState.ALLOCATED, ContainerEvent.ACQUIRED): RmContainerState.ACQUIRED,
        (RmContainerState.ALLOCATED, ContainerEvent.LAUNCH_ORDERED): RmContainerState.RUNNING,
        **{(state, ContainerEvent.STOP_ORDERED): RmContainerState.STOPPING for state in _HELD},
        **{
            (state, ContainerEvent.ENDED): RmContainerState.COMPLETED
            for state in (*_HELD, RmContainerState.STOPPING)
        },
        **{
            (state, ContainerEvent.GIVEN_BACK): RmContainerState.RELEASED
            for state in (*_HELD, RmContainerState.STOPPING)
        },
        **{
            (state, ContainerEvent.WAS_KILLED): RmContainerState.KILLED
            for state in (*_HELD, RmContainerState.STOPPING)
        },
    },
)

LEAVING = (RmNodeState.DECOMMISSIONING, RmNodeState.DECOMMISSIONED)

NODE: Lifecycle[RmNodeState, NodeEvent, NodeAction] = Lifecycle(
    "Node",
    RmNodeState.NEW,
    {
        (RmNodeState.NEW, NodeEvent.REGISTERED): RmNodeState.RUNNING,
        (RmNodeState.RUNNING, NodeEvent.RECONNECTED): RmNodeState.RUNNING,
        (RmNodeState.RUNNING, NodeEvent.EXPIRED): RmNodeState.LOST,
        (RmNodeState.RUNNING, NodeEvent.UNREGISTERED): RmNodeState.SHUTDOWN,
        (RmNodeState.RUNNING, NodeEvent.FELL_ILL): RmNodeState.UNHEALTHY,
        (RmNodeState.UNHEALTHY, NodeEvent.RECOVERED): RmNodeState.RUNNING,
        (RmNodeState.UNHEALTHY, NodeEvent.RECONNECTED): RmNodeState.RUNNING,
        (RmNodeState.UNHEALTHY, NodeEvent.EXPIRED): RmNodeState.LOST,
        (RmNodeState.UNHEALTHY, NodeEvent.UNREGISTERED): RmNodeState.SHUTDOWN,
        (RmNodeState.LOST, NodeEvent.REGISTERED): RmNodeState.RUNNING,
        (RmNodeState.SHUTDOWN, NodeEvent.REGISTERED): RmNodeState.RUNNING,
        **{
            (state, NodeEvent.DECOMMISSION): (RmNodeState.DECOMMISSIONING, NodeAction.DRAIN)
            for state in (RmNodeState.RUNNING, RmNodeState.UNHEALTHY)
        },
        **{
            (state, NodeEvent.DECOMMISSION): (RmNodeState.DECOMMISSIONED, NodeAction.KEEP)
            for state in (RmNodeState.LOST, RmNodeState.SHUTDOWN)
        },
        **{
            (RmNodeState.DECOMMISSIONING, event): (RmNodeState.DECOMMISSIONED, NodeAction.KEEP)
            for event in (NodeEvent.DRAINED, NodeEvent.EXPIRED, NodeEvent.UNREGISTERED)
        },
        (RmNodeState.DECOMMISSIONING, NodeEvent.RECONNECTED): RmNodeState.DECOMMISSIONING,
        **{
            (RmNodeState.DECOMMISSIONED, event): RmNodeState.DECOMMISSIONED
            for event in (NodeEvent.RECONNECTED, NodeEvent.EXPIRED, NodeEvent.UNREGISTERED)
        },
        **{
            (state, NodeEvent.RECOMMISSION): (RmNodeState.RUNNING, NodeAction.EXAMINE)
            for state in LEAVING
        },
        **{
            (state, NodeEvent.READMIT): (RmNodeState.SHUTDOWN, NodeAction.KEEP) for state in LEAVING
        },
        (RmNodeState.NEW, NodeEvent.RECOVER_DECOMMISSIONING): (
            RmNodeState.DECOMMISSIONING,
            NodeAction.ALARM,
        ),
        (RmNodeState.NEW, NodeEvent.RECOVER_DECOMMISSIONED): RmNodeState.DECOMMISSIONED,
    },
)

LIFECYCLES = (APP, ATTEMPT, CONTAINER, NODE)

ENDED_APPS = (AppState.FINISHED, AppState.FAILED, AppState.KILLED)
REPORTED = {AppState.FINISHING: "FINISHED", AppState.KILLING: "KILLED"}


def reported(state: AppState) -> str:
    """Return the state that clients are told: what is decided and stored is final for them."""
    return REPORTED.get(state, state.name)
