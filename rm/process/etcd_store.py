"""The journal in etcd, for Resource Managers that take over from each other.

What is written is what the file holds (`rm.process.journal_lines`: a header, then lines with number
and checksum), cut into segments that fit a request:

    PREFIX/journal/GENERATION/NUMBER  a segment: bytes of lines, numbers from 1 on
    PREFIX/tail                       the generation that holds, its last segment, a fresh nonce
    PREFIX/cluster_ts, PREFIX/keys    the start of the cluster (ms), the keys of tokens (JSON)
    PREFIX/clock                      the clock that times go by (`weft.runtime.kept_clock`)

Every change is a transaction on two conditions: that the election key is the one which this
process made (its create revision; so whoever was replaced writes nothing), and that the tail is the
one which this process knows. An answer that was lost leaves open whether a change was made: the
next one looks, and gives the tail a new nonce, after which what may still be on its way is refused.
A batch of several segments may be torn by a crash in between, as in the file: it was not durable
then. Compaction writes a new generation beside the old one and lets the tail name it.
"""

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import structlog

from rm.process.journal_file import VERSION, header_of
from rm.process.journal_lines import Record, line_of, problem_of, sound
from rm.process.store import Compact
from weft.ha import etcd as wire
from weft.ha.electing import Fence
from weft.ha.etcd import REQUEST_BYTES_MAX, Etcd, EtcdAwayError, created, delete, get, holds, put
from weft.model.errors import WeftError
from weft.runtime.interfaces import StoreUnavailableError
from weft.runtime.kept_clock import CLOCK, KeptClock, clock_of

# The journal is compacted again after growing by so much, or after so many appends.
COMPACT_AFTER_BYTES = 16 * 1024 * 1024
COMPACT_AFTER_APPENDS = 20_000
NO_TAIL = b""
_log = structlog.get_logger()


class LeadershipLostError(WeftError):
    """Another Resource Manager leads, or will: this one must do nothing more."""


class Tail(NamedTuple):
    """Which segments hold."""

    generation: str
    segments: int

    @property
    def value(self) -> bytes:
        """Return what is written, every time with another nonce."""
        return f"{self.generation} {self.segments} {secrets.token_hex(8)}".encode()


def tail_of(value: bytes) -> Tail:
    """Read a tail; raises ValueError."""
    generation, segments, _ = value.decode("ascii").split()
    return Tail(generation, int(segments))


class _Written(NamedTuple):
    """A generation that was written, and is the journal once the tail names it."""

    tail: Tail
    next: int
    size: int


class EtcdJournal:
    """An append-only journal; `compact` gives the same knowledge in fewer records."""

    def __init__(
        self,
        etcd: Etcd,
        fence: Fence,
        compact: Compact = list,
        problem: Callable[[], str] = lambda: "",
    ) -> None:
        """`problem` says why nothing may be appended now; empty: it may."""
        self._problem = problem
        self._etcd = etcd
        self._fence = fence
        self._compact = compact
        prefix = etcd.settings.prefix
        self._tail_key = wire.joined((prefix, "tail"))
        self._journal = wire.joined((prefix, "journal", ""))
        self._ts_key = wire.joined((prefix, "cluster_ts"))
        self._keys_key = wire.joined((prefix, "keys"))
        self._clock_key = wire.joined((prefix, CLOCK))
        self._known_tail = NO_TAIL
        self._tail = Tail("", 0)
        self._tail_was_read = False
        # A change was made whose answer was lost.
        self._answer_was_lost = False
        # The tail may name this generation by now.
        self._pending: _Written | None = None
        # Record 0 is the header; the next record has this number.
        self._next_record = 0
        self._journal_bytes = self._compacted_bytes = 0
        # This is not 0 where the journal could not be compacted with so many.
        self._compacted_segments = 0
        # It says what `read` left out, if anything.
        self.dropped = ""

    # -- what is beside the journal ----------------------------------------------------------------

    def cluster_ts(self, fresh: int) -> int:
        """Return the cluster's start, ms since the epoch: `fresh` at first, then always that."""
        found = self._first(self._ts_key, str(fresh).encode())
        if not found.isdigit() or len(found) > 15:
            raise WeftError(
                f"{self._where(self._ts_key)} holds {found!r:.40}, which is no time in ms"
            )
        return int(found)

    def keep_clock(self, clock: KeptClock) -> None:
        """Keep the clock beside the journal; raises InputError where another one is there."""
        where = self._where(self._clock_key)
        found = self._first(self._clock_key, clock.text.encode()).decode("ascii", "replace")
        clock_of(found, where).check(clock, where)

    def _first(self, key: bytes, fresh: bytes) -> bytes:
        """Return what a key holds, which is `fresh` where there was no such key."""
        answer = self._etcd.transact([self._leads, created(key, 0)], [put(key, fresh)], [get(key)])
        if answer.succeeded:
            return fresh
        if not answer.found[0]:
            raise self._lost()
        return bytes(answer.found[0][0].value)

    def saved_keys(self) -> dict[str, Any] | None:
        """Return the keys of tokens as plain data, None if there are none; WeftError for damage."""
        found, _ = self._etcd.get(self._keys_key)
        if found is None:
            return None
        try:
            data = json.loads(found.value)
            if not isinstance(data, dict):
                raise ValueError(data)
        except ValueError:
            raise WeftError(
                f"{self._where(self._keys_key)} is damaged; without it new keys are made"
            ) from None
        return data

    def save_keys(self, data: dict[str, Any]) -> None:
        """Keep the keys; raises EtcdAwayError, LeadershipLostError where another one leads."""
        value = json.dumps(data).encode()
        if not self._etcd.transact([self._leads], [put(self._keys_key, value)]).succeeded:
            raise self._lost()

    # -- the journal -------------------------------------------------------------------------------

    def read(self) -> list[Record]:
        """Return every durable record, oldest first; compacts the journal on the way.

        Raises WeftError for damage, EtcdAwayError where etcd does not answer.
        """
        if self._answer_was_lost:
            self._settle()
        else:
            self._tail, self._tail_was_read = self._look(), True
        records = self._records()
        try:
            fewer = self._compact(records)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"{type(error).__name__}: {error}"
            raise WeftError(f"{self._name}: a record is not of this version ({what})") from None
        if records or self.dropped:
            dropped = self.dropped
            self._replace(fewer)
            self.dropped = dropped
        return fewer

    def append(self, records: Sequence[Record]) -> None:
        """Write records and wait until a majority of etcd's members has them on their disks.

        Raises StoreUnavailableError where etcd does not answer: what was written of the batch is
        taken back before anything else is. Raises LeadershipLostError, and nothing was written,
        where this process leads no longer.
        """
        if problem := self._problem():
            raise StoreUnavailableError(problem)
        try:
            self._settle()
            base, first, size = self._tail, self._next_record, self._journal_bytes
            lines = [line_of(max(first, 1) + n, one, n) for n, one in enumerate(records)]
            if first == 0:
                lines.insert(0, header_of(secrets.token_hex(8)))
            try:
                self._add(b"".join(lines))
            except EtcdAwayError:
                # What is beyond is taken back.
                self._tail, self._journal_bytes = base, size
                raise
        except EtcdAwayError as error:
            self._answer_was_lost = True
            raise StoreUnavailableError(str(error)) from None
        self._next_record = max(first, 1) + len(records)
        grown = self._journal_bytes > 2 * self._compacted_bytes + COMPACT_AFTER_BYTES
        if grown or self._tail.segments > self._compacted_segments + COMPACT_AFTER_APPENDS:
            self._shrink()

    def close(self) -> None:
        """Do nothing: the connection is another's to close."""

    # -- transactions ------------------------------------------------------------------------------

    @property
    def _leads(self) -> Any:
        return created(self._fence.key, self._fence.revision)

    @property
    def _name(self) -> str:
        return f"{self._etcd.settings.text}/journal"

    def _where(self, key: bytes) -> str:
        return f"{self._etcd.settings.text}: {key.decode()}"

    def _lost(self) -> LeadershipLostError:
        return LeadershipLostError("another Resource Manager leads: nothing more is written here")

    def _change(self, value: bytes, operations: Sequence[Any]) -> int:
        """Do something to the journal, and give the tail a value; returns etcd's revision."""
        key = self._tail_key
        before = holds(key, self._known_tail) if self._known_tail else created(key, 0)
        answer = self._etcd.transact(
            [self._leads, before], [*operations, put(key, value)], [get(self._fence.key), get(key)]
        )
        if not answer.succeeded:
            leader, tail = answer.found
            if not leader or leader[0].create_revision != self._fence.revision:
                raise self._lost()
            # If the tail has this value, an earlier try of this very change succeeded.
            if not tail or bytes(tail[0].value) != value:
                if self._answer_was_lost:
                    # A change that was on its way arrived since the tail was looked at.
                    raise EtcdAwayError("etcd took a change late")
                raise WeftError(f"{self._name}: somebody else wrote to it")
        self._known_tail, self._tail = value, tail_of(value)
        return answer.revision

    def _segment(self, tail: Tail) -> bytes:
        return self._generation(tail) + f"{tail.segments:016x}".encode()

    def _generation(self, tail: Tail) -> bytes:
        return self._journal + tail.generation.encode() + b"/"

    def _add(self, data: bytes) -> None:
        """Put bytes at the end."""
        tail = self._tail
        if not tail.generation:
            tail = Tail(fresh_generation(0), 0)
        for part in parts(data):
            tail = tail._replace(segments=tail.segments + 1)
            self._change(tail.value, [put(self._segment(tail), part)])
            self._journal_bytes += len(part)

    def _look(self) -> Tail:
        """Return the tail as it is written now; the next change is made on this one."""
        found, _ = self._etcd.get(self._tail_key)
        self._known_tail = NO_TAIL if found is None else bytes(found.value)
        try:
            return tail_of(self._known_tail) if self._known_tail else Tail("", 0)
        except ValueError:
            text = f"{self._where(self._tail_key)} is damaged: it names the segments that hold"
            raise WeftError(text) from None

    def _settle(self) -> None:
        """Find out what became of changes whose answers were lost, and take them back."""
        if not self._tail_was_read:
            self._tail, self._tail_was_read = self._look(), True
            records = self._records()
            if self.dropped:
                self._replace(records)
        if not self._answer_was_lost:
            return
        found, pending = self._look(), self._pending
        if pending is not None and found.generation == pending.tail.generation:
            # Nothing was added since.
            self._adopt(pending)
        # What lies beyond is taken back.
        known = self._tail
        if known.generation:
            first = self._segment(known._replace(segments=known.segments + 1))
            beyond = delete(first, wire.after(self._generation(known)))
        else:
            # It is the very first segment.
            known = Tail(fresh_generation(0), 0)
            beyond = delete(self._journal, wire.after(self._journal))
        self._change(known.value, [beyond])
        self._pending, self._answer_was_lost = None, False

    # -- reading and compaction --------------------------------------------------------------------

    def _shrink(self) -> None:
        """Compact what is durable; raises LeadershipLostError.

        Where it cannot be read it is left as it is: who runs knows all of it, and goes on.
        """
        known = self._next_record, self._journal_bytes
        try:
            records = self._records()
            if (self._next_record, self._journal_bytes) != known or self.dropped:
                raise WeftError(f"{self._name}: not all that was durable can be read")
            self._replace(self._compact(records))
        except EtcdAwayError:
            # It is compacted later, then.
            return
        except LeadershipLostError:
            raise
        except WeftError as error:
            self._next_record, self._journal_bytes = known
            self._compacted_bytes, self._compacted_segments = (
                self._journal_bytes,
                self._tail.segments,
            )
            _log.error("the journal is not compacted, and will not be read again", why=str(error))

    def _records(self) -> list[Record]:
        """Return all records that hold; raises WeftError for damage."""
        data = b"".join(self._segments())
        self._journal_bytes, self._next_record = len(data), 0
        self.dropped = ""
        kept = sound(data)
        if not data:
            return []
        if kept.records and kept.records[0].get("weft_journal") != VERSION:
            version = kept.records[0].get("weft_journal")
            raise WeftError(f"{self._name}: written in version {version}; this one reads {VERSION}")
        if problem := problem_of(data, kept):
            raise WeftError(f"{self._name}: record {len(kept.records)} cannot be read: {problem}")
        if torn := len(data) - kept.size:
            self.dropped = f"a torn last write ({torn} bytes)"
        self._next_record = len(kept.records)
        return kept.records[1:]

    def _segments(self) -> Iterator[bytes]:
        tail = self._tail
        if not tail.generation:
            return
        prefix, count = self._generation(tail), 0
        for page in self._etcd.pages(prefix):
            for one in page:
                count += 1
                if one.key != prefix + f"{count:016x}".encode() or count > tail.segments:
                    raise WeftError(f"{self._name}: segment {count} is missing")
                yield bytes(one.value)
        if count != tail.segments:
            raise WeftError(
                f"{self._name}: {tail.segments} segments were durable, {count} are there"
            )

    def _replace(self, records: Sequence[Record]) -> None:
        """Put fewer records in the journal's place; raises EtcdAwayError: it may be done yet."""
        try:
            self._rewrite(records)
        except EtcdAwayError:
            self._answer_was_lost = True
            raise

    def _rewrite(self, records: Sequence[Record]) -> None:
        number = int(self._tail.generation.partition("-")[0], 16) if self._tail.generation else 0
        tail, size = Tail(fresh_generation(number + 1), 0), 0
        lines = [
            header_of(secrets.token_hex(8)),
            *(line_of(n, r) for n, r in enumerate(records, 1)),
        ]
        for part in parts(b"".join(lines)):
            tail = tail._replace(segments=tail.segments + 1)
            if not self._etcd.transact([self._leads], [put(self._segment(tail), part)]).succeeded:
                raise self._lost()
            size += len(part)
        written = self._pending = _Written(tail, len(records) + 1, size)
        revision = self._change(tail.value, [])
        self._adopt(written)
        self._pending = None
        self._clean(revision)

    def _adopt(self, written: _Written) -> None:
        self._tail, self._next_record, self._journal_bytes = written
        self._compacted_bytes, self._compacted_segments = written.size, 0

    def _clean(self, revision: int) -> None:
        """Remove other generations, and let etcd forget what was; what fails is done next time."""
        own = self._generation(self._tail)
        ranges = [(self._journal, own), (wire.after(own), wire.after(self._journal))]
        try:
            # Should it arrive late, and another generation be the journal by then, it does nothing.
            newest = holds(self._tail_key, self._known_tail)
            self._etcd.transact([self._leads, newest], [delete(*one) for one in ranges])
            self._etcd.compact(revision)
        except WeftError as error:
            _log.info("etcd keeps what the journal was", reason=str(error))


def fresh_generation(number: int) -> str:
    """Return a name for a generation that nobody used."""
    return f"{number:08x}-{secrets.token_hex(4)}"


def parts(data: bytes) -> Iterable[bytes]:
    """Return bytes in parts that fit a request each."""
    return (data[at : at + REQUEST_BYTES_MAX] for at in range(0, len(data), REQUEST_BYTES_MAX))
