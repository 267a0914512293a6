"""Two hundred random scripts of faults break no rule and hang no job, under every scheduler."""

import pytest

from sim.process.walk import walk

GROUPS, EACH = 8, 25


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_faults_break_no_rule(group: int) -> None:
    """Crashes, partitions, stragglers, lost masters, restarts, loss and doubling of messages."""
    for seed in range(group * EACH, (group + 1) * EACH):
        try:
            walk(seed)
        except Exception as error:
            pytest.fail(f"repeat with: python -m sim {seed}\n{type(error).__name__}: {error}")
