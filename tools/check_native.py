"""Does the native build decide as plain Python does? Run by `make native-test`.

Every preset in both paces and under random faults (`lab.studies.digests`), in both builds, each in
a process of its own; the digests of the decision logs have to be the same, and those that are kept.
So have those of a matcher that is loaded by its name: it is never compiled, its base class is.
And what processes hand to each other comes through whole: jobs and settings.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from lab.native import ROOT, native_build
from lab.studies.digests import kept

LOADED = """
import numpy
from lab.functions import simulate
from weft.workloads.synth import generate
jobs = generate("mapreduce", 5, numpy.random.default_rng(1))
cluster = "4x16vcores,65536memory_mb,800disk_mbps,1250network_mbps"
found["learned"] = simulate(jobs, cluster, matcher="learned").summary["digest"]
"""
PICKLED = """
import pickle
from am.settings import MasterSettings
from nm.settings import NodeSettings
from rm.settings import ManagerSettings
handed = (*jobs, MasterSettings(), NodeSettings(), ManagerSettings())
assert all(pickle.loads(pickle.dumps(one)) == one for one in handed)
"""


def in_build(root: Path) -> dict[str, str]:
    """Return the digests of a build, and which files the engine came from."""
    code = (
        "import json, sim.engine\n"
        "from lab.studies.digests import long, quick\n"
        "found = quick() | long()\n"
        f"{LOADED}\n{PICKLED}\n"
        "print(json.dumps(found | {'engine': sim.engine.__file__}))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    if done.returncode:
        raise SystemExit(f"{root}: {done.stderr[-4000:]}")
    answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> int:
    """Compare; 1 where they differ or there is no native build of this code."""
    native = native_build()
    if native is None:
        print("no native build of this code: make native", file=sys.stderr)
        return 1
    python, compiled = in_build(ROOT), in_build(native)
    engine = Path(compiled.pop("engine"))
    if engine.suffix == ".py" or Path(python.pop("engine")).suffix != ".py":
        print(f"the engine of the native build is {engine}", file=sys.stderr)
        return 1
    before = {run: digest for runs in kept().values() for run, digest in runs.items()}
    wrong = [run for run in before if not before[run] == python.get(run) == compiled.get(run)]
    wrong += [run for run in python if run not in before and python[run] != compiled.get(run)]
    for run in wrong:
        print(
            f"{run}: {before.get(run)} is kept, {python.get(run)} in Python, "
            f"{compiled.get(run)} compiled",
            file=sys.stderr,
        )
    print(f"{len(python)} runs, {len(wrong)} differ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
