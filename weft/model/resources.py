"""Resources are vectors over the named types that a cluster declares, in declared order."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from weft.model.errors import InputError

# A vector has one absolute amount per declared resource type.
Vector = tuple[float, ...]
# Rounding may exceed a capacity by this fraction of it (docs/rules.md rule 2).
TOLERANCE = 1e-7
# Beyond it float64 does not hold every whole number.
AMOUNT_MAX = 2**53


class Kind(StrEnum):
    """Divisible: over-allocation slows everybody down. Rigid: it is never granted."""

    DIVISIBLE = "divisible"
    RIGID = "rigid"


@dataclass(frozen=True, slots=True)
class ResourceType:
    """A named resource type of the cluster."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class ResourceTypes:
    """The ordered resource types of one cluster; turns names into vectors and back."""

    types: tuple[ResourceType, ...]

    def __post_init__(self) -> None:
        names = [t.name for t in self.types]
        if not names:
            raise InputError("resources", "at least one resource type is needed")
        for name in names:
            if names.count(name) > 1:
                raise InputError("resources", f"resource {name!r} is declared twice")

    def __len__(self) -> int:
        return len(self.types)

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(self.types)

    @property
    def names(self) -> tuple[str, ...]:
        """The names in declared order."""
        return tuple([t.name for t in self.types])

    @property
    def rigid(self) -> tuple[bool, ...]:
        """True where over-allocation is never granted."""
        return tuple([t.kind is Kind.RIGID for t in self.types])

    def vector(self, amounts: Mapping[str, float], place: str = "demand") -> Vector:
        """Order named amounts; absent names are 0; raises InputError for an unknown name."""
        names = self.names
        for name in amounts:
            if name not in names:
                raise InputError(
                    f"{place}.{name}",
                    f"unknown resource; the cluster has {', '.join(names)}: its nodes name theirs"
                    f" (in short 4x8vcores,100{name})",
                )
        return tuple([float(amounts.get(name, 0.0)) for name in names])

    def mapping(self, vector: Sequence[float]) -> dict[str, float]:
        """Name the amounts of a vector."""
        return dict(zip(self.names, vector, strict=True))


DEFAULT_RESOURCE_TYPES = ResourceTypes(
    (
        ResourceType("vcores", Kind.DIVISIBLE),
        ResourceType("memory_mb", Kind.RIGID),
        ResourceType("disk_mbps", Kind.DIVISIBLE),
        ResourceType("network_mbps", Kind.DIVISIBLE),
    )
)

_KNOWN_KINDS = {t.name: t.kind for t in DEFAULT_RESOURCE_TYPES}


def guess_kind(name: str) -> Kind:
    """Return the kind of a type named without one: Weft's defaults as declared, others rigid."""
    return _KNOWN_KINDS.get(name, Kind.RIGID)


def _shown(value: object) -> str:
    """Return a number for an error; Python refuses to write integers of thousands of digits."""
    return f"{value:.6g}" if isinstance(value, float) else "an integer beyond 2^53"


def read_amount(value: object, place: str, *, positive: bool = False) -> float:
    """Check one number of an input file: finite and not negative (or > 0); raises InputError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(place, f"expected a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        # It is an integer over 1.8e308.
        number = math.inf
    if not math.isfinite(number):
        raise InputError(place, f"expected a finite number, got {_shown(value)}")
    if abs(number) > AMOUNT_MAX:
        raise InputError(place, f"expected a number within 2^53, got {_shown(value)}")
    if number < 0 or (positive and number == 0):
        raise InputError(
            place, f"expected a {'positive' if positive else 'non-negative'} number, got {value!r}"
        )
    return number
