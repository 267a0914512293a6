"""How many decisions a CPU second does the Gymnasium environment take?

Run as `python -m lab.learning.gym_rate`.

Whole episodes of `weft/Scheduling-v0` as it comes, in the order of submission: the agent itself
takes no time. `--native` measures the compiled cores (`make native`) in turns with plain Python,
each in a process of its own.
"""

import argparse
import os
import subprocess
import sys
import time

ROUNDS = 5


def rate(decisions: int, seed: int) -> float:
    """Return decisions a CPU second over at least so many of them."""
    from lab.learning.gym import Scheduling

    env, count = Scheduling(), 0
    env.reset(seed=seed)
    began_s = time.process_time()
    while count < decisions:
        *_, ended, cut, _ = env.step(0)
        count += 1
        if ended or cut:
            seed += 1
            env.reset(seed=seed)
    took_s = time.process_time() - began_s
    env.close()
    return count / took_s


def _measured(decisions: int, native: str) -> float:
    """Return the rate in another process, of the build in a folder (empty: plain Python)."""
    env = dict(os.environ)
    if native:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (native, env.get("PYTHONPATH", ""))))
    command = [sys.executable, "-m", "lab.learning.gym_rate", "--once", f"--decisions={decisions}"]
    told = subprocess.run(
        command, env=env, cwd=native or None, capture_output=True, text=True, check=True
    )
    return float(told.stdout)


def main() -> None:
    """Print the rates of each round and the best of each build."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--decisions", type=int, default=10_000, help="a round (10,000)")
    parser.add_argument("--native", action="store_true", help="the compiled cores as well")
    parser.add_argument("--once", action="store_true", help="one round, its rate alone")
    given = parser.parse_args()
    if given.once:
        # The first episodes fill kernels and caches.
        rate(2_000, 1)
        print(rate(given.decisions, 100))
        return
    builds = {"Python": ""}
    if given.native:
        from lab.native import native_build

        folder = native_build()
        if folder is None:
            parser.error("build/native is not of this code: make native")
        builds["native"] = str(folder)
    rates: dict[str, list[float]] = {name: [] for name in builds}
    for _ in range(ROUNDS):
        for name, folder_name in builds.items():
            rates[name].append(_measured(given.decisions, folder_name))
    for name, found in rates.items():
        rounds = ", ".join(f"{one:,.0f}" for one in found)
        print(f"{name}: {max(found):,.0f} decisions a CPU second (rounds: {rounds})")


if __name__ == "__main__":
    main()
