"""A record of predictions and what became of them: how far off they were, and how wide to be.

One file of JSON lines for a user: a prediction, or the end of an application that was predicted.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from sim.replay.predict import Band, Prediction
from weft.model.errors import WeftError
from weft.model.ids import AppId
from weft.protocol.requests import ApplicationReport

# Beyond so many rows, the file begins anew with the newer half.
ROWS_MAX = 20_000
# The newest predictions tell how far off they are.
SCORED_PREDICTIONS_MAX = 500
# Fewer predictions say nothing about the width of the band.
CALIBRATION_PREDICTIONS_MIN = 20
# The band is to hold this fraction of the ends.
BAND_COVERAGE = 0.9
WIDER_MAX = 10.0
# Nodes and masters report once in so long, so ends that are this close are the same.
SAME_S = 1.0


def default_path() -> Path:
    """Return where a user's record is (XDG_STATE_HOME)."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "weft" / "predictions.jsonl"


@dataclass(frozen=True, slots=True)
class Score:
    """What past predictions of ends were like.

    `error` is the median of their distance over the time that was left, `inside` the part that lay
    in its band as printed, `wider` by what bands are to be stretched so that BAND_COVERAGE of them
    would.
    """

    predictions: int
    error: float
    inside: float
    wider: float


class PredictionBook:
    """Read when made; appends as asked. Raises WeftError for a file that cannot be read or written.

    Lines that are no record (of another version, or torn) are left out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: list[dict[str, Any]] = []
        try:
            lines = path.read_text().splitlines() if path.exists() else []
        except (OSError, UnicodeError) as error:
            raise WeftError(f"cannot read {path}: {error}") from None
        for line in lines[-ROWS_MAX:]:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and {"cluster", "app"} <= row.keys():
                self._rows.append(row)
        self._long = len(lines) > ROWS_MAX

    def settle(self, cluster_ts: int, ended: Mapping[AppId, ApplicationReport]) -> None:
        """Note how predicted applications ended that have."""
        own = [row for row in self._rows if row["cluster"] == cluster_ts]
        known = {row["app"] for row in own if "ended_s" in row}
        for app in dict.fromkeys(row["app"] for row in own if "end" in row):
            report = ended.get(app)
            if report is not None and app not in known:
                whole = report.final_status == "SUCCEEDED"
                ended_s = report.finished_s if whole else None
                self._append([{"cluster": cluster_ts, "app": app, "ended_s": ended_s}])

    def add(self, cluster_ts: int, asked_s: float, predictions: list[Prediction]) -> None:
        """Note predictions as they were drawn; they are printed as wide as `Score.wider` says."""
        wider = self.score().wider
        rows = []
        for one in predictions:
            if math.isfinite(one.end.late_s):
                drawn = [one.end.early_s, one.end.usual_s, one.end.late_s]
                row = {"cluster": cluster_ts, "app": one.app, "asked_s": asked_s}
                rows.append({**row, "waits": one.waits, "end": drawn, "wider": wider})
        self._append(rows)

    def score(self) -> Score:
        """Return what the newest settled predictions were like."""
        ends = {(r["cluster"], r["app"]): r["ended_s"] for r in self._rows if "ended_s" in r}
        errors, inside, beyond = [], 0, []
        for row in [row for row in self._rows if "end" in row][-SCORED_PREDICTIONS_MAX:]:
            end_s = ends.get((row["cluster"], row["app"]))
            if end_s is None or end_s <= row["asked_s"]:
                continue
            early_s, usual_s, late_s = row["end"]
            errors.append(abs(usual_s - end_s) / (end_s - row["asked_s"]))
            side_s = late_s - usual_s if end_s > usual_s else usual_s - early_s
            beyond.append(abs(end_s - usual_s) / max(side_s, SAME_S))
            # A band without width holds an end that is the same but for rounding and heartbeats.
            off_s = abs(end_s - usual_s)
            inside += off_s <= max(row.get("wider", 1.0) * side_s, SAME_S)
        count = len(errors)
        if not count:
            return Score(0, 0.0, 0.0, 1.0)
        wider = 1.0
        if count >= CALIBRATION_PREDICTIONS_MIN:
            # This is split conformal prediction, of normalised distances.
            place = min(count, math.ceil((count + 1) * BAND_COVERAGE))
            wider = min(max(sorted(beyond)[place - 1], 1.0 / WIDER_MAX), WIDER_MAX)
        return Score(count, median(errors), inside / count, wider)

    def _append(self, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        self._rows += rows
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._long:
                rows, self._long = self._rows[-ROWS_MAX // 2 :], False
                fresh = self._path.with_suffix(".new")
                fresh.write_text("".join(json.dumps(row) + "\n" for row in rows))
                fresh.replace(self._path)
                return
            with self._path.open("a") as file:
                file.write("".join(json.dumps(row) + "\n" for row in rows))
        except OSError as error:
            raise WeftError(f"cannot write {self._path}: {error.strerror}") from None


def stretched(one: Prediction, wider: float, now_s: float) -> Prediction:
    """Return a prediction whose bands are so much wider, never before now."""

    def band(narrow: Band) -> Band:
        early_s = narrow.usual_s - wider * (narrow.usual_s - narrow.early_s)
        late_s = narrow.usual_s + wider * (narrow.late_s - narrow.usual_s)
        return Band(max(now_s, early_s), narrow.usual_s, late_s)

    start = None if one.start is None else band(one.start)
    return replace(one, start=start, end=band(one.end))
