"""Clusters are read strictly: every fault names its place, and what is left out has a default."""

from typing import Any

import pytest

from weft.model.cluster import ClusterSpec, cluster_from_dict, cluster_from_text
from weft.model.errors import InputError
from weft.model.queues import queues_from_dict, queues_to_dict
from weft.workloads.cluster_file import load_cluster

NODES = [{"count": 2, "capacity": {"vcores": 4}}]


def test_the_short_form_means_what_the_file_means() -> None:
    """Names are the ones given, in the order given; groups are joined with a plus."""
    cluster = cluster_from_text("100x16vcores,65536memory_mb+2x8vcores,4gpu")
    assert cluster.types.names == ("vcores", "memory_mb", "gpu")
    assert cluster.types.rigid == (False, True, True)
    assert len(cluster.nodes) == 102
    assert cluster.nodes[100].capacity == (8.0, 0.0, 4.0)
    assert cluster.total == (1616.0, 6553600.0, 8.0)
    assert [path for path, _ in cluster.queues.leaves()] == ["root.default"]


def test_the_contracts_cluster_file_is_read_whole() -> None:
    """The example that users copy."""
    cluster = cluster_from_dict(
        {
            "resources": [
                {"name": "vcores", "kind": "divisible"},
                {"name": "memory_mb", "kind": "rigid"},
                {"name": "disk_mbps", "kind": "divisible"},
            ],
            "nodes": [
                {
                    "count": 100,
                    "capacity": {"vcores": 16, "memory_mb": 65536, "disk_mbps": 800},
                    "racks": 5,
                    "labels": ["ssd"],
                }
            ],
            "queues": {
                "root": {"prod": {"capacity": 0.7, "max_capacity": 1.0}, "dev": {"capacity": 0.3}}
            },
        }
    )
    assert {node.rack for node in cluster.nodes} == {"r1", "r2", "r3", "r4", "r5"}
    assert cluster.nodes[0].node_id == "n1"
    assert cluster.nodes[0].labels == ("ssd",)
    shares = {path: queue.capacity for path, queue in cluster.queues.leaves()}
    assert shares == {"root.prod": 0.7, "root.dev": 0.3}
    assert cluster.leaf("prod") == cluster.leaf("root.prod") == "root.prod"
    assert cluster.machines().capacity.shape == (100, 3)


def test_queues_that_say_no_capacity_share_the_rest() -> None:
    """Two silent queues beside one of 0.4 get 0.3 each."""
    queues = {"root": {"a": {"capacity": 0.4}, "b": {}, "c": None}}
    cluster = cluster_from_dict({"nodes": NODES, "queues": queues})
    assert [queue.capacity for _, queue in cluster.queues.leaves()] == pytest.approx(
        [0.4, 0.3, 0.3]
    )


@pytest.mark.parametrize(
    ("queues", "shares"),
    [
        ({"a": {"weight": 2}, "b": {"weight": 1}, "c": {"weight": 1}}, [0.5, 0.25, 0.25]),
        ({"a": {"capacity": 0.2}, "b": {"weight": 3}, "c": {"weight": 1}}, [0.2, 0.6, 0.2]),
        ({"a": {"capacity": 0.2, "weight": 9}, "b": {"weight": 3}, "c": None}, [0.2, 0.6, 0.2]),
        ({"a": {"weight": 0}, "b": {}}, [0.0, 1.0]),
        ({"a": {"weight": 0}, "b": {"weight": 0}}, [0.0, 0.0]),
    ],
    ids=str,
)
def test_queues_share_by_weight_what_capacities_leave(queues: Any, shares: list[float]) -> None:
    root = cluster_from_dict({"nodes": NODES, "queues": {"root": queues}}).queues
    assert [queue.capacity for queue in root.children] == pytest.approx(shares)
    assert queues_from_dict(queues_to_dict(root)) == root


def test_the_weight_of_a_queue_holds_under_the_fair_scheduler_too() -> None:
    queues = {"a": {"weight": 3}, "b": {"weight": 3, "fair": {"weight": 1}}, "c": {}}
    root = queues_from_dict({"root": queues})
    assert [queue.fair.weight for queue in root.children] == [3.0, 1.0, 1.0]
    assert queues_from_dict(queues_to_dict(root)) == root


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ([], "cluster"),
        ({"nodes": []}, "nodes"),
        ({"nodes": NODES, "color": 1}, "cluster.color"),
        ({"nodes": [{"capacity": {"vcores": -1}}]}, "nodes[0].capacity.vcores"),
        ({"nodes": [{"capacity": {"vcores": float("nan")}}]}, "nodes[0].capacity.vcores"),
        ({"nodes": [{"capacity": {"vcores": 0}}]}, "nodes[0].capacity"),
        ({"nodes": [{"capacity": {}}]}, "nodes"),
        ({"nodes": [{"count": 0, "capacity": {"vcores": 1}}]}, "nodes[0].count"),
        ({"nodes": [{"count": 2_000_000, "capacity": {"vcores": 1}}]}, "nodes[0].count"),
        ({"nodes": NODES, "resources": ["gpu"]}, "nodes[0].capacity.vcores"),
        ({"nodes": NODES, "resources": [{"name": "vcores", "kind": "soft"}]}, "resources[0].kind"),
        ({"nodes": NODES, "resources": ["vcores", "vcores"]}, "resources"),
        ({"nodes": [{"name": "x", "capacity": {"a": 1}}] * 2}, "nodes"),
        ({"nodes": [{"capacity": {"a": 1}, "rack": "x", "racks": 2}]}, "nodes[0].racks"),
        ({"nodes": NODES, "queues": {"prod": {}}}, "queues"),
        ({"nodes": NODES, "queues": {"root": {"a": {"capacity": 2}}}}, "queues.root.a.capacity"),
        (
            {"nodes": NODES, "queues": {"root": {"a": {"capacity": 0.7}, "b": {"capacity": 0.7}}}},
            "queues.root",
        ),
        (
            {"nodes": NODES, "queues": {"root": {"a": {"capacity": 0.7, "max_capacity": 1.5}}}},
            "queues.root.a.max_capacity",
        ),
        ({"nodes": NODES, "queues": {"root": {"a": {"weight": -1}}}}, "queues.root.a.weight"),
        ({"nodes": NODES, "queues": {"root": {"a": {"speed": 3}}}}, "queues.root.a.speed"),
        (
            {"nodes": NODES, "queues": {"root": {"a": {"placement": {}}}}},
            "queues.root.a.placement",
        ),
    ],
)
def test_a_fault_names_its_place(data: Any, place: str) -> None:
    """Bad values never pass, and people find them."""
    with pytest.raises(InputError) as caught:
        cluster_from_dict(data)
    assert caught.value.place == place


def test_a_percentage_is_refused_with_the_fraction_to_write() -> None:
    with pytest.raises(InputError, match=r"queues.root.a.capacity: expected a fraction: 0.5 for"):
        queues_from_dict({"root": {"a": {"capacity": "50%"}}})


@pytest.mark.parametrize("text", ["", "x", "16", "0x4vcores", "4x", "4xvcores", "2x1a,1a", "-1x1a"])
def test_a_wrong_short_form_is_refused(text: str) -> None:
    """The error shows what was typed, or the place of the fault."""
    with pytest.raises(InputError):
        cluster_from_text(text)


def test_the_command_lines_argument_is_a_file_or_the_short_form(tmp_path: Any) -> None:
    """A name that looks like a file is one; a missing file is not taken for a short form."""
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes: [{count: 3, capacity: {vcores: 2}}]\n")
    assert len(load_cluster(str(path)).nodes) == 3
    assert isinstance(load_cluster("3x2vcores"), ClusterSpec)
    for bad, text in (("gone.yaml", None), ("bad.yaml", "nodes: ["), ("bad.json", "{")):
        if text is not None:
            (tmp_path / bad).write_text(text)
        with pytest.raises(InputError) as caught:
            load_cluster(str(tmp_path / bad))
        assert bad in str(caught.value)


def test_an_unknown_queue_names_the_known_ones() -> None:
    """A job for a queue that is not there gets a list of those that are."""
    with pytest.raises(InputError, match="known: default"):
        cluster_from_text("1x1a").leaf("prod")
