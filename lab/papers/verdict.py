"""Does a number of ours come out as the paper's does? Three verdicts, by margins set beforehand.

*Equivalent*: the whole 95 % interval lies within a margin of the paper's number, so that a wide
interval cannot earn it. *Differs*: the whole interval lies outside. *Cannot tell*: anything else.
The margin is one for each kind of measure, whatever the figure; a bound (`at most 7`) has none.
"""

import math
import re
from dataclasses import dataclass

from lab.studies.trials import student_t

EQUIVALENT, DIFFERS, CANNOT_TELL = "equivalent", "differs", "cannot tell"
VERDICTS = (EQUIVALENT, DIFFERS, CANNOT_TELL)
SEEDS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Measure:
    """A kind of number: how it is printed, and how near is the same.

    The margin is in the number's own unit, or a part of the paper's number.
    """

    name: str
    margin: float
    digits: int
    is_relative: bool = False
    is_signed: bool = False

    def told(self, value: tuple[float, float]) -> str:
        """Return a number with its interval, if it has one: `+12.3 ± 0.4`."""
        mean, half = value
        if math.isnan(mean):
            return "-"
        spread = f" ± {half:.{self.digits}f}" if half > 0 else ""
        return f"{mean:{'+' if self.is_signed else ''}.{self.digits}f}{spread}"


# By so much the phases of heartbeats alone move what one set of jobs gains at the median (a
# deviation of 4 to 6 points on the same jobs), so what is nearer cannot be told from the same.
SAVED = Measure("time saved or lost", 5.0, 1, is_signed=True)
SHARE = Measure("percent of jobs, tasks or DAGs", 5.0, 0)
FACTOR = Measure("factor or amount", 0.05, 2, is_relative=True)
INDEX = Measure("index or fraction between 0 and 1", 0.05, 2)
COUNT = Measure("number of things", 0.05, 0, is_relative=True)
MEASURES = (SAVED, SHARE, FACTOR, INDEX, COUNT)

_NUMBER = r"[+-]?\d[\d,]*(?:\.\d+)?"


@dataclass(frozen=True, slots=True)
class Claim:
    """What a paper says a number is: between `low` and `high`, infinite where it does not say."""

    low: float
    high: float

    def zone(self, measure: Measure) -> tuple[float, float]:
        """Return what counts as the same: numbers with their margin, bounds as they are."""
        low, high = self.low, self.high
        if math.isinf(low) or math.isinf(high):
            return low, high
        scale = measure.margin if measure.is_relative else 0.0
        absolute = 0.0 if measure.is_relative else measure.margin
        return low - absolute - scale * abs(low), high + absolute + scale * abs(high)


def claim_of(text: str) -> Claim | None:
    """Return what a paper's words say: `1.5`, `about 60`, `> 0.7`, `at most 7`, `1.76 to 1.91`.

    What stands in brackets is a remark. Words without a number claim nothing.
    """
    said = text.partition(" (")[0].strip()
    found = re.fullmatch(rf"(.*?)({_NUMBER})(?: to ({_NUMBER}))?", said)
    if found is None:
        return None
    word, low = found[1].strip(), float(found[2].replace(",", ""))
    if found[3]:
        return Claim(low, float(found[3].replace(",", ""))) if not word else None
    if word in (">", "above", "at least"):
        return Claim(low, math.inf)
    if word in ("<", "below", "at most", "up to"):
        return Claim(-math.inf, low)
    return Claim(low, low) if word in ("", "about") else None


def judged(value: tuple[float, float], claim: Claim, measure: Measure) -> str:
    """Return the verdict on a mean and half of its interval; NaN is an interval without end."""
    (mean, half), (low, high) = value, claim.zone(measure)
    if math.isnan(mean) or math.isnan(half):
        return CANNOT_TELL
    if low <= mean - half and mean + half <= high:
        return EQUIVALENT
    if mean + half < low or high < mean - half:
        return DIFFERS
    return CANNOT_TELL


def seeds_that_tell(
    value: tuple[float, float], seeds: int, claim: Claim, measure: Measure
) -> int | None:
    """Return how many seeds would tell, if mean and deviation stay; None beyond SEEDS_MAX."""
    (mean, half), (low, high) = value, claim.zone(measure)
    room = min(abs(mean - low), abs(mean - high))
    deviation = half * math.sqrt(seeds) / student_t(seeds - 1)
    for count in range(2, SEEDS_MAX + 1):
        if student_t(count - 1) * deviation / math.sqrt(count) < room:
            return count
    return None


def verdict(value: tuple[float, float], seeds: int, paper: str, measure: Measure) -> str:
    """Return the verdict in words, nothing where the paper's words are no number."""
    claim = claim_of(paper)
    if claim is None:
        return ""
    said = judged(value, claim, measure)
    if said != CANNOT_TELL:
        return said
    if math.isnan(value[1]):
        return f"{said} (2 seeds at least)"
    count = seeds_that_tell(value, seeds, claim, measure)
    return f"{said} ({f'{count} seeds would' if count else f'nor would {SEEDS_MAX:,} seeds'})"
