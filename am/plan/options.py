"""The parameters of Graphene's search by name, with their defaults.

What each chooses between: docs/rules.md, rules 17 to 32.
"""

from dataclasses import dataclass, fields
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from am.plan.search_kernels import WAY_NAMES
from weft.model.errors import InputError
from weft.model.json_types import Json, Options

T = TypeVar("T")
_CHOICES = {
    "frag": ("both", "ratio", "steady"),
    "rule": ("longest", "cp", "both"),
    "bound": ("fast", "strong", "new"),
    "candidates": ("all", "paper", "lists"),
}
_ORDERS = ("TSCP", "TSPC", "TPSC", "TCSP")
THRESHOLDS_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What may be set on Graphene's search.

    `thresholds`: at most so many distinct LongScores and FragScores. `frag`: TWork/ExecTime
    ("ratio"), the "steady" bottleneck share, or the union of both candidate lists. `rule`: among
    ready tasks the "longest" first, the longest remaining path ("cp"), or both tried. `t_both`: go
    on from both placements of T, not only from its shorter one. `orders`: which of the four
    orders, with commas. `early_stop`: stop a part at its `bound`, the strong one ("fast" without
    what takes long). `candidates`: Graphene's and the list schedules beside them ("all"),
    Graphene's alone as in the "paper", or list schedules only ("lists").
    """

    thresholds: int = 8
    frag: str = "both"
    rule: str = "longest"
    t_both: bool = True
    orders: str = "TSCP,TSPC,TPSC,TCSP"
    early_stop: bool = True
    bound: str = "fast"
    candidates: str = "all"

    @property
    def frags(self) -> tuple[str, ...]:
        """The FragScore variants to take candidates from."""
        return ("ratio", "steady") if self.frag == "both" else (self.frag,)

    @property
    def rules(self) -> tuple[str, ...]:
        """The ready rules to try."""
        return ("longest", "cp") if self.rule == "both" else (self.rule,)

    @property
    def ways(self) -> NDArray[np.int8]:
        """Ways of `search_kernels.WAYS` that are tried."""
        chosen = self.orders.split(",")
        return np.array([name in chosen for name in WAY_NAMES], dtype=np.int8)


def read_options(given: Options, also: tuple[str, ...] = ()) -> SearchOptions:
    """Return options from names and values, perhaps text; raises InputError naming a wrong one.

    Names in `also` belong to the caller and are left alone.
    """
    kinds = {f.name: type(f.default) for f in fields(SearchOptions)}
    values: Json = {}
    for name, value in given.items():
        if name in also:
            continue
        if name not in kinds:
            known = ", ".join([*kinds, *also])
            raise InputError(f"options.{name}", f"unknown option; known: {known}")
        values[name] = read_value(name, value, kinds[name])
    options = SearchOptions(**values)
    for name, choices in _CHOICES.items():
        if getattr(options, name) not in choices:
            raise InputError(f"options.{name}", f"expected one of {', '.join(choices)}")
    if not 1 <= options.thresholds <= THRESHOLDS_MAX:
        raise InputError("options.thresholds", f"expected a number from 1 to {THRESHOLDS_MAX:g}")
    for order in options.orders.split(","):
        if order not in _ORDERS:
            raise InputError("options.orders", f"unknown order {order!r}; {', '.join(_ORDERS)}")
    return options


def read_value(name: str, value: object, kind: type[T]) -> T:
    """Return one option's value as its type; raises InputError."""
    try:
        if kind is bool and isinstance(value, str):
            said = {"true": True, "1": True, "false": False, "0": False}[value.lower()]
            return cast(T, said)
        return kind(value)  # type: ignore[call-arg]
    except (KeyError, TypeError, ValueError):
        place = f"options.{name}"
        raise InputError(place, f"expected {kind.__name__}, got {value!r}") from None
