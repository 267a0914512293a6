"""The search: every row is drawn, run, judged, and shrunk where it breaks a promise."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from testkit.meetings import plans, relations
from testkit.meetings.drawn import Meeting, draw
from testkit.meetings.features import PLAIN, Row, text_of
from testkit.meetings.judge import Judge
from testkit.meetings.running import run

# Relations are half of what a row costs.
RELATIONS_MAX = 1
_NO_DIGITS = str.maketrans("", "", "0123456789")


class Finding(NamedTuple):
    """A promise that a row breaks."""

    row: Row
    seed: int
    problem: str

    @property
    def kind(self) -> str:
        """The problem without numbers and names."""
        return kind_of(self.problem)

    @property
    def command(self) -> str:
        """How to see it again."""
        return f"python -m testkit.meetings --seed {self.seed} {text_of(self.row)}".rstrip()


def kind_of(problem: str) -> str:
    """Return a problem without its numbers and names, to tell one fault from another."""
    return "".join(c for c in problem.split(" [", maxsplit=1)[0] if not c.isdigit())


def problems(meeting: Meeting, only: str = "", relations_max: int = 99) -> Iterator[str]:
    """Yield what a meeting breaks, each kind once.

    `only`: look for this kind and no other. Of the relations that apply `relations_max` are tried,
    others for another seed.
    """
    kinds: set[str] = set()
    for problem in _problems(meeting, only, relations_max):
        kind = kind_of(problem)
        if kind not in kinds and only in ("", kind):
            kinds.add(kind)
            yield problem


def _problems(meeting: Meeting, only: str, relations_max: int) -> Iterator[str]:
    ran = run(meeting, watched=meeting.row["faults"] != "gone")
    ends = all(end.state in ("FINISHED", "KILLED", "REFUSED") for end in ran.evidence.jobs)
    if meeting.row["faults"] == "gone":
        if not ran.evidence.ended_by_itself:
            yield "a run goes on though nothing can happen any more"
        return
    if meeting.row["faults"] == "none":
        yield from Judge(ran.evidence).problems()
        yield from plans.problems(meeting)
    hangs = not ends and ran.problem.startswith("a job hangs")
    if ran.problem and not (hangs and meeting.row["faults"] == "none"):
        yield ran.problem
    # Two runs that do not end have no times to compare.
    if ran.problem or not ends:
        return
    for name, other in relations.others(meeting, relations_max):
        if only and not only.startswith(name.translate(_NO_DIGITS)):
            continue
        after = run(other, watched=False)
        found = after.problem or relations.compare(name, ran.evidence, after.evidence)
        if found:
            yield f"{name}: {found}"


def search(
    rows: Iterable[Row], seed: int = 0, relations_max: int = RELATIONS_MAX
) -> Iterator[Finding]:
    """Yield what rows break; row number n is drawn by `seed` + n."""
    for number, row in enumerate(rows):
        for problem in problems(draw(row, seed + number), relations_max=relations_max):
            yield Finding(row, seed + number, problem)


def shrink(finding: Finding) -> Finding:
    """Return a row with as few features as show the same kind of problem with the same seed."""
    row = dict(finding.row)
    for name in PLAIN:
        if row[name] == PLAIN[name]:
            continue
        plainer = {**row, name: PLAIN[name]}
        again = next(problems(draw(plainer, finding.seed), finding.kind), "")
        if again:
            row, finding = plainer, Finding(plainer, finding.seed, again)
    return finding


def fewer_jobs(meeting: Meeting, kind: str) -> Meeting:
    """Return the meeting with as few jobs as show the same kind of problem."""
    jobs = list(meeting.jobs)
    for job in meeting.jobs:
        fewer = [one for one in jobs if one is not job]
        if fewer and any(problems(replace(meeting, jobs=tuple(fewer)), kind)):
            jobs = fewer
    return replace(meeting, jobs=tuple(jobs))
