"""No preset breaks a rule on a slice of a public workload, with every checker on."""

import os
from pathlib import Path

import pytest

from lab.studies.preset_check import WORKLOAD, check, workload
from weft.policies.presets import PROMISING

DATA = Path(os.environ.get("WEFT_DATA", "../shared/data"))
pytestmark = pytest.mark.skipif(
    not (DATA / WORKLOAD).exists(), reason=f"no {WORKLOAD} in {DATA} (WEFT_DATA)"
)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROMISING)
def test_every_preset_ends_a_slice_of_a_public_workload(name: str) -> None:
    jobs = sorted(workload(), key=lambda job: job.task_count)[20:60:10]
    row = check(name, jobs, nodes=4, every=25)
    assert f"| {len(jobs)} of {len(jobs)} | {sum(job.task_count for job in jobs)} |" in row
