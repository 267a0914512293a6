"""How nodes of a process that sent nothing learn that they count as alive."""

from collections.abc import Iterator, Sequence

from weft.protocol.messages import Address, node_address
from weft.wire.idle import IDLE_MAX, IdleHeard, IdleTold

UNANSWERED_MAX = 1_000
# With more messages waiting to be written, the manager takes no more just now.
UNWRITTEN_MAX = 1_000


class IdleNodes:
    """Makes messages of nodes that say nothing, and remembers which of them count as alive.

    A core need not know before somebody has it do something: whether it may goes by when it last
    counted as alive.
    """

    def __init__(self) -> None:
        self._number = 0
        # By number: when a message was sent, and of which nodes.
        self._unanswered: dict[int, tuple[float, Sequence[Address]]] = {}
        # When the manager heard nodes whose cores do not know of it yet.
        self._heard: dict[Address, float] = {}

    def tell(self, nodes: Sequence[Address], now: float, waiting: int = 0) -> Iterator[IdleTold]:
        """Yield the messages that tell of nodes which say nothing `now`, on their clock.

        None while so many are `waiting` that this would fill the memory: each has hundreds of
        names, and the next beat says the same.
        """
        if waiting > UNWRITTEN_MAX:
            return
        for start in range(0, len(nodes), IDLE_MAX):
            some = nodes[start : start + IDLE_MAX]
            self._number += 1
            self._unanswered[self._number] = (now, some)
            if len(self._unanswered) > UNANSWERED_MAX:
                del self._unanswered[next(iter(self._unanswered))]
            yield IdleTold(self._number, tuple([node.partition(":")[2] for node in some]))

    def hear(self, answer: IdleHeard) -> None:
        """Note whom the manager learned of, and whom it did not."""
        at_s, some = self._unanswered.pop(answer.number, (0.0, ()))
        unheard = {*map(node_address, answer.unheard)}
        if unheard:
            some = [node for node in some if node not in unheard]
        self._heard.update(dict.fromkeys(some, at_s))

    def news_for(self, node: Address) -> float | None:
        """Return when a node that its core takes for silent was acknowledged; None: no news."""
        return self._heard.pop(node, None)
