"""What `weft play` plays: tapes of a live run, a simulation's results, or one made on the spot."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.simulate_options import request_of
from rm.making import ManagerParts
from sim.process.command import simulated
from sim.replay import whatif
from sim.replay.recorded_run import RecordedRun, Watched, of_simulation, of_tapes
from sim.request import Request
from weft.model.errors import InputError, WeftError
from weft.policies.presets import Preset, label
from weft.runtime.tapefile import TapeFile, find_tapes
from weft.tape.made import from_data

Warn = Callable[[str], None]


def read_run(path: Path, warn: Warn) -> RecordedRun:
    """Return the run of a tape, a folder of tapes, or a folder of `weft simulate --out`.

    A simulation is run again by the command that its summary tells. Raises InputError for others.
    """
    if (path / "summary.json").is_file():
        return simulate_again(path, warn)
    if path.is_dir() and not any(path.glob("*.tape")):
        raise InputError(str(path), "holds neither tapes nor a simulation's summary.json")
    if not path.exists():
        raise InputError(str(path), "there is no such file or folder")
    return read_tapes(path)


def read_tapes(path: Path) -> RecordedRun:
    """Return the run of the Resource Manager whose tapes a path holds."""
    tapes = find_tapes(path)
    managers = [tape for tape in tapes if tape.role == "rm"]
    if not managers:
        raise InputError(str(path), "no tape is a Resource Manager's, which decided")
    name = (path if path.is_dir() else path.parent).resolve().name
    played = of_tapes(name, [tape.rows() for tape in managers])
    says = f"tapes of {managers[0].says.get('version', 'a live run')}"
    return _named(played, name, _scheduler(played.scheduler, managers, tapes), says)


def _scheduler(matcher: str, managers: list[TapeFile], tapes: list[TapeFile]) -> str:
    """Return the preset that ran, where a master's tape tells the rest of it."""
    made = whatif.first_core(managers[-1].rows())
    masters = (whatif.first_core(tape.rows()) for tape in tapes if tape.role == "am")
    master = next((one for one in masters if one is not None), None)
    if made is None or master is None:
        return matcher
    scheduler: Preset = whatif.settings_of(from_data(ManagerParts, made), master, None).scheduler
    return label(scheduler)


def simulate_again(folder: Path, warn: Warn) -> RecordedRun:
    """Return the run of a results folder; raises InputError where what it needs is gone."""
    try:
        summary: dict[str, Any] = json.loads((folder / "summary.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(str(folder / "summary.json"), f"cannot be read: {error}") from None
    command = summary.get("command") if isinstance(summary, dict) else None
    if not isinstance(command, str) or not command.startswith("weft simulate "):
        raise InputError(str(folder), "its summary tells no command that would repeat the run")
    played, again = simulate_run(request_of(command), warn, name=folder.resolve().name)
    if again["digest"] != summary.get("digest"):
        warn(f"{folder}: decides otherwise today than it did: its files or the code have changed")
    return played


def simulate_run(
    request: Request, warn: Warn, name: str = "", *, progress: bool = False
) -> tuple[RecordedRun, dict[str, Any]]:
    """Simulate, and keep what is played; returns the run and its summary."""
    kept: list[Watched] = []

    def make(*given: Any) -> Watched:
        kept.append(Watched(*given))
        return kept[0]

    summary, _ = simulated(request, progress=progress, warn=warn, make=make)
    scheduler = str(summary["scheduler"])
    played = of_simulation(name or scheduler, scheduler, kept[0])
    return _named(played, played.name, scheduler, str(summary["command"])), summary


def _named(played: RecordedRun, name: str, scheduler: str, says: str) -> RecordedRun:
    if not played.steps:
        raise WeftError(f"{name}: nothing happened in it")
    return replace(played, name=name, scheduler=scheduler, says=says)
