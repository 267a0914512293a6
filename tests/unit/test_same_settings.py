"""A setting of a role has one name, whether a cluster lives or is simulated."""

import pytest

from sim.settings import role_settings
from weft.model.errors import InputError


def test_a_simulation_takes_the_names_of_a_live_manager() -> None:
    assert role_settings("manager", {"master_vcores": "0"}) == {
        "master_demand": {"vcores": 0.0, "memory_mb": 256.0}
    }
    with pytest.raises(InputError, match=r"--set manager\.master_vcores: expected a number"):
        role_settings("manager", {"master_vcores": "few"})
