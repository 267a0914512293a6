"""Is the search for meetings worth its name? Plants known faults where two features meet.

`make meetings-planted`: one pass over all pairs must find at least 16 of 18. A pass ends with the
first row that breaks a promise and, without the fault, does not. The manager's kernels run as plain
Python, so that a fault can be planted in what they call; those of planners stay compiled.
"""

import argparse
import pkgutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module
from multiprocessing import get_context
from types import ModuleType
from typing import Any

import numba

import am
import rm

# Of 18.
MISSED_MAX = 2


def find(name: str) -> tuple[str, float]:
    """Plant one fault; return the first finding that is not there without it, and CPU seconds."""
    faults, features, search = map(_meetings, ("planted", "features", "search"))
    began_s = time.process_time()
    for number, row in enumerate(features.rows(2)):
        with faults.FAULTS[name]():
            found = list(search.search([row], number))
        if not found:
            continue
        without = {one.kind for one in search.search([row], number)}
        for one in found:
            if one.kind not in without:
                return f"row {number}: {one.problem}", time.process_time() - began_s
    return "", time.process_time() - began_s


def _load() -> None:
    """Import all that is run: kernels are compiled or not as they are imported."""
    _import_all(am)
    config: Any = numba.config
    config.DISABLE_JIT = 1
    _import_all(rm)
    config.DISABLE_JIT = 0


def _import_all(package: ModuleType) -> None:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            import_module(module.name)


def _meetings(name: str) -> Any:
    return import_module(f"testkit.meetings.{name}")


def main() -> int:
    """Print a table of all faults; 1 where too few were found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="Faults whose name contains this.")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    _load()
    names = [name for name in _meetings("planted").FAULTS if given.only in name]
    missed = 0
    with ProcessPoolExecutor(given.processes, get_context("fork")) as pool:
        faults = {pool.submit(find, name): name for name in names}
        for done in as_completed(faults):
            found, took_s = done.result()
            missed += not found
            told = found[:90] or "NOT FOUND"
            print(f"{faults[done]:57} {took_s:4.0f} s  {told}", flush=True)
    print(f"{len(names) - missed} of {len(names)} found")
    return int(missed > MISSED_MAX)


if __name__ == "__main__":
    sys.exit(main())
