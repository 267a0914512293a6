"""An Application Master's life as a table; `tools/draw_lifecycles.py` draws it."""

from enum import Enum, auto

from weft.lifecycle import Lifecycle


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


_S, _E = MasterState, MasterEvent

MASTER = Lifecycle(
    "application master",
    _S.NEW,
    {
        (_S.NEW, _E.START): _S.REGISTERING,
        (_S.NEW, _E.STOP): _S.STOPPED,
        (_S.REGISTERING, _E.ACCEPT): _S.PLANNING,
        (_S.REGISTERING, _E.RESYNC): _S.REGISTERING,
        (_S.REGISTERING, _E.STOP): _S.STOPPED,
        (_S.PLANNING, _E.PLAN): _S.RUNNING,
        (_S.PLANNING, _E.RESYNC): _S.PLANNING,
        (_S.PLANNING, _E.STOP): _S.STOPPED,
        (_S.RUNNING, _E.PLAN): _S.RUNNING,
        (_S.RUNNING, _E.RESYNC): _S.RUNNING,
        (_S.RUNNING, _E.FINISH): _S.FINISHING,
        (_S.RUNNING, _E.STOP): _S.STOPPED,
        (_S.FINISHING, _E.RESYNC): _S.FINISHING,
        (_S.FINISHING, _E.ACKNOWLEDGE): _S.STOPPED,
        (_S.FINISHING, _E.STOP): _S.STOPPED,
    },
)

LIFECYCLES = (MASTER,)
