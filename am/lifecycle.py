"""An Application Master's life as a table; `tools/draw_lifecycles.py` draws it."""

from enum import Enum, auto

from weft.protocol.lifecycle import Lifecycle


class MasterState(Enum):
    """What a master is doing."""

    NEW = auto()
    REGISTERING = auto()
    PLANNING = auto()
    RUNNING = auto()
    FINISHING = auto()
    STOPPED = auto()


class MasterEvent(Enum):
    """What moves a master on."""

    START = auto()
    ACCEPT = auto()
    PLAN = auto()
    RESYNC = auto()
    FINISH = auto()
    ACKNOWLEDGE = auto()
    STOP = auto()


class MasterAction(Enum):
    """What a master does at a step.

    REGISTER repeats until the master is accepted. REPORT stops what it holds and says how the job
    ended, until that is acknowledged. LEAVE waits for nothing any more.
    """

    REGISTER = auto()
    REPORT = auto()
    LEAVE = auto()


_S, _E, _A = MasterState, MasterEvent, MasterAction

MASTER: Lifecycle[MasterState, MasterEvent, MasterAction] = Lifecycle(
    "application master",
    _S.NEW,
    {
        (_S.NEW, _E.START): (_S.REGISTERING, _A.REGISTER),
        (_S.NEW, _E.STOP): (_S.STOPPED, _A.LEAVE),
        (_S.REGISTERING, _E.ACCEPT): _S.PLANNING,
        (_S.REGISTERING, _E.RESYNC): (_S.REGISTERING, _A.REGISTER),
        (_S.REGISTERING, _E.STOP): (_S.STOPPED, _A.LEAVE),
        (_S.PLANNING, _E.PLAN): _S.RUNNING,
        (_S.PLANNING, _E.RESYNC): (_S.PLANNING, _A.REGISTER),
        (_S.PLANNING, _E.STOP): (_S.STOPPED, _A.LEAVE),
        (_S.RUNNING, _E.PLAN): _S.RUNNING,
        (_S.RUNNING, _E.RESYNC): (_S.RUNNING, _A.REGISTER),
        (_S.RUNNING, _E.FINISH): (_S.FINISHING, _A.REPORT),
        (_S.RUNNING, _E.STOP): (_S.STOPPED, _A.LEAVE),
        (_S.FINISHING, _E.RESYNC): (_S.FINISHING, _A.REGISTER),
        (_S.FINISHING, _E.ACKNOWLEDGE): (_S.STOPPED, _A.LEAVE),
        (_S.FINISHING, _E.STOP): (_S.STOPPED, _A.LEAVE),
    },
)

LIFECYCLES = (MASTER,)
