"""How messages travel: delay, loss and duplicates per link, from one seed; partitions cut links."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from weft.model.errors import InputError
from weft.protocol.messages import MANAGER, Address

NOW = (0.0,)
NEVER: tuple[float, ...] = ()
# Random numbers are drawn in blocks, as one by one they cost more than an event.
_DRAWS_PER_BLOCK = 4096


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Every link's behaviour; delays are uniform in [delay_s_min, delay_s_max].

    `loss` and `duplicate` are the probabilities that a message is lost or arrives twice.
    """

    delay_s_min: float = 0.0
    delay_s_max: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.delay_s_min <= self.delay_s_max:
            raise InputError("network.delay_s", "expected 0 <= min <= max")
        for name in ("loss", "duplicate"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"network.{name}", "expected a probability in [0, 1)")

    @property
    def perfect(self) -> bool:
        """Whether messages arrive at once, once."""
        return not (self.delay_s_max or self.loss or self.duplicate)


class Network:
    """Answers when copies of a message arrive; without delays it keeps the order."""

    def __init__(self, settings: LinkSettings, seed: int) -> None:
        self.settings = settings
        self._rng = np.random.default_rng([seed, 7])
        self._draws: list[float] = []
        # How many cuts keep a node from hearing anybody, and anybody from hearing it.
        self._deaf: Counter[str] = Counter()
        self._mute: Counter[str] = Counter()
        self._manager_down = False
        # Every message is to be asked for.
        self.watched = False
        self.perfect = settings.perfect

    def cut(self, nodes: Iterable[str], *, inwards: bool = True, outwards: bool = True) -> None:
        """Cut nodes (and the masters on them) off from everybody else, one way or both."""
        for node in nodes:
            self._deaf[node] += inwards
            self._mute[node] += outwards
        self._judge()

    def heal(self, nodes: Iterable[str], *, inwards: bool = True, outwards: bool = True) -> None:
        """End a partition; of several that overlap, each has its own end."""
        for node in nodes:
            self._deaf[node] -= inwards
            self._mute[node] -= outwards
        self._deaf, self._mute = +self._deaf, +self._mute
        self._judge()

    def watch(self, every: bool) -> None:
        """Set whether every message is to be asked for, however good the links are."""
        self.watched = every
        self._judge()

    def manager_down(self, down: bool) -> None:
        """Take the Resource Manager's process off the network, or bring it back."""
        self._manager_down = down
        self._judge()

    def _judge(self) -> None:
        self.perfect = (
            self.settings.perfect
            and not (self._deaf or self._mute or self._manager_down)
            and not self.watched
        )

    def delays(self, source: Address, target: Address, here: str, there: str) -> tuple[float, ...]:
        """Return when copies arrive, s from now; `here` and `there` are hosts (empty: no node)."""
        if self._manager_down and MANAGER in (source, target):
            return NEVER
        if here != there and (here in self._mute or there in self._deaf):
            return NEVER
        settings = self.settings
        if settings.perfect:
            return NOW
        if settings.loss and self._draw() < settings.loss:
            return NEVER
        span = settings.delay_s_max - settings.delay_s_min
        first = settings.delay_s_min + span * (self._draw() if span else 0.0)
        if settings.duplicate and self._draw() < settings.duplicate:
            return (first, settings.delay_s_min + span * self._draw())
        return (first,)

    def _draw(self) -> float:
        if not self._draws:
            self._draws = self._rng.random(_DRAWS_PER_BLOCK).tolist()
        return self._draws.pop()
