"""The head of a strict queue: priority, submission, preferred order, asking order."""

from weft.compiled import kernel
from weft.dag import Floats, Ints


@kernel
def head(
    rows: Ints, app: Ints, pri_score: Floats, serial: Ints, priority: Ints, order: Ints
) -> int:
    """The first of `rows`: larger priority, earlier application, larger priScore, smaller serial;
    -1 where there is none.
    """
    best = -1
    for i in range(rows.shape[0]):
        row = rows[i]
        if best < 0:
            best = row
            continue
        a, b = app[row], app[best]
        if priority[a] != priority[b]:
            if priority[a] > priority[b]:
                best = row
        elif order[a] != order[b]:
            if order[a] < order[b]:
                best = row
        elif pri_score[row] != pri_score[best]:
            if pri_score[row] > pri_score[best]:
                best = row
        elif serial[row] < serial[best]:
            best = row
    return best
