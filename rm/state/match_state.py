"""What the manager remembers of its matching: what changed since, and what is kept back."""

# `Node.settled_at` where it is no version: a match there may yield something though nothing
# changed, or there was none since the node came
AGAIN, NEVER = -1, -2


class MatchState:
    """The state of matching between events.

    `version` grows with whatever may make a fruitless match fruitful: a container ended, something
    was asked, a node came, a queue or limit moved. Whoever changes such a thing calls `changed`; a
    node is not matched again until then (`Node.settled_at` is the version of its last match).

    To forget `changed` starves somebody until something else moves; to call it for nothing costs a
    pass. A version is only ever compared with one that was taken down before, never counted.
    """

    __slots__ = (
        "cursor", "cut", "gangs_at", "gangs_rest_s", "matched_at", "reserve_at", "reserved",
        "timer_set", "version",
    )  # fmt: skip

    def __init__(self) -> None:
        self.version = 0
        self.matched_at = -1  # version at the last whole pass over all nodes
        self.timer_set = False  # prompt pace: a pass is about to come
        self.cursor = 0  # node slot where the next pass begins
        self.cut = False  # there was more to grant than one pass may
        self.gangs_at = -1  # version at which no gang fitted
        self.gangs_rest_s = 0.0  # until when no nodes are kept for gangs
        self.reserved: dict[int, tuple[float, list[int]]] = {}  # by ask: since when, node slots
        self.reserve_at = 0.0  # when to look for starving asks next

    def changed(self) -> None:
        """Note that something may be placed that could not be before."""
        self.version += 1

    def begin_pass(self) -> None:
        """Begin a pass over all nodes, not cut short so far."""
        self.cut = False

    def end_pass(self) -> None:
        """End a pass over all nodes; one that was cut short does not count as fruitless."""
        self.matched_at = -1 if self.cut else self.version

    @property
    def pass_due(self) -> bool:
        """Whether anything changed since the last whole pass."""
        return self.version != self.matched_at

    @property
    def gangs_due(self) -> bool:
        """Whether a gang may fit that did not at the last look."""
        return self.version != self.gangs_at
