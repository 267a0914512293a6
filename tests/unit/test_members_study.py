"""The study of what members cost, at a size of seconds."""

import json
import math

import pytest
from click.testing import CliRunner

from lab.studies.members import GUARANTEES, completion, main, shares


@pytest.mark.slow
def test_both_have_the_same_jobs_and_one_member_costs_nothing() -> None:
    found = completion(8, 1, 1, 6, 0.5, "requests", "capacity")
    assert found["members_mean_s"] == found["one_mean_s"] > 0


@pytest.mark.slow
def test_queues_come_nearer_to_their_guarantees_where_these_move() -> None:
    moved = shares(40, 4, 1, "capacity", 5.0)
    fixed = shares(40, 4, 1, "capacity", math.inf)
    assert moved["mean"] < fixed["mean"] / 2 <= 100 * max(GUARANTEES.values())


@pytest.mark.slow
def test_the_command_prints_a_line_for_each_seed_and_the_intervals() -> None:
    words = [
        "completion",
        "--nodes",
        "8",
        "--members",
        "2",
        "--jobs",
        "4",
        "--seeds",
        "2",
        "--json",
    ]
    done = CliRunner().invoke(main, [*words, "--kind", "requests"])
    assert done.exit_code == 0, done.output
    first, second = (json.loads(line) for line in done.output.splitlines()[:2])
    assert (first["seed"], second["seed"]) == (1, 2)
    assert "±" in done.output
