"""What the parts of the testbed share: how to say, run and wait."""

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
WHEELHOUSE = ROOT / "build" / "wheelhouse"
# A newer release, to upgrade to.
NEXT_WHEELHOUSE = ROOT / "build" / "testbed" / "wheelhouse"
RESULT = ROOT / "build" / "testbed" / "result.json"
# This is a limit for what must happen, never a measure.
PATIENCE_S = 90.0

T = TypeVar("T")


class Failure(Exception):
    """A promise that was not kept."""


class Skip(Exception):
    """Why no testbed can be made here."""


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"testbed: {text}", flush=True)


def run(*command: str, environment: Mapping[str, str] | None = None) -> str:
    """Run to the end and return what it wrote to stdout. Raises Failure with all that it wrote."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600, env=environment, cwd="/"
    )
    if done.returncode:
        raise Failure(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def until(condition: Callable[[], T | None], what: str, patience_s: float = PATIENCE_S) -> T:
    """Wait for a condition and answer it; raises Failure naming it."""
    give_up = time.monotonic() + patience_s
    while not (found := condition()):
        if time.monotonic() > give_up:
            raise Failure(f"never happened: {what}")
        time.sleep(0.05)
    return found


def hold(condition: object, what: str) -> None:
    """Raise Failure where a promise is not kept."""
    if not condition:
        raise Failure(what)
