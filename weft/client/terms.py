"""What the terms of each matcher mean, as the pages say it (`weft/web/static/terms.js`)."""

from collections.abc import Mapping
from itertools import pairwise

from weft.protocol.requests import Turn

# Of `used of QUEUE`, a term for each queue on the way.
USED = "of what it is guaranteed: least goes first, before all that is said of jobs"

TERMS = {
    "perf": "the score that decides: pri × packing (or overbook) − work left",
    "pri": "preferred order: the place of the stage in its job's plan, 1 is first",
    "pack": "how well the demand fits what is free",
    "overbook": "what it gains by starting on a full node",
    "work": "of the job, times its weight: less goes first",
    "deficit": "what its group is owed by fairness",
    "eta": "weighs remaining work against packing; it is in work left already",
    "alignment": "demand · what is free (Tetris)",
    "dominant_share": "what the job holds of its scarcest resource: least goes first",
    "containers": "containers: fewest goes first",
    "path_s": "seconds of its longest remaining path: shortest goes first",
    "mix": "of remaining work and share: least goes first",
    "priority": "of the application: largest goes first",
    "submission": "its number: smallest goes first",
    "place": "in the line",
}

# Of these the larger decides, of the others the smaller.
_SCORES = ("perf", "alignment")
_LARGEST = frozenset({"priority", "pri"})


def put_first(mine: Mapping[str, float], its: Mapping[str, float]) -> str:
    """Return the term or the rule by which an ask goes before the next one; "": none that is told.

    Each choice is made without those before it, so a score is compared with that of another choice:
    where it is smaller, what makes both differ is named.
    """
    queues = [[one for one in terms.items() if one[0].startswith("used ")] for terms in (mine, its)]
    for (name, used), (other, than) in zip(*queues, strict=False):
        if used < than:
            return f"{name}: {used:.3g}, less than {than:.3g} ({other})"
        if used > than:
            return ""
    score = next((name for name in _SCORES if name in mine and name in its), "")
    if score:
        return _by_score(score, mine, its)
    for name, value in mine.items():
        if name == "place" or name.startswith("used ") or its.get(name, value) == value:
            continue
        if (value > its[name]) == (name in _LARGEST):
            return f"{name}: {value:.3g} goes before {its[name]:.3g}"
        return ""
    return ""


def _by_score(score: str, mine: Mapping[str, float], its: Mapping[str, float]) -> str:
    if mine[score] > its[score]:
        return f"{score}: {mine[score]:.3g} is more than {its[score]:.3g}"
    if mine.get("deficit", 0.0) > its.get("deficit", 0.0):
        return "deficit: its group is owed more than the bound, so it goes before any perf"
    eta, then = mine.get("eta", 0.0), its.get("eta", 0.0)
    work = its.get("work", 0.0)
    if then > 0 and (there := its[score] - work * (eta / then - 1)) < mine[score]:
        return (
            f"eta: in this choice, with eta {eta:.3g}, the {score} of the next one is {there:.3g}"
        )
    if its.get("pri", 0.0) > mine.get("pri", 0.0):
        return "pri: that of the next one counts over what its job has left when this is served"
    return ""


def orders_of(turn: Turn) -> list[str]:
    """Return for each place of an order, from 1, why it is before the next, where that is odd.

    It is odd where the score is smaller than the next one's.
    """
    told = [one.scores for one in turn.first]
    if not turn.beyond and turn.asks == len(told):
        told.append(turn.scores)
    found = []
    for place, (mine, its) in enumerate(pairwise(told), 1):
        score = next((name for name in _SCORES if name in mine and name in its), "")
        if score and mine[score] <= its[score] and (why := put_first(mine, its)):
            found.append(f"{place} goes before {place + 1} by {why}")
    return found
