"""What tapes tell of a run that `weft whatif` and `weft predict` go by."""

import pytest

from sim.faults import Fault, FaultKind, Faults
from sim.recorder import Recorder
from sim.replay import whatif
from sim.replay.recorded_run import Rerun, Watched, of_simulation
from sim.replay.timeline import timeline_of
from sim.settings import SimSettings
from testkit.builders import chain
from tests.parity.test_tapes import CLUSTER
from weft.protocol.messages import MANAGER


def test_what_ended_before_a_restart_of_the_manager_ended_then() -> None:
    restart = Fault(40.0, FaultKind.RESTART_MANAGER, for_s=20.0)
    settings = SimSettings(prompt=True, faults=Faults((restart,)))
    run = Watched(CLUSTER, [chain("early"), chain("late", arrival_s=80.0)], settings, Recorder())
    rows = run.run().jobs
    assert rows[0].finish_s < restart.at_s
    steps = run.steps
    seen = whatif.Seen()
    Rerun(steps).seek(len(steps), lambda event, now, o, _: seen.listen(MANAGER, event, now, o))
    ends = {row.app: row.finish_s for row in rows}
    assert {app: ended_s for app, (_, ended_s) in seen.ended.items()} == ends
    played = timeline_of(of_simulation("run", "capacity", run))
    assert {job["app"]: job["finished"] for job in played.jobs} == pytest.approx(ends, abs=1e-5)
