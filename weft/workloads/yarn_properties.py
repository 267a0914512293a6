"""Every documented property of YARN's schedulers: what it becomes here, or why it becomes nothing.

The table of docs/explanation/as-yarn.md is made from this list, and a test holds `import-yarn` to
it, property by property. `<queue>` stands for a queue's path, `<label>`, `<user>`, `<type>` for a
name.
"""

import re
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from dataclasses import dataclass
from typing import TypeVar

CAPACITY = "yarn.scheduler.capacity."
FAIR = "yarn.scheduler.fair."
PREEMPTION = "yarn.resourcemanager.monitor.capacity.preemption."
QUEUE = CAPACITY + "<queue>."
Default = TypeVar("Default")


@dataclass(frozen=True, slots=True)
class Property:
    """A property: `to` is Weft's name for it; or it is left out, and `why` says why.

    `fair` ones are of the Fair Scheduler alone.
    """

    name: str
    to: str = ""
    why: str = ""
    fair: bool = False

    def matches(self, name: str) -> bool:
        """Return whether a property of a file is this one."""
        pattern = re.escape(self.name).replace("<queue>", r"root(\..+)?")
        pattern = pattern.replace("<label>", "[^.]+").replace(r"\*", ".*")
        pattern = re.sub("<(user|key|type)>", ".+", pattern)
        return re.fullmatch(pattern, name) is not None


_ASYNC = "decisions are made at nodes' heartbeats"
_AUTO = "queues of the first kind are not made, so nobody is served there (those of v2 are made)"
_ORDINARY = "a type of resource beside memory and vcores has an amount of nodes and a maximum"
_NO_TEMPLATE = "no setting of a queue that is made at a submission here"
_MULTI = "a node is looked at in its own heartbeat"
_RESERVATION = "no reservations in advance (yarn.resourcemanager.reservation-system)"

PROPERTIES: tuple[Property, ...] = (
    Property(QUEUE + "queues", "the queues below one"),
    Property(QUEUE + "capacity", "capacity (percentages, weights), absolute (amounts)"),
    Property(QUEUE + "maximum-capacity", "max_capacity, absolute"),
    Property(QUEUE + "minimum-user-limit-percent", "user_limit"),
    Property(QUEUE + "user-limit-factor", "user_limit_factor"),
    Property(QUEUE + "maximum-applications", "max_applications"),
    Property(QUEUE + "maximum-am-resource-percent", "max_am_share"),
    Property(QUEUE + "priority", "priority"),
    Property(QUEUE + "ordering-policy", "order"),
    Property(QUEUE + "ordering-policy.fair.enable-size-based-weight", "order: weighted"),
    Property(QUEUE + "user-settings.<user>.weight", "user_weights"),
    Property(QUEUE + "acl_submit_applications", "submit"),
    Property(QUEUE + "acl_administer_queue", "administer"),
    Property(QUEUE + "maximum-application-lifetime", "max_lifetime_s"),
    Property(QUEUE + "default-application-lifetime", "default_lifetime_s"),
    Property(QUEUE + "accessible-node-labels", "labels"),
    Property(QUEUE + "accessible-node-labels.<label>.capacity", "labels"),
    Property(QUEUE + "accessible-node-labels.<label>.maximum-capacity", "labels"),
    Property(QUEUE + "default-node-label-expression", "default_label"),
    Property(QUEUE + "state", "RUNNING; a queue that is STOPPED takes no user's applications"),
    Property(CAPACITY + "maximum-applications", "max_applications of root; of queues by guarantee"),
    Property(CAPACITY + "global-queue-max-application", "max_applications of queues"),
    Property(CAPACITY + "maximum-am-resource-percent", "max_am_share of each queue"),
    Property(CAPACITY + "minimum-user-limit-percent", "user_limit of queues that say none"),
    Property(CAPACITY + "user-limit-factor", "user_limit_factor of queues that say none"),
    Property(CAPACITY + "resource-calculator", "matcher.resource_calculator"),
    Property(CAPACITY + "node-locality-delay", "matcher.node_locality_delay"),
    Property(CAPACITY + "rack-locality-additional-delay", "matcher.rack_locality_additional_delay"),
    Property(CAPACITY + "rack-locality-full-reset", "matcher.rack_locality_full_reset"),
    Property(
        CAPACITY + "per-node-heartbeat.multiple-assignments-enabled",
        "matcher.multiple_assignments_enabled",
    ),
    Property(
        CAPACITY + "per-node-heartbeat.maximum-container-assignments",
        "matcher.maximum_container_assignments",
    ),
    Property(
        CAPACITY + "per-node-heartbeat.maximum-offswitch-assignments",
        "matcher.maximum_offswitch_assignments",
    ),
    Property(
        CAPACITY + "reservations-continue-look-all-nodes",
        "matcher.reservations_continue_look_all_nodes",
    ),
    Property("yarn.scheduler.minimum-allocation-mb", "matcher.minimum_allocation_mb"),
    Property("yarn.scheduler.minimum-allocation-vcores", "matcher.minimum_allocation_vcores"),
    Property("yarn.scheduler.maximum-allocation-mb", "max_allocation of root"),
    Property("yarn.scheduler.maximum-allocation-vcores", "max_allocation of root"),
    Property(
        "yarn.resourcemanager.node-labels.am.allow-non-exclusive-allocation",
        "matcher.am_non_exclusive",
    ),
    Property(
        "yarn.resourcemanager.node-labels.am.default-node-label-expression",
        "matcher.am_default_label",
    ),
    Property("yarn.cluster.max-application-priority", "matcher.max_application_priority"),
    Property("yarn.resourcemanager.scheduler.class", "--scheduler"),
    Property("yarn.resourcemanager.am.max-attempts", "manager.max_attempts"),
    Property("yarn.resourcemanager.nodemanagers.heartbeat-interval-ms", "manager.heartbeat_s"),
    Property("yarn.sls.nm.heartbeat.interval.ms", "manager.heartbeat_s"),
    Property("yarn.sls.am.heartbeat.interval.ms", "manager.master_heartbeat_s"),
    Property("yarn.nm.liveness-monitor.expiry-interval-ms", "manager.node_expiry_s"),
    Property("yarn.am.liveness-monitor.expiry-interval-ms", "manager.master_expiry_s"),
    Property("yarn.resourcemanager.max-completed-applications", "manager.completed_apps_max"),
    Property("yarn.nodemanager.resource.memory-mb", "the nodes' memory_mb"),
    Property("yarn.nodemanager.resource.cpu-vcores", "the nodes' vcores"),
    Property("yarn.resource-types", "types of resources beside memory and vcores"),
    Property("yarn.resource-types.<type>.maximum-allocation", "max_allocation of root"),
    Property("yarn.nodemanager.resource-type.<type>", "the nodes' amount of the type"),
    Property("yarn.sls.nm.memory.mb", "the nodes' memory_mb"),
    Property("yarn.sls.nm.vcores", "the nodes' vcores"),
    Property("yarn.resourcemanager.scheduler.monitor.enable", "manager.preemption"),
    Property("yarn.resourcemanager.scheduler.monitor.policies", "manager.preemption"),
    Property(PREEMPTION + "observe_only", "manager.preemption: false"),
    Property(PREEMPTION + "monitoring_interval", "manager.preemption_interval_s"),
    Property(PREEMPTION + "max_wait_before_kill", "manager.preemption_grace_s"),
    Property(PREEMPTION + "total_preemption_per_round", "manager.preemption_round_max"),
    Property(PREEMPTION + "max_ignored_over_capacity", "manager.preemption_dead_zone"),
    Property(PREEMPTION + "natural_termination_factor", "manager.preemption_natural"),
    Property(PREEMPTION + "intra-queue-preemption.enabled", "manager.preemption_intra_queue"),
    Property(
        PREEMPTION + "intra-queue-preemption.preemption-order-policy", "matcher.preemption_order"
    ),
    Property(
        PREEMPTION + "intra-queue-preemption.max-allowable-limit",
        "matcher.preemption_max_allowable_limit",
    ),
    Property(
        PREEMPTION + "intra-queue-preemption.minimum-threshold",
        "matcher.preemption_minimum_threshold",
    ),
    Property(
        PREEMPTION + "intra-queue-preemption.conservative-drf",
        "matcher.preemption_intra_queue_conservative_drf",
    ),
    Property(PREEMPTION + "conservative-drf", "matcher.preemption_conservative_drf"),
    Property(
        PREEMPTION + "additional_res_balance_based_on_reserved_containers",
        "matcher.preemption_based_on_reserved",
    ),
    Property(QUEUE + "max-parallel-apps", "max_parallel_apps"),
    Property(CAPACITY + "max-parallel-apps", "max_parallel_apps of queues that say none"),
    Property(CAPACITY + "user.max-parallel-apps", "matcher.user_max_running"),
    Property(CAPACITY + "user.<user>.max-parallel-apps", "matcher.users_max_running"),
    Property(QUEUE + "disable_preemption", "disable_preemption"),
    Property(QUEUE + "intra-queue-preemption.disable_preemption", "disable_intra_queue_preemption"),
    Property(QUEUE + "allow-zero-capacity-sum", "capacities below that sum to 0 are taken"),
    Property(CAPACITY + "legacy-queue-mode.enabled", "false: capacities of several kinds"),
    Property("yarn.scheduler.fair.preemption", "manager.preemption"),
    Property(FAIR + "waitTimeBeforeKill", "manager.preemption_grace_s", fair=True),
    Property(QUEUE + "maximum-allocation-mb", "max_allocation"),
    Property(QUEUE + "maximum-allocation-vcores", "max_allocation"),
    Property(QUEUE + "maximum-allocation", "max_allocation"),
    Property(CAPACITY + "queue-mappings", "placement"),
    Property(CAPACITY + "queue-mappings-override.enable", "placement.overrides"),
    Property(CAPACITY + "mapping-rule-format", "placement"),
    Property(CAPACITY + "mapping-rule-json", "placement"),
    Property("yarn.scheduler.queue-placement-rules", "placement (user-group, app-name)"),
    Property("yarn.scheduler.queue-placement-rules.app-name", "placement"),
    Property("hadoop.user.group.static.mapping.overrides", "placement.groups"),
    Property(QUEUE + "auto-queue-creation-v2.enabled", "creates"),
    Property(QUEUE + "auto-queue-creation-v2.maximum-queue-depth", "creates.depth"),
    Property(CAPACITY + "auto-queue-creation-v2.maximum-queue-depth", "creates.depth"),
    Property(QUEUE + "auto-queue-creation-v2.max-queues", "creates.most"),
    Property(CAPACITY + "auto-queue-creation-v2.queue-expiration-time", "creates.expires_s"),
    Property(QUEUE + "auto-queue-creation-v2.template.<key>", "creates.leaf, creates.parent"),
    Property(QUEUE + "auto-queue-creation-v2.leaf-template.<key>", "creates.leaf"),
    Property(QUEUE + "auto-queue-creation-v2.parent-template.<key>", "creates.parent"),
    # -- left out, each with the reason ------------------------------------------------------------
    Property(
        QUEUE + "ordering-policy.exclusive-enforced-partitions",
        why="one line for all labels, by fifo; it keeps nobody off nodes that he may use",
    ),
    Property(QUEUE + "acl_application_max_priority", why="priorities are not limited by user"),
    Property(
        QUEUE + "default-application-priority", why="a job that names none is one of priority 0"
    ),
    Property(
        QUEUE + "accessible-node-labels.<label>.maximum-am-resource-percent",
        why="one share of masters for all labels",
    ),
    Property(
        PREEMPTION + "select_based_on_reserved_containers",
        why="victims are chosen by queue, not for one node",
    ),
    Property(
        PREEMPTION + "preemption-to-balance-queue-after-satisfied.*",
        why="queues that have their guarantee keep what they hold beyond it",
    ),
    Property(
        CAPACITY + "ordering-policy.priority-utilization.underutilized-preemption.*",
        why="victims are chosen by guarantee, not by a queue's priority",
    ),
    Property(
        CAPACITY + "lazy-preemption-enabled", why="what is chosen goes after the grace period"
    ),
    Property(CAPACITY + "mapping-rule-json-file", why="its text is taken as mapping-rule-json"),
    Property(CAPACITY + "workflow-priority-mappings", why="a job names its priority itself"),
    Property(
        CAPACITY + "workflow-priority-mappings-override.enable",
        why="a job names its priority itself",
    ),
    Property(QUEUE + "reservable", why=_RESERVATION),
    Property(QUEUE + "reservation-*", why=_RESERVATION),
    Property(QUEUE + "average-capacity", why=_RESERVATION),
    Property(QUEUE + "instantaneous-max-capacity", why=_RESERVATION),
    Property("yarn.resourcemanager.reservation-system.*", why=_RESERVATION),
    Property(QUEUE + "auto-create-child-queue.*", why=_AUTO),
    Property(
        QUEUE + "auto-queue-creation-v2.queue-auto-removal.enable",
        why="the deletion policy among the monitor's says whether they go",
    ),
    Property(QUEUE + "auto-queue-creation-v2.*", why=_NO_TEMPLATE),
    Property(QUEUE + "leaf-queue-template.*", why=_AUTO),
    Property(CAPACITY + "auto-create-child-queue.*", why=_AUTO),
    Property(CAPACITY + "schedule-asynchronously.*", why=_ASYNC),
    Property(CAPACITY + "multi-node-*", why=_MULTI),
    Property(QUEUE + "multi-node-sorting.policy", why=_MULTI),
    Property(CAPACITY + "skip-allocate-on-nodes-with-reserved-containers", why=_MULTI),
    Property(CAPACITY + "application.fail-fast", why="a queue that is gone ends no manager"),
    Property("yarn.scheduler.configuration.*", why="queues are changed by `weft queues --apply`"),
    Property("yarn.webservice.mutation-api.*", why="queues are changed by `weft queues --apply`"),
    Property("yarn.resource-types.<type>.*", why=_ORDINARY),
    # -- of the Fair Scheduler ---------------------------------------------------------------------
    Property(
        "yarn.scheduler.increment-allocation-mb", "matcher.increment_allocation_mb", fair=True
    ),
    Property(
        "yarn.scheduler.increment-allocation-vcores",
        "matcher.increment_allocation_vcores",
        fair=True,
    ),
    Property(
        "yarn.resource-types.memory-mb.increment-allocation",
        "matcher.increment_allocation_mb",
        fair=True,
    ),
    Property(
        "yarn.resource-types.vcores.increment-allocation",
        "matcher.increment_allocation_vcores",
        fair=True,
    ),
    Property(FAIR + "assignmultiple", "matcher.assign_multiple", fair=True),
    Property(FAIR + "dynamic.max.assign", "matcher.dynamic_max_assign", fair=True),
    Property(FAIR + "max.assign", "matcher.max_assign", fair=True),
    Property(FAIR + "sizebasedweight", "matcher.size_based_weight", fair=True),
    Property(FAIR + "locality.threshold.node", "matcher.node_locality_threshold", fair=True),
    Property(FAIR + "locality.threshold.rack", "matcher.rack_locality_threshold", fair=True),
    Property(FAIR + "reservable-nodes", "matcher.reservable_nodes", fair=True),
    Property(FAIR + "update-interval-ms", "matcher.update_interval_s", fair=True),
    Property(
        "yarn.scheduler.reservation-threshold.increment-multiple",
        "matcher.reservation_multiple",
        fair=True,
    ),
    Property(FAIR + "allocation.file", why="give the file itself", fair=True),
    Property(FAIR + "user-as-default-queue", "placement", fair=True),
    Property(FAIR + "allow-undeclared-pools", "placement", fair=True),
    Property(FAIR + "continuous-scheduling-*", why=_ASYNC, fair=True),
    Property(FAIR + "locality-delay-*", why=_ASYNC, fair=True),
    Property(
        FAIR + "preemption.cluster-utilization-threshold",
        "matcher.preemption_utilization_threshold",
        fair=True,
    ),
    Property(
        FAIR + "waitTimeBeforeNextStarvationCheck", "matcher.preemption_check_delay_s", fair=True
    ),
    Property(FAIR + "am.preemption", "fair.am_preemption of each queue", fair=True),
    Property(FAIR + "am.preemption.<queue>", "fair.am_preemption", fair=True),
    Property("yarn.scheduler.fair.*", why="not a setting of the Fair Scheduler here", fair=True),
)


def why_left_out(name: str) -> str:
    """Return why a property that nobody read is left out."""
    found = [known for known in PROPERTIES if known.matches(name)]
    if found:
        known = max(found, key=lambda one: len(one.name))
        if known.why:
            return known.why
        if Property(known.name.replace("<queue>", "root")).matches(name):
            return "root has the whole cluster, and no applications of its own"
        absent = "names a queue that is not there, or does not belong to such a queue"
        return absent if "<queue>" in known.name else "not a setting of the scheduler chosen"
    if re.search(
        r"timeline|log-aggregation|webapp|\.ha\.|store|security|principal|keytab|address|"
        r"bind-host|hostname|use_ip|zk-|classpath|aux-services|local-dirs|log-dirs",
        name,
    ):
        return "not about scheduling"
    return "no counterpart"


class Noted(Mapping[str, str]):
    """Properties that note which of them were read."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = dict(given)
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self._read.add(name)
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __contains__(self, name: object) -> bool:
        return name in self._given

    def items(self) -> ItemsView[str, str]:
        """Return all of them; to look through them is not to read any."""
        return self._given.items()

    def values(self) -> ValuesView[str]:
        """Return all values; to look through them is not to read any."""
        return self._given.values()

    def unread(self) -> list[str]:
        """Return the names that nobody asked for, in the files' order."""
        return [name for name in self._given if name not in self._read]
