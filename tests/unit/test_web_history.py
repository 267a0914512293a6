"""What the web process keeps of the manager's facts: bounded, and never whole when it is not."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from testkit.web import CLUSTER_TS, FakeClient
from weft.model.errors import WeftError
from weft.model.ids import attempt_id, container_id
from weft.protocol.requests import ContainerReport
from weft.web import following, history
from weft.web.history import History, Span
from weft.web.keeping import Keeper
from weft.web.series import RINGS, Series

APP = 7


def number(of: int, app: int = APP) -> int:
    return container_id(attempt_id(app, 1), of)


def submitted(app: int, now_s: float) -> dict[str, Any]:
    return {"fact": "AppChanged", "now_s": now_s, "app": app, "state": "SUBMITTED"}


def placed(of: int, now_s: float, app: int = APP) -> dict[str, Any]:
    return {
        "fact": "Placed",
        "now_s": now_s,
        "container": number(of, app),
        "node": "n1",
        "ask": 1,
        "stage": 0,
        "demand": [0.25, 64.0],
        "kind": "DEFAULT",
        "queue": "root.default",
    }


def closed(of: int, now_s: float, app: int = APP, **more: Any) -> dict[str, Any]:
    return {
        "fact": "Closed",
        "now_s": now_s,
        "container": number(of, app),
        "node": "n1",
        "outcome": "SUCCEEDED",
        "stage": 0,
        "task": of - 1,
        "attempt": 0,
    } | more


def report(of: int, state: str, finished_s: float) -> ContainerReport:
    return ContainerReport(number(of), "n1", "s", of - 1, 0, state, 1.0, finished_s)


def test_a_container_is_followed_from_its_grant_to_its_end() -> None:
    known = History()
    assert known.learn_batch(1, [submitted(APP, 0.5), placed(1, 1.0)])
    more = {"outcome": "FAILED", "exit_code": 3, "run_s": 0.9, "message": "no such file"}
    assert known.learn_batch(3, [closed(1, 2.0, **more)])
    track = known.tracks[APP]
    wanted = Span(number(1), "n1", 0, 1.0, 2.0, 0, 0, "FAILED", 3, 0.9, "no such file")
    assert list(track.spans.values()) == [wanted]
    assert track.is_whole(0.5)
    assert not track.is_whole(0.4), "something may have run before it was first heard of"


def test_what_is_told_twice_is_known() -> None:
    known = History()
    facts = [submitted(APP, 0.5), placed(1, 1.0), closed(1, 2.0)]
    known.learn_batch(1, facts)
    assert known.learn_batch(2, facts[1:]), "a replay that begins too early misses nothing"
    assert [s.end_s for s in known.tracks[APP].spans.values()] == [2.0]


def test_missed_facts_make_no_phantoms() -> None:
    known = History()
    known.learn_batch(1, [submitted(APP, 0.5), *(placed(i, 1.0) for i in (1, 2, 3))])
    assert not known.learn_batch(9, [placed(4, 5.0)]), "5 to 8 are missing"
    assert known.in_doubt() == [APP]
    known.settle(APP, [report(1, "RUNNING", 0.0), report(2, "SUCCEEDED", 3.0)])
    spans = {s.container: s.end_s for s in known.tracks[APP].spans.values()}
    assert spans == {number(1): 0.0, number(2): 3.0, number(4): 0.0}, "nobody knows when 3 ended"
    assert not known.tracks[APP].is_whole(0.5)


def test_bounds_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "APP_SPANS_MAX", 10)
    monkeypatch.setattr(history, "SPANS_MAX", 25)
    monkeypatch.setattr(history, "APPS_MAX", 4)
    known = History()
    for app in range(1, 7):
        known.learn(submitted(app, float(app)))
        for of in range(1, 15):
            known.learn(placed(of, app + of / 100, app))
    assert list(known.tracks) == [5, 6]
    assert all(len(track.spans) == 10 for track in known.tracks.values())
    assert not known.tracks[6].is_whole(6.0), "its first four are forgotten"
    assert known.gone == {1, 2, 3, 4}


def test_older_samples_are_coarser() -> None:
    series = Series()
    for at in range(RINGS[2].every * RINGS[2].size):
        series.add({"now_s": float(at)})
    for number_of, ring in enumerate(RINGS):
        found = series.samples(number_of)
        assert found[-1]["now_s"] == RINGS[2].every * RINGS[2].size - 1, "the newest is in each"
        assert ring.size <= len(found) <= ring.size + 1
        assert found[1]["now_s"] - found[0]["now_s"] == ring.every


def test_a_file_keeps_all_of_it(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "deep" / "history.db"
        first, keeper = History(), Keeper(path)
        first.belong(CLUSTER_TS)
        first.learn_batch(5, [submitted(APP, 0.5), placed(1, 1.0), placed(2, 1.5), closed(1, 2.0)])
        first.series.add({"now_s": 3.0, "running": 1})
        await keeper.save(first)
        first.learn_batch(9, [closed(2, 4.0, exit_code=1), submitted(8, 4.5), placed(1, 5.0, 8)])
        await keeper.close(first)

        second, keeper = History(), Keeper(path)
        keeper.load(second)
        assert (second.number, second.cluster_ts, second.now_s) == (11, CLUSTER_TS, 5.0)
        assert second.tracks == first.tracks
        assert second.series.samples() == first.series.samples()
        second.belong(CLUSTER_TS + 1)
        await keeper.close(second)

        third, keeper = History(), Keeper(path)
        keeper.load(third)
        assert (third.number, third.tracks, third.cluster_ts) == (0, {}, CLUSTER_TS + 1)
        await keeper.close(third)

    asyncio.run(main())


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    damaged = tmp_path / "history.db"
    damaged.write_bytes(b"no database at all" * 100)
    with pytest.raises(WeftError, match=r"cannot use the history .*history\.db"):
        Keeper(damaged)
    newer = tmp_path / "newer.db"
    sqlite3.connect(newer).executescript("PRAGMA user_version=9").connection.close()
    with pytest.raises(WeftError, match="another version"):
        Keeper(newer)


def test_a_watcher_that_dies_is_said_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "RETRY_S", 0.0)
    fake, known = FakeClient(nodes=2, apps=0), History()
    structlog.reset_defaults()

    async def main() -> None:
        with capture_logs() as said:
            work = following.for_good("watching", lambda: following.watch(known, fake))  # type: ignore[arg-type]
            task = asyncio.create_task(work)
            fake.facts.put_nowait({"fact": "Placed", "now_s": 1.0})  # no container: it fails
            fake.facts.put_nowait(placed(1, 2.0))
            async with asyncio.timeout(60):
                while APP not in known.tracks:
                    await asyncio.sleep(0.01)
            task.cancel()
        assert [line["event"] for line in said] == ["watching failed and is started again"]

    asyncio.run(main())


def test_a_task_that_runs_is_named_as_soon_as_the_manager_knows_it() -> None:
    known = History()
    known.learn_batch(1, [submitted(APP, 0.5), placed(1, 1.0)])
    runs = ContainerReport(number(1), "n1", "s", 4, 2, "ACQUIRED", 1.0, 0.0)
    (span,) = known.spans(APP, [runs], ["s"])
    assert (span.task, span.attempt, span.end_s) == (4, 2, 0.0)


def test_numbers_that_are_told_all_the_time_push_no_event_out() -> None:
    known = History()
    gauge = {"fact": "Gauge", "now_s": 1.0, "name": "weft_matches", "value": 0.0, "labels": []}
    assert known.learn_batch(1, [submitted(APP, 0.5), gauge, gauge])
    assert [number for number, _ in known.facts] == [1]
    assert known.number == 3, "they are known all the same"
