"""Install the wheel of dist/ as a user does, with pipx and uvx, and run the demo and a tutorial.

    make dist-test             # NATIVE=1: the wheel with compiled cores

Of the checkout only the files in dist/ are used, and the versions in constraints.txt. The tutorial
is docs/tutorials/student.md; its commands run as they are printed.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
PLACE = ROOT / "build" / "dist-test"
TUTORIAL = ROOT / "docs" / "tutorials" / "student.md"
CLUSTER = "4x8vcores,16384memory_mb,800disk_mbps,1000network_mbps"
INSTALLERS = ("pipx", "uv")


def commands(page: Path) -> str:
    """Return the shell blocks of a page, less those that set up a checkout."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).splitlines()
    return "\n".join(line for line in lines if ".venv/bin/activate" not in line)


def the_wheel(native: bool) -> Path:
    """Return the one wheel; SystemExit where there is another number of them."""
    folder = DIST / "native" if native else DIST
    wheels = list(folder.glob("weft_rm-*.whl"))
    if len(wheels) != 1:
        raise SystemExit(f"{folder} holds {len(wheels)} wheels, not one")
    return wheels[0]


def main(arguments: Sequence[str]) -> int:
    """Install and run; raises SystemExit with the command that failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--native", action="store_true", help="the wheel with compiled cores")
    native = parser.parse_args(arguments).native
    wheel = the_wheel(native)
    shutil.rmtree(PLACE, ignore_errors=True)
    work = PLACE / "work"
    work.mkdir(parents=True)
    venv.create(PLACE / "tools", with_pip=True)
    tools = PLACE / "tools" / "bin"
    _run([tools / "pip", "install", "--quiet", *INSTALLERS], work, {})
    # Homes of their own, so that nothing of this user's installations is seen or changed.
    env = {
        "HOME": str(PLACE),
        "XDG_RUNTIME_DIR": str(PLACE),
        "PIPX_HOME": str(PLACE / "pipx"),
        "PIPX_BIN_DIR": str(PLACE / "bin"),
        "UV_TOOL_DIR": str(PLACE / "uv"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PATH": f"{PLACE / 'bin'}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    }
    constraints = ROOT / "constraints.txt"
    install: list[str | Path] = [tools / "pipx", "install", "--quiet", "--python", sys.executable]
    _run([*install, "--pip-args", f"-c {constraints}", f"{wheel}[plot]"], work, env)
    _run(["weft", "--version"], work, env)
    ending = ".so" if native else ".py"
    python = PLACE / "pipx" / "venvs" / "weft-rm" / "bin" / "python"
    check = f"import sim.engine as e; assert e.__file__.endswith('{ending}'), e.__file__"
    _run([python, "-c", check], work, env)
    _run(["weft", "demo"], work, env)
    _run(["bash", "-eo", "pipefail", "-c", commands(TUTORIAL)], work, env)
    uvx: list[str | Path] = [
        tools / "uvx",
        "--python",
        sys.executable,
        "--constraints",
        constraints,
    ]
    for archive in (wheel, *DIST.glob("*.tar.gz")):
        _run([*uvx, "--from", archive, "weft", "--version"], work, env)
    print("dist-test: all of it ran")
    return 0


def _run(command: Sequence[str | Path], folder: Path, env: dict[str, str]) -> None:
    shown = " ".join(str(word) for word in command)
    print(f"$ {shown if len(shown) < 200 else shown[:200] + ' ...'}", flush=True)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("WEFT_", "PYTHON"))}
    path = env.get("PATH", os.environ["PATH"])
    program = shutil.which(str(command[0]), path=path) or command[0]
    done = subprocess.run(
        [program, *command[1:]],
        cwd=folder,
        env=inherited | env,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"exit {done.returncode}: {shown}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
