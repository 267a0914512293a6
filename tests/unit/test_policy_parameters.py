"""What a policy's parameters may be, and what they are unless they are set."""

import inspect
import json
import math
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from am.ask.registry import ASKERS, asker_parameters
from am.plan.registry import PLANNERS, planner_parameters
from rm.match.registry import MATCHERS, make_matcher
from weft.model.errors import InputError

FILE = Path(__file__).parents[1] / "golden" / "recorded" / "parameters.json"
NUMBERS = [
    (name, key)
    for name, row in MATCHERS.items()
    for key, known in row.parameters.items()
    if isinstance(known.default, int | float) and not isinstance(known.default, bool)
]


def bound(number: float) -> float | None:
    return None if math.isinf(number) else number


def found() -> dict[str, Any]:
    """Every policy's parameters: of matchers with their bounds."""
    return {
        "matchers": {
            name: {
                key: [one.default, bound(one.low), bound(one.high), list(one.choices)]
                for key, one in row.parameters.items()
            }
            for name, row in MATCHERS.items()
        },
        "askers": {name: asker_parameters(name, {}) for name in ASKERS},
        "planners": {name: planner_parameters(name, {}) for name in PLANNERS},
    }


def test_defaults_and_bounds_are_those_that_are_recorded() -> None:
    """Who changes one records it here as well: users of the old one will want to read of it."""
    now = json.dumps(found(), indent=1, sort_keys=True) + "\n"
    if os.environ.get("WEFT_RECORD"):
        FILE.write_text(now)
    assert json.loads(now) == json.loads(FILE.read_text())


@pytest.mark.parametrize(("name", "key"), NUMBERS)
def test_a_number_may_be_at_its_bounds_and_not_beyond(name: str, key: str) -> None:
    known = MATCHERS[name].parameters[key]
    whole = isinstance(known.default, int)
    high = min(known.high, 2**31 - 1) if whole else known.high
    for at, outside in ((known.low, -1.0), (high, 1.0)):
        if not math.isinf(at):
            assert getattr(make_matcher(name, {key: at}), "name", "") == name
            with pytest.raises(InputError, match="expected a number from"):
                make_matcher(name, {key: at + outside})
    with pytest.raises(InputError, match="expected a number from"):
        make_matcher(name, {key: math.inf})


@pytest.mark.parametrize("name", list(MATCHERS))
def test_a_matcher_s_own_defaults_are_those_of_its_row(name: str) -> None:
    module, _, attribute = MATCHERS[name].factory.partition(":")
    taken = inspect.signature(getattr(import_module(module), attribute)).parameters
    for key, known in MATCHERS[name].parameters.items():
        if taken[key].default is not inspect.Parameter.empty:
            assert taken[key].default == known.default, key


@pytest.mark.parametrize("name", ["graphene", "graphene_plus"])
def test_what_a_planner_s_options_may_be(name: str) -> None:
    for number in (1, 1_000_000):
        assert planner_parameters(name, {"thresholds": number})["thresholds"] == number
    for number in (0, 1_000_001):
        with pytest.raises(InputError, match="expected a number from"):
            planner_parameters(name, {"thresholds": number})
    for text, value in (("true", True), ("1", True), ("False", False), ("0", False)):
        assert planner_parameters(name, {"early_stop": text})["early_stop"] is value
    with pytest.raises(InputError, match="expected bool"):
        planner_parameters(name, {"early_stop": "perhaps"})
