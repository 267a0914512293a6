"""Carbyne's text workloads: each quirk is read as stated, or refused with a reason."""

import pytest

from weft.model.errors import InputError
from weft.model.job import Edge, EdgeKind
from weft.workloads import carbyne

GOOD = """# 0: TPC-H query10
2 0 17
Reducer3 30 0.19 0.17 0.31 0.25 0.03 0.25 48
Map1 11 0.19 0.23 0.02 0.0 0.07 0.21 41
1
Map1 Reducer3 ata
"""


def read(tmp_path, text):
    path = tmp_path / "queries.txt"
    path.write_text(text)
    return carbyne.read([path])


def test_duration_is_the_first_number_and_tasks_the_last(tmp_path):
    (job,) = read(tmp_path, GOOD).jobs
    assert (job.name, job.history_key, job.arrival_s) == ("TPC-H query10",) * 2 + (17.0,)
    assert job.resources == ("cpu", "memory", "r3", "r4", "r5", "r6")
    stage = job.stage("Reducer3")
    assert (stage.tasks, stage.duration_s, stage.parents) == (48, 30.0, (Edge("Map1"),))
    assert list(stage.demand.values()) == [0.19, 0.17, 0.31, 0.25, 0.03, 0.25]


def test_patterns_scatter_gather_and_one_to_one_are_known(tmp_path):
    for pattern, kind in (("scg", EdgeKind.ALL_TO_ALL), ("oto", EdgeKind.ONE_TO_ONE)):
        (job,) = read(tmp_path, GOOD.replace("ata", pattern)).jobs
        assert job.stage("Reducer3").parents == (Edge("Map1", kind),)


def test_a_header_without_a_job_is_counted(tmp_path):
    result = read(tmp_path, "# 1\n# 2\n" + GOOD)
    assert len(result.jobs) == 1
    assert result.dropped == {"job header without a job": 2}
    assert len(result.warnings) == 2


def test_a_numbered_job_gets_a_name_and_a_last_line_may_lack_its_end(tmp_path):
    (job,) = read(tmp_path, "# 7\n1 7\nMap 472 0.1 0.1 0 0 0 0 4359\n0").jobs
    assert (job.name, job.task_count) == ("job-7", 4359)


def test_a_stage_name_that_occurs_twice_without_edges_is_renamed(tmp_path):
    text = "# a\n2 0\nM 1 0 0 0 0 0 0 1\nM 2 0 0 0 0 0 0 1\n0\n"
    result = read(tmp_path, text)
    assert [stage.name for stage in result.jobs[0].stages] == ["M", "M_2"]
    assert "renamed" in result.warnings[0]


M = "M 1 0 0 0 0 0 0 1\n"
REFUSED = {
    "stage that does not exist": ("# a\n1 0\n" + M + "1\nM X ata\n", "stage 'X'.*does not exist"),
    "stage named twice": (f"# a\n3 0\n{M}{M}{M.replace('M', 'R')}1\nM R ata\n", "two stages"),
    "number too many": ("# a\n1 0\nM 1 0 0 0 0 0 0 1 9\n0\n", "has 9 fields.*this has 10"),
    "over one machine": ("# a\n1 0\nM 1 1.5 0 0 0 0 0 1\n0\n", "over one machine"),
    "not a number": ("# a\n1 0\nM x 0 0 0 0 0 0 1\n0\n", "expected a number"),
    "nan": ("# a\n1 0\nM nan 0 0 0 0 0 0 1\n0\n", "finite"),
    "no task": ("# a\n1 0\nM 1 0 0 0 0 0 0 0\n0\n", "count from 1"),
    "unknown pattern": (GOOD.replace("ata", "xyz"), "unknown edge pattern"),
    "cut off": (GOOD.replace("Map1 Reducer3 ata\n", ""), "ends before its edge 1"),
    "line too many": (GOOD + "Map1 Reducer3 ata\n", "more lines than"),
    "cycle": (GOOD.replace("\n1\n", "\n2\n") + "Reducer3 Map1 ata\n", "cycle"),
    "no header": (M, "expected a job header"),
    "empty": ("", "holds no job"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_malformed_job_is_refused_with_its_reason(tmp_path, case):
    text, message = REFUSED[case]
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


def test_a_malformed_job_among_good_ones_is_dropped_and_counted(tmp_path):
    result = read(tmp_path, GOOD + REFUSED["not a number"][0] + GOOD)
    assert len(result.jobs) == 2
    assert result.dropped == {"malformed job": 1}
    assert "queries.txt line 9" in result.warnings[0]
