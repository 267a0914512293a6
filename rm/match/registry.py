"""Matchers by name: one file and one row here, or another package's (`weft.policies.plugins`)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import cast

import numpy as np

from rm.ledger.view import View
from rm.match.protocol import Matcher, Scores
from weft.model.errors import InputError, PolicyError
from weft.model.json_types import Arguments, Options
from weft.policies import plugins
from weft.policies.parameters import known_parameters

_WHOLE_NUMBER_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number, switch or choice that a matcher takes."""

    default: float | int | bool | str
    text: str
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """Where a matcher lives, as "module:name"; the factory takes its parameters by name."""

    factory: str
    text: str
    parameters: Mapping[str, Parameter]


_DELAYS = {
    "node_locality_delay": Parameter(
        40, "opportunities that an ask lets go by for its preferred nodes", 0
    ),
    "rack_locality_delay": Parameter(
        40, "further ones that it lets go by for its preferred racks", 0
    ),
}
MATCHERS: dict[str, Row] = {
    "fifo": Row(
        "rm.match.fifo:FifoMatcher",
        "strict order: the head waits until it fits",
        {
            "fill": Parameter(
                "none",
                "what may start while the head does not fit: nothing (gaps), other asks of its "
                "application, or anything",
                choices=("none", "job", "all"),
            ),
            "whole": Parameter(
                False, "start nothing of an application before all tasks of those before it started"
            ),
            "backfill": Parameter(
                "none",
                "what may start out of order by the estimates: nothing, what delays no promised "
                "start of the first application that waits, or of any; one leaf queue, no limits",
                choices=("none", "easy", "conservative"),
            ),
        },
    ),
    "capacity": Row(
        "rm.match.capacity:CapacityMatcher",
        "hierarchical queues with guarantees and limits (YARN's Capacity Scheduler)",
        _DELAYS,
    ),
    "yarn": Row(
        "rm.match.yarn.matcher:YarnMatcher",
        "decides as YARN's Capacity Scheduler 3.5 does, rule by rule; parameters as in YARN",
        {
            "minimum_allocation_mb": Parameter(1024, "least memory of a container", 0),
            "minimum_allocation_vcores": Parameter(1, "least vcores of a container", 0),
            "maximum_allocation_mb": Parameter(8192, "most memory of a container", 1),
            "maximum_allocation_vcores": Parameter(4, "most vcores of a container", 1),
            "increment_allocation_mb": Parameter(0, "step of memory; 0: the minimum", 0),
            "increment_allocation_vcores": Parameter(0, "step of vcores; 0: the minimum", 0),
            "resource_calculator": Parameter(
                "memory",
                "DefaultResourceCalculator (memory alone counts) or DominantResourceCalculator",
                choices=("memory", "dominant"),
            ),
            "node_locality_delay": Parameter(
                40, "opportunities that a request lets go by for its hosts", -1
            ),
            "rack_locality_additional_delay": Parameter(
                -1, "further ones for its racks; -1: by the size of the request and its places", -1
            ),
            "rack_locality_full_reset": Parameter(
                True, "whether a container in the rack begins the wait for hosts anew"
            ),
            "maximum_offswitch_assignments": Parameter(
                1, "containers that a node gets in a heartbeat away from what they name", 1
            ),
            "multiple_assignments_enabled": Parameter(True, "more than one container a heartbeat"),
            "maximum_container_assignments": Parameter(100, "of a heartbeat; -1: any number", -1),
            "reservations_continue_look_all_nodes": Parameter(
                True, "use other nodes although one is reserved, and give that back"
            ),
            "am_non_exclusive": Parameter(False, "masters on nodes whose label is shared"),
            "am_default_label": Parameter("", "the label that masters need who name none"),
            "max_application_priority": Parameter(
                -1, "a higher one counts as this; -1: priorities have no maximum", -1
            ),
            "shared_labels": Parameter("", "labels, with commas, that are not exclusive"),
            "user_max_running": Parameter(-1, "applications of a user that run; -1: any", -1),
            "users_max_running": Parameter("", "the same of some users: ann=3,bob=1"),
            "preemption_order": Parameter(
                "userlimit_first",
                "what preemption within a queue goes by first",
                choices=("userlimit_first", "priority_first"),
            ),
            "preemption_max_allowable_limit": Parameter(
                0.2, "part of its guarantee that a queue takes back within at a time", 0
            ),
            "preemption_minimum_threshold": Parameter(
                0.5, "part of its guarantee that a queue holds before it takes back within", 0
            ),
            "preemption_conservative_drf": Parameter(
                False, "take a container only while all resources are to be taken back"
            ),
            "preemption_intra_queue_conservative_drf": Parameter(True, "the same within queues"),
            "preemption_based_on_reserved": Parameter(
                False,
                "what nodes are reserved for counts as wanted, and no container is expected to end",
            ),
        },
    ),
    "yarn_fair": Row(
        "rm.match.yarn.fair_matcher:YarnFairMatcher",
        "decides as YARN's Fair Scheduler 3.5 does, rule by rule; parameters as in YARN",
        {
            "minimum_allocation_mb": Parameter(1024, "least memory of a container", 0),
            "minimum_allocation_vcores": Parameter(1, "least vcores of a container", 0),
            "maximum_allocation_mb": Parameter(8192, "most memory of a container", 1),
            "maximum_allocation_vcores": Parameter(4, "most vcores of a container", 1),
            "increment_allocation_mb": Parameter(1024, "step of memory", 1),
            "increment_allocation_vcores": Parameter(1, "step of vcores", 1),
            "node_locality_threshold": Parameter(
                -1.0, "part of the nodes that a request lets go by for its hosts; -1: none", -1
            ),
            "rack_locality_threshold": Parameter(-1.0, "the same for its racks", -1),
            "assign_multiple": Parameter(False, "more than one container a heartbeat"),
            "dynamic_max_assign": Parameter(True, "then half of what is free on the node"),
            "max_assign": Parameter(-1, "or so many; -1: any number", -1),
            "size_based_weight": Parameter(False, "applications weigh by what they want"),
            "reservable_nodes": Parameter(0.05, "part of the nodes that one may reserve", 0, 1),
            "reservation_multiple": Parameter(
                2.0, "steps that a container has for which a node is reserved", 0
            ),
            "update_interval_s": Parameter(0.5, "shares are worked out anew so often, s", 0),
            "user_max_running": Parameter(-1, "applications of a user that run; -1: any", -1),
            "users_max_running": Parameter("", "the same of some users: ann=3,bob=1"),
            "preemption_utilization_threshold": Parameter(
                0.8, "nothing is preempted while less of the cluster is used", 0, 1
            ),
            "preemption_check_delay_s": Parameter(
                10.0,
                "who was preempted for is looked at again so long after the grace period, s",
                0,
            ),
        },
    ),
    "fair": Row(
        "rm.match.fair:FairMatcher", "fewest containers by weight first (max-min)", _DELAYS
    ),
    "drf": Row(
        "rm.match.drf:DrfMatcher",
        "least weighted dominant share first (Ghodsi et al.)",
        {
            "lend": Parameter(
                True, "give what some do not ask for to others; false: strict shares"
            ),
            "share": Parameter(
                "closed_form",
                "of strict shares: DRF over the work of whole jobs, or equal parts of all",
                choices=("closed_form", "equal"),
            ),
        },
    ),
    "sjf": Row("rm.match.sjf:SjfMatcher", "shortest critical path left first", {}),
    "tetris": Row(
        "rm.match.tetris:TetrisMatcher",
        "best aligned task, with shortest remaining work and a fairness knob (Tetris)",
        {
            "fairness": Parameter(0.0, "f: only the neediest (1 - f) of the jobs compete", 0, 1),
        },
    ),
    "carbyne": Row(
        "rm.match.carbyne:CarbyneMatcher",
        "DRF shares, must-run asks first, then the leftover (Carbyne)",
        {
            "leftover": Parameter(
                "srtf",
                "who goes first in the leftover",
                choices=("srtf", "least_share", "mix", "packing"),
            ),
            "leftover_mix": Parameter(
                0.5, "of `mix`: 0 by remaining work alone, 1 by dominant share alone", 0, 1
            ),
            "packing": Parameter(True, "alignment inside the application; false: as DRF does"),
        },
    ),
    "graphene": Row(
        "rm.match.graphene:GrapheneMatcher",
        "Graphene's figure 15: preferred order, packing, remaining work, bounded unfairness",
        {
            "eta_m": Parameter(0.2, "m: weight of remaining work; 0 switches it off", 0),
            "eta": Parameter(-1.0, "a fixed eta; below 0: automatic"),
            "kappa": Parameter(0.1, "unfairness bound over C; below 0: no bound"),
            "deficit_unit": Parameter(
                "drf",
                "what a container counts: 1, its dominant demand, or that x its duration / 30 s",
                choices=("slots", "drf", "time"),
            ),
            "group": Parameter("queue", "who is owed fairness", choices=("queue", "app")),
            "use_priority": Parameter(True, "follow the jobs' preferred order"),
            "priority_from": Parameter(
                "all",
                "priScore by all of the job's tasks, or by those pending: its next one scores 1",
                choices=("all", "left"),
            ),
            "use_packing": Parameter(True, "score by alignment"),
            "overbook": Parameter("disk_mbps,network_mbps", "overbookable resources; empty: none"),
            "overbook_limit": Parameter(1.25, "demand over capacity at most", 1, 100),
        },
    ),
}
# Every matcher takes these besides (`rm.match.carbon`), where `carbon` is given.
CARBON: dict[str, Parameter] = {
    "carbon": Parameter(
        "", "carbon intensity over time: STEP_S;V,V,..., diurnal:LOW:HIGH[:PERIOD_S], a CSV file"
    ),
    "carbon_policy": Parameter(
        "cap", "a cap on what is held, or tasks deferred by importance", choices=("cap", "pcaps")
    ),
    "carbon_gamma": Parameter(0.5, "of pcaps: how much carbon counts", 1e-6, 1),
    "carbon_least": Parameter(0.2, "of cap: the part of the nodes that is used in any case", 0, 1),
    "carbon_step_s": Parameter(0.0, "length of a slot on the cluster's clock; 0: as given", 0),
}


def matcher_row(name: str) -> Row:
    """Return the row of a matcher; raises InputError naming the known ones."""
    if name in MATCHERS:
        return MATCHERS[name]
    if not plugins.is_outside(plugins.MATCHERS, name):
        raise plugins.unknown(plugins.MATCHERS, name, MATCHERS)
    found = plugins.find(plugins.MATCHERS, name)
    taken = known_parameters(found) if callable(found) else {}
    text = (getattr(found, "__doc__", None) or "").partition("\n")[0]
    return Row("", text, {key: Parameter(value, "") for key, value in taken.items()})


def make_matcher(name: str, parameters: Options | None = None) -> Matcher:
    """Build a matcher; raises InputError for an unknown name, parameter or value.

    Values may be texts, as the command line's `--set key=value` gives them.
    """
    row = matcher_row(name)
    values = matcher_parameters(name, parameters)
    around = {key: values.pop(key) for key in CARBON if key in values and key not in row.parameters}
    if not row.factory:
        own = plugins.build(plugins.MATCHERS, name, values, "match", "granted", "shares", "slack")
        made = _Outside(plugins.MATCHERS, name, own)
    else:
        module, _, attribute = row.factory.partition(":")
        made = getattr(import_module(module), attribute)(**values)
    return _around(cast(Matcher, made), around) if around else cast(Matcher, made)


class _Outside(plugins.Contained):
    """A matcher of another package, whose terms are looked at before anybody adds them up."""

    def terms(self, view: View, row: int) -> Scores:
        """Return its terms; raises PolicyError with the line where they are no pairs."""
        own = getattr(self._policy, "terms", None)
        found = () if own is None else self.answer(own, view, row)
        if not isinstance(found, tuple | list) or not all(map(_is_score, found)):
            code = getattr(own, "__code__", None)
            where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
            problem = f"terms returns {found!r}, expected pairs of a name and a number"
            raise PolicyError(f"matcher {self._name!r}: {problem}{where}")
        return tuple(found)


def _is_score(pair: object) -> bool:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        return False
    return isinstance(pair[0], str) and isinstance(pair[1], int | float | np.number)


def _around(inner: Matcher, told: Arguments) -> Matcher:
    """Return a matcher that heeds the carbon intensity."""
    from rm.match.carbon import CarbonMatcher, CarbonSettings, trace_of

    trace = trace_of(told["carbon"])
    if told["carbon_step_s"] > 0:
        trace = replace(trace, step_s=told["carbon_step_s"])
    settings = CarbonSettings(
        trace,
        told["carbon_policy"],
        told["carbon_gamma"],
        told["carbon_least"],
    )
    return CarbonMatcher(inner, settings)


def matcher_parameters(
    name: str, parameters: Options | None = None
) -> dict[str, float | int | bool | str]:
    """Return every parameter of a matcher with its value; raises InputError for an unknown one."""
    row = matcher_row(name)
    given = parameters or {}
    taken = dict(row.parameters)
    if any(key in CARBON and key not in taken for key in given):
        taken = CARBON | taken
        if not given.get("carbon"):
            raise InputError("matcher.carbon", "its parameters need a trace: carbon=...")
    values = {key: known.default for key, known in taken.items()}
    for key, value in given.items():
        place = f"matcher.{key}"
        if key not in taken:
            known_names = ", ".join(row.parameters) or "none"
            raise InputError(place, f"unknown parameter of {name}; known: {known_names}")
        values[key] = _read(value, taken[key], place)
    return values


def _read(value: object, known: Parameter, place: str) -> float | int | bool | str:
    default = known.default
    if isinstance(default, bool):
        said = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        text = str(value).lower()
        if text not in said:
            raise InputError(place, f"expected true or false, got {value!r}")
        return said[text]
    if isinstance(default, str):
        if known.choices and value not in known.choices:
            raise InputError(place, f"expected one of {', '.join(known.choices)}, got {value!r}")
        return str(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(place, f"expected a number, got {value!r}")
    try:
        number = float(value)
    except ValueError:
        raise InputError(place, f"expected a number, got {value!r}") from None
    high = min(known.high, _WHOLE_NUMBER_MAX) if isinstance(default, int) else known.high
    if not (known.low <= number <= high) or not math.isfinite(number):
        raise InputError(place, f"expected a number from {known.low:g} to {high:g}, got {value!r}")
    if isinstance(default, int):
        if number != int(number):
            raise InputError(place, f"expected a whole number, got {value!r}")
        return int(number)
    return number
