"""The line of asks where nothing else decides: priority, submission, preferred order."""

from weft.model.dag import Floats, Ints
from weft.policies.compiled import inner_kernel


@inner_kernel
def turn(a: int, b: int, app: Ints, pri_score: Floats, priority: Ints, order: Ints) -> int:
    """Return -1 where row `a` goes before row `b`, 1 the other way round, 0 where they are equal.

    The larger priority goes first, then the earlier application, then the larger priScore.
    """
    x, y = app[a], app[b]
    if priority[x] != priority[y]:
        return -1 if priority[x] > priority[y] else 1
    if order[x] != order[y]:
        return -1 if order[x] < order[y] else 1
    if pri_score[a] != pri_score[b]:
        return -1 if pri_score[a] > pri_score[b] else 1
    return 0
