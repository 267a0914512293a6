"""A life cycle is a table `(state, event) -> next state, action`; a pair not in it is a bug.

The table is what runs: code asks it whether an event may happen (`allows`), and has it say what
comes next and what is done then (`step`). Whoever keeps the states binds actions to functions.

Each role's tables live in its `lifecycle.py`, which exports them as `LIFECYCLES`, so that
`tools/draw_lifecycles.py` draws what the code does.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

from weft.model.errors import InvariantError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)
A = TypeVar("A", bound=Enum)


class Lifecycle(Generic[S, E, A]):
    """One kind of thing's states; `table` is every step that may happen.

    A step is the next state, or that with the action that goes with it.
    """

    __slots__ = ("_actions", "_table", "initial", "name")

    def __init__(self, name: str, initial: S, table: Mapping[tuple[S, E], S | tuple[S, A]]) -> None:
        self.name = name
        self.initial = initial
        self._table: dict[tuple[S, E], S] = {}
        self._actions: dict[tuple[S, E], A] = {}
        for pair, step in table.items():
            if isinstance(step, tuple):
                self._table[pair], self._actions[pair] = step
            else:
                self._table[pair] = step

    def next(self, state: S, event: E) -> S:
        """Return the state after an event; raises InvariantError where there is no such step."""
        after = self._table.get((state, event))
        if after is None:
            raise InvariantError(f"{self.name}: {event.name} cannot happen in {state.name}")
        return after

    def step(self, state: S, event: E) -> tuple[S, A | None]:
        """Return the state after an event, and what to do once it is there; raises as `next`."""
        return self.next(state, event), self._actions.get((state, event))

    def allows(self, state: S, event: E) -> bool:
        """Return whether the table has a step for the pair."""
        return (state, event) in self._table

    @property
    def table(self) -> Mapping[tuple[S, E], S]:
        """Every step, in the order in which it was declared."""
        return dict(self._table)

    @property
    def actions(self) -> Mapping[tuple[S, E], A]:
        """Actions at the steps that do more than change the state."""
        return dict(self._actions)

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


def drawn(cycle: Lifecycle[S, E, A]) -> str:
    """Draw a life cycle as a table that reads as it is; events of the same step share one row."""
    ends = ", ".join(state.name for state in cycle.final)
    lines = [
        f"Begins {cycle.initial.name}; ends {ends}.",
        "",
        "| from | event | to |",
        "|---|---|---|",
    ]
    steps: dict[tuple[S, S, str], list[str]] = {}
    actions = cycle.actions
    for pair, after in cycle.table.items():
        done = f", with {actions[pair].name.lower()}" if pair in actions else ""
        steps.setdefault((pair[0], after, done), []).append(f"`{pair[1].name.lower()}`")
    states = list(cycle.states)
    for (state, after, done), events in sorted(
        steps.items(), key=lambda one: states.index(one[0][0])
    ):
        lines.append(f"| {state.name} | {', '.join(events)}{done} | {after.name} |")
    return "\n".join(lines) + "\n"
