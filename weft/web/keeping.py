"""A file (SQLite) that keeps what the web process learned over its restarts.

It holds no more than the history itself, and is written a few times a minute in one transaction
together with the number of the newest fact: whatever happens, it is what was known at some moment,
and the facts since are asked of the manager again.
"""

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

import structlog

from weft.model.errors import WeftError
from weft.model.ids import app_of_container
from weft.web.history import History, Span, Track

SAVE_S = 2.0
SCHEMA = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tracks (
    app INTEGER PRIMARY KEY, since_s REAL, lost_at_s REAL, dropped INTEGER);
CREATE TABLE IF NOT EXISTS spans (
    container INTEGER PRIMARY KEY, node TEXT, stage INTEGER, start_s REAL, end_s REAL,
    task INTEGER, attempt INTEGER, state TEXT, exit_code INTEGER, run_s REAL, message TEXT,
    app INTEGER);
CREATE INDEX IF NOT EXISTS spans_by_app ON spans (app, start_s);
CREATE TABLE IF NOT EXISTS samples (ring INTEGER, now_s REAL, json TEXT);
CREATE INDEX IF NOT EXISTS samples_by_time ON samples (ring, now_s);
"""
_SPAN = ", ".join("?" * (len(fields(Span)) + 1))
_log = structlog.get_logger()
Rows = Sequence[tuple[Any, ...]]


class Keeper:
    """Reads a history from a file, and writes into it what changed since."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._worker = ThreadPoolExecutor(1, "history")
        self._failed = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._file.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;")
            version = self._file.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, SCHEMA):
                raise WeftError(f"the history {path} is of another version of Weft: move it away")
            self._file.executescript(f"{_TABLES} PRAGMA user_version={SCHEMA};")
        except (sqlite3.Error, OSError) as error:
            raise WeftError(f"cannot use the history {path}: {error}") from None

    def load(self, history: History) -> None:
        """Put what the file holds into an empty history."""
        try:
            self._load(history)
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise WeftError(f"cannot read the history {self._path}: {error}") from None

    def _load(self, history: History) -> None:
        ask = self._file.execute
        known = dict(ask("SELECT name, value FROM facts"))
        history.belong(known.get("cluster_ts", 0))
        history.number = known.get("number", 0)
        for app, *rest in ask("SELECT app, since_s, lost_at_s, dropped FROM tracks ORDER BY app"):
            history.tracks[app] = Track(rest[0], lost_at_s=rest[1], dropped=rest[2])
        for *values, app in ask("SELECT * FROM spans ORDER BY app, start_s, container"):
            history.put(app, Span(*values))
            history.now_s = max(history.now_s, values[3], values[4])
        for ring, text in ask("SELECT ring, json FROM samples ORDER BY now_s"):
            history.series.put(ring, json.loads(text))
        history.touched.clear()

    async def follow(self, history: History) -> None:
        """Write what changed, for good."""
        while True:
            await asyncio.sleep(SAVE_S)
            await self.save(history)

    async def save(self, history: History) -> None:
        """Write what changed since the last time; a file that fails is said once."""
        loop = asyncio.get_running_loop()
        work = self._take(history)
        try:
            await loop.run_in_executor(self._worker, self._write, *work)
        except sqlite3.Error as error:
            if not self._failed:
                _log.error("the history is not kept", file=str(self._path), reason=str(error))
            self._failed = True
            # These are tried again, together with what is new.
            history.changed = work[1] | history.changed
            history.touched |= {row[0] for row in work[2]}
            history.gone |= {row[0] for row in work[3]}
        else:
            self._failed = False

    @staticmethod
    def _take(history: History) -> tuple[Rows, dict[int, Span], Rows, Rows, Rows, Rows]:
        facts = [("cluster_ts", history.cluster_ts), ("number", history.number)]
        tracks = [
            (app, track.since_s, track.lost_at_s, track.dropped)
            for app in history.touched
            if (track := history.tracks.get(app)) is not None
        ]
        gone = [(app,) for app in history.gone]
        samples = [(r, s["now_s"], json.dumps(s)) for r, s in history.series.unkept]
        old = list(history.series.oldest_s())
        changed = history.changed
        history.changed, history.touched, history.gone = {}, set(), set()
        history.series.unkept = []
        return facts, changed, tracks, gone, samples, old

    def _write(
        self,
        facts: Rows,
        changed: dict[int, Span],
        tracks: Rows,
        gone: Rows,
        samples: Rows,
        old: Rows,
    ) -> None:
        file = self._file
        rows = [(*astuple(span), app_of_container(number)) for number, span in changed.items()]
        file.execute("BEGIN")
        try:
            file.executemany("DELETE FROM spans WHERE app = ?", gone)
            file.executemany("DELETE FROM tracks WHERE app = ?", gone)
            file.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts)
            file.executemany(f"INSERT OR REPLACE INTO spans VALUES ({_SPAN})", rows)
            file.executemany("INSERT OR REPLACE INTO tracks VALUES (?, ?, ?, ?)", tracks)
            file.executemany("INSERT INTO samples VALUES (?, ?, ?)", samples)
            file.executemany("DELETE FROM samples WHERE ring = ? AND now_s < ?", old)
            file.execute("COMMIT")
        except BaseException:
            file.execute("ROLLBACK")
            raise

    async def close(self, history: History) -> None:
        """Write the rest and close the file."""
        await self.save(history)
        self._worker.shutdown()
        self._file.close()
