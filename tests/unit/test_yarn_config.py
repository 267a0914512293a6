"""Configurations of real YARN clusters become cluster files; what has no counterpart is named."""

import json
import os
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from lab.cli import weft
from rm.ledger.queues import QueueTree
from weft.client.commands_yarn import take_yarn
from weft.model.cluster import cluster_from_dict
from weft.model.errors import InputError
from weft.model.queues import QueueSpec, queues_from_dict, queues_to_dict
from weft.workloads.cluster_file import load_cluster
from weft.workloads.yarn_config import read_yarn
from weft.workloads.yarn_fair import read_amounts
from weft.workloads.yarn_properties import PROPERTIES

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("WEFT_DATA", ROOT.parent / "shared" / "data"))
P = "yarn.scheduler.capacity."
NODES = (
    '{"rack": "/rack1", "nodes": [{"node": "a", "memory-mb": 4096, "vcores": 4}, {"node": "b"}]}'
)


def xml(**properties: object) -> str:
    rows = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in properties.items()
    )
    return f'<?xml version="1.0"?><configuration>{rows}</configuration>'


@pytest.fixture
def read(tmp_path):
    """Read texts as files; `.xml` unless they begin as JSON."""

    def reading(*texts: str, nodes: int = 0):
        paths = []
        for number, text in enumerate(texts):
            path = tmp_path / f"file{number}"
            path.write_text(text)
            paths.append(path)
        return read_yarn(paths, nodes)

    return reading


def test_a_queue_tree_with_yarns_defaults(read):
    found = read(
        xml(
            **{
                P + "root.queues": "prod, dev",
                P + "root.prod.capacity": 70,
                P + "root.prod.maximum-capacity": "90%",
                P + "root.prod.queues": "etl,web",
                P + "root.prod.etl.capacity": "3w",
                P + "root.prod.web.capacity": "1w",
                P + "root.dev.capacity": "30.0",
                P + "root.dev.minimum-user-limit-percent": 25,
                P + "root.dev.user-limit-factor": 2,
                P + "root.acl_submit_applications": " ",
                P + "root.dev.acl_submit_applications": "bob",
                P + "root.prod.web.state": "STOPPED",
                P + "root.dev.maximum-applications": 40,
                P + "root.dev.maximum-am-resource-percent": "0.2",
            }
        ),
        NODES,
    )
    usual = {
        "max_capacity": 1.0,
        "user_limit": 1.0,
        "user_limit_factor": 1.0,
        "max_am_share": 0.1,
    }
    assert found.queues == {
        "submit": [],
        "max_allocation": {"memory_mb": 8192, "vcores": 4},
        "max_applications": 10_000,
        "prod": {
            "capacity": 0.7,
            "max_capacity": 0.9,
            "etl": {
                "capacity": 0.75,
                "weight": 3.0,
                "max_applications": 5250,
                "max_user_applications": 5250,
            }
            | usual,
            "web": {
                "capacity": 0.25,
                "weight": 1.0,
                "max_applications": 1750,
                "max_user_applications": 1750,
                "state": "STOPPED",
            }
            | usual,
        },
        "dev": {
            "capacity": 0.3,
            "max_capacity": 1.0,
            "user_limit": 0.25,
            "user_limit_factor": 2.0,
            "max_applications": 40,
            "max_user_applications": 20,
            "max_am_share": 0.2,
            "submit": ["bob"],
        },
    }
    assert not found.left_out


AMOUNTS = {
    P + "root.queues": "a,b",
    P + "root.a.capacity": "[memory=3584,vcores=7]",
    P + "root.a.maximum-capacity": "[memory=7168,vcores=64]",
    P + "root.b.capacity": "[memory=7Gi, vcores=1]",
}
DOMINANT = {P + "resource-calculator": "org.apache.DominantResourceCalculator"}


@pytest.mark.parametrize(
    ("calculator", "capacities", "most"),
    [
        # 3584 and 7168 of 14336 MB.
        ({}, (0.25, 0.5), 0.5),
        # 7 of 14 cores, 7168 of 14336 MB; 64 cores are more than there are.
        (DOMINANT, (0.5, 0.5), 1.0),
    ],
)
def test_amounts_stay_as_they_are_beside_parts_by_the_calculator(
    read, calculator, capacities, most
):
    found = read(xml(**AMOUNTS | calculator), NODES)
    a, b = found.queues["a"], found.queues["b"]
    assert (a["capacity"], b["capacity"]) == capacities
    assert a["max_capacity"] == most
    assert a["absolute"][""] == {
        "min": {"memory_mb": 3584, "vcores": 7},
        "max": {"memory_mb": 7168, "vcores": 64},
    }
    assert b["absolute"][""] == {"min": {"memory_mb": 7168, "vcores": 1}}
    tree = cluster_from_dict(found.cluster(), "c").queues
    assert tree.children[0].absolute[""].max == {"memory_mb": 7168, "vcores": 64}
    assert queues_from_dict(queues_to_dict(tree)) == tree


def test_amounts_that_are_scaled_down_are_whole(read):
    """A core of two where three are asked for is none: no user may have an application there."""
    tree = {
        P + "root.queues": "p,r",
        P + "root.p.capacity": "[memory=1593,vcores=2]",
        P + "root.r.capacity": "[memory=11000,vcores=8]",
        P + "root.p.queues": "a,b",
        P + "root.p.a.capacity": "[memory=8,vcores=1]",
        P + "root.p.b.capacity": "[memory=1584,vcores=2]",
    }
    found = read(xml(**tree | DOMINANT), nodes=2)
    assert found.queues["p"]["a"]["max_applications"] == 4


def test_a_property_that_is_final_stays(read):
    name = "yarn.resourcemanager.am.max-attempts"
    first = xml(**{name: 3}).replace("</property>", "<final>true</final></property>", 1)
    assert read(first, xml(**{name: 5})).manager["max_attempts"] == 3
    assert read(xml(**{name: 3}), xml(**{name: 5})).manager["max_attempts"] == 5


def leaf(**more: object) -> dict[str, object]:
    found = {P + "root.queues": "a", P + "root.a.capacity": 100}
    return found | {P + "root.a." + key.replace("_", "-"): value for key, value in more.items()}


@pytest.mark.parametrize("factor", [0, -3])
def test_a_factor_of_nothing_lets_nobody_submit_and_minus_one_everybody(read, factor):
    assert read(xml(**leaf(user_limit_factor=factor))).queues["a"]["max_user_applications"] == 0
    assert "max_user_applications" not in read(xml(**leaf(user_limit_factor=-1))).queues["a"]


def test_the_largest_allocation_and_the_number_of_applications_are_roots(read):
    given = leaf() | {
        "yarn.scheduler.maximum-allocation-vcores": 6,
        P + "maximum-applications": 30,
        P + "global-queue-max-application": 7,
    }
    queues = read(xml(**given)).queues
    assert queues["max_allocation"] == {"memory_mb": 8192, "vcores": 6}
    assert (queues["max_applications"], queues["a"]["max_applications"]) == (30, 7)


def test_an_order_may_be_said_by_its_class(read):
    name = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.policy.FairOrderingPolicy"
    assert read(xml(**leaf(ordering_policy=name))).queues["a"]["order"] == "fair"


def test_a_maximum_below_the_capacity_stays(read):
    queue = read(xml(**leaf(maximum_capacity=30)), NODES)
    (spec,) = cluster_from_dict(queue.cluster(), "c").queues.children
    assert (spec.capacity, spec.max_capacity) == (1.0, 0.3)
    # Weft's own matchers guarantee nobody more than he may hold.
    assert QueueTree(QueueSpec("root", children=(spec,))).capacity.tolist() == [1.0, 0.3]


def test_weights_of_users_hold_in_queues_below_and_may_be_nothing(read):
    names = {
        P + "root.user-settings.ann.weight": 0.5,
        P + "root.a.user-settings.bob.weight": 0,
    }
    assert read(xml(**leaf(), **names)).queues["a"]["user_weights"] == {"ann": 0.5, "bob": 0.0}


MIXED = {P + "root.queues": "a,b", P + "root.a.capacity": "2w"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (MIXED | {P + "root.b.capacity": 50}, "root.queues: .* mix percentages, weights"),
        (MIXED | {P + "root.b.capacity": "[memory=1024]"}, "mix percentages, weights and amounts"),
        (
            leaf(queues="b") | {P + "root.a.b.capacity": "[memory=1024]"},
            "a.queues: root.a has a percentage, and queues below it amounts",
        ),
        (leaf() | {P + "root.a.capacity": 70}, "sum to 70 %, not to 0 or 100"),
        (leaf() | {P + "root.a.capacity": 101}, "root.a.capacity: .* from 0 to 100"),
        (
            {
                P + "root.queues": "a",
                P + "root.a.capacity": "[memory=2048]",
                P + "root.a.queues": "b",
                P + "root.a.b.capacity": "[memory=4096]",
            },
            "root.a has 2048 memory_mb, queues below it 4096 memory_mb",
        ),
        (
            leaf(minimum_user_limit_percent=50) | {P + "root.user-settings.ann.weight": 3},
            "user-settings.ann.weight: a weight is from 0 to 2 here, got 3",
        ),
        (
            leaf() | {"yarn.scheduler.minimum-allocation-mb": 9000},
            "9000 are more than the maximum allocation, 8192",
        ),
        (leaf() | {"yarn.scheduler.minimum-allocation-vcores": 0}, "above 0, got 0"),
        (leaf(state="DRAINING"), "root.a.state: expected RUNNING or STOPPED, got 'DRAINING'"),
        (leaf(ordering_policy="utilization"), "a.ordering-policy: expected one of fifo, fair"),
        (leaf() | {P + "root.ordering-policy": "fair"}, "expected one of utilization, priority"),
        (
            leaf(maximum_application_lifetime=9, default_application_lifetime=10),
            "a.default-application-lifetime: more than the maximum, 9 s",
        ),
        (leaf(maximum_allocation_vcores=5), "root.a: 5 vcores are more than .* maximum, 4"),
        (leaf() | {"yarn.scheduler.minimum-allocation-mb": -1}, "above 0, got -1"),
    ],
)
def test_what_yarn_does_not_start_with_is_refused_by_the_propertys_name(read, given, says):
    with pytest.raises(InputError, match=says):
        read(xml(**given), NODES)


def test_queues_below_one_have_nothing_only_where_that_is_allowed(read):
    given = leaf(queues="b") | {P + "root.a.b.capacity": 0}
    with pytest.raises(InputError, match="and no queue below it has"):
        read(xml(**given), NODES)
    allowed = given | {P + "root.a.allow-zero-capacity-sum": "true"}
    assert read(xml(**allowed), NODES).queues["a"]["b"]["capacity"] == 0.0


def test_capacities_of_several_kinds_are_taken_out_of_legacy_mode(read):
    given = MIXED | {P + "root.b.capacity": 50, P + "legacy-queue-mode.enabled": "false"}
    queues = read(xml(**given)).queues
    assert (queues["a"]["capacity"], queues["b"]["capacity"]) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "<queue name='a'><queue name='b'><schedulingPolicy>drf</schedulingPolicy></queue>"
            "</queue>",
            "root.a.b.schedulingPolicy: drf below root.a, which is fair",
        ),
        (
            "<queue name='a'><schedulingPolicy>fifo</schedulingPolicy><queue name='b'/></queue>",
            "root.a.schedulingPolicy: fifo is for leaf queues alone",
        ),
    ],
)
def test_policies_that_make_no_queue_in_the_fair_scheduler_are_refused(read, text, says):
    with pytest.raises(InputError, match=says):
        read(f"<allocations>{text}</allocations>", nodes=1)


def test_settings_and_variables(read):
    found = read(
        xml(
            **{
                "yarn.resourcemanager.scheduler.class": "org.apache.hadoop.yarn.CapacityScheduler",
                "expiry": "60000",
                "yarn.nm.liveness-monitor.expiry-interval-ms": "${expiry}",
                "yarn.resourcemanager.scheduler.monitor.enable": "true",
                "yarn.resourcemanager.monitor.capacity.preemption.max_wait_before_kill": 5000,
                P + "node-locality-delay": 20,
                P + "rack-locality-additional-delay": -1,
                "yarn.nodemanager.resource.memory-mb": 16384,
                "yarn.nodemanager.resource.cpu-vcores": 12,
                "yarn.resourcemanager.address": "rm:8032",
                "my.own": "x",
            }
        ),
        nodes=5,
    )
    assert found.scheduler == "yarn"
    assert found.manager == {
        "node_expiry_s": 60.0,
        "preemption": True,
        "preemption_grace_s": 5.0,
        "preemption_interval_s": 3.0,
    }
    assert found.matcher == {
        "node_locality_delay": 20,
        "rack_locality_additional_delay": -1,
        # As in YARN, where nobody says otherwise.
        "max_application_priority": 0,
    }
    assert found.nodes == [{"count": 5, "capacity": {"vcores": 12.0, "memory_mb": 16384.0}}]
    assert found.left_out == {
        "expiry": "no counterpart",
        "yarn.resourcemanager.address": "not about scheduling",
        "my.own": "no counterpart",
    }


def test_nodes_as_yarns_rest_api_tells_them(read):
    answer = {
        "nodes": {
            "node": [
                {
                    "nodeHostName": "h1",
                    "rack": "/r",
                    "availMemoryMB": 1024,
                    "usedMemoryMB": 3072,
                    "availableVirtualCores": 1,
                    "usedVirtualCores": 7,
                    "nodeLabels": ["gpu"],
                },
            ]
        }
    }
    assert read(json.dumps(answer)).nodes == [
        {
            "name": "h1",
            "capacity": {"vcores": 8.0, "memory_mb": 4096.0},
            "rack": "r",
            "labels": ["gpu"],
        },
    ]


def test_the_load_simulators_nodes_leave_their_size_to_its_own_file(read):
    nodes = read(xml(**{"yarn.sls.nm.vcores": 100, "yarn.sls.nm.memory.mb": 5000}), NODES).nodes
    assert [node["capacity"] for node in nodes] == [
        {"vcores": 4.0, "memory_mb": 4096.0},
        {"vcores": 100.0, "memory_mb": 5000.0},
    ]


def test_queues_that_all_weigh_nothing_are_guaranteed_nothing(read):
    both = {P + "root.queues": "a,b", P + "root.a.capacity": "0w", P + "root.b.capacity": "0w"}
    found = read(xml(**both), NODES)
    assert [found.queues[name]["capacity"] for name in "ab"] == [0.0, 0.0]


def test_queues_of_the_fair_scheduler(read):
    text = """<allocations><queue name="root"><queue name="a"><weight>3</weight>
        <minResources>1024 mb, 1 vcores</minResources><maxResources>7 vcores</maxResources></queue>
        <queue name="b"><queue name="c"/></queue></queue></allocations>"""
    found = read(text, NODES)
    assert found.scheduler == "yarn_fair"
    # A cap below the share by weight is all that a queue gets.
    fair = {"weight": 3.0, "min_resources": {"memory_mb": 1024.0, "vcores": 1.0}}
    fair["max_resources"] = {"vcores": 7.0}
    assert found.queues == {
        "max_allocation": {"memory_mb": 8192, "vcores": 4},
        "a": {"capacity": 0.5, "max_capacity": 0.5, "fair": fair},
        "b": {"capacity": 0.25, "c": {"capacity": 1.0}},
        # As YARN has it where the file says no policy; one without a user is none of YARN's.
        "placement": {
            "fair": True,
            "rules": [{"queue": "%specified"}, {"queue": "root.%user"}, {"queue": "root.default"}],
        },
    }
    assert found.left_out == {}


@pytest.mark.parametrize(
    ("text", "parts", "amounts"),
    [
        ("60%", {"memory_mb": 0.6, "vcores": 0.6}, {}),
        ("55.0% memory, 30.0% cpu", {"memory_mb": 0.55, "vcores": 0.3}, {}),
        ("vcores=60%, memory-mb=70%", {"memory_mb": 0.7, "vcores": 0.6}, {}),
        ("vcores=10, memory-mb=5%", {"memory_mb": 0.05}, {"vcores": 10.0}),
        ("10000 mb, 10 vcores", {}, {"memory_mb": 10000.0, "vcores": 10.0}),
        ("2048 MB 2 vcores", {}, {"memory_mb": 2048.0, "vcores": 2.0}),
        ("gpu=3", {}, {"gpu": 3.0}),
    ],
)
def test_amounts_of_the_fair_scheduler(text, parts, amounts):
    assert read_amounts(text, "here") == (parts, amounts)


@pytest.mark.parametrize("text", ["many", "10 apples", "vcores=", "=3", "10 mb and 3"])
def test_other_amounts_are_refused(text):
    with pytest.raises(InputError, match="expected"):
        read_amounts(text, "here")


def test_a_least_share_in_percent_is_nothing_as_in_yarn_and_said(read):
    text = """<allocations><queue name="a"><minResources>5% memory, 10% cpu</minResources></queue>
        <queue name="b"><minResources>vcores=10, memory-mb=5%</minResources></queue>
        </allocations>"""
    found = read(text, nodes=1)
    assert "fair" not in found.queues["a"]
    assert found.queues["b"]["fair"] == {"min_resources": {"vcores": 10.0}}
    assert {place: why.split(":")[0] for place, why in found.left_out.items()} == {
        f"root.{name}.minResources": "a percentage is 0 there, as in YARN" for name in "ab"
    }


def test_who_may_use_queues_of_the_fair_scheduler(read):
    """Root lets everybody unless it has a list; who may in a queue may in those below."""
    text = """<allocations><queue name="root"><aclSubmitApps> </aclSubmitApps>
        <queue name="a"><aclSubmitApps>ann,bob</aclSubmitApps>
        <aclAdministerApps>eve staff</aclAdministerApps>
        <queue name="b"><aclSubmitApps>joe</aclSubmitApps></queue></queue></queue></allocations>"""
    found = read(text, nodes=1)
    a = found.queues["a"]
    assert (found.queues["submit"], a["submit"]) == ([], ["ann", "bob"])
    assert a["b"]["submit"] == ["joe", "ann", "bob"]
    assert a["administer"] == ["eve", "*"], "root says nobody in particular"
    assert found.left_out == {"root.a.aclAdministerApps": "groups are not known: staff"}


def test_who_starves_under_the_fair_scheduler(read):
    """The file's word for all queues is root's, unless root says its own."""
    text = """<allocations>
        <defaultMinSharePreemptionTimeout>9</defaultMinSharePreemptionTimeout>
        <fairSharePreemptionTimeout>60</fairSharePreemptionTimeout>
        <defaultFairSharePreemptionThreshold>0.8</defaultFairSharePreemptionThreshold>
        <queue name='root'>
          <minSharePreemptionTimeout>5</minSharePreemptionTimeout>
          <queue name='a'>
            <fairSharePreemptionTimeout>30</fairSharePreemptionTimeout>
            <allowPreemptionFrom>false</allowPreemptionFrom>
          </queue>
          <queue name='b'/>
        </queue>
      </allocations>"""
    fair = "yarn.scheduler.fair."
    properties = {
        "yarn.resourcemanager.scheduler.class": "org.example.FairScheduler",
        fair + "preemption": "true",
        fair + "waitTimeBeforeNextStarvationCheck": 3000,
        fair + "preemption.cluster-utilization-threshold": 0.5,
        fair + "update-interval-ms": 250,
        fair + "am.preemption": "false",
        fair + "am.preemption.root.b": "true",
    }
    found = read(text, xml(**properties), nodes=1)
    root, a = found.queues["fair"], found.queues["a"]
    assert (root["min_share_timeout_s"], root["fair_share_timeout_s"]) == (5, 60)
    assert root["fair_share_threshold"] == 0.8
    assert a["fair"] == {"fair_share_timeout_s": 30, "am_preemption": False}
    assert a["disable_preemption"]
    assert "fair" not in found.queues["b"]
    assert found.manager["preemption_interval_s"] == 0.25
    assert found.matcher["preemption_check_delay_s"] == 3
    assert found.matcher["preemption_utilization_threshold"] == 0.5
    assert not found.left_out


def test_limits_of_the_fair_scheduler(read):
    text = """<allocations><userMaxAppsDefault>4</userMaxAppsDefault><user name="ann">
        <maxRunningApps>2</maxRunningApps></user><queueMaxAMShareDefault>0.3</queueMaxAMShareDefault>
        <defaultQueueSchedulingPolicy>drf</defaultQueueSchedulingPolicy>
        <queue name="a"><maxChildResources>50%</maxChildResources><maxRunningApps>3</maxRunningApps>
        <queue name="b"><schedulingPolicy>FIFO</schedulingPolicy>
        <maxAMShare>-1.0</maxAMShare></queue></queue></allocations>"""
    found = read(text, nodes=1)
    assert found.matcher == {"user_max_running": 4, "users_max_running": "ann=2"}
    a = found.queues["a"]
    assert found.queues["fair"]["policy"] == a["fair"]["policy"] == "drf"
    assert (a["fair"]["max_running_apps"], "max_am_share" in a["fair"]) == (3, False)
    assert a["b"]["fair"]["policy"] == "fifo"
    assert a["b"]["fair"]["max_am_share"] == -1.0
    # What queues below may have at most is of those that submissions make.
    assert "max_parts" not in a["b"]["fair"]
    assert found.left_out["root.a.maxChildResources"] == "no queue is made below this one"


def test_orders_that_are_others_are_named(read):
    place = P + "root{}.ordering-policy"
    same = {P + "root.queues": "a", P + "root.a.capacity": 100, place.format(".a"): "fifo"}
    assert not read(xml(**same, **{place.format(""): "utilization"}), nodes=1).left_out
    others = same | {place.format(".a"): "fair", place.format(""): "org.example.Mine"}
    found = read(xml(**others), nodes=1)
    assert found.left_out == {place.format(""): "the order org.example.Mine is not known"}
    assert found.queues["a"]["order"] == "fair"


def test_a_cluster_that_observes_preemption_does_not_preempt(read):
    monitor = "yarn.resourcemanager.scheduler.monitor."
    observes = "yarn.resourcemanager.monitor.capacity.preemption.observe_only"
    assert read(xml(**{monitor + "enable": "true"}), nodes=1).manager["preemption"]
    for other in ({observes: "true"}, {monitor + "policies": "org.example.Other"}):
        said = read(xml(**{monitor + "enable": "true"}, **other), nodes=1)
        assert not said.manager["preemption"]


def test_what_is_said_of_all_queues_holds_for_those_that_say_nothing(read):
    both = {P + "root.queues": "a,b", P + "root.a.capacity": 50, P + "root.b.capacity": 50}
    both |= {P + "minimum-user-limit-percent": 25, P + "user-limit-factor": 2}
    both |= {P + "maximum-am-resource-percent": 0.3, P + "root.b.user-limit-factor": 3}
    queues = read(xml(**both), nodes=1).queues
    a, b = queues["a"], queues["b"]
    assert (a["user_limit"], a["user_limit_factor"], a["max_am_share"]) == (0.25, 2.0, 0.3)
    assert (b["user_limit"], b["user_limit_factor"], b["max_am_share"]) == (0.25, 3.0, 0.3)


def test_who_may_submit_above_may_below(read):
    lists = {P + "root.acl_submit_applications": "ann", P + "root.a.acl_submit_applications": "bob"}
    lists |= {P + "root.a.acl_administer_queue": "eve wheel"}
    found = read(xml(**lists, **{P + "root.queues": "a", P + "root.a.capacity": 100}), nodes=1)
    assert found.queues["submit"] == ["ann"]
    assert found.queues["a"]["submit"] == ["bob", "ann"]
    assert found.queues["a"]["administer"] == ["eve", "*"], "root says nobody in particular"
    assert found.left_out == {P + "root.a.acl_administer_queue": "groups are not known: wheel"}


VALUES = {
    "queue-mappings": "u:ann:a",
    "mapping-rule-json": '{"rules": [{"type": "user", "matches": "*", "policy": "specified"}]}',
    "mapping-rule-format": "legacy",
    "app-name": "etl:a",
    "queue-placement-rules": "user-group",
    "overrides": "ann=dev",
    "maximum-allocation": "memory-mb=1024",
    "maximum-allocation-mb": "8192",
    "increment-allocation": "512",
    "capacity": "100",
    "user-as-default-queue": "false",
    "allow-undeclared-pools": "false",
    "yarn.scheduler.fair.reservable-nodes": "0.1",
    "yarn.scheduler.fair.dynamic.max.assign": "true",
    "yarn.scheduler.fair.am.preemption.root.a": "false",
    "yarn.scheduler.fair.am.preemption": "false",
    "yarn.resource-types": "gpu",
    "yarn.resource-types.gpu.maximum-allocation": "1",
    "queues": "",
    "state": "STOPPED",
    "ordering-policy": "fair",
    "user-limit-factor": "2",
    "accessible-node-labels": "gpu",
    "default-node-label-expression": "gpu",
    "resource-calculator": "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator",
    "class": "org.apache.hadoop.yarn.FifoScheduler",
    "policies": "org.example.Other",
    "acl_submit_applications": "ann",
    "acl_administer_queue": "ann",
}
MONITOR = "yarn.resourcemanager.scheduler.monitor."
# What else has to be said for a property to mean anything.
BESIDE = {
    "observe_only": {MONITOR + "enable": "true"},
    "policies": {MONITOR + "enable": "true"},
    "enable-size-based-weight": {P + "root.a.ordering-policy": "fair"},
    "overrides": {P + "queue-mappings": "g:dev:a"},
    "resource-types": {"yarn.nodemanager.resource-type.gpu": 4},
    "queue-expiration-time": {MONITOR + "policies": "org.example.AutoCreatedQueueDeletionPolicy"},
}
# These mean something beside other queues or files alone, and have tests of their own.
ALONE = {
    P + "root.a.capacity",
    P + "root.a.queues",
    P + "root.a.allow-zero-capacity-sum",
    P + "legacy-queue-mode.enabled",
    P + "mapping-rule-format",
    "yarn.scheduler.queue-placement-rules",
    "yarn.sls.nm.memory.mb",
    "yarn.sls.nm.vcores",
}
TRUTHS = (
    "enabled",
    "enable",
    "reset",
    "nodes",
    "observe_only",
    "preemption",
    "weight",
    "allocation",
    "drf",
    "additional_res_balance_based_on_reserved_containers",
    "assignmultiple",
    "sizebasedweight",
)


@pytest.mark.parametrize("known", PROPERTIES, ids=lambda known: known.name)
def test_every_property_is_taken_or_named_with_the_reason(read, known):
    """One property in a small configuration: it is asked for, or left out as the table says."""
    name = known.name.replace("<queue>", "root.a").replace("<label>", "gpu")
    name = name.replace("<user>", "ann").replace("<type>", "gpu").replace("*", "any")
    last = name.rpartition(".")[2]
    value = VALUES.get(name) or VALUES.get(
        last, "true" if last.rpartition("-")[2] in TRUTHS else "1"
    )
    value = "1" if last == "weight" or "rack-locality-add" in last else value
    config = {P + "root.queues": "a", P + "root.a.capacity": 100}
    if "placement" in known.to:
        form, rule = (
            ("json", {}) if name.endswith("json") else ("legacy", {"queue-mappings": "u:ann:a"})
        )
        config |= {P + "mapping-rule-format": form} | {P + key: text for key, text in rule.items()}
    if "creates" in known.to:
        config[P + "root.a.auto-queue-creation-v2.enabled"] = "true"
        name = name.replace("<key>", "maximum-capacity")
    if known.fair:
        config = {"yarn.resourcemanager.scheduler.class": "org.apache.hadoop.FairScheduler"}
        config["yarn.scheduler.fair.preemption"] = "true"
    if "type" in name:
        config["yarn.resource-types"] = "gpu"
    config |= BESIDE.get(last, {})
    more = ["<allocations><queue name='a'/></allocations>"] if "am.preemption" in name else []
    found = read(xml(**config | {name: value}), *more, nodes=1)
    found.left_out.pop("groups of users", "")
    assert found.left_out == ({name: known.why} if known.why else {})
    without = {key: one for key, one in config.items() if key != name}
    if known.to and name not in ALONE:
        found.left_out = {}
        plain = read(xml(**without), *more, nodes=1)
        plain.left_out = {}
        assert found != plain, "it is read, and changes nothing"


@pytest.mark.parametrize(
    ("label", "of_b", "has"),
    [
        # All may use x that say nothing of labels, or name what the queue above names.
        ("root.a", {}, {"a": "x", "b": "x", "made": "x"}),
        ("root.a", {"accessible-node-labels": "x"}, {"a": "x", "b": "x", "made": "x"}),
        ("root.a", {"accessible-node-labels": " "}, {"a": "x", "b": "", "made": "x"}),
        ("root.a", {"default-node-label-expression": " "}, {"a": "x", "b": "", "made": "x"}),
        # Root may use all labels, and a less.
        ("root", {}, {"a": "", "b": "", "made": ""}),
    ],
)
def test_a_label_that_requests_have_who_name_none_is_handed_down(read, label, of_b, has):
    x = "accessible-node-labels.x.capacity"
    tree = {P + "root.queues": "a", P + "root.a.capacity": "1w", P + "root.a.queues": "b"}
    tree |= {P + "root.a.accessible-node-labels": "x"}
    tree |= {P + "root.a.b.capacity": "1w", P + "root.a." + x: "1w", P + "root.a.b." + x: "1w"}
    tree |= {P + f"{label}.default-node-label-expression": "x"}
    tree |= {P + f"root.a.b.{key}": value for key, value in of_b.items()}
    tree |= {P + "root.a.auto-queue-creation-v2.enabled": "true"}
    found = read(xml(**tree), '[{"rack": "r", "nodes": [{"node": "n", "labels": "x"}]}]')
    a = found.queues["a"]
    queues = {"a": a, "b": a["b"], "made": a["creates"]["leaf"]}
    assert {name: one.get("default_label", "") for name, one in queues.items()} == has
    assert a["creates"]["parent"]["creates"]["leaf"].get("default_label", "") == has["made"]
    assert found.queues.get("default_label", "") == ("x" if label == "root" else "")
    assert found.left_out == {}


def test_roots_label_goes_to_queues_that_say_nothing_of_labels(read):
    tree = {P + "root.queues": "a", P + "root.a.capacity": 100}
    found = read(xml(**tree, **{P + "root.default-node-label-expression": "x"}), nodes=1)
    assert found.queues["a"]["default_label"] == "x"
    assert found.left_out == {}


def test_weights_of_users_hold_in_queues_that_are_made(read):
    tree = {P + "root.queues": "a", P + "root.a.capacity": "1w"}
    tree |= {P + "root.a.user-settings.ann.weight": 0.5}
    tree |= {P + "root.a.auto-queue-creation-v2.enabled": "true"}
    creates = read(xml(**tree), nodes=1).queues["a"]["creates"]
    for leaf in (creates["leaf"], creates["parent"]["creates"]["leaf"]):
        assert leaf["user_weights"] == {"ann": 0.5}


def test_types_beside_memory_and_vcores(read):
    types = {"yarn.resource-types": "memory-mb,yarn.io/gpu,fpga"}
    types |= {"yarn.resource-types.yarn.io/gpu.maximum-allocation": 2}
    types |= {"yarn.resource-types.yarn.io/gpu.minimum-allocation": 1}
    types |= {"yarn.nodemanager.resource-type.yarn.io/gpu": 4}
    tree = {P + "root.queues": "a,b", P + "root.b.capacity": "[memory=4096,yarn.io/gpu=3]"}
    found = read(xml(**types, **tree, **{P + "root.a.capacity": "[memory=4096]"}), nodes=2)
    assert found.nodes[0]["capacity"] == {"vcores": 8, "memory_mb": 8192, "yarn.io/gpu": 4}
    assert found.queues["max_allocation"] == {"memory_mb": 8192, "vcores": 4, "yarn.io/gpu": 2}
    assert found.queues["b"]["absolute"][""]["min"] == {"memory_mb": 4096, "yarn.io/gpu": 3}
    assert list(found.left_out) == ["yarn.resource-types.yarn.io/gpu.minimum-allocation"]


def test_queues_of_the_first_kind_are_not_made(read):
    """YARN has a queue above others there, so its order may be one of queues."""
    tree = {P + "root.queues": "a", P + "root.a.capacity": 100}
    first = {
        P + "root.a.auto-create-child-queue.enabled": "true",
        P + "root.a.leaf-queue-template.capacity": 10,
    }
    order = {P + "root.a.ordering-policy": "priority-utilization"}
    found = read(xml(**tree, **first, **order), nodes=1)
    assert found.queues["a"].get("order", "") == ""
    assert list(found.left_out) == list(first)
    for why in found.left_out.values():
        assert "not made, so nobody is served there" in why


@pytest.mark.parametrize("makes", ["root", "root.a"])
def test_a_queue_that_makes_others_hides_nothing_of_what_is_left_out(read, makes):
    """All properties that have a reason, all of the Fair Scheduler's, and a slip of the pen."""
    rest = {P + "root.queues": "a", P + "root.a.capacity": "1w", P + "root.a.user-limit-facter": 2}
    for known in [one for one in PROPERTIES if one.why or one.fair]:
        name = known.name.replace("<queue>", "root.a").replace("<label>", "gpu")
        name = name.replace("<type>", "gpu").replace("*", "any")
        rest[name] = "true" if name.endswith("enabled") else "1"
    without = read(xml(**rest), nodes=1).left_out
    rest[P + makes + ".auto-queue-creation-v2.enabled"] = "true"
    assert read(xml(**rest), nodes=1).left_out == without
    assert P + "root.a.user-limit-facter" in without


def test_what_only_a_template_goes_by_is_taken(read):
    made = {P + "root.a.auto-queue-creation-v2.enabled": "true", P + "user-limit-factor": 3}
    made[P + "root.a.auto-queue-creation-v2.leaf-template.user-limit-factor"] = 2
    found = read(xml(**{P + "root.queues": "a", P + "root.a.capacity": "1w"} | made), nodes=1)
    assert found.queues["a"]["creates"]["leaf"]["user_limit_factor"] == 2
    assert found.left_out == {}


@pytest.mark.parametrize(
    ("order", "has"), [("utilization", "utilization"), ("priority-utilization", "priority")]
)
def test_a_queue_below_which_queues_are_made_has_an_order_of_queues(read, order, has):
    made = {
        P + "root.a.auto-queue-creation-v2.enabled": "true",
        P + "root.a.ordering-policy": order,
    }
    template = P + "root.a.auto-queue-creation-v2.parent-template.ordering-policy"
    tree = {P + "root.queues": "a", P + "root.a.capacity": "1w"} | made
    found = read(xml(**tree, **{template: order}), nodes=1)
    assert found.queues["a"]["order"] == has
    assert found.queues["a"]["creates"]["parent"]["order"] == has
    assert found.left_out == {}
    with pytest.raises(InputError, match="expected one of utilization"):
        read(xml(**tree | {P + "root.a.ordering-policy": "fair"}), nodes=1)


def test_an_order_of_a_template_is_that_of_one_kind_of_queue(read):
    made = {P + "root.a.auto-queue-creation-v2.enabled": "true"}
    name = P + "root.a.auto-queue-creation-v2.template.ordering-policy"
    tree = {P + "root.queues": "a", P + "root.a.capacity": "1w", name: "fair"} | made
    found = read(xml(**tree), nodes=1)
    creates = found.queues["a"]["creates"]
    assert creates["leaf"]["order"] == "fair"
    assert "order" not in creates["parent"]
    assert found.left_out == {name: "fair is an order of applications, not of queues"}


def test_a_queue_that_is_not_there_is_named(read):
    config = {P + "root.queues": "a", P + "root.a.capacity": 100}
    wrong = P + "root.aa.user-limit-factor"
    left_out = read(xml(**config, **{wrong: 3}), nodes=1).left_out
    assert "a queue that is not there" in left_out[wrong]


def test_what_is_left_out_of_root_and_of_a_template_has_its_own_reason(read):
    config = {P + "root.queues": "a", P + "root.a.capacity": "1w", P + "root.capacity": 100}
    template = P + "root.a.auto-queue-creation-v2.template.default-application-priority"
    config |= {P + "root.a.auto-queue-creation-v2.enabled": "true", template: 3}
    left_out = read(xml(**config), nodes=1).left_out
    assert left_out == {
        P + "root.capacity": "root has the whole cluster, and no applications of its own",
        template: "a job that names none is one of priority 0",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<configuration>", "is not valid XML"),
        ("<web-app/>", "is no file of YARN's: it holds a <web-app>"),
        ("<!DOCTYPE x [<!ENTITY a 'b'>]><configuration/>", "declares entities"),
        ("{1}", "is not valid JSON"),
        ('{"jobs": []}', "holds neither racks of nodes nor"),
        ('{"rack": "r", "nodes": []}', "lists no node"),
        ('{"rack": "r", "nodes": [{"vcores": 3}]}', "a node without a name"),
        ('{"rack": "r", "nodes": [{"node": "a", "vcores": "many"}]}', "expected a number"),
        (xml(**{P + "root.queues": "a"}), "root.a.capacity: is missing"),
        (xml(**{P + "root.queues": "a,a", P + "root.a.capacity": 50}), "a queue occurs twice"),
        (xml(**{P + "root.queues": "a", P + "root.a.capacity": "much"}), "expected a percentage"),
        (xml(**{P + "root.queues": "a", P + "root.a.capacity": "[gpu=1]"}), "no node offers any"),
        (xml(**{P + "root.queues": "a", P + "root.a.capacity": -5}), "expected a percentage"),
        (
            xml(**{P + "root.queues": "a", P + "root.a.capacity": "9" * 400 + "w"}),
            "from 0 to 10000",
        ),
        (
            "<allocations><queue name='a'><weight>1</weight></queue>"
            "<queue name='b'><weight>-1</weight></queue></allocations>",
            "weights are not negative",
        ),
        (xml(**{"a": "${b}", "b": "${a}"}), "refers to itself"),
        (
            xml(
                **{
                    f"{P}root{'.a' * depth}.{key}": value
                    for depth in range(400)
                    for key, value in (("queues", "a"), ("capacity", "100"))
                }
            ),
            "lies more than 50 queues below root",
        ),
        (
            "<allocations>" + "<queue name='a'>" * 400 + "</queue>" * 400 + "</allocations>",
            "lies more than 50 queues below root",
        ),
        (xml(**{"yarn.resourcemanager.am.max-attempts": "two"}), "expected a number, got 'two'"),
        (xml(**{"yarn.scheduler.fair.preemption": "maybe"}), "expected true or false"),
        ("<configuration><property><value>1</value></property></configuration>", "has no name"),
    ],
)
def test_what_is_wrong_is_said(read, text, says):
    with pytest.raises(InputError, match=says.replace("(", r"\(")):
        read(text)


def test_numbers_are_read_as_java_reads_them(read):
    def settings(half, many, part):
        found = read(
            xml(
                **{
                    P + "root.queues": "a,b",
                    P + "root.a.capacity": half,
                    P + "root.b.capacity": 50,
                    P + "root.b.maximum-applications": many,
                    P + "root.b.maximum-am-resource-percent": part,
                }
            )
        )
        return found.queues

    plain = settings("50", "16", "0.5")
    assert plain["b"]["max_applications"] == 16
    for half, many, part in (
        ("5e1", "0x10", ".5f"),
        ("50.", "0X10", "5E-1d"),
        ("0.5e+2f", 16, 0.5),
    ):
        assert settings(half, many, part) == plain
    for wrong in ("1_0", "0b1", "inf", "nan", "5 0", "f"):
        with pytest.raises(InputError, match="maximum-applications: expected a number"):
            settings("50", wrong, "0.5")


def test_the_command_writes_a_cluster_that_loads(tmp_path):
    (tmp_path / "q.xml").write_text(
        xml(
            **{
                P + "root.queues": "a,b",
                P + "root.a.capacity": 60,
                P + "root.b.capacity": 40,
                P + "root.a.reservable": 4096,
                P + "maximum-am-resource-percent": 0.2,
            }
        )
    )
    out = tmp_path / "c.yaml"
    said = CliRunner().invoke(
        weft, ["import-yarn", str(tmp_path / "q.xml"), "--nodes", "3", "--out", str(out)]
    )
    assert said.exit_code == 0, said.output
    assert "left out: yarn.scheduler.capacity.root.a.reservable" in said.stderr
    assert "--scheduler yarn" in said.stdout
    spec = load_cluster(str(out))
    assert len(spec.nodes) == 3
    assert [path for path, _ in spec.queues.leaves()] == ["root.a", "root.b"]
    none = CliRunner().invoke(weft, ["import-yarn", str(tmp_path / "q.xml"), "--out", str(out)])
    assert isinstance(none.exception, InputError)
    assert "no file names nodes" in str(none.exception)


@pytest.mark.skipif(not (DATA / "sls").exists(), reason="WEFT_DATA has no public inputs")
def test_the_sample_configuration_of_the_load_simulator(tmp_path):
    conf, lists = DATA / "sls" / "sample-conf", DATA / "sls" / "json"
    capacity = read_yarn(
        [
            conf / "capacity-scheduler.xml",
            conf / "yarn-site.xml",
            lists / "nodes-with-resources.json",
        ]
    )
    assert capacity.queues.pop("max_allocation") == {"memory_mb": 8192, "vcores": 4}
    capacity.queues.pop("max_applications")
    assert {name: queue["capacity"] for name, queue in capacity.queues.items()} == {
        "sls_queue_1": 0.25,
        "sls_queue_2": 0.25,
        "sls_queue_3": 0.5,
    }
    rounds = {"preemption_grace_s": 15.0, "preemption_interval_s": 0.5}
    assert capacity.manager == {"preemption": True} | rounds
    assert capacity.scheduler == "yarn_fair", "what its yarn-site.xml chooses"
    fair = read_yarn([conf / "fair-scheduler.xml", lists / "nodes.json"])
    parts = [queue["capacity"] for name, queue in fair.queues.items() if "sls" in name]
    assert parts == [0.25, 0.25, 0.5]
    assert fair.queues["sls_queue_1"]["fair"]["min_share_timeout_s"] >= 0
    for found in (capacity, fair):
        path = tmp_path / "c.yaml"
        path.write_text(yaml.safe_dump(found.cluster()))
        assert len(load_cluster(str(path)).nodes) == len(found.nodes) > 2
    labelled = [node for node in capacity.nodes if "labels" in node]
    assert labelled[0]["labels"] == ["label1", "label2"]
    runner = read_yarn([lists / "nodes-with-resources.json", conf / "sls-runner.xml"])
    assert runner.manager == {"heartbeat_s": 1.0, "master_heartbeat_s": 1.0}
    assert runner.nodes[1]["capacity"] == {"vcores": 10.0, "memory_mb": 10240.0}
    assert "yarn.sls.runner.pool.size" in runner.left_out


def test_a_cluster_is_started_from_a_folder_of_yarns_files(tmp_path):
    """What the files say reaches the options of `weft up`, and what an option says counts."""
    (tmp_path / "capacity-scheduler.xml").write_text(
        xml(**{P + "root.queues": "a", P + "root.a.capacity": 100, P + "node-locality-delay": 7})
    )
    site = {"yarn.resourcemanager.max-completed-applications": 9}
    (tmp_path / "yarn-site.xml").write_text(xml(**site))
    plain = {"nodes": 3, "cluster": "", "pace": "prompt", "scheduler": "capacity", "options": ()}
    options = plain | {"rm_set": ()}
    take_yarn(tmp_path, options, tmp_path / "kept")
    assert options["options"] == (
        "matcher.node_locality_delay=7",
        "matcher.max_application_priority=0",
    )
    assert (options["scheduler"], options["pace"]) == ("yarn", "yarn")
    spec = load_cluster(options["cluster"])
    assert len(spec.nodes) == 3
    assert [path for path, _ in spec.queues.leaves()] == ["root.a"]
    chosen = plain | {"rm_set": (), "scheduler": "drf"}
    take_yarn(tmp_path, chosen, None)
    assert (chosen["scheduler"], chosen["options"]) == ("drf", ())
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="holds neither"):
        take_yarn(tmp_path / "none", dict(chosen), None)
