"""Compile the kernels that usual schedulers use, by simulating a small job under each of them.

Run while the image is built, with NUMBA_CACHE_DIR saying where the machine code is to be kept.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import weft.client

SCHEDULERS = ("capacity", "fair", "drf", "tetris", "graphene", "carbyne_graphene", "cobra")
CLUSTER = "4x16vcores,65536memory_mb,800disk_mbps,1000network_mbps"


def main() -> None:
    """One process a scheduler, as services run; raises CalledProcessError."""
    job = Path(weft.client.__path__[0]) / "samples" / "tpch" / "q02.json"
    for scheduler in SCHEDULERS:
        with tempfile.TemporaryDirectory() as out:
            command = [str(Path(sys.executable).with_name("weft")), "simulate", str(job)]
            command += ["--cluster", CLUSTER, "--scheduler", scheduler, "--out", f"{out}/run"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        print(f"kernels for {scheduler} are compiled", flush=True)


if __name__ == "__main__":
    main()
