"""The journal in a real etcd: nothing lost, nothing twice, and nobody writes who does not lead."""

import asyncio
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from rm.process import etcd_store
from rm.process.etcd_store import EtcdJournal, LeadershipLostError
from rm.process.ranks import Ranks
from testkit.etcd import MISSING, EtcdServer, free_ports
from testkit.live import until
from weft.client.certificates import make
from weft.client.local import LocalCluster, LocalSettings
from weft.ha import etcd as etcd_client
from weft.ha import etcd_pb2 as pb
from weft.ha import local_etcd
from weft.ha.electing import Fence, Leadership, Standing, now_s
from weft.ha.etcd import Etcd, EtcdAwayError, EtcdSettings, delete, get, parse, put
from weft.ha.leading import Leading
from weft.model.errors import InputError, WeftError
from weft.router.sharing import Turn
from weft.runtime.interfaces import StoreUnavailableError
from weft.runtime.kept_clock import KeptClock


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    server.await_()
    yield server
    server.close()


class Place:
    """Keys of one test."""

    def __init__(self, server: EtcdServer, prefix: str) -> None:
        self.settings = EtcdSettings((server.address,), prefix)
        self.etcd = Etcd(self.settings)
        self.key = f"{prefix}/leader".encode()

    def elect(self) -> Fence:
        """Put another election key in the place of the one before."""
        self.etcd.transact([], [delete(self.key, self.key + b"\0")])
        return Fence(self.key, self.etcd.transact([], [put(self.key, b"somebody")]).revision)

    def journal(self, **more: Any) -> EtcdJournal:
        return EtcdJournal(self.etcd, self.elect(), **more)

    def names(self) -> list[bytes]:
        return [
            k.key for page in self.etcd.pages(self.settings.prefix.encode() + b"/") for k in page
        ]


@pytest.fixture
def place(server: EtcdServer, request: pytest.FixtureRequest) -> Iterator[Place]:
    place = Place(server, f"weft/{request.node.name}")
    yield place
    place.etcd.close()


def test_records_come_back_in_order_over_takeovers(place: Place) -> None:
    journal = place.journal()
    assert journal.read() == []
    assert journal.cluster_ts(123) == 123
    assert journal.saved_keys() is None
    journal.keep_clock(KeptClock(7.0, 2.0))
    journal.save_keys({"keys": [1]})
    journal.append([{"n": 1}, {"n": 2, "text": "zwei\n"}])
    journal.append([{"n": 3}])
    again = place.journal()
    assert again.cluster_ts(456) == 123
    again.keep_clock(KeptClock(7.0, 2.0))
    with pytest.raises(InputError, match=r"--time-scale: .*clock was begun with 2\.0, not 1\.0"):
        again.keep_clock(KeptClock(7.0, 1.0))
    assert again.saved_keys() == {"keys": [1]}
    assert again.read() == [{"n": 1}, {"n": 2, "text": "zwei\n"}, {"n": 3}]
    again.append([{"n": 4}])
    last = place.journal()
    last.append([{"n": 5}])  # without reading first
    assert [r["n"] for r in last.read()] == [1, 2, 3, 4, 5]
    assert not last.dropped


def test_who_was_replaced_writes_nothing(place: Place) -> None:
    old = place.journal()
    old.append([{"n": 1}])
    new = place.journal()
    for change in (
        lambda: old.append([{"n": 2}]),
        lambda: old.save_keys({"keys": []}),
        lambda: old.cluster_ts(1),
        lambda: old.keep_clock(KeptClock(0.0, 1.0)),
        old.read,
    ):
        before = place.names()
        with pytest.raises(LeadershipLostError):
            change()
        assert place.names() == before
    assert new.read() == [{"n": 1}]
    new.append([{"n": 3}])
    place.etcd.transact([], [delete(place.key, place.key + b"\0")])  # its lease ended
    with pytest.raises(LeadershipLostError):
        new.append([{"n": 4}])
    assert place.journal().read() == [{"n": 1}, {"n": 3}]


def test_records_larger_than_a_request_are_cut_and_a_torn_batch_is_dropped(place: Place) -> None:
    journal = place.journal()
    journal.append([{"n": 1}])
    large = [{"n": 2, "text": "x" * 2_500_000}, {"n": 3}]
    journal.append(large)
    assert place.journal().read() == [{"n": 1}, *large]
    journal = place.journal()
    journal.read()
    count = 0

    def dies(change: Any, *more: Any) -> Any:
        nonlocal count
        count += 1
        if count == 3:
            raise LeadershipLostError("killed")
        return EtcdJournal._change(journal, change, *more)

    journal._change = dies  # type: ignore[method-assign]
    with pytest.raises(LeadershipLostError):
        journal.append([{"n": 4, "text": "y" * 2_500_000}])
    heir = place.journal()
    assert heir.read() == [{"n": 1}, *large]
    assert "a torn last write (2000000 bytes)" in heir.dropped
    heir.append([{"n": 5}])
    assert [r["n"] for r in place.journal().read()] == [1, 2, 3, 5]


def test_it_is_compacted_when_it_grew_and_keeps_no_more_than_one_generation(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_store, "COMPACT_AFTER_BYTES", 1_000)
    journal = place.journal(compact=lambda records: list(records)[-2:])
    journal.read()
    for n in range(200):
        journal.append([{"n": n}])
    assert len(place.names()) < 60
    assert journal.read() == [{"n": 198}, {"n": 199}]
    generations = {key.split(b"/")[3] for key in place.names() if b"/journal/" in key}
    assert len(generations) == 1
    monkeypatch.setattr(etcd_store, "COMPACT_AFTER_BYTES", 1e9)
    monkeypatch.setattr(etcd_store, "COMPACT_AFTER_APPENDS", 10)
    for n in range(30):
        journal.append([{"n": n}])
    assert len(place.names()) < 15


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda key, value: put(key, value.replace(b"n", b"m", 1)), "record 2 cannot be read"),
        (lambda key, value: delete(key, key + b"\0"), "segment 2 is missing"),
        (lambda key, value: put(key + b"0", value), "segment 3 is missing"),
    ],
    ids=["changed", "missing", "more"],
)
def test_damage_is_an_error_that_names_the_place(
    place: Place, spoil: Callable[[bytes, bytes], Any], told: str
) -> None:
    journal = place.journal()
    for n in range(4):
        journal.append([{"n": n}])
    key = next(key for key in place.names() if key.endswith(b"/%016x" % 2))
    found, _ = place.etcd.get(key)
    assert found is not None
    place.etcd.transact([], [spoil(key, bytes(found.value))])
    with pytest.raises(WeftError, match=told):
        place.journal().read()


def test_every_single_damaged_byte_is_told(place: Place) -> None:
    """In a segment, the last one too, or in what says which segments hold; nothing is written."""
    journal = place.journal()
    for n in range(30):
        journal.append([{"kind": "next", "app": n, "text": "x" * (n % 7)}])
    fence, rng = place.elect(), random.Random(7)
    keys = [key for key in place.names() if b"/journal" in key]
    keys += [key for key in place.names() if b"tail" in key] * 5
    whole = {key: bytes(place.etcd.get(key)[0].value) for key in keys}  # type: ignore[union-attr]
    assert len(whole) == 31
    last = keys[0]
    for _ in range(300):
        key, other = rng.choice(keys), rng.randrange(1, 256)
        bad = bytearray(whole[key])
        # of the tail the last word is there to differ, and says nothing
        at = rng.randrange(len(bad) if key in keys[:30] else bytes(bad).rindex(b" ") + 1)
        bad[at] ^= other
        mended = [] if last == key else [put(last, whole[last])]
        place.etcd.transact([], [*mended, put(key, bytes(bad))])
        last, before = key, place.names()
        with pytest.raises(WeftError, match=r"record \d+|segment"):
            EtcdJournal(place.etcd, fence).read()
        assert place.names() == before
    place.etcd.transact([], [put(last, whole[last])])
    assert len(EtcdJournal(place.etcd, fence).read()) == 30


@pytest.mark.parametrize("spoil", ["missing", "torn"])
def test_a_leader_goes_on_where_what_it_wrote_is_damaged_meanwhile(
    place: Place, spoil: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows all of it: it is told once, and what comes is written in its place."""
    journal = place.journal()
    for n in range(4):
        journal.append([{"n": n}])
    last = next(key for key in place.names() if key.endswith(b"/%016x" % 4))
    gone = put(last, b"") if spoil == "torn" else delete(last, last + b"\0")
    found, _ = place.etcd.get(last)
    place.etcd.transact([], [gone])
    told: list[str] = []
    monkeypatch.setattr(etcd_store._log, "error", lambda what, why: told.append(why))
    monkeypatch.setattr(etcd_store, "COMPACT_AFTER_APPENDS", 4)
    journal.append([{"n": 4}])
    journal.append([{"n": 5}])
    assert len(told) == 1
    assert found is not None
    place.etcd.transact([], [put(last, bytes(found.value))])
    assert [r["n"] for r in place.journal().read()] == list(range(6))


def test_a_change_that_arrives_between_a_look_and_the_next_change_is_taken_back(
    place: Place,
) -> None:
    etcd = Lossy(place.settings, random.Random(0))
    journal = EtcdJournal(etcd, place.elect())
    plain, etcd.chance = etcd.get, lambda: 0.5
    journal.append([{"n": 1}])
    etcd.chance = lambda: 0.15  # late
    with pytest.raises(StoreUnavailableError):
        journal.append([{"n": 2}])
    etcd.chance = lambda: 0.5

    def look(*more: Any) -> Any:
        found = plain(*more)
        etcd.deliver()
        return found

    etcd.get = look  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailableError, match="late"):
        journal.append([{"n": 2}])
    journal.append([{"n": 2}])
    assert place.journal().read() == [{"n": 1}, {"n": 2}]
    etcd.close()


def test_a_late_tidying_removes_no_newer_generation(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    etcd = Lossy(place.settings, random.Random(0))
    etcd.chance = lambda: 0.5
    journal = EtcdJournal(etcd, place.elect())
    journal.append([{"n": 1}])
    tidy, late = journal._clean, 0.15

    def slowly(revision: int) -> None:
        nonlocal late
        etcd.chance, late = (lambda now=late: now), 0.5
        tidy(revision)
        etcd.chance = lambda: 0.5

    monkeypatch.setattr(journal, "_clean", slowly)
    journal.read()
    journal.read()
    assert etcd.late
    etcd.deliver()
    journal.append([{"n": 2}])
    assert place.journal().read() == [{"n": 1}, {"n": 2}]
    etcd.close()


class Lossy(Etcd):
    """Loses answers (the change was made), requests (it was not), and lets some arrive late."""

    def __init__(self, settings: EtcdSettings, rng: random.Random) -> None:
        super().__init__(settings)
        self.late: list[Any] = []
        self.chance = rng.random

    def transact(self, when: Any, then: Any, otherwise: Any = ()) -> Any:
        chance = self.chance()
        if chance < 0.1:
            raise EtcdAwayError("the request was lost")
        if chance < 0.2:
            self.late.append((when, then, otherwise))
            raise EtcdAwayError("it arrives late")
        answer = super().transact(when, then, otherwise)
        if chance < 0.3:
            raise EtcdAwayError("the answer was lost")
        return answer

    def deliver(self) -> None:
        for one in self.late:
            super().transact(*one)
        self.late.clear()


@pytest.mark.parametrize("seed", range(6))
def test_lost_and_late_answers_lose_nothing_and_write_nothing_twice(
    place: Place, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the shell does: a batch is tried again until it is taken, then the next one."""
    rng = random.Random(seed)
    monkeypatch.setattr(
        etcd_store, "REQUEST_BYTES_MAX", 50 + 250 * (seed % 2)
    )  # batches of several segments
    monkeypatch.setattr(etcd_store, "COMPACT_AFTER_BYTES", 1000 if seed % 2 else 10**9)
    etcd = Lossy(place.settings, rng)
    journal = EtcdJournal(etcd, place.elect())
    written: list[dict[str, int]] = []
    for n in range(25):
        batch = [{"n": n, "place": at} for at in range(rng.randrange(1, 4))]
        while True:
            try:
                journal.append(batch)
                break
            except StoreUnavailableError:
                if rng.random() < 0.5:
                    etcd.deliver()
        written += batch
        etcd.deliver()
        if seed % 2 and rng.random() < 0.1:
            etcd.close()
            heir = EtcdJournal(etcd, place.elect())
            while True:
                try:
                    assert heir.read() == written
                    break
                except EtcdAwayError:
                    etcd.deliver()
            journal = heir
    assert place.journal().read() == written
    etcd.close()


def test_etcd_away_is_told_and_comes_back(tmp_path: Path) -> None:
    server = EtcdServer(tmp_path)
    server.await_()
    place = Place(server, "weft")
    journal = place.journal()
    journal.append([{"n": 1}])
    server.kill()
    gone = "connection refused|socket closed"  # as the channel finds the end of it first
    with pytest.raises(StoreUnavailableError, match=rf"etcd does not answer .*({gone})"):
        journal.append([{"n": 2}])
    server.start()
    server.await_()
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        try:
            journal.append([{"n": 2}])
            break
        except StoreUnavailableError:
            time.sleep(0.1)
    assert place.journal().read() == [{"n": 1}, {"n": 2}]
    server.close()


def test_keys_that_are_more_than_one_answer_may_have_come_in_several(
    server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small ones before large ones have many asked for at once."""
    small = [("grpc.max_receive_message_length", 2_500_000)]
    monkeypatch.setattr(etcd_client, "_OPTIONS", [*etcd_client._OPTIONS[1:], *small])
    one = Etcd(EtcdSettings((server.address,), "large"))
    keys = [f"large/{number:04}".encode() for number in range(300)]
    for first in range(0, 290, 100):
        one.transact((), [put(key, b"x") for key in keys[first : min(first + 100, 290)]])
    for key in keys[290:]:
        one.transact((), [put(key, bytes(1_000_000))])
    assert [key.key for page in one.pages(b"large/") for key in page] == keys
    one.close()


def test_a_cluster_waits_for_a_store_that_starts(tmp_path: Path) -> None:
    if shutil.which("etcd") is None:
        pytest.skip(MISSING)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    started: list[subprocess.Popen[bytes]] = []

    def tell(text: str) -> None:
        if text.startswith("waiting for the store: etcd does not answer"):
            folder, output = tmp_path / "etcd", tmp_path / "etcd.log"
            started.append(local_etcd.start(local_etcd.find(), folder, output, address)[0])

    settings = LocalSettings(nodes=1, managers=2, store=f"etcd://{address}/weft")
    try:
        with LocalCluster(settings, tmp_path / "cluster", tell) as cluster:
            assert started
            assert not cluster.failed()
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_an_endpoint_that_is_not_there_is_left_for_the_next(server: EtcdServer) -> None:
    etcd = Etcd(EtcdSettings(("127.0.0.1:1", server.address), "two"))
    assert etcd.get(b"two/x")[0] is None
    etcd.close()
    nobody = Etcd(EtcdSettings(("127.0.0.1:1", "127.0.0.1:2"), "two"))
    with pytest.raises(EtcdAwayError, match=r"127\.0\.0\.1:1: .*127\.0\.0\.1:2: "):
        nobody.get(b"two/x")
    nobody.close()


def test_leases_end_and_their_keys_with_them(place: Place) -> None:
    lease = place.etcd.grant(1)
    place.etcd.transact([], [put(b"leased", b"x", lease)])
    assert place.etcd.renew(lease) >= 1
    place.etcd.revoke(lease)
    assert place.etcd.renew(lease) == 0
    assert place.etcd.transact([], [get(b"leased")]).found == ((),)


def test_two_writers_at_once_and_one_history(place: Place) -> None:
    """The former leader goes on writing while the next one takes over: its writes end there."""
    old = place.journal()
    acknowledged: list[int] = []

    def write() -> None:
        for n in range(10_000):
            try:
                old.append([{"n": n}])
            except LeadershipLostError:
                return
            acknowledged.append(n)

    thread = threading.Thread(target=write)
    thread.start()
    while len(acknowledged) < 20:
        time.sleep(0.001)
    heir = place.journal()
    found = [record["n"] for record in heir.read()]
    heir.append([{"n": -1}])
    thread.join(30)
    assert found[: len(acknowledged)] == acknowledged
    assert [r["n"] for r in place.journal().read()] == [*found, -1]


def test_etcd_with_tls_and_passwords(tmp_path: Path) -> None:
    one = make(tmp_path / "tls", ["etcd,127.0.0.1"])[0]
    authority = one.certificate.with_name("ca.pem")
    server = EtcdServer(
        tmp_path,
        f"--cert-file={one.certificate}",
        f"--key-file={one.key}",
        "--client-cert-auth",
        f"--trusted-ca-file={authority}",
    )
    files = [path.read_bytes() for path in (authority, one.certificate, one.key)]
    known = EtcdSettings((server.address,), "t", *files)
    try:
        server.await_(known)
        with pytest.raises(EtcdAwayError):
            Etcd(replace(known, cert=b"", key=b"")).get(b"t")
        enable_passwords(known)
        with pytest.raises(WeftError, match=r"etcd refused: .*permission denied"):
            Etcd(known).get(b"t")
        with pytest.raises(WeftError, match=r"etcd refused: .*authentication failed"):
            Etcd(replace(known, user="root", password="wrong")).get(b"t")
        etcd = Etcd(replace(known, user="root", password="right"))
        fence = Fence(b"t/leader", etcd.transact([], [put(b"t/leader", b"x")]).revision)
        journal = EtcdJournal(etcd, fence)
        journal.append([{"n": 1}])
        etcd._token = "ended"  # as tokens do after some minutes
        assert journal.read() == [{"n": 1}]
        say, etcd._token = etcd._problem, "ended"

        def another_thread_saw_it_first(error: Exception) -> str | None:
            etcd._token = ""
            return say(error)

        etcd._problem = another_thread_saw_it_first  # type: ignore[method-assign]
        journal.append([{"n": 2}])
        etcd.close()
    finally:
        server.close()


def enable_passwords(settings: EtcdSettings) -> None:
    """As `etcdctl user add root; etcdctl user grant-role root root; etcdctl auth enable`."""
    credentials = grpc.ssl_channel_credentials(settings.ca, settings.key, settings.cert)
    two = pb.AuthenticateRequest  # a message of two texts, as these are
    with grpc.secure_channel(settings.endpoints[0], credentials) as channel:
        for method, request in (
            ("UserAdd", two(name="root", password="right")),
            ("RoleAdd", two(name="root")),
            ("UserGrantRole", two(name="root", password="root")),
            ("AuthEnable", two()),
        ):
            channel.unary_unary(f"/etcdserverpb.Auth/{method}")(request.SerializeToString())


class Candidate:
    """One who would lead, and how it stood."""

    def __init__(self, settings: EtcdSettings, suspended_s_max: float = 1e9) -> None:
        self.told: list[Standing] = []
        self.one = Leadership(
            Etcd(settings),
            2.0,
            lambda standing, why: self.told.append(standing),
            suspended_s_max=suspended_s_max,
        )
        self.one.start("127.0.0.1:1")

    def is_(self, standing: Standing) -> bool:
        return self.one.standing is standing


def test_one_leads_and_who_lost_the_key_leads_no_more(place: Place) -> None:
    first = Candidate(place.settings)
    until(lambda: first.one.may_order, "the first leads")
    second, third = (Candidate(place.settings) for _ in range(2))
    until(lambda: second.one.leader.get("address") and third.one.leader, "they know who leads")
    first.one.leave()
    assert not first.one.may_order
    until(lambda: second.one.may_order or third.one.may_order, "another one leads")
    heir, other = (second, third) if second.one.may_order else (third, second)
    assert not other.one.may_order
    assert heir.one.fence.revision > first.one.fence.revision
    lease = place.etcd.get(place.key)[0]
    assert lease is not None
    place.etcd.revoke(lease.lease)  # as if it had been silent for too long
    until(lambda: heir.is_(Standing.LOST), "it is told")
    assert not heir.one.may_order
    assert not heir.one.may_answer
    until(lambda: other.one.may_order, "the last one leads")
    for one in (heir, other):
        one.one.leave()


def test_a_leader_whose_key_was_removed_leads_no_more(place: Place) -> None:
    """Its lease goes on: by that alone it would lead beside the next one."""
    one = Candidate(place.settings)
    until(lambda: one.one.may_order, "it leads")
    place.etcd.transact([], [delete(place.key, place.key + b"\0")])
    until(lambda: one.is_(Standing.LOST), "it is told")
    assert not one.one.may_order
    one.one.leave()


def test_a_key_of_an_earlier_try_is_not_led_by(place: Place) -> None:
    """Its answer was lost, and it arrived late: nobody renews the lease that it is under."""
    one = Candidate.__new__(Candidate)
    one.told = []
    one.one = Leadership(Etcd(place.settings), 2.0, lambda standing, why: one.told.append(standing))
    stood_by, taken = one.one._etcd.transact, []

    def late(when: Any, then: Any, otherwise: Any = ()) -> Any:
        if not taken:  # the earlier try comes before this one, under a lease of its own
            taken.append(place.etcd.grant(60))
            stood_by(when, [put(place.key, one.one._value, taken[0])], otherwise)
        return stood_by(when, then, otherwise)

    one.one._etcd.transact = late  # type: ignore[method-assign]
    one.one.start("127.0.0.1:1")
    until(lambda: one.one.may_order, "it leads")
    found, _ = place.etcd.get(place.key)
    assert found is not None
    assert found.lease == one.one._lease != taken[0]
    one.one.leave()


@pytest.mark.parametrize("lease_s", [2.0, 2.45, 2.5, 3.2, 4.4])
def test_a_leader_never_counts_on_more_than_etcd_gave(place: Place, lease_s: float) -> None:
    given: list[int] = []
    etcd = Etcd(place.settings)
    grant, began_s = etcd.grant, now_s()
    etcd.grant = lambda ttl_s: given.append(ttl_s) or grant(ttl_s)  # type: ignore[method-assign, func-returns-value]
    one = Leadership(etcd, lease_s, lambda standing, why: None)
    one._value = b"{}"
    one._stand_by()
    assert one._leads_until_s - now_s() < given[0] <= lease_s + 1
    etcd.renew = lambda lease, within_s: 1.0  # type: ignore[method-assign]
    one._renew()
    assert one._leads_until_s - began_s < 1.0 + (now_s() - began_s)
    one.leave()


def test_one_that_is_told_to_end_waits_for_etcd_no_longer() -> None:
    """It was about to take over, on a thread that its end waits for."""
    ranks = Ranks.__new__(Ranks)
    ranks._left, ranks.leadership = False, Leadership(Etcd(EtcdSettings(("a:1",))), 5.0, print)

    class Away:
        def read(self) -> list[Any]:
            ranks._left = True
            raise EtcdAwayError("etcd does not answer")

    with pytest.raises(LeadershipLostError):
        ranks.read(Away())  # type: ignore[arg-type]


def test_a_stream_that_is_ended_while_it_is_refused_ends_quietly() -> None:
    """Its call was aborted already, and gRPC takes no second word."""
    leader: Any = SimpleNamespace(may_order=True, refusal=lambda: ("it lost the lead", "a:1"))

    class Context:
        def __init__(self) -> None:
            self.aborted: list[Any] = []

        async def abort(self, *status: Any) -> None:
            self.aborted.append(status)
            if len(self.aborted) > 1:
                raise grpc.aio.UsageError("Abort already called!")
            await asyncio.sleep(60)

        async def write(self, message: Any) -> None:
            raise AssertionError("nothing is said")

    async def serve(request: Any, context: Any) -> None:
        leader.may_order = False
        await context.write("an order")

    async def play() -> list[Any]:
        gate, context = Leading(leader), Context()
        handler = grpc.stream_stream_rpc_method_handler(serve)

        async def go_on(details: Any) -> Any:
            return handler

        details = SimpleNamespace(method="/weft.NodeTracker/Track")
        held = await gate.intercept_service(go_on, details)
        assert held is not handler
        task = asyncio.create_task(held.stream_stream(None, context))
        while not context.aborted:
            await asyncio.sleep(0)
        gate.end_calls()
        await task
        return context.aborted

    assert asyncio.run(play())[0][:2] == (grpc.StatusCode.UNAVAILABLE, "it lost the lead")


@pytest.mark.parametrize("patient", [True, False])
def test_a_leader_without_etcd_orders_nothing_and_goes_on_if_nobody_led(
    tmp_path: Path, patient: bool
) -> None:
    server = EtcdServer(tmp_path)
    server.await_()
    one = Candidate(EtcdSettings((server.address,)), 1e9 if patient else 0.1)
    until(lambda: one.one.may_order, "it leads")
    revision = one.one.fence.revision
    server.kill()
    until(lambda: one.is_(Standing.SUSPENDED), "it is suspended")
    assert not one.one.may_order
    assert one.one.may_answer
    until(lambda: one.one.suspended_s > 0.2, "some time went by")
    server.start()
    if patient:
        until(lambda: one.one.may_order, "it goes on")
        assert one.one.fence.revision == revision
        assert Standing.LOST not in one.told
    else:
        until(lambda: one.is_(Standing.LOST), "it was away for too long")
    one.one.leave()
    server.close()


@pytest.mark.parametrize(
    "text",
    [
        "etcd://",
        "etcd://:1",
        "etcd://a:0",
        "etcd://a:b",
        "http://a:1",
        "etcd://a:1,",
        "etcd://::1",
        "etcd://a b:1",
        "etcd://a:1?x",
        "etcd://a:\N{SUPERSCRIPT TWO}",
        "etcd://u:secret@a:1",
    ],
)
def test_a_store_that_is_none_is_told(text: str) -> None:
    with pytest.raises(InputError, match="--store") as told:
        parse(text)
    assert "secret" not in str(told.value)


def test_a_store_is_read() -> None:
    assert parse("etcd://a:1,b/x/y") == (("a:1", "b:2379"), "x/y")
    assert parse("etcd://a") == (("a:2379",), "weft")
    assert parse("etcd://[::1]:5") == (("[::1]:5",), "weft")


def test_of_several_routers_one_moves_guarantees_and_another_one_follows(place: Place) -> None:
    turns = [Turn(place.settings, 2.0, f"router{at}:8030") for at in range(2)]
    try:
        until(lambda: any(turn.is_mine for turn in turns), "one does")
        mine, other = sorted(turns, key=lambda turn: not turn.is_mine)
        assert not other.is_mine
        assert place.settings.prefix.encode() + b"/leader" not in place.names()
        # Somebody removes the key: who held it stands again, and never are there two.
        place.etcd.transact([], [delete(f"{place.settings.prefix}/shares".encode(), b"")])
        until(lambda: not (mine.is_mine and other.is_mine) and other.is_mine, "the other one does")
        other.leave()
        until(lambda: mine.is_mine, "the first one does again")
    finally:
        for turn in turns:
            turn.leave()
    assert Turn(None, 2.0, "alone:8030").is_mine
