"""The cores decide as they did: the digests of every preset, in both paces and under faults."""

import pytest

from lab.studies import digests
from weft.policies.presets import PRESETS


@pytest.mark.slow
def test_every_preset_decides_as_before_in_both_paces_and_under_faults() -> None:
    before, now = digests.kept()["quick"], digests.quick()
    assert {name.split(",")[0] for name in now} == set(PRESETS)
    wrong = {run: digest for run, digest in now.items() if before.get(run) != digest}
    assert not wrong, (
        "meant? then `python -m lab.studies.digests --write`, and say why in the commit"
    )
    assert before.keys() == now.keys()
