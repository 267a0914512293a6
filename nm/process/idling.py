"""What the nodes of a process that said nothing are told of having been heard."""

from collections.abc import Iterator, Sequence

from weft.protocol.messages import Address, node_address
from weft.wire.idle import IDLE_MAX, IdleHeard, IdleTold

TOLD_MAX = 1_000  # messages whose answers are waited for
WAITING_MAX = 1_000  # messages that wait to be written: the manager takes no more just now


class IdleNodes:
    """Makes messages of nodes that say nothing, and remembers which of them were heard.

    A core need not know before somebody has it do something: whether it may goes by when it was
    heard last.
    """

    def __init__(self) -> None:
        self._number = 0
        self._told: dict[int, tuple[float, Sequence[Address]]] = {}  # by number: when, of whom
        self._heard: dict[Address, float] = {}  # of which the cores do not know

    def tell(self, nodes: Sequence[Address], now: float, waiting: int = 0) -> Iterator[IdleTold]:
        """Yield the messages that tell of nodes which say nothing `now`, on their clock.

        None while so many are `waiting` that this would fill the memory: each has hundreds of
        names, and the next beat says the same.
        """
        if waiting > WAITING_MAX:
            return
        for start in range(0, len(nodes), IDLE_MAX):
            some = nodes[start : start + IDLE_MAX]
            self._number += 1
            self._told[self._number] = (now, some)
            if len(self._told) > TOLD_MAX:
                del self._told[next(iter(self._told))]
            yield IdleTold(self._number, tuple([node.partition(":")[2] for node in some]))

    def hear(self, answer: IdleHeard) -> None:
        """Note whom the manager heard of, and whom it did not."""
        at_s, some = self._told.pop(answer.number, (0.0, ()))
        unheard = {*map(node_address, answer.unheard)}
        if unheard:
            some = [node for node in some if node not in unheard]
        self._heard.update(dict.fromkeys(some, at_s))

    def news_for(self, node: Address) -> float | None:
        """Return when a node that its core takes for unheard was heard; None: no news."""
        return self._heard.pop(node, None)
