"""How the jobs of a run ended, by its summary."""

from collections.abc import Mapping
from typing import Any

# Runs of version 0.1.0 and before say FINISHED.
SUCCEEDED = frozenset({"SUCCEEDED", "FINISHED"})


def succeeded(summary: Mapping[str, Any]) -> int:
    """Return how many jobs of a run succeeded, by its summary or its row of a study."""
    states: Mapping[str, int] = summary.get("states", {})
    return sum(states.get(end, 0) for end in SUCCEEDED) if states else int(summary["jobs"])
