"""Matchers are built from checked parameters, and the page of life cycles is what the code does."""

import subprocess
import sys
from pathlib import Path

import pytest

from rm.match.registry import MATCHERS, make_matcher
from rm.process.warm import warm
from rm.state.lifecycle import LIFECYCLES
from weft.model.errors import InputError
from weft.model.resources import DEFAULT_RESOURCE_TYPES

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", list(MATCHERS))
def test_every_matcher_is_built_by_its_name_and_says_it(name: str) -> None:
    assert make_matcher(name).name == name
    assert all(parameter.text for parameter in MATCHERS[name].parameters.values())


@pytest.mark.parametrize(
    ("name", "parameters", "place", "problem"),
    [
        ("nope", {}, "matcher", "unknown matcher 'nope'; known: fifo, capacity"),
        ("fifo", {"x": 1}, "matcher.x", "unknown parameter of fifo; known: fill, whole"),
        ("capacity", {"node_locality_delay": "many"}, "", "expected a number"),
        ("capacity", {"node_locality_delay": -1}, "", "from 0"),
        ("capacity", {"node_locality_delay": 1.5}, "", "expected a whole number"),
        ("capacity", {"node_locality_delay": "nan"}, "", "expected a number"),
    ],
)
def test_a_bad_parameter_is_named(
    name: str, parameters: dict[str, object], place: str, problem: str
) -> None:
    with pytest.raises(InputError) as caught:
        make_matcher(name, parameters)
    assert problem in caught.value.problem
    assert caught.value.place.startswith(place or "matcher.node_locality_delay")


def test_parameters_may_be_texts() -> None:
    assert make_matcher("capacity", {"node_locality_delay": "3"}).node_locality_delay == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("cycle", LIFECYCLES, ids=lambda c: c.name)
def test_every_state_can_be_reached_and_every_life_can_end(cycle: object) -> None:
    steps = cycle.table  # type: ignore[attr-defined]
    reached = {cycle.initial}  # type: ignore[attr-defined]
    for _ in steps:
        reached |= {after for (state, _), after in steps.items() if state in reached}
    assert reached == set(cycle.states)  # type: ignore[attr-defined]


def test_the_page_of_life_cycles_is_what_the_tables_say() -> None:
    command = [sys.executable, "-m", "tools.draw_lifecycles", "--check"]
    done = subprocess.run(command, cwd=ROOT, check=False)
    assert done.returncode == 0, "run `make diagrams`"


@pytest.mark.parametrize("name", list(MATCHERS))
def test_a_manager_can_load_its_kernels_before_the_first_heartbeat(name: str) -> None:
    assert warm(make_matcher(name), DEFAULT_RESOURCE_TYPES) == 3
