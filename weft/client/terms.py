"""What the terms of each matcher mean, as the pages say it (`weft/web/static/terms.js`)."""

from collections.abc import Mapping
from itertools import pairwise
from math import inf

from weft.model.ids import AppId
from weft.protocol.requests import Turn

# Of `used of QUEUE`, a term for each queue on the way.
USED = "of what it is guaranteed: least goes first, before all terms of jobs"

TERMS = {
    "perf": "the score that decides: pri × packing (or overbook) − work left",
    "pri": "preferred order: the place of the stage's next task in its job's plan, 1 is first",
    "pri_score": "the place by all tasks of the job; over the largest one that waits it is pri",
    "pack": "how well the demand fits what is free",
    "overbook": "what it gains by starting on a full node",
    "work": "of the job, times its weight: less goes first",
    "deficit": "what its group is owed by fairness: from the bound on it goes before any perf",
    "bound": "the deficit from which a group goes before any perf (matcher.kappa)",
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

_TIE = 1e-9
# Of these the larger decides, of the others the smaller.
_LARGEST = frozenset({"priority", "pri"})


def put_first(mine: Mapping[str, float], its: Mapping[str, float], *, alike: bool = False) -> str:
    """Return the term or the rule by which an ask goes before the next one; "": none that is known.

    Each choice is made without those before it, so a score is compared with what the next one has
    in the same choice; `alike`: both are of one application.
    """
    queues = [[one for one in terms.items() if one[0].startswith("used ")] for terms in (mine, its)]
    for (name, used), (other, than) in zip(*queues, strict=False):
        if used < than:
            return f"{name}: {used:.3g}, less than {than:.3g} ({other})"
        if used > than:
            return ""
    if "perf" in mine and "perf" in its:
        return _by_perf(mine, its, alike)
    if "alignment" in mine and "alignment" in its:
        return _by_alignment(mine, its)
    for name, value in mine.items():
        if name == "place" or name.startswith("used ") or its.get(name, value) == value:
            continue
        if (value > its[name]) == (name in _LARGEST):
            return f"{name}: {value:.3g} goes before {its[name]:.3g}"
        return ""
    return ""


def _by_perf(mine: Mapping[str, float], its: Mapping[str, float], alike: bool) -> str:
    owed, than, bound = mine.get("deficit", 0.0), its.get("deficit", 0.0), mine.get("bound", inf)
    if owed >= bound and owed > than:
        return f"deficit: its group is owed {owed:.3g}; from {bound:.3g} on it goes before any perf"
    if mine["perf"] > its["perf"]:
        return f"perf: {mine['perf']:.3g} is more than {its['perf']:.3g}"
    # The next one has another eta in the choice of this one, and after one of its job another pri.
    eta, then = mine.get("eta", 0.0), its.get("eta", 0.0)
    work = its.get("work", 0.0)
    left = work * eta / then if then > 0 else work
    pri, top = its.get("pri", 0.0), its.get("pri_score", 0.0)
    before = top / max(top / pri, mine.get("pri_score", 0.0)) if alike and pri > 0 < top else pri
    gain = its["perf"] + work
    there = (gain * before / pri if pri > 0 else gain) - left
    changed = [f"eta {eta:.3g}"] if left != work else []
    changed += [f"pri {before:.3g}"] if before != pri else []
    if changed and there <= mine["perf"] + _TIE:
        names = ", ".join(changed)
        which = changed[-1].partition(" ")[0]
        return f"{which}: in this choice, with {names}, the perf of the next one is {there:.3g}"
    if there <= mine["perf"] + _TIE:
        return "submission: of one perf the earlier application goes first, then the earlier ask"
    return "bundle: the next one was not let into this choice, by the bundle or a limit"


def _by_alignment(mine: Mapping[str, float], its: Mapping[str, float]) -> str:
    here, there = (terms["alignment"] - terms.get("work", 0.0) for terms in (mine, its))
    return f"alignment - work: {here:.3g} is more than {there:.3g}" if here > there else ""


def orders_of(app: AppId, turn: Turn) -> list[str]:
    """Return for each place of the order of `app`, from 1, why it is before the next, if odd.

    It is odd where perf is no larger than the next one's.
    """
    told = [(place, one.app_id, one.scores) for place, one in enumerate(turn.first, 1)]
    if not turn.beyond:
        told.append((turn.asks + 1, app, turn.scores))
    found = []
    for (place, first, mine), (then, second, its) in pairwise(told):
        if mine.get("perf", inf) <= its.get("perf", -inf):
            why = put_first(mine, its, alike=first == second > 0)
            found.append(f"{place} goes before {then} by {why}")
    return found
