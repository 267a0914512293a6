"""A life cycle is a table `(state, event) -> next state`; a pair that is not in it is a bug.

Each role's tables live in its `lifecycle.py`, which exports them as `LIFECYCLES`, so that
`tools/draw_lifecycles.py` draws what the code does.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

from weft.errors import InvariantError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class Lifecycle(Generic[S, E]):
    """One kind of thing's states; `table` is every step that may happen."""

    __slots__ = ("_table", "initial", "name")

    def __init__(self, name: str, initial: S, table: Mapping[tuple[S, E], S]) -> None:
        self.name = name
        self.initial = initial
        self._table = dict(table)

    def next(self, state: S, event: E) -> S:
        """The state after an event; raises InvariantError where the table has no such step."""
        after = self._table.get((state, event))
        if after is None:
            raise InvariantError(f"{self.name}: {event.name} cannot happen in {state.name}")
        return after

    def allows(self, state: S, event: E) -> bool:
        """Whether the table has a step for the pair."""
        return (state, event) in self._table

    @property
    def table(self) -> Mapping[tuple[S, E], S]:
        """Every step, in the order in which it was declared."""
        return dict(self._table)

    @property
    def states(self) -> tuple[S, ...]:
        """Every state that the table names, in the order of its enum."""
        named = {self.initial, *(state for state, _ in self._table), *self._table.values()}
        return tuple(state for state in type(self.initial) if state in named)

    @property
    def final(self) -> tuple[S, ...]:
        """The states that nothing but themselves follows."""
        left = {state for (state, _), after in self._table.items() if after is not state}
        return tuple(state for state in self.states if state not in left)


def mermaid(cycle: Lifecycle[S, E]) -> str:
    """Draw a table as a mermaid state diagram; events of the same step share one arrow."""
    lines = ["stateDiagram-v2", f"    [*] --> {cycle.initial.name}"]
    arrows: dict[tuple[S, S], list[str]] = {}
    for (state, event), after in cycle.table.items():
        arrows.setdefault((state, after), []).append(event.name.lower())
    for (state, after), events in arrows.items():
        lines.append(f"    {state.name} --> {after.name}: {', '.join(events)}")
    lines.extend(f"    {state.name} --> [*]" for state in cycle.final)
    return "\n".join(lines) + "\n"
