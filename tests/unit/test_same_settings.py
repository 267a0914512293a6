"""A setting of a role has one name, whether a cluster lives or is simulated."""

import pytest

from sim.settings import role_settings
from weft.client.commands_local import _of_process
from weft.model.errors import InputError

TYPES = ("vcores", "memory_mb")


def test_a_simulation_takes_the_names_of_a_live_manager() -> None:
    assert role_settings("manager", {"master_vcores": "0"}, TYPES) == {
        "master_demand": {"vcores": 0.0, "memory_mb": 256.0}
    }
    both = {"master_demand": "vcores:3", "master_memory_mb": "64"}
    assert role_settings("manager", both, TYPES)["master_demand"] == {
        "vcores": 3.0,
        "memory_mb": 64.0,
    }
    with pytest.raises(InputError, match=r"--set manager\.master_vcores: expected a number"):
        role_settings("manager", {"master_vcores": "few"}, TYPES)


def test_a_live_cluster_takes_the_names_of_a_simulation() -> None:
    pairs = _of_process("manager.master_demand", "vcores:0,memory_mb:64")
    assert pairs == ["master_vcores=0", "master_memory_mb=64"]
    assert _of_process("manager.master_demand.vcores", "2") == ["master_vcores=2"]
    assert _of_process("manager.master_vcores", "2") == ["master_vcores=2"]
    with pytest.raises(InputError, match=r"--set manager\.master_demand"):
        _of_process("manager.master_demand", "vcores")
