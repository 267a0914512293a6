"""What a foreign master asks for: YARN's requests in, Weft's cumulative asks out.

YARN's masters say how many containers are outstanding *now*; Weft counts all that were ever wanted.
So `total = handed over + outstanding`, where a container is handed over when the master's answer
carries it, and what was granted meanwhile waits for its next call.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from weft.model.ids import NodeId
from weft.model.reading import name_problem
from weft.model.resources import Vector
from weft.protocol.messages import Ask, AskType
from weft.yarn import translate
from weft.yarn.errors import invalid_master_request, invalid_resource_request

# A container of unknown work is taken to last so long.
UNKNOWN_DURATION_S = 600.0
# A master may have so many different requests.
ASK_KEYS_MAX = 10_000
# So many containers of one request may be outstanding.
CONTAINERS_MAX = 100_000
RESOURCE_AMOUNT_MAX = 1e12


class Key(NamedTuple):
    """What makes requests one request: YARN's priority, allocation id, label and size.

    `size` has the amounts by resource name.
    """

    priority: int
    allocation_id: int
    label: str
    size: tuple[tuple[str, float], ...]


class Expected(NamedTuple):
    """What is expected of the containers of one YARN priority, where the master's graph is known.

    Spark gives each kind of executor (resource profile) a priority of its own.

    `duration_s` is how long one is held; `score` is in (0, 1], and what is needed first has 1.
    """

    duration_s: float
    score: float


class Request:
    """One request of a master, and what was granted under it.

    Its master last said `outstanding`. Of its containers the manager granted `received`, and of
    those `handed` are known to the master.
    """

    __slots__ = (
        "ask_id",
        "execution",
        "handed",
        "key",
        "nodes",
        "outstanding",
        "racks",
        "received",
        "strict",
    )

    def __init__(self, ask_id: int, key: Key) -> None:
        self.ask_id = ask_id
        self.key = key
        self.outstanding = 0
        self.received = 0
        self.handed = 0
        self.nodes: tuple[NodeId, ...] = ()
        self.racks: tuple[str, ...] = ()
        self.strict = False
        self.execution = 1


class RequestTable:
    """All requests of one attempt.

    `names` gives the cluster's resource types, `weft_node` the nodes of a host's name.
    """

    def __init__(
        self,
        names: Callable[[], tuple[str, ...]],
        weft_node: Callable[[str], tuple[NodeId, ...]],
    ) -> None:
        self._names, self._weft_node = names, weft_node
        self._requests: dict[Key, Request] = {}
        self._by_id: dict[int, Request] = {}
        self._next_ask = 1
        self._expected_by_priority: Mapping[int, Expected] = {}

    def take(self, messages: Any) -> list[Ask]:
        """Take a master's requests; returns the asks that they change.

        Raises HadoopError, and takes none of them, where one is of no meaning.
        """
        checked = []
        for one in messages:
            amounts = translate.demand(one.capability, self._names())
            key = Key(
                one.priority.priority,
                one.allocation_request_id,
                one.node_label_expression.strip(),
                tuple(sorted(amounts.items())),
            )
            _check(one, key)
            checked.append((one, key))
        touched: dict[Key, Request] = {}
        places: dict[Key, list[tuple[str, bool]]] = {}
        for one, key in checked:
            request = touched[key] = self._request(key)
            request.execution = one.execution_type.execution_type
            if one.resource_name in ("*", ""):
                request.outstanding = max(0, one.num_containers)
                request.strict = not one.relax_locality
            elif one.num_containers > 0:
                places.setdefault(key, []).append((one.resource_name, one.relax_locality))
        for key, request in touched.items():
            if key in places:
                self._place(request, places[key])
        return [self.ask(request) for request in touched.values()]

    def _place(self, request: Request, rows: list[tuple[str, bool]]) -> None:
        """Take the places that a request names: hosts, and racks, which begin with a slash.

        A strict one goes to its hosts, known or not, and to racks only that are not said to be
        strict themselves: those stand there for the hosts below them.
        """
        hosts = [name for name, _ in rows if not name.startswith("/")]
        racks = [(name.lstrip("/"), loose) for name, loose in rows if name.startswith("/")]
        strict = request.strict
        request.nodes = tuple(
            node for host in hosts for node in self._weft_node(host) or ((host,) if strict else ())
        )
        request.racks = tuple(name for name, loose in racks if loose or not strict)

    def refuse(self, ask_id: int) -> None:
        """Take no more of a request as wanted: the manager refused the call that it came with."""
        if (request := self._by_id.get(ask_id)) is not None:
            request.outstanding = 0

    def granted(self, ask_id: int) -> Request | None:
        """Count a container that the manager granted; None: asked for in an earlier life."""
        request = self._by_id.get(ask_id)
        if request is not None:
            request.received += 1
        return request

    def renumber(self) -> list[Ask]:
        """Give every request a new id after the manager's restart; return what is outstanding."""
        requests, self._by_id = list(self._by_id.values()), {}
        for request in requests:
            request.outstanding = max(0, request.outstanding + request.handed - request.received)
            request.ask_id, self._next_ask = self._next_ask, self._next_ask + 1
            request.received = request.handed = 0
            self._by_id[request.ask_id] = request
        return [self.ask(request) for request in requests if request.outstanding]

    @property
    def waits(self) -> bool:
        """Whether containers are wanted that were not granted yet."""
        return any(r.handed + r.outstanding > r.received for r in self._requests.values())

    def work(self, total: Vector) -> float:
        """Return remaining work where nothing better is known.

        What is outstanding is taken to last `UNKNOWN_DURATION_S`. `total` is the cluster's capacity
        C; the sum of duration x L1(demand / C), s.
        """
        names, work = self._names(), 0.0
        for request in self._requests.values():
            count = max(0, request.handed + request.outstanding - request.received)
            work += count * UNKNOWN_DURATION_S * norm(dict(request.key.size), names, total)
        return work

    def of_priority(self, priority: int) -> tuple[dict[str, float], int]:
        """Return the size of the containers of a priority, and how many are or were wanted.

        Without any: of what most were wanted of; an empty size where nothing was.
        """
        found = [r for r in self._requests.values() if r.key.priority == priority]
        wanted = found or list(self._requests.values())
        if not wanted:
            return {}, 0
        most = max(wanted, key=lambda r: r.handed + r.outstanding)
        return dict(most.key.size), sum(r.handed + r.outstanding for r in found)

    def expect(self, expected: Mapping[int, Expected]) -> list[Ask]:
        """Take what is expected now; returns the outstanding asks that it changes notably."""
        old = self._expected_by_priority
        differ = {n for n in {*old, *expected} if _differ(old.get(n), expected.get(n))}
        # what was told stands until the change is worth a word
        self._expected_by_priority = {
            n: new if n in differ else old[n] for n, new in expected.items()
        }
        return [
            self.ask(request)
            for request in self._requests.values()
            if request.key.priority in differ
            and request.handed + request.outstanding > request.received
        ]

    def ask(self, request: Request) -> Ask:
        """Return a request as Weft's cumulative ask."""
        key = request.key
        amounts = dict(key.size)
        usual = Expected(UNKNOWN_DURATION_S, 1.0 / (1.0 + max(0, key.priority)))
        expected = self._expected_by_priority.get(key.priority, usual)
        return Ask(
            ask_id=request.ask_id,
            total=max(request.handed + request.outstanding, request.received),
            demand=tuple(amounts.get(name, 0.0) for name in self._names()),
            duration_s=expected.duration_s,
            pri_score=expected.score,
            kind=AskType.DEFAULT,
            stage=0,
            nodes=request.nodes,
            racks=request.racks,
            label=key.label,
            strict=request.strict,
        )

    def _request(self, key: Key) -> Request:
        request = self._requests.get(key)
        if request is None:
            if len(self._requests) >= ASK_KEYS_MAX:
                raise invalid_master_request("too many different requests")
            request = self._requests[key] = Request(self._next_ask, key)
            self._by_id[self._next_ask] = request
            self._next_ask += 1
        return request


def _differ(old: Expected | None, new: Expected | None) -> bool:
    """Return whether an expectation changed by more than a quarter."""
    if old is None or new is None:
        return old is not new
    return any(abs(a - b) > 0.25 * max(a, b) for a, b in zip(old, new, strict=True))


def _check(one: Any, key: Key) -> None:
    """Raise HadoopError for a request that the Resource Manager would not take."""
    for what, text in (("label", key.label), ("place", one.resource_name)):
        if problem := name_problem(text):
            raise invalid_resource_request(f"a request's {what} {problem}")
    for name, amount in key.size:
        if amount > RESOURCE_AMOUNT_MAX:
            raise invalid_resource_request(
                f"{amount:g} of {name} are more than {RESOURCE_AMOUNT_MAX:g}"
            )
    if one.num_containers > CONTAINERS_MAX:
        raise invalid_resource_request(
            f"{one.num_containers} containers are more than {CONTAINERS_MAX} at a time"
        )


def norm(amounts: dict[str, float], names: tuple[str, ...], total: Vector) -> float:
    """Return the L1 norm of a demand over a capacity (docs/rules.md, rule 37)."""
    pairs = zip((amounts.get(name, 0.0) for name in names), total, strict=False)
    return sum(amount / capacity for amount, capacity in pairs if capacity > 0)
