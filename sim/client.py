"""The client of a simulation: submits each job at its arrival, until it is answered."""

from collections.abc import Sequence
from typing import cast

from sim.engine import Effects
from sim.recorder import JobRow, Recorder
from weft.model.ids import AppId
from weft.model.job import Job
from weft.protocol.effects import ClientRequested, Send, SetTimer, Started, TimerFired
from weft.protocol.messages import MANAGER, Address, client_address
from weft.protocol.requests import ApplicationAccepted, Refused, SubmitApplication

# A client that is not answered asks again after so long.
RETRY_S = 5.0


class Client:
    """Given the answers, it keeps the recorder's table of jobs; `repeat` where messages fail."""

    def __init__(
        self, jobs: Sequence[Job], recorder: Recorder, *, repeat: bool, apps: Sequence[AppId] = ()
    ) -> None:
        """`apps`: numbers that the jobs' applications get, which the manager holds for reserved."""
        self._recorder = recorder
        self._apps = apps
        self._repeat = repeat
        # Submissions of this client begin with it.
        self.token_prefix = "job-"
        recorder.jobs = [JobRow(job, number) for number, job in enumerate(jobs)]
        recorder.open_jobs = len(jobs)

    def handle(self, event: Started | TimerFired, now: float) -> Effects:
        """Plan the arrivals on `Started`; a timer's key is the number of a job to submit."""
        rows = self._recorder.jobs
        if isinstance(event, Started):
            return [SetTimer(row.job.arrival_s, row.number) for row in rows]
        number = cast(int, event.key)
        row = rows[number]
        if row.app or row.finish_s >= 0:
            return []
        app = self._apps[number] if self._apps else 0
        request = SubmitApplication(row.job, f"{self.token_prefix}{number}", app)
        effects: Effects = [Send(MANAGER, ClientRequested(str(number), request))]
        if self._repeat:
            effects.append(SetTimer(RETRY_S, number))
        return effects

    def answered(self, to: Address, answer: object, now: float) -> None:
        """Take the Resource Manager's answer to a submission."""
        token = to.removeprefix(client_address(""))
        if not token.isdecimal():
            # Another client asked.
            return
        row = self._recorder.jobs[int(token)]
        if isinstance(answer, ApplicationAccepted):
            self._recorder.accepted(row, answer.app_id, now)
        elif isinstance(answer, Refused) and row.finish_s < 0:
            self._recorder.refused(row, now, f"{answer.place}: {answer.problem}")
