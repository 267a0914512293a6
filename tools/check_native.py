"""Does the native build decide as plain Python does? `make native-test`

Every preset runs a small workload, and a few of them the other pace and random faults, in both
builds, each in a process of its own; the digests of the decision logs have to be the same.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from lab.native import ROOT, native_build

FAULTS = 4  # seeds; each with every preset of `FAULTY`
FAULTY = ("capacity", "graphene", "cobra")


def digests() -> dict[str, str]:
    """The digest of every run, by its name; run in the build that is to be checked."""
    from lab.bench_sim import NODE, stream
    from sim.cluster import Simulation
    from sim.faults import random_faults
    from sim.settings import SimSettings
    from weft.cluster import cluster_from_text
    from weft.presets import PRESETS, preset

    jobs, cluster = stream(1_000, 5, 20, 2.0), cluster_from_text(f"15x{NODE}")
    nodes = [node.node_id for node in cluster.nodes]
    found = {}
    for name in PRESETS:
        settings = SimSettings(scheduler=preset(name))
        found[name] = Simulation(cluster, jobs, settings).run().digest()
    for name in FAULTY:
        settings = SimSettings(scheduler=preset(name), prompt=True)
        found[f"{name}, prompt"] = Simulation(cluster, jobs, settings).run().digest()
    for seed in range(FAULTS):
        for name in FAULTY:
            faults = random_faults(seed, nodes, 6, 100.0)
            settings = SimSettings(scheduler=preset(name), seed=seed, faults=faults, checks=True)
            found[f"{name}, faults {seed}"] = Simulation(cluster, jobs[:6], settings).run().digest()
    return found


def in_build(root: Path) -> dict[str, str]:
    """The digests of a build, and which files the engine came from."""
    code = (
        "import json, runpy, sim.engine;"
        f"found = runpy.run_path({str(Path(__file__))!r})['digests']();"
        "print(json.dumps(found | {'engine': sim.engine.__file__}))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(root)},
    )  # fmt: skip
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
    wrong = [run for run in python if python[run] != compiled.get(run)]
    for run in wrong:
        print(f"{run}: {python[run]} in Python, {compiled.get(run)} compiled", file=sys.stderr)
    print(f"{len(python)} runs, {len(wrong)} differ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
