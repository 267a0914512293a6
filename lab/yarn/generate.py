"""Random scenarios for the comparison: `python -m lab.yarn.generate FOLDER --seeds 0:1000`.

Each seed draws a cluster (3 to 200 nodes), a tree of queues with limits, users with weights, up to
300 applications with sizes, priorities, masters and places, and YARN's settings.
"""

import argparse
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

CAPACITY = "yarn.scheduler.capacity."
PREEMPTION = "yarn.resourcemanager.monitor.capacity.preemption."
DOMINANT = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
Table = dict[str, Any]


class _Draw:
    """One scenario under way."""

    longest = 15
    spread = 2

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([seed, 43])
        self.large = bool(self.rng.random() < 0.05)
        self.nodes = int(self.rng.integers(60, 201) if self.large else self.rng.integers(3, 25))
        self.apps = int(self.rng.integers(100, 301) if self.large else self.rng.integers(2, 50))
        self.rounds = int(self.rng.integers(10, 25) if self.large else self.rng.integers(10, 45))
        self.dominant = bool(self.rng.random() < 0.4)
        self.masters = bool(self.rng.random() < 0.4)
        self.labelled = bool(self.rng.random() < 0.15)
        self.racks = int(self.rng.choice([1, 1, 2, 3]))
        self.placed = float(self.rng.choice([0.0, 0.0, 0.3, 1.0]))
        self.leaves: list[str] = []
        self.configuration: Table = {}

    def one(self, *values: Any) -> Any:
        """Return one of some values."""
        return values[int(self.rng.integers(len(values)))]

    def split(self, parts: int) -> list[float]:
        """Return percentages, to a tenth, that sum to 100."""
        cuts = np.sort(self.rng.choice(np.arange(1, 1000), parts - 1, replace=False))
        bounds = [0, *cuts.tolist(), 1000]
        return [round((b - a) / 10, 1) for a, b in pairwise(bounds)]

    def queues(self, path: str, depth: int) -> None:
        """Draw the queues below one."""
        names = [
            f"{path.rpartition('.')[2][:1]}{depth}{i}" for i in range(int(self.one(1, 2, 2, 3, 4)))
        ]
        names = [f"q{len(self.leaves)}{name}" for name in names]
        given = self.configuration
        given[f"{CAPACITY}{path}.queues"] = ",".join(names)
        if self.rng.random() < 0.2:
            given[f"{CAPACITY}{path}.ordering-policy"] = "priority-utilization"
        shares = self.split(len(names))
        labels = self.split(len(names))
        for name, share, label in zip(names, shares, labels, strict=True):
            prefix = f"{CAPACITY}{path}.{name}."
            given[prefix + "capacity"] = share
            most = self.one(None, None, 100, round(min(100, share * 1.5 + 5), 1))
            if most is not None:
                given[prefix + "maximum-capacity"] = most
            if self.rng.random() < 0.3:
                given[prefix + "priority"] = int(self.rng.integers(0, 4))
            if self.labelled:
                given[prefix + "accessible-node-labels"] = "gpu"
                given[prefix + "accessible-node-labels.gpu.capacity"] = label
            if depth < 3 and self.rng.random() < 0.3:
                self.queues(f"{path}.{name}", depth + 1)
            else:
                self.leaf(prefix, name)

    def leaf(self, prefix: str, name: str) -> None:
        """Draw the limits of a leaf queue."""
        self.leaves.append(name)
        given = self.configuration
        for key, values in (
            ("minimum-user-limit-percent", (None, 100, 50, 33, 25, 10)),
            ("user-limit-factor", (None, 1, 1.5, 2, 10, -1, 0.5)),
            ("ordering-policy", (None, None, None, "fair")),
            ("maximum-am-resource-percent", (None, 0.1, 0.5, 1.0)),
        ):
            value = self.one(*values)
            if value is not None:
                given[prefix + key] = value
        if self.rng.random() < 0.1:
            heaviest = 100 / float(given.get(prefix + "minimum-user-limit-percent", 100))
            given[f"{prefix}user-settings.u1.weight"] = min(self.one(0.5, 2.0), heaviest)

    def settings(self) -> None:
        """Draw the scheduler's settings."""
        given, largest = self.configuration, self.one(8192, 16384)
        given["yarn.cluster.max-application-priority"] = 10
        given["yarn.scheduler.minimum-allocation-mb"] = self.one(1024, 1024, 512, 2048)
        given["yarn.scheduler.maximum-allocation-mb"] = largest
        given["yarn.scheduler.maximum-allocation-vcores"] = 8
        given[CAPACITY + "maximum-am-resource-percent"] = self.one("0.1", "0.5", "1.0", "1.0")
        if self.dominant:
            given[CAPACITY + "resource-calculator"] = DOMINANT
        for key, values in (
            ("node-locality-delay", (None, None, 0, 2, 5)),
            ("rack-locality-additional-delay", (None, None, 0, 2)),
            ("rack-locality-full-reset", (None, None, None, "false")),
            ("per-node-heartbeat.maximum-offswitch-assignments", (None, None, 2, 100)),
            ("per-node-heartbeat.maximum-container-assignments", (None, None, 3, -1)),
            ("per-node-heartbeat.multiple-assignments-enabled", (None, None, None, "false")),
            ("reservations-continue-look-all-nodes", (None, None, None, "false")),
        ):
            value = self.one(*values)
            if value is not None:
                given[CAPACITY + key] = value

    def machines(self) -> list[Table]:
        """Draw the nodes."""
        sizes = [self.one(8192, 16384, 32768) for _ in range(2)]
        found = []
        for number in range(self.nodes):
            memory = self.one(*sizes)
            node = {
                "name": f"n{number + 1}",
                "mem": memory,
                "vcores": memory // 1024 if self.one(True, False) else 8,
                "rack": f"/r{number % self.racks}",
            }
            if self.labelled and number % 3 == 2:
                node["label"] = "gpu"
            found.append(node)
        return found

    def applications(self, nodes: list[Table]) -> list[Table]:
        """Draw the applications, numbered as they arrive."""
        at = np.sort(self.rng.integers(0, max(1, self.rounds // self.spread), self.apps)).tolist()
        found: list[Table] = []
        for number, when in enumerate(at, 1):
            app: Table = {
                "id": number,
                "at": when,
                "user": f"u{self.rng.integers(1, 5)}",
                "queue": self.one(*self.leaves),
            }
            if self.rng.random() < 0.15:
                app["priority"] = int(self.rng.integers(0, 5))
            if self.masters:
                app["am"] = {"mem": self.one(1024, 2048), "vcores": 1}
            kinds = int(self.rng.choice([1, 1, 1, 2, 3]))
            label = self.labelled and self.rng.random() < 0.3
            app["asks"] = [self.ask(priority, nodes, label) for priority in range(1, kinds + 1)]
            found.append(app)
        return found

    def ask(self, priority: int, nodes: list[Table], label: bool) -> Table:
        """Draw one request, with places for some."""
        count = int(self.rng.integers(1, 13))
        made: Table = {
            "pri": priority,
            "mem": self.one(512, 1024, 1024, 1536, 2048, 3072, 4096, 8192),
            "vcores": int(self.rng.integers(1, 5)),
            "count": count,
            "dur": int(self.rng.integers(1, self.longest)),
        }
        if label:
            made["label"] = "gpu"
        elif self.rng.random() < self.placed:
            chosen = self.rng.choice(
                len(nodes), min(len(nodes), int(self.one(1, 2, 3))), replace=False
            )
            named = [nodes[i] for i in chosen.tolist()]
            if self.rng.random() < 0.7:
                made["hosts"] = {node["name"]: max(1, count // len(named)) for node in named}
            made["racks"] = {node["rack"]: count for node in named}
        return made


class _Preempting(_Draw):
    """One in which queues get more than their guarantee, and have to give it back."""

    longest = 80
    spread = 1

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.rng = np.random.default_rng([seed, 44])
        self.rounds = int(self.rng.integers(15, 30) if self.large else self.rng.integers(25, 60))
        self.labelled = bool(self.rng.random() < 0.1)

    def settings(self) -> None:
        """Draw the monitor's settings, too."""
        super().settings()
        given = self.configuration
        if given.get(CAPACITY + "per-node-heartbeat.maximum-container-assignments") == -1:
            # Without a bound, YARN tries a decision for ever that a limit refuses at its commit.
            given[CAPACITY + "per-node-heartbeat.maximum-container-assignments"] = 50
        given["yarn.resourcemanager.scheduler.monitor.enable"] = "true"
        inside = "intra-queue-preemption."
        for key, values in (
            ("max_wait_before_kill", (0, 1000, 2000, 5000)),
            ("natural_termination_factor", (None, 0.5, 1.0)),
            ("total_preemption_per_round", (None, 0.3, 1.0)),
            ("max_ignored_over_capacity", (None, 0.0, 0.3)),
            ("conservative-drf", (None, None, "true")),
            ("additional_res_balance_based_on_reserved_containers", (None, None, "true")),
            (inside + "enabled", (None, "true", "true")),
            (inside + "preemption-order-policy", (None, "priority_first")),
            (inside + "max-allowable-limit", (None, 0.5, 1.0)),
            (inside + "minimum-threshold", (None, 0.0, 0.8)),
            (inside + "conservative-drf", (None, None, "false")),
            ("observe_only", (None,) * 20 + ("true",)),
        ):
            value = self.one(*values)
            if value is not None:
                given[PREEMPTION + key] = value

    def leaf(self, prefix: str, name: str) -> None:
        """Draw who keeps what, too."""
        super().leaf(prefix, name)
        given = self.configuration
        # A master that is preempted would end its application, which no scenario can tell.
        given[prefix + "maximum-am-resource-percent"] = 1.0
        if self.rng.random() < 0.6:
            given[prefix + "user-limit-factor"] = self.one(4, 10, -1)
        if self.rng.random() < 0.1:
            given[prefix + "disable_preemption"] = "true"
        if self.rng.random() < 0.1:
            given[prefix + "intra-queue-preemption.disable_preemption"] = "true"


class _Parallel(_Draw):
    """One in which queues and users may run so many applications at once."""

    def settings(self) -> None:
        """Draw limits of users, too."""
        super().settings()
        for key, values in (
            ("max-parallel-apps", (None, None, None, 4)),
            ("user.max-parallel-apps", (None, 1, 3)),
            ("user.u1.max-parallel-apps", (None, 2)),
        ):
            value = self.one(*values)
            if value is not None:
                self.configuration[CAPACITY + key] = value

    def leaf(self, prefix: str, name: str) -> None:
        """Draw a limit of a queue, too."""
        super().leaf(prefix, name)
        if self.rng.random() < 0.5:
            self.configuration[prefix + "max-parallel-apps"] = self.one(1, 2, 5)


class _Sized(_Draw):
    """One in which queues say what a container may have, and go by applications' sizes."""

    def leaf(self, prefix: str, name: str) -> None:
        """Draw a maximum and an order, too."""
        super().leaf(prefix, name)
        given, least = (
            self.configuration,
            self.configuration["yarn.scheduler.minimum-allocation-mb"],
        )
        if self.rng.random() < 0.6:
            given[prefix + "maximum-allocation-mb"] = int(least) * self.one(1, 2, 3)
        if self.rng.random() < 0.4:
            given[prefix + "maximum-allocation-vcores"] = self.one(1, 2, 4)
        if self.rng.random() < 0.4:
            given[prefix + "ordering-policy"] = "fair"
            given[prefix + "ordering-policy.fair.enable-size-based-weight"] = "true"

    def applications(self, nodes: list[Table]) -> list[Table]:
        """Draw applications, which ask for no more: YARN's manager refuses that."""
        found = super().applications(nodes)
        least = int(self.configuration["yarn.scheduler.minimum-allocation-mb"])
        for app in found:
            # Without one, YARN lets an application take part beyond the masters' limit.
            app.setdefault("am", {"mem": least, "vcores": 1})
            end = f".{app['queue']}.maximum-allocation-"
            most = {
                key.removesuffix("b").rpartition("-")[2]: value
                for key, value in self.configuration.items()
                if end in key
            }
            for asked in (*app["asks"], app["am"]):
                if "m" in most:
                    asked["mem"] = min(asked["mem"], most["m"])
                if "vcores" in most:
                    asked["vcores"] = min(asked.get("vcores", 1), most["vcores"])
        return found


class _Modes(_Draw):
    """One whose queues have amounts, weights or percentages, and whose applications end.

    Queues name default labels, maxima below their capacities and what a container may have.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.rng = np.random.default_rng([seed, 47])
        self.labelled = bool(self.rng.random() < 0.3)
        self.amounts = bool(self.rng.random() < 0.5)
        self.drawn = super().machines()

    def machines(self) -> list[Table]:
        """Return the nodes: queues' amounts go by them."""
        return self.drawn

    def settings(self) -> None:
        """Draw the label of masters, too."""
        super().settings()
        if self.labelled and self.rng.random() < 0.2:
            name = "yarn.resourcemanager.node-labels.am.default-node-label-expression"
            self.configuration[name] = "gpu"

    def whole(self, label: str) -> tuple[float, float]:
        """Return the memory and the vcores of the nodes with a label."""
        nodes = [node for node in self.drawn if node.get("label", "") == label]
        return sum(node["mem"] for node in nodes), sum(node["vcores"] for node in nodes)

    def queues(self, path: str, depth: int) -> None:
        """Draw the queues below one, all of one mode."""
        count = int(self.one(1, 2, 2, 3, 4))
        names = [f"q{len(self.leaves)}d{depth}{number}" for number in range(count)]
        self.configuration[f"{CAPACITY}{path}.queues"] = ",".join(names)
        weights = not self.amounts and self.rng.random() < 0.5
        labels = ["", "gpu"] if self.labelled else [""]
        parts = {label: self.split(count) for label in labels}
        for at, name in enumerate(names):
            if self.labelled:
                self.configuration[f"{CAPACITY}{path}.{name}.accessible-node-labels"] = "gpu"
            for label in labels:
                own = f"accessible-node-labels.{label}." if label else ""
                prefix = f"{CAPACITY}{path}.{name}.{own}"
                if self.amounts:
                    self.amount(path, prefix, label, parts[label][at] / 100)
                else:
                    self.part(prefix, parts[label][at], weights=weights)
            if depth < 3 and self.rng.random() < 0.3:
                self.queues(f"{path}.{name}", depth + 1)
            else:
                self.leaf(f"{CAPACITY}{path}.{name}.", name)

    def amount(self, path: str, prefix: str, label: str, part: float) -> None:
        """Draw what a queue has in amounts: memory and vcores of unlike parts."""
        given, own = self.configuration, f"accessible-node-labels.{label}." if label else ""
        above = given.get(f"{CAPACITY}{path}.{own}capacity") if path != "root" else None
        if above is None:
            memory, vcores = (one * float(self.one(0.7, 1.0, 1.3)) for one in self.whole(label))
        else:
            memory, vcores = (float(one.split("=")[1]) for one in above.strip("[]").split(","))
        least = int(memory * part) + 1024 * (path == "root"), max(1, int(vcores * part))
        least = (max(1, least[0]), least[1] * int(self.one(1, 1, 2)))
        given[prefix + "capacity"] = f"[memory={least[0]},vcores={least[1]}]"
        if path == "root" and self.rng.random() < 0.5:
            more = float(self.one(1.0, 1.5, 3.0))
            most = int(least[0] * more), int(least[1] * float(self.one(1.0, 2.0, 8.0)))
            given[prefix + "maximum-capacity"] = f"[memory={most[0]},vcores={most[1]}]"

    def part(self, prefix: str, share: float, *, weights: bool) -> None:
        """Draw a queue's weight or percentage, and a maximum that may be below it."""
        weight = float(self.one(0.5, 1, 2, 3))
        self.configuration[prefix + "capacity"] = f"{weight:g}w" if weights else share
        most = self.one(None, None, 100, round(share / 2, 1), round(min(100, share * 1.5 + 5), 1))
        if most is not None:
            self.configuration[prefix + "maximum-capacity"] = most

    def leaf(self, prefix: str, name: str) -> None:
        """Draw a default label and what a container may have, too."""
        super().leaf(prefix, name)
        given = self.configuration
        if self.labelled and self.rng.random() < 0.4:
            given[prefix + "default-node-label-expression"] = "gpu"
        if self.rng.random() < 0.2:
            given[prefix + "maximum-allocation-mb"] = self.one(2048, 4096)
        if self.rng.random() < 0.1:
            given[prefix + "user-limit-factor"] = self.one(-3, 0, 0.25)
        if self.rng.random() < 0.1:
            given[f"{prefix}user-settings.u2.weight"] = 0

    def applications(self, nodes: list[Table]) -> list[Table]:
        """Draw who ends when, and labels of masters."""
        found = super().applications(nodes)
        for app in found:
            if self.rng.random() < 0.4:
                app["until"] = app["at"] + int(self.rng.integers(2, 15))
            if self.labelled and "am" in app and self.rng.random() < 0.3:
                app["am"]["label"] = self.one("", "gpu")
        return found


FAIR = "yarn.scheduler.fair."


class _Fair(_Draw):
    """One for the Fair Scheduler, whose queues are those of an allocations file."""

    longest = 20

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.rng = np.random.default_rng([seed, 45])
        self.labelled = False
        self.usual = str(self.one("fair", "fair", "drf"))

    def settings(self) -> None:
        """Draw the scheduler's settings."""
        given = self.configuration
        given["yarn.resourcemanager.scheduler.class"] = (
            "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FairScheduler"
        )
        given["yarn.scheduler.maximum-allocation-mb"] = 8192
        given["yarn.scheduler.maximum-allocation-vcores"] = 8
        for key, values in (
            ("yarn.scheduler.minimum-allocation-mb", (None, None, 512, 2048)),
            ("yarn.scheduler.increment-allocation-mb", (None, None, 512)),
            (FAIR + "assignmultiple", (None, "true", "true")),
            (FAIR + "dynamic.max.assign", (None, None, "false")),
            (FAIR + "max.assign", (None, None, 2, 3)),
            (FAIR + "sizebasedweight", (None, None, None, "true")),
            (FAIR + "reservable-nodes", (None, None, 0.3, 1.0)),
            (FAIR + "locality.threshold.node", (None, None, 0.2, 0.5, 1.0)),
            (FAIR + "locality.threshold.rack", (None, None, 0.2, 0.5)),
        ):
            value = self.one(*values)
            if value is not None:
                given[key] = value

    def amount(self, low: int, high: int, *, whole: bool = False) -> str:
        """Draw an amount in one of the documented forms.

        `whole`: with vcores, as YARN takes a maximum without them for 0.
        """
        part, cores = (int(one) for one in self.rng.integers(low, high, 2))
        memory = part * self.nodes * 160
        return str(
            self.one(
                f"{memory} mb, {cores * self.nodes // 6 + 1} vcores",
                f"vcores={cores * self.nodes // 6 + 1}, memory-mb={memory}",
                f"vcores={cores * self.nodes // 6 + 1}, memory-mb={memory}"
                if whole
                else f"memory-mb={memory}",
            )
        )

    def more(self, path: str) -> list[tuple[str, str]]:
        """Return what else a queue says: nothing."""
        return []

    def fair_queues(self, path: str, depth: int, policy: str) -> str:
        """Draw the queues below one, as XML."""
        text = ""
        for number in range(int(self.one(1, 2, 2, 3, 4))):
            name = f"q{len(self.leaves)}{depth}{number}"
            own = policy if policy == "drf" else "fair"
            deep = depth < 3 and self.rng.random() < 0.3
            if not deep and self.rng.random() < 0.2:
                own = "fifo"
            elif policy == "drf" and self.rng.random() < 0.3:
                own = "fair"
            fields = [("schedulingPolicy", own)]
            if self.rng.random() < 0.5:
                fields.append(("weight", str(self.one(1, 2, 3, 0.5, 10, 0))))
            if self.rng.random() < 0.3:
                fields.append(("minResources", self.amount(2, 20)))
            if self.rng.random() < 0.3:
                most = self.amount(20, 90, whole=True)
                if self.rng.random() < 0.4:
                    most = str(
                        self.one("60%", "55.0% memory, 30.0% cpu", "vcores=50%, memory-mb=70%")
                    )
                fields.append(("maxResources", most))
            if self.rng.random() < 0.2:
                fields.append(("maxRunningApps", str(self.one(1, 2, 5))))
            if self.rng.random() < 0.3 and not deep:
                fields.append(("maxAMShare", str(self.one(0.1, 0.3, 1.0, -1.0))))
            fields += self.more(f"{path}.{name}")
            text += f"<queue name='{name}'>"
            text += "".join(f"<{key}>{value}</{key}>" for key, value in fields)
            if deep:
                text += self.fair_queues(f"{path}.{name}", depth + 1, own)
            else:
                self.leaves.append(f"{path}.{name}")
            text += "</queue>"
        return text

    def allocations(self) -> str:
        """Draw an allocations file."""
        text = f"<defaultQueueSchedulingPolicy>{self.usual}</defaultQueueSchedulingPolicy>"
        if self.rng.random() < 0.2:
            text += f"<userMaxAppsDefault>{self.one(2, 4)}</userMaxAppsDefault>"
        if self.rng.random() < 0.2:
            text += "<user name='u1'><maxRunningApps>3</maxRunningApps></user>"
        if self.rng.random() < 0.2:
            text += f"<queueMaxAMShareDefault>{self.one(0.2, 0.8)}</queueMaxAMShareDefault>"
        return f"<allocations>{text}{self.fair_queues('root', 1, self.usual)}</allocations>"


class _Starving(_Fair):
    """One for the Fair Scheduler with preemption: who starves when, and who is taken from."""

    longest = 60
    spread = 1

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.rng = np.random.default_rng([seed, 46])
        self.usual = str(self.one("fair", "fair", "drf"))
        self.rounds = int(self.rng.integers(15, 30) if self.large else self.rng.integers(25, 60))

    def settings(self) -> None:
        """Draw the settings of preemption, too."""
        super().settings()
        given = self.configuration
        given[FAIR + "preemption"] = "true"
        for key, values in (
            # 0: YARN alone frees at once what is killed before its node has told of it.
            ("waitTimeBeforeKill", (1000, 2000, 3000, 5000)),
            ("waitTimeBeforeNextStarvationCheck", (None, 0, 2000)),
            ("preemption.cluster-utilization-threshold", (None, 0.0, 0.5)),
            ("am.preemption", (None, None, "false")),
        ):
            value = self.one(*values)
            if value is not None:
                given[FAIR + key] = value

    def more(self, path: str) -> list[tuple[str, str]]:
        """Draw when a queue starves, and whether anything is taken from it."""
        found = [
            (key, str(self.one(*values)))
            for key, values in (
                ("fairSharePreemptionTimeout", (0, 1, 3, 8)),
                ("minSharePreemptionTimeout", (0, 1, 4)),
                ("fairSharePreemptionThreshold", (0.3, 0.8, 1.0)),
            )
            if self.rng.random() < 0.4
        ]
        if self.rng.random() < 0.1:
            found.append(("allowPreemptionFrom", "false"))
        if self.rng.random() < 0.1:
            self.configuration[f"{FAIR}am.preemption.{path}"] = "false"
        return found

    def allocations(self) -> str:
        """Draw what holds for all queues, too."""
        usual = [("defaultFairSharePreemptionTimeout", self.one(0, 2, 5))]
        if self.rng.random() < 0.5:
            usual.append(("defaultMinSharePreemptionTimeout", self.one(0, 3)))
        if self.rng.random() < 0.5:
            usual.append(("defaultFairSharePreemptionThreshold", self.one(0.2, 0.9, 1.0)))
        text = "".join(f"<{key}>{value}</{key}>" for key, value in usual)
        return super().allocations().replace("<allocations>", f"<allocations>{text}", 1)


def scenario(seed: int, kind: str = "random") -> Table:
    """Return the scenario of a seed."""
    if kind in _FAIR_KINDS:
        return _fair_scenario(seed, kind)
    kinds = {"preempting": _Preempting, "parallel": _Parallel, "sized": _Sized, "modes": _Modes}
    draw = kinds.get(kind, _Draw)(seed)
    draw.settings()
    draw.queues("root", 1)
    nodes = draw.machines()
    made: Table = {
        "name": f"{kind}-{seed}",
        "configuration": draw.configuration,
    }
    if draw.labelled:
        made["labels"] = {"gpu": bool(draw.one(True, False))}
        draw.configuration[CAPACITY + "root.accessible-node-labels"] = "gpu"
        draw.configuration[CAPACITY + "root.accessible-node-labels.gpu.capacity"] = 100
    made |= {"rounds": draw.rounds, "nodes": nodes, "applications": draw.applications(nodes)}
    return made


_FAIR_KINDS: dict[str, type[_Fair]] = {"fair": _Fair, "starving": _Starving}


def _fair_scenario(seed: int, kind: str) -> Table:
    draw = _FAIR_KINDS[kind](seed)
    draw.settings()
    allocations = draw.allocations()
    nodes = draw.machines()
    made: Table = {"name": f"{kind}-{seed}", "configuration": draw.configuration}
    made |= {"allocations": allocations, "rounds": draw.rounds, "nodes": nodes}
    return made | {"applications": draw.applications(nodes)}


def main() -> None:
    """Write the scenarios of the seeds into a folder."""
    parser = argparse.ArgumentParser(description="Write random scenarios.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", default="0:1000")
    parser.add_argument(
        "--kind",
        choices=("random", "preempting", "parallel", "sized", "modes", *_FAIR_KINDS),
        default="random",
    )
    chosen = parser.parse_args()
    first, _, end = chosen.seeds.partition(":")
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for seed in range(int(first), int(end)):
        path = chosen.folder / f"{chosen.kind}-{seed:04d}.json"
        made = scenario(seed, chosen.kind)
        path.write_text(json.dumps(made), encoding="utf-8")


if __name__ == "__main__":
    main()
