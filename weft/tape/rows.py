"""The rows of a tape: cores that come and go, events that they handled, and what they decided.

A block holds its columns one after the other (`weft.tape.streams.Streams`). The first has a byte a
row that says what it is: an event is the place of its type in EVENTS, everything else counts down
from 255.
"""

import hashlib
import json
import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import accumulate
from typing import Any, Final, NamedTuple, get_args

from weft.model.errors import WeftError
from weft.model.ids import ContainerId, NodeId
from weft.protocol import effects, messages, requests
from weft.protocol.effects import ClientRequested, Effect, Note, Send
from weft.protocol.event_unions import ManagerTold, MasterTold, NodeTold
from weft.protocol.facts import Placed, PlacedRun, count_of, facts_of
from weft.protocol.messages import MANAGER, Address, Container, ContainerEnd, end_of
from weft.protocol.requests import READS, ClientRequest
from weft.tape.columns import Codec, Context, TimeColumn
from weft.tape.records import codec_of, hints_of, record_of
from weft.tape.streams import BYTES_PER_VALUE, VALUES_PER_BYTE_MAX, Stream, Streams, put_uint

_FIRST: Final[tuple[type, ...]] = (
    effects.TimerFired,
    messages.NodeHeartbeated,
    messages.ContainersAsked,
    messages.StartContainers,
    messages.NodeAnswered,
    messages.ContainersGranted,
    messages.StartAnswered,
    messages.TasksEnded,
    messages.StopContainers,
    messages.QueryContainers,
    messages.NodeRegistered,
    messages.NodeUnregistered,
    messages.AttemptRegistered,
    messages.AttemptFinished,
    messages.AttemptAccepted,
    messages.AttemptUnregistered,
    messages.AttemptStopped,
    messages.NodeAccepted,
    effects.ClientRequested,
    effects.Started,
    effects.Recovered,
    effects.PlanReady,
    effects.ProcessEnded,
    effects.ProcessesFound,
    effects.ContainersMeasured,
    effects.NodeExamined,
    effects.NodeSlowed,
    effects.StopRequested,
)
# A new event of any core can be taped at once.
_TOLD = {kind for door in (ManagerTold, MasterTold, NodeTold) for kind in get_args(door)}
EVENTS: Final = (*_FIRST, *sorted(_TOLD - set(_FIRST), key=lambda kind: str(kind.__name__)))
_CORE, _GONE, _GIVEN, _PLACED, _CHECK, _FAILED = 255, 254, 253, 252, 251, 250
# Reading raises these where the bytes are not those of a tape.
DAMAGES = (
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    struct.error,
)
_LENGTH, _SUM = struct.Struct("<I"), struct.Struct("<I")
# The number changes with the way in which values are written.
FORMAT = 5
# What a core ordered is summed up after every so many events with effects: all of it, or so many
# orders of a longer answer.
SUMMED_EVERY_EVENTS = 16
SUMMED_ORDERS_MAX = 8


class Placing(NamedTuple):
    """A decision: which container of which ask and stage went to which node."""

    container: ContainerId
    node: NodeId
    ask: int
    stage: int


@dataclass(frozen=True, slots=True)
class CoreAdded:
    """A core begins; `made` is what it was made with, as plain data."""

    address: Address
    made: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CoreRemoved:
    """A core is driven no longer."""

    address: Address


@dataclass(frozen=True, slots=True)
class Given:
    """What a core looked up outside of its events: the history of a job's key."""

    address: Address
    key: str
    value: Any


@dataclass(slots=True)
class Handled:
    """An event that a core handled, and what is known of its answer.

    `check` is a sum over all that it ordered, where it was taken; `failed` is the error that the
    core raised, in words.
    """

    address: Address
    event: Any
    now: float
    placed: tuple[Placing, ...] = ()
    check: int | None = None
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """The tape was closed, for a reason; a tape without this row was cut off."""

    reason: str


Row = CoreAdded | CoreRemoved | Given | Handled | Ended


def check_of(orders: Sequence[Effect]) -> int:
    """Return a sum over what a core ordered: the same for the same orders, in any process.

    Of a long answer, and of long lists in a message, it covers how many there are and
    SUMMED_ORDERS_MAX all over it.
    """
    sizes = [count_of(order.fact) if type(order) is Note else 1 for order in orders]
    count, few = _few(orders, sizes, _order_at)
    return zlib.crc32(f"{count}{few!r}".encode("utf-8", "surrogatepass"))


def _few(
    runs: Sequence[Any], sizes: Sequence[int], one_at: Callable[[Any, int], Any]
) -> tuple[int, list[Any]]:
    """Return how many there are in runs of some sizes, and SUMMED_ORDERS_MAX of them alone."""
    ends = list(accumulate(sizes))
    count = ends[-1] if ends else 0
    wanted: Sequence[int] = range(count)
    if count > SUMMED_ORDERS_MAX:
        wanted = [i * count // SUMMED_ORDERS_MAX for i in range(SUMMED_ORDERS_MAX)]
    places = [bisect_right(ends, number) for number in wanted]
    return count, [
        one_at(runs[place], number - ends[place] + sizes[place])
        for place, number in zip(places, wanted, strict=True)
    ]


def _order_at(order: Effect, place: int) -> Any:
    if type(order) is Note:
        return Note(facts_of(order.fact)[place])
    return (order.to, _brief(order.message)) if type(order) is Send else order


def _brief(message: Any) -> Any:
    """Return a message, of its long lists a few.

    Every container of a run is by itself: whether identical ones are told of as one depends on who
    looked at them meanwhile, and reading is not on a tape.
    """
    kind: type = type(message)
    if not is_dataclass(kind):
        return message
    said: list[Any] = [kind.__name__]
    for name in _names_of(kind):
        value = getattr(message, name)
        if type(value) is tuple and value:
            what = type(value[0])
            if what is Container:
                value = _few(value, [one.count for one in value], _container_at)
            elif what is ContainerEnd:
                value = _few(value, [len(one.tasks) or 1 for one in value], _end_at)
            elif len(value) > SUMMED_ORDERS_MAX:
                value = _few(value, [1] * len(value), _itself)
        said.append(value)
    return said


def _container_at(granted: Container, place: int) -> Container:
    number = granted.container_id + place
    return Container(number, granted.node_id, granted.ask_id, granted.boot)


def _end_at(end: ContainerEnd, place: int) -> ContainerEnd:
    return end_of(end, place) if end.tasks else end


def _itself(one: Any, place: int) -> Any:
    return one


@cache
def _names_of(kind: type) -> tuple[str, ...]:
    return tuple([field.name for field in fields(kind)])


def is_read(event: Any) -> bool:
    """Return whether an event is a client's request that changes nothing."""
    return type(event) is ClientRequested and type(event.request) in READS


def placed_of(orders: Sequence[Effect]) -> tuple[Placing, ...]:
    """Return the placements among what a core ordered."""
    return tuple(
        [
            Placing(container, node, ask, stage)
            for first, count, node, ask, stage in _placed_runs(orders)
            for container in range(first, first + count)
        ]
    )


def _placed_runs(orders: Sequence[Effect]) -> list[tuple[ContainerId, int, NodeId, int, int]]:
    """Return placements as noted: the first container, how many, node, ask and stage."""
    found = []
    for order in orders:
        if type(order) is Note:
            fact = order.fact
            if type(fact) is Placed:
                found.append((fact.container, 1, fact.node, fact.ask, fact.stage))
            elif type(fact) is PlacedRun:
                found.append((fact.container, fact.count, fact.node, fact.ask, fact.stage))
    return found


def schema() -> str:
    """Return a digest of everything that decides how rows are written: their types and fields."""
    seen: dict[str, str] = {}
    modules = {effects.__name__, messages.__name__, requests.__name__}

    def look(kind: Any) -> None:
        for one in getattr(kind, "__args__", ()):
            look(one)
        if getattr(kind, "__module__", "") not in modules or kind.__name__ in seen:
            return
        hints = hints_of(kind)
        seen[kind.__name__] = repr([(field, str(hint)) for field, hint in hints.items()])
        for hint in hints.values():
            look(hint)

    for event in EVENTS:
        look(event)
    look(ClientRequest)
    text = f"{FORMAT}" + repr([event.__name__ for event in EVENTS]) + repr(sorted(seen.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _Columns:
    """The codecs of all rows; a writer and its reader have equal ones."""

    def __init__(self) -> None:
        self.streams = Streams()
        context = Context(self.streams)
        new = self.streams.new
        self.kinds, self.cores, self.rare, self.sums = new(), new(), new(), new()
        self.times, self.time = new(), TimeColumn()
        self.text = codec_of(str)
        # Placements are the number of runs, and each field of a run.
        self.counts = new()
        self.placings: list[tuple[Stream, Codec]] = [
            (new(), codec_of(int, "container_id")),
            (new(), codec_of(int)),
            (new(), codec_of(str)),
            (new(), codec_of(int)),
            (new(), codec_of(int)),
        ]
        self.events = [record_of(kind, context, context) for kind in EVENTS]


class TapeWriter:
    """Rows in, blocks of bytes out."""

    def __init__(self, check_every: int = SUMMED_EVERY_EVENTS) -> None:
        """`check_every` 1: every answer is summed up."""
        self._columns = columns = _Columns()
        self._kinds, self._cores = columns.kinds.out, columns.cores.out
        self._rare, self._times = columns.rare.out, columns.times.out
        self._counts, self._sums = columns.counts.out, columns.sums.out
        self._placings = [(stream.out, codec.put) for stream, codec in columns.placings]
        self._places = {kind: place for place, kind in enumerate(EVENTS)}
        self._puts = [codec.put for codec in columns.events]
        self._numbers: dict[Address, int] = {}
        self._free: list[int] = []
        # The first answer is summed up.
        self._check_every, self._unchecked = check_every, check_every - 1
        self.events = 0

    @property
    def waiting(self) -> int:
        """Rows that wait to be taken."""
        return len(self._kinds)

    def take(self) -> bytes:
        """Return the rows since the last call as one block; nothing where there are none."""
        return _framed(self._columns.streams.take())

    def more(self) -> bytes:
        """Return the rows since the last call of this, for a reader of the open block.

        `take` tells them once more, for one that reads the whole block instead.
        """
        return _framed(self._columns.streams.more())

    def add(self, address: Address, made: Mapping[str, Any]) -> None:
        """Write that a core begins."""
        number = self._free.pop() if self._free else len(self._numbers)
        self._numbers[address] = number
        self._kinds.append(_CORE)
        put_uint(self._cores, number)
        self._columns.text.put(self._rare, address)
        self._blob(made)

    def remove(self, address: Address) -> None:
        """Write that a core ends."""
        number = self._numbers.pop(address, None)
        if number is not None:
            self._free.append(number)
            self._kinds.append(_GONE)
            put_uint(self._cores, number)

    def given(self, address: Address, key: str, value: Any) -> None:
        """Write what a core looks up."""
        self._kinds.append(_GIVEN)
        put_uint(self._cores, self._numbers[address])
        self._blob([key, value])

    def handled(self, address: Address, event: Any, now: float, orders: Sequence[Effect]) -> None:
        """Write an event that a core handled; reads of clients change nothing and are left out."""
        if is_read(event):
            return
        self._event(address, event, now)
        if orders:
            if address == MANAGER:
                # The manager alone places containers.
                self._placed(_placed_runs(orders))
            self._unchecked += 1
            if self._unchecked >= self._check_every:
                self._unchecked = 0
                self._sum(check_of(orders))

    def failed(self, address: Address, event: Any, now: float, error: str) -> None:
        """Write that a core raised when it handled an event."""
        self._event(address, event, now)
        self._kinds.append(_FAILED)
        self._columns.text.put(self._rare, error)

    def _event(self, address: Address, event: Any, now: float) -> None:
        place = self._places[type(event)]
        self._kinds.append(place)
        self._columns.time.put(self._times, now)
        put_uint(self._cores, self._numbers[address])
        # A kind's columns have streams of their own.
        self._puts[place](self._kinds, event)
        self.events += 1

    def _placed(self, placed: Sequence[tuple[ContainerId, int, NodeId, int, int]]) -> None:
        if placed:
            self._kinds.append(_PLACED)
            put_uint(self._counts, len(placed))
            for place, (out, put) in enumerate(self._placings):
                for one in placed:
                    put(out, one[place])

    def _sum(self, check: int) -> None:
        self._kinds.append(_CHECK)
        self._sums += _SUM.pack(check)

    def _blob(self, value: Any) -> None:
        data = json.dumps(value, separators=(",", ":")).encode()
        put_uint(self._rare, len(data))
        self._rare += data


def _framed(block: bytes) -> bytes:
    return _LENGTH.pack(len(block)) + block if block else b""


class TapeReader:
    """Blocks of bytes in, rows out; a block that was cut off is left out."""

    def __init__(self) -> None:
        self._columns = _Columns()
        self._addresses: dict[int, Address] = {}
        self._rest = b""
        self._last: Handled | None = None

    def rows(self, data: bytes, taken: int = 0) -> Iterator[Row]:
        """Yield the rows of more bytes of the tape; raises WeftError for damage.

        They were `taken` bytes before they were unpacked.
        """
        allowance = self._columns.streams.allowance
        allowance.left += VALUES_PER_BYTE_MAX * taken
        data = self._rest + data
        at, columns = 0, self._columns
        while len(data) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(data, at)
            if len(data) - at - _LENGTH.size < size:
                break
            at += _LENGTH.size
            block = data[at : at + size]
            at += size
            try:
                allowance.take(size // BYTES_PER_VALUE)
                columns.streams.read(block)
                for kind in bytes(columns.kinds.source.data):
                    yield from self._row(kind)
            except DAMAGES as error:
                raise WeftError(f"the tape is damaged: {type(error).__name__}: {error}") from None
        self._rest = data[at:]

    def finish(self) -> Iterator[Row]:
        """Yield what is left when no more bytes come."""
        if self._last is not None:
            yield self._last
            self._last = None

    def _row(self, kind: int) -> Iterator[Row]:
        last, columns = self._last, self._columns
        rare, cores = columns.rare.source, columns.cores.source
        if kind in (_PLACED, _CHECK, _FAILED) and last is not None:
            if kind == _PLACED:
                last.placed = self._placings()
            elif kind == _CHECK:
                last.check = int(_SUM.unpack(columns.sums.source.take(_SUM.size))[0])
            else:
                last.failed = columns.text.get(rare)
            return
        if last is not None:
            self._last = None
            yield last
        if kind < len(EVENTS):
            now = columns.time.get(columns.times.source)
            address = self._addresses[cores.uint()]
            self._last = Handled(address, columns.events[kind].get(cores), now)
        elif kind == _CORE:
            number = cores.uint()
            address = self._addresses[number] = columns.text.get(rare)
            yield CoreAdded(address, json.loads(rare.take(rare.uint())))
        elif kind == _GONE:
            yield CoreRemoved(self._addresses.pop(cores.uint()))
        elif kind == _GIVEN:
            address = self._addresses[cores.uint()]
            key, value = json.loads(rare.take(rare.uint()))
            yield Given(address, key, value)
        else:
            raise ValueError(f"unknown row {kind}")

    def _placings(self) -> tuple[Placing, ...]:
        columns = self._columns
        count = columns.counts.source.uint()
        fields = [
            [codec.get(stream.source) for _ in range(count)] for stream, codec in columns.placings
        ]
        for many in fields[1]:
            columns.counts.source.allowance.take(many)
        return tuple(
            [
                Placing(container, *where)
                for first, many, *where in zip(*fields, strict=True)
                for container in range(first, first + many)
            ]
        )
