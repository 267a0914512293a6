"""Spark's event log, read as it grows: stages as the REST API of an application tells them.

Unlike the API the log tells the edges between stages, and those that wait as soon as their job
starts. Plain or zstd, one file or a folder of files that follow each other (Spark 4's usual way).
Nothing in it is trusted: it is whatever the application's user wrote.
"""

import json
import re
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

import zstandard

# A stage's call sites and metrics may be long.
EVENT_BYTES_MAX = 8 << 20
# One read takes so many unpacked bytes; the rest waits for the next.
READ_BYTES_MAX = 32 << 20
STAGES_MAX = 100_000
PART = re.compile(r"events_(\d+)_")
_CHUNK_BYTES = 1 << 18
# Four bytes may unpack to 128 KiB, so a chunk of this size never exceeds `READ_BYTES_MAX`.
_PACKED_CHUNK_BYTES = 1 << 10


class Events:
    """What an application's events told so far."""

    def __init__(self) -> None:
        self._stages: dict[int, dict[str, Any]] = {}
        self._jobs: dict[int, list[int]] = {}
        # Cores of a task by resource profile.
        self.cpus: dict[int, float] = {}

    def take(self, line: str) -> None:
        """Take one line of the log; raises ValueError for one that tells nothing right."""
        event = json.loads(line)
        if not isinstance(event, dict):
            raise ValueError("an event must be an object")
        call = _CALLS.get(str(event.get("Event", "")))
        if call is None:
            return
        try:
            call(self, event)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ValueError(f"{event['Event']} cannot be read: {error!r}") from None

    def stages(self) -> list[dict[str, Any]]:
        """Return the stages as Spark's REST API tells them, with `parentIds`."""
        return list(self._stages.values())

    def _job_started(self, event: Mapping[str, Any]) -> None:
        job, stages = int(event["Job ID"]), [self._read(info) for info in event["Stage Infos"]]
        if len(self._stages) + len(stages) > STAGES_MAX or len(self._jobs) >= STAGES_MAX:
            raise ValueError(f"more than {STAGES_MAX} stages or jobs")
        self._jobs[job] = [self._keep(stage)["stageId"] for stage in stages]

    def _job_ended(self, event: Mapping[str, Any]) -> None:
        for number in self._jobs.pop(int(event["Job ID"]), ()):
            if self._stages[number]["status"] == "PENDING":
                self._stages[number]["status"] = "SKIPPED"

    def _stage_submitted(self, event: Mapping[str, Any]) -> None:
        stage = self._stage(event["Stage Info"])
        stage["status"] = "ACTIVE"
        stage["submissionTime"] = event["Stage Info"].get("Submission Time")
        waiting = list(stage["parentIds"])
        # The output of the stages before it exists already, so those that wait do not run again.
        while waiting:
            above = self._stages.get(waiting.pop())
            if above is not None and above["status"] == "PENDING":
                above["status"] = "SKIPPED"
                waiting += above["parentIds"]

    def _stage_completed(self, event: Mapping[str, Any]) -> None:
        info = event["Stage Info"]
        stage = self._stage(info)
        stage["status"] = "FAILED" if info.get("Failure Reason") else "COMPLETE"
        stage["submissionTime"] = info.get("Submission Time")
        stage["completionTime"] = info.get("Completion Time")

    def _task_started(self, event: Mapping[str, Any]) -> None:
        stage = self._stages.get(int(event["Stage ID"]))
        if stage is not None:
            stage["numActiveTasks"] += 1

    def _task_ended(self, event: Mapping[str, Any]) -> None:
        stage = self._stages.get(int(event["Stage ID"]))
        if stage is None:
            return
        stage["numActiveTasks"] = max(0, stage["numActiveTasks"] - 1)
        if event["Task End Reason"].get("Reason") != "Success":
            return
        stage["numCompleteTasks"] += 1
        spent = event.get("Task Metrics") or {}
        stage["executorRunTime"] += float(spent.get("Executor Run Time", 0))
        stage["executorDeserializeTime"] += float(spent.get("Executor Deserialize Time", 0))

    def _profile_added(self, event: Mapping[str, Any]) -> None:
        for name, request in event["Task Resource Requests"].items():
            if name == "cpus":
                amount = float(request["Amount"])
                if not 0 < amount < inf:
                    raise ValueError(f"{amount:g} cores a task")
                self.cpus[int(event["Resource Profile Id"])] = amount

    def _stage(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is known of a stage, anew where this is another attempt of it."""
        return self._keep(self._read(info))

    def _read(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "stageId": int(info["Stage ID"]),
            "attemptId": int(info["Stage Attempt ID"]),
            "status": "PENDING",
            "name": str(info["Stage Name"]),
            "numTasks": int(info["Number of Tasks"]),
            "numActiveTasks": 0,
            "numCompleteTasks": 0,
            "executorRunTime": 0.0,
            "executorDeserializeTime": 0.0,
            "submissionTime": None,
            "completionTime": None,
            "resourceProfileId": int(info.get("Resource Profile Id", 0)),
            "parentIds": [int(parent) for parent in info.get("Parent IDs", ())],
        }

    def _keep(self, stage: dict[str, Any]) -> dict[str, Any]:
        """Take a stage in, unless this attempt of it is known."""
        known = self._stages.get(stage["stageId"])
        if known is not None and known["attemptId"] == stage["attemptId"]:
            return known
        if known is None and len(self._stages) >= STAGES_MAX:
            raise ValueError(f"more than {STAGES_MAX} stages")
        self._stages[stage["stageId"]] = stage
        return stage


_CALLS = {
    "SparkListenerJobStart": Events._job_started,
    "SparkListenerJobEnd": Events._job_ended,
    "SparkListenerStageSubmitted": Events._stage_submitted,
    "SparkListenerStageCompleted": Events._stage_completed,
    "SparkListenerTaskStart": Events._task_started,
    "SparkListenerTaskEnd": Events._task_ended,
    "SparkListenerResourceProfileAdded": Events._profile_added,
}


class EventLog:
    """An application's log below a folder, from where the last look ended."""

    def __init__(self, folder: Path, application: str) -> None:
        self._folder, self._application = folder, application
        self.events = Events()
        # Events that could not be read, and why the first of them could not.
        self.odd = 0
        self.why_odd = ""
        self._file: Path | None = None
        self._offset = 0
        self._rest = b""
        self._unpack: Any = None

    def read(self) -> bool:
        """Take what was written since; return whether there is a log.

        Raises ValueError for a file that cannot be read on; a line that tells nothing right is
        counted and left out.
        """
        left = READ_BYTES_MAX
        files = self._files()
        if not files:
            return False
        # Another attempt begins anew.
        if self._file is None or (self._file not in files and not self._renamed(files)):
            self.events = Events()
            self.odd, self.why_odd = 0, ""
            self._begin(files[0])
        while left > 0:
            left = self._read(left)
            assert self._file is not None
            later = files[files.index(self._file) + 1 :]
            if left <= 0 or not later:
                break
            self._begin(later[0])
        return True

    def _files(self) -> list[Path]:
        """Return the newest attempt's log: one file, or the files of its folder in order."""
        names = sorted(self._folder.glob(f"{self._application}*"), key=_newest)
        names += sorted(self._folder.glob(f"eventlog_v2_{self._application}*"), key=_newest)
        if not names:
            return []
        if names[-1].is_dir():
            parts = [(PART.match(path.name), path) for path in names[-1].iterdir()]
            return [
                path
                for found, path in sorted(
                    ((found, path) for found, path in parts if found and path.is_file()),
                    key=lambda p: int(p[0][1]),
                )
            ]
        # Only a regular file is read: to open a pipe is to wait for its writer.
        return [names[-1]] if names[-1].is_file() else []

    def _renamed(self, files: list[Path]) -> bool:
        """Return whether the file goes on under its final name, without `.inprogress`."""
        assert self._file is not None
        final = self._file.with_name(self._file.name.removesuffix(".inprogress"))
        if final in files:
            self._file = final
            return True
        return False

    def _begin(self, file: Path) -> None:
        self._file, self._offset, self._rest = file, 0, b""
        packed = ".zst" in file.name.removesuffix(".inprogress")
        # frames follow each other: Spark ends one with every flush
        self._unpack = (
            zstandard.ZstdDecompressor().decompressobj(read_across_frames=True) if packed else None
        )

    def _read(self, left: int) -> int:
        """Read on in the file; returns how much may still be read."""
        assert self._file is not None
        size = _CHUNK_BYTES if self._unpack is None else _PACKED_CHUNK_BYTES
        with self._file.open("rb") as file:
            file.seek(self._offset)
            while left > 0 and (chunk := file.read(size)):
                self._offset += len(chunk)
                try:
                    data = chunk if self._unpack is None else self._unpack.decompress(chunk)
                except zstandard.ZstdError as error:
                    raise ValueError(f"{self._file.name}: {error}") from None
                left -= max(len(data), len(chunk))
                *lines, self._rest = (self._rest + data).split(b"\n")
                if len(self._rest) > EVENT_BYTES_MAX:
                    raise ValueError(
                        f"{self._file.name}: an event of more than {EVENT_BYTES_MAX} bytes"
                    )
                for line in lines:
                    if line.strip():
                        self._take(line.decode("utf-8", "replace"))
        return left

    def _take(self, line: str) -> None:
        """Take one line; one that tells nothing right is counted, and those after it are taken."""
        try:
            # Brackets in brackets without end raise RecursionError.
            self.events.take(line)
        except (ValueError, RecursionError) as error:
            self.odd += 1
            self.why_odd = self.why_odd or str(error)


def _newest(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
