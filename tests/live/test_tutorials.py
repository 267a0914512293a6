"""The commands of the README, of each tutorial and of each recipe, run as they are printed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *(
        page
        for folder in ("tutorials", "recipes")
        for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
]
COURSE = sorted((ROOT / "docs" / "course").glob("*.md"))
LIMIT_S = 170


def commands(page: Path) -> str:
    """All shell blocks of a page, one after the other."""
    return "\n".join(re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE))


def _fails(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode != 0


def apart() -> list[str]:
    """A network of one's own: tutorials use the well-known ports."""
    probe = ["unshare", "--net", "true"]
    if shutil.which("unshare") is None or _fails(probe):
        pytest.skip("needs root for a network namespace of its own")
    return ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_runs_as_it_is_printed(page, tmp_path):
    runs_as_printed(commands(page), tmp_path, PROMISES.get(page.stem, ()))


def test_the_course_and_its_answers_run_in_one_folder(tmp_path):
    pages = "\n".join(map(commands, COURSE))
    runs_as_printed(pages, tmp_path, PROMISES["course"])


def runs_as_printed(text, tmp_path, promises):
    script = f"set -meo pipefail\n{text}\n"
    assert script.count("\n") > 6
    (tmp_path / ".venv").symlink_to(sys.prefix)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("WEFT_", "PYTEST_"))}
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(
            [*apart(), "bash", "-c", script],
            cwd=tmp_path,
            stdout=said,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=env | {"PATH": path, "XDG_RUNTIME_DIR": str(tmp_path)},
            start_new_session=True,
        )
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            end(process.pid)
            for record in tmp_path.glob("weft-*/up-*.json"):
                end(json.loads(record.read_text())["pid"])
    told = (tmp_path / "said").read_text()
    assert code == 0, told[-3000:]
    for number in promises:
        assert re.search(number, told), f"{number!r} is not in what was printed:\n{told}"


# what the pages say comes out
PROMISES = {
    "README": [
        r"first\s+SUCCEEDED",
        r"\b12/12\b",
        r"tez +20/20 +5,949 +1,039\.8 +337\.3 ",
        r"\ng +20/20 +5,949 +1,054\.2 +306\.0 ",
        r"\ng +20 .* 22\.9 .*same work",
    ],
    "student": [
        r"by bfs\n +makespan +24 s",
        r"by critical_path\n +makespan +24 s",
        r"by tetris\n +makespan +24 s",
        r"by graphene\n +makespan +14 s",
        r"strong bound +14 s",
        r"tez +1/1 +6 +24\.0",
        r"graphene +1/1 +6 +14\.0",
        r"graphene +1/1 +6 +20\.0",
        r'"Placed".*"perf"',
    ],
    "course": [
        r"fifo +3/3 +18 +73\.0 +66\.7",
        r"sjf +3/3 +18 +73\.0 +42\.0",
        r"fair 25 21\ndrf 30 20",
        r"fair +2/2 +180 +50\.0",
        r"drf +2/2 +180 +40\.0",
        r"drf +3/3 +39 +60\.0",
        r"tetris +3/3 +39 +40\.0",
        r"by bfs\n +makespan +36 s",
        r"by critical_path\n +makespan +24 s",
        r"tez +8/8 +33,156 +5,328\.8 +2,889\.8",
        r"graphene +8/8 +33,156 +5,058\.2 +1,935\.8",
        r"\ngraphene +8 +-101\.7 +-28\.6 +26\.5 ",
        r"1,nightly,default,0\.0,0\.0,140\.0",
        r"at once 22 14",
        r"fifo3? +3/3 +39 +60\.0 +50\.0",
        r"tetris3? +3/3 +39 +60\.0 +36\.7",
        r"by critical_path\n +makespan +40 s, 1\.250 x",
        r"by graphene\n +makespan +36 s, 1\.125 x",
        r"plain +8/8 +33,156 +5,156\.9 +1,923",
    ],
    "nodes": [r"n2 +RUNNING +\d+ +0/4 "],
    "queues": [r"stopped\s+root.dev", r"nothing was changed: --dry-run", r"removed\s+root.new"],
    "researcher": [r"\npatient\S* +12/12", r"\d+ passed", r"13 jobs under patient"],
    "engineer": [
        r"done on host\d",
        r"LOST",
        r"DECOMMISSIONED",
        r"weft_nodes\{state=\"RUNNING\"\} 2",
    ],
}


def end(session: int) -> None:
    """End whatever the shell's session left behind."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,sid="], capture_output=True, text=True, check=True
    ).stdout
    for line in listed.splitlines():
        pid, sid = map(int, line.split())
        if sid == session and pid != os.getpid():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
