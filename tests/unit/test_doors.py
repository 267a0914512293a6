"""Each core has a handler for all that its door is said to take, and one error for all else."""

from typing import Any, get_args

import pytest

from am.core import _DOORS
from testkit.transcript import CORES
from weft.protocol import event_unions as doors
from weft.protocol.effects import TimerFired

HANDLED = {
    "manager": lambda core: {*core._handlers, TimerFired},
    "master": lambda core: set(_DOORS),
    "node": lambda core: set(core._handlers),
}
TOLD: dict[str, Any] = {
    "manager": doors.ManagerTold,
    "master": doors.MasterTold,
    "node": doors.NodeTold,
}


@pytest.mark.parametrize("role", CORES)
def test_every_event_of_a_door_has_a_handler(role: str) -> None:
    core = CORES[role]()
    assert HANDLED[role](core) == set(get_args(TOLD[role]))
    with pytest.raises(doors.UnknownEventError, match="takes no str"):
        core.handle("nonsense", 0.0)
