"""PSPLIB's instances: what is read, what is refused, and the table over them."""

import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from am.plan.registry import PlanRequest, planner
from lab.commands.bench import bench
from weft.model.dag import Machines, dag_of_job
from weft.model.errors import InputError
from weft.model.resources import ResourceType, ResourceTypes, guess_kind
from weft.workloads.imported import Imported
from weft.workloads.psplib import instances, parse
from weft.workloads.registry import detect, import_jobs

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("WEFT_DATA", ROOT / ".." / "shared" / "data")).resolve() / "psplib"

# activities 1 and 5 without duration; 2 and 3 cannot run together, 4 waits for 2
RULE = "*" * 72 + "\n"
SMALL = (
    RULE
    + "file with basedata            : x.bas\n"
    + "projects                      :  1\n"
    + "jobs (incl. supersource/sink ):  5\n"
    + "RESOURCES\n"
    + "  - renewable                 :  2   R\n"
    + "  - nonrenewable              :  0   N\n"
    + "  - doubly constrained        :  0   D\n"
    + RULE
    + "PRECEDENCE RELATIONS:\njobnr.    #modes  #successors   successors\n"
    + "   1        1          2           2   3\n   2        1          1           4\n"
    + "   3        1          1           5\n   4        1          1           5\n"
    + "   5        1          0        \n"
    + RULE
    + "REQUESTS/DURATIONS:\njobnr. mode duration  R 1  R 2\n"
    + "-" * 72
    + "\n  1      1     0       0    0\n  2      1     3       2    0\n"
    + "  3      1     4       2    1\n"
    + "  4      1     2       1    1\n  5      1     0       0    0\n"
    + RULE
    + "RESOURCEAVAILABILITIES:\n  R 1  R 2\n    3    1\n"
    + RULE
)


def test_an_instance_is_a_job_and_a_machine() -> None:
    """Activities are stages of one task; successors are edges; availabilities the machine."""
    found = parse(SMALL, "x", "x.sm")
    assert found.capacity == {"r1": 3.0, "r2": 1.0}
    assert [stage.duration_s for stage in found.job.stages] == [0, 3, 4, 2, 0]
    assert [[edge.stage for edge in stage.parents] for stage in found.job.stages] == [
        [],
        ["a1"],
        ["a1"],
        ["a2"],
        ["a3", "a4"],
    ]
    assert found.job.stages[2].demand == {"r1": 2.0, "r2": 1.0}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("):  5", "): 50", "at least 3 whole"),
        ("   2   3\n", "   2   9\n", "unknown successor 9"),
        ("           2   3\n", "           2\n", "expected job 1"),
        ("   3       2    0", "   3       7    0", "requests 7 of r1"),
        ("   3       2    0", "   x       2    0", "whole numbers"),
        ("  - nonrenewable              :  0", "  - nonrenewable : 2", "renewable resources"),
        ("RESOURCEAVAILABILITIES", "RESOURCES", "has no line"),
        ("   5        1          0        ", "   5        1          1   1", "cycle"),
        ("    3    1\n", "    3\n", "at least 2"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, told: str) -> None:
    """One error with file and line."""
    with pytest.raises(InputError, match=told) as caught:
        parse(SMALL.replace(old, new, 1), "x", "x.sm")
    assert "x.sm" in str(caught.value)


def _archive(path: Path, **files: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{name}.sm")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_archives_and_shares(tmp_path: Path) -> None:
    """A packed set is read as its files; `share` makes demands fractions of the machine."""
    path = _archive(tmp_path / "j3.tar.gz", b=SMALL, a=SMALL)
    assert detect([path]) == "psplib"
    jobs = list(import_jobs("auto", [path], {"share": "true"}, Imported()))
    assert [job.name for job in jobs] == ["a", "b"]
    assert jobs[0].stages[1].demand == {"r1": pytest.approx(2 / 3), "r2": 0.0}
    (tmp_path / "bad.tar.gz").write_bytes(path.read_bytes()[:80])
    with pytest.raises(InputError, match="archive"):
        instances(tmp_path / "bad.tar.gz")


@pytest.mark.slow
def test_the_table_over_a_folder(tmp_path: Path) -> None:
    """`weft bench plan --psplib`: deviations from the path and the best known, nothing invalid."""
    _archive(tmp_path / "j3.tar.gz", x=SMALL)
    (tmp_path / "best_known.json").write_text('{"x": {"best": 9, "lower_bound": 9}}')
    done = CliRunner().invoke(bench, ["plan", "--psplib", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    rows = {row["planner"]: row for row in json.loads(done.output)}
    row = rows["graphene_plus, 1,000 schedules"]
    assert (row["set"], row["instances"], row["invalid"], row["over_lists"]) == ("j3", 1, 0, 0)
    assert row["over_best_%"] == 0.0
    assert row["over_path_%"] == 80.0  # 9 s over a path of 5 s
    assert row["bound_above"] == 0


def outside_makespan(text: str, start: list[float]) -> float:
    """The makespan of starts by activity, checked period by period from the instance's own text."""
    lines = text.splitlines()
    first = lines.index("PRECEDENCE RELATIONS:") + 2
    after = {}
    for line in lines[first:]:
        row = line.split()
        if not row or not row[0].isdigit():
            break
        after[int(row[0])] = [int(word) for word in row[3:]]
    first = lines.index("REQUESTS/DURATIONS:") + 3
    needs = {
        int(r.split()[0]): [int(w) for w in r.split()[2:]] for r in lines[first:][: len(after)]
    }
    room = [int(w) for w in lines[lines.index("RESOURCEAVAILABILITIES:") + 2].split()]
    used: dict[tuple[int, int], int] = {}
    for number, children in after.items():
        begin = start[number - 1]
        assert begin == int(begin) >= 0
        end = int(begin) + needs[number][0]
        assert all(start[child - 1] >= end for child in children)
        for period in range(int(begin), end):
            for r, need in enumerate(needs[number][1:]):
                used[period, r] = used.get((period, r), 0) + need
    assert all(held <= room[r] for (_, r), held in used.items())
    return max(start[number - 1] + needs[number][0] for number in after)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["graphene", "graphene_plus"])
@pytest.mark.skipif(not DATA.is_dir(), reason=f"no instances under WEFT_DATA ({DATA})")
def test_plans_hold_by_an_outside_check(name: str) -> None:
    """Real instances: valid by the check above, not under the best known, not over the lists."""
    best = json.loads((DATA / "best_known.json").read_text())
    with tarfile.open(DATA / "j30.tar.gz") as archive:
        chosen = sorted(m.name for m in archive if m.name.endswith(".sm"))[::48]
        texts = {Path(n).stem: archive.extractfile(n).read().decode() for n in chosen}  # type: ignore[union-attr]
    for key, text in texts.items():
        found = parse(text, key, key)
        types = ResourceTypes(tuple(ResourceType(r, guess_kind(r)) for r in found.capacity))
        dag = dag_of_job(found.job, types)
        machine = Machines.alike(1, list(found.capacity.values()))

        def made(which: str, dag=dag, machine=machine):
            return planner(which)(PlanRequest(dag, machine, np.random.default_rng(1), {}))

        makespan = outside_makespan(text, np.round(made(name).start_s, 6).tolist())
        assert makespan >= best[key]["lower_bound"]
        assert makespan <= min(made("bfs").makespan_s, made("critical_path").makespan_s)
