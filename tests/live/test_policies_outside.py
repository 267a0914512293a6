"""Policies of another package: installed by pip, named by entry point or `module:attribute`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.live import until
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.errors import WeftError
from weft.model.job import Job, Stage

PACKAGE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "policies"
CLUSTER = "4x8vcores,8192memory_mb"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, installed in a folder of its own."""
    source = tmp_path_factory.mktemp("source") / "policies"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    target = tmp_path_factory.mktemp("site")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--no-build-isolation",
            "--disable-pip-version-check",
            "--target",
            target,
            source,
        ],
        check=True,
    )
    return target


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A workload in the example importer's format; one line is no job."""
    path = tmp_path / "jobs.txt"
    path.write_text("narrow 4 10 2 1024\nwide 40 10 2 1024\nnonsense\n")
    return path


def run(site: Path | None, cwd: Path, *words: object) -> subprocess.CompletedProcess[str]:
    env = dict(os.environ) | ({"PYTHONPATH": str(site)} if site else {})
    command = [Path(sys.executable).parent / "weft", *map(str, words)]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False)


def test_all_four_seams_by_name(site, jobs, tmp_path):
    imported = run(site, tmp_path, "import", "lines", jobs, "--out", "jobs.json", "--json")
    assert imported.returncode == 0, imported.stderr
    assert json.loads(imported.stdout)["dropped"] == {"lines without five columns": 1}
    words = ("simulate", "jobs.json", "--cluster", CLUSTER, "--json", "--pace", "prompt")
    parts = ("--matcher", "widest", "--planner", "longest_first", "--asker", "waves")
    ends = {}
    for narrow in ("false", "true"):
        told = run(
            site,
            tmp_path,
            *words,
            *parts,
            "--out",
            narrow,
            "--set",
            f"matcher.narrow={narrow}",
            "--set",
            "asker.most=30",
            "--set",
            "planner.shortest=true",
        )
        assert told.returncode == 0, told.stderr
        summary = json.loads(told.stdout)
        assert summary["scheduler"] == "widest+longest_first+waves"
        rows = (tmp_path / narrow / "jobs.csv").read_text().splitlines()
        head = rows[0].split(",")
        table = [dict(zip(head, row.split(","), strict=True)) for row in rows[1:]]
        ends[narrow] = {row["name"]: float(row["jct_s"]) for row in table}
    assert ends["true"]["narrow"] < ends["false"]["narrow"], "the parameter changes who goes first"
    planned = run(
        site,
        tmp_path,
        "plan",
        "jobs.json",
        "--job",
        "wide",
        "--cluster",
        CLUSTER,
        "--planner",
        "longest_first",
        "--json",
    )
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["planner"] == "longest_first"


def test_the_shared_tests_run_on_them(site, jobs, tmp_path):
    env = dict(os.environ) | {"PYTHONPATH": str(site)}
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "lab.policy_options",
            "--pyargs",
            "lab.policy_tests",
            "--weft-seeds=2",
            "--weft-matcher=widest",
            "--weft-planner=longest_first",
            "--weft-asker=waves",
            "--weft-importer=lines",
            f"--weft-source={jobs}",
        ],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr
    assert "skipped" not in ran.stdout


def test_the_shared_tests_find_a_matcher_that_breaks_the_rules(tmp_path):
    (tmp_path / "greedy.py").write_text(GREEDY)
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "lab.policy_options",
            "--pyargs",
            "lab.policy_tests",
            "--weft-seeds=2",
            "--weft-matcher=greedy:Greedy",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "no planner is named (--weft-planner NAME)" in ran.stdout
    for name in (
        "keeps_the_limits_of_queues",
        "gives_the_same_answer_twice",
        "names_in_pairs_what_its_order_goes_by",
    ):
        assert any("FAILED" in line and name in line for line in ran.stdout.splitlines()), name


GREEDY = '''
from rm.match.candidates import candidates
from rm.match.protocol import BaseMatcher, Match, Placement


class Greedy(BaseMatcher):
    """Takes the first row that fits, whatever its queue may hold; forgets that it must not."""

    name = "greedy"

    def __init__(self):
        self.calls = 0

    def match(self, view, node, now):
        self.calls += 1
        rows = candidates(view, node).rows
        if not len(rows):
            return Match([])
        return Match([Placement(int(rows[0]), 1, (("calls", float(self.calls)),))], settled=False)

    def terms(self, view, row):
        return {"age_s": 1.0}
'''


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gone.away:Mine", "cannot load 'gone.away': ModuleNotFoundError"),
        ("mine:Other", "mine has no 'Other'"),
        ("mine:NUMBER", "is no class or function"),
        ("mine:Nothing", "it has no match"),
        ("mine:Needs", "needs"),
        ("broken:Mine", "cannot load 'broken': ZeroDivisionError"),
    ],
)
def test_a_wrong_name_is_one_clear_line(tmp_path, name, says):
    (tmp_path / "mine.py").write_text(
        "NUMBER = 3\nclass Nothing: pass\nclass Needs:\n    def __init__(self, needs): pass\n"
    )
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "j.yaml").write_text("name: j\nstages: [{name: a, tasks: 1, duration_s: 1}]\n")
    told = run(None, tmp_path, "simulate", "j.yaml", "--cluster", CLUSTER, "--matcher", name)
    assert told.returncode == 2, told.stderr
    assert len(told.stderr.strip().splitlines()) == 1, told.stderr
    assert says in told.stderr


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (("--planner", "json:dumps"), 1, "TypeError: Object of type PlanRequest is not JSON"),
        (("--planner", "builtins:repr"), 1, "answers a str, not a Plan"),
        (("--asker", "json:dumps"), 2, "asker.json:dumps"),
    ],
)
def test_what_is_no_policy_is_one_clear_line_too(tmp_path, flags, code, says):
    (tmp_path / "j.yaml").write_text("name: j\nstages: [{name: a, tasks: 1, duration_s: 1}]\n")
    told = run(None, tmp_path, "simulate", "j.yaml", "--cluster", CLUSTER, *flags)
    assert told.returncode == code, told.stderr
    assert len(told.stderr.strip().splitlines()) == 1, told.stderr
    assert says in told.stderr


def test_they_run_live(site, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(site))
    settings = LocalSettings(
        cluster=CLUSTER,
        matcher="widest",
        planner="longest_first",
        asker="waves",
        options={"matcher.narrow": "true", "asker.most": "3"},
        time_scale=20.0,
    )
    with LocalCluster(settings) as cluster, Client(cluster.address) as client:
        demand = {"vcores": 2.0, "memory_mb": 1024.0}
        apps = [client.submit(Job(f"j{n}", (Stage("a", 20, 2.0, demand),))) for n in range(2)]
        until(
            lambda: all(client.application(app).final_status == "SUCCEEDED" for app in apps),
            "both jobs succeed",
        )
        assert client.metrics().scheduler == "widest"


def test_a_matcher_that_leaves_the_process_is_named_live(tmp_path, monkeypatch):
    """With SystemExit(0) the manager would end as if all were well."""
    (tmp_path / "leaves.py").write_text(LEAVES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    settings = LocalSettings(cluster=CLUSTER, matcher="leaves:Late", time_scale=20.0)
    named = r"^rm ended with exit code 1: .*matcher 'leaves:Late': SystemExit: 0 \("
    with pytest.raises(WeftError, match=named), LocalCluster(settings) as cluster:
        _until_nobody_answers(cluster, tmp_path / "leave")


def _until_nobody_answers(cluster, leave):
    leave.touch()
    with Client(cluster.address) as client:
        client.submit(Job("j", (Stage("a", 40, 2.0, {"vcores": 1.0}),)))
    until(cluster.failed, "the manager ends")
    raise WeftError("no Resource Manager")  # as a client says that waits for it


LEAVES = """
from pathlib import Path

from rm.match.capacity import CapacityMatcher


class Late(CapacityMatcher):
    def match(self, view, node, now):
        if Path(__file__).with_name("leave").exists():
            raise SystemExit(0)
        return super().match(view, node, now)
"""
