"""Plans of recurring jobs on this machine's disk, so that a later `weft plan` finds them."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from am.plan.reuse import plan_from_data, plan_key, plan_to_data
from am.plan.validate import violations
from weft.model.dag import Dag, Machines
from weft.model.errors import InputError
from weft.model.plan import Plan


def folder() -> Path:
    """Return where plans are kept: the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "weft" / "plans"


class KeptPlans:
    """The plans kept for one `history_key`; an empty key keeps and finds none.

    A disk that cannot be read or written costs a search, never a plan.
    """

    def __init__(self, history_key: str) -> None:
        self._history_key = history_key

    def find(
        self, dag: Dag, machines: Machines, planner: str, options: Mapping[str, Any]
    ) -> Plan | None:
        """Return the plan kept for an equal request, checked again, or None."""
        if not self._history_key:
            return None
        try:
            text = self._path(dag, machines, planner, options).read_text(encoding="utf-8")
            plan = plan_from_data(json.loads(text))
        except (OSError, ValueError, TypeError, RecursionError, InputError):
            return None
        if violations(dag, machines, plan.machine, plan.start_s, plan.end_s):
            return None
        return plan

    def keep(
        self, dag: Dag, machines: Machines, planner: str, options: Mapping[str, Any], plan: Plan
    ) -> None:
        """Keep a plan for the next job that recurs."""
        if not self._history_key:
            return
        path = self._path(dag, machines, planner, options)
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(plan_to_data(plan)), encoding="utf-8")
            os.replace(partial, path)
        except (OSError, RuntimeError):
            return
        finally:
            partial.unlink(missing_ok=True)

    def _path(self, dag: Dag, machines: Machines, planner: str, options: Mapping[str, Any]) -> Path:
        name = plan_key(self._history_key, dag, machines, planner, options)
        return folder() / f"{name}.json"
