"""The orders of YARN's Fair Scheduler: FairSharePolicy, FifoPolicy, DominantResourceFairness."""

from functools import cmp_to_key

from rm.match.yarn.amounts import single
from rm.match.yarn.fair_state import FairState, Share


def in_order(state: FairState, policy: str, shares: list[Share]) -> list[Share]:
    """Return queues or applications in the order in which a policy serves them."""
    if len(shares) < 2:
        return shares
    if policy == "fifo":
        return sorted(shares, key=lambda one: (one.start, one.name))
    compare = _by_dominance if policy == "drf" else _by_memory

    def before(a: Share, b: Share) -> int:
        found = compare(state, a, b)
        if found:
            return found
        mine, others = (a.start, a.name), (b.start, b.name)
        return (mine > others) - (mine < others)

    return sorted(shares, key=cmp_to_key(before))


def measured(state: FairState, policy: str, one: Share) -> list[tuple[str, float]]:
    """Return what a policy compares a share by, the most weighty first."""
    if policy == "drf":
        first, shares = _dominant(state, one) if len(state.names) == 2 else _largest(state, one)
    else:
        first = state.memory
        weight = state.weight(one)
        shares = [float(used) / weight if weight else _infinite(used) for used in one.used]
    used, least = one.used[first], state.least(one)[first]
    needy = [("used of the minimum", used / least)] if used < least else []
    return [*needy, ("used by weight", shares[first])]


def _largest(state: FairState, one: Share) -> tuple[int, list[float]]:
    """Return the dominant resource and the shares of all over the weight."""
    weight = state.weight(one)
    shares = [x / c if c else 0.0 for x, c in zip(one.used, state.cluster, strict=True)]
    first = max(range(len(shares)), key=lambda r: (shares[r], -r))
    return first, [x / weight if weight else _infinite(x) for x in shares]


def _by_memory(state: FairState, a: Share, b: Share) -> int:
    """Compare by memory: who wants something, who lacks of the minimum share, who has less."""
    at = state.memory
    wants, other_wants = a.demand[at], b.demand[at]
    if (wants == 0) != (other_wants == 0):
        return 1 if wants == 0 else -1
    used, other_used = a.used[at], b.used[at]
    least = min(state.least(a)[at], wants)
    other_least = min(state.least(b)[at], other_wants)
    needy, other_needy = used < least, other_used < other_least
    if needy != other_needy:
        return -1 if needy else 1
    if needy:
        mine = used / least if least > 1 else float(used)
        others = other_used / other_least if other_least > 1 else float(other_used)
        if mine != others:
            return -1 if mine < others else 1
    weight, other_weight = state.weight(a), state.weight(b)
    if weight > 0 and other_weight > 0:
        mine, others = used / weight, other_used / other_weight
    elif weight == other_weight:
        mine, others = float(used), float(other_used)
    else:
        mine, others = -weight, -other_weight
    return (mine > others) - (mine < others)


def _by_dominance(state: FairState, a: Share, b: Share) -> int:
    if len(state.names) != 2:
        return _by_ratios(state, a, b)
    rows = [_dominant(state, one) for one in (a, b)]
    (first, mine), (other, others) = rows
    needy = a.used[first] < state.least(a)[first]
    other_needy = b.used[other] < state.least(b)[other]
    if needy != other_needy:
        return -1 if needy else 1
    if needy:
        mine, others = _over_least(state, a), _over_least(state, b)
    for i, j in ((first, other), (1 - first, 1 - other)):
        if found := _sign(mine[i] - others[j]):
            return found
    return 0


def _dominant(state: FairState, one: Share) -> tuple[int, list[float]]:
    shares = [x / c if c else 0.0 for x, c in zip(one.used, state.cluster, strict=True)]
    first = state.vcores if shares[state.vcores] > shares[state.memory] else state.memory
    weight = state.weight(one)
    return first, [x / weight if weight else _infinite(x) for x in shares]


def _over_least(state: FairState, one: Share) -> list[float]:
    return [x / y if y else _infinite(x) for x, y in zip(one.used, state.least(one), strict=True)]


def _infinite(x: float) -> float:
    """Return x over 0, as Java divides."""
    return float("inf") if x else float("nan")


def _sign(difference: float) -> int:
    """Return -1, 0 or 1, and 0 where it is no number."""
    return int(difference > 0) - int(difference < 0)


def _by_ratios(state: FairState, a: Share, b: Share) -> int:
    """Compare where there are more types than two: in single precision there."""
    rows = []
    for one in (a, b):
        weight = state.weight(one)
        shares = [
            single(single(x) / single(c)) if c else 0.0
            for x, c in zip(one.used, state.cluster, strict=True)
        ]
        first = max(range(len(shares)), key=lambda r: (shares[r], -r))
        rows.append(
            (first, shares, [single(x / weight) if weight else _infinite(x) for x in shares])
        )
    needy = [
        one.used[row[0]] < state.least(one)[row[0]] for one, row in zip((a, b), rows, strict=True)
    ]
    if needy[0] != needy[1]:
        return -1 if needy[0] else 1
    if needy[0]:
        values = [_over_least(state, one) for one in (a, b)]
    else:
        values = [row[2] for row in rows]
    ordered = [
        [value for _, value in sorted(zip(row[1], each, strict=True), key=lambda p: -p[0])]
        for row, each in zip(rows, values, strict=True)
    ]
    for mine, others in zip(*ordered, strict=True):
        if found := _sign(mine - others):
            return found
    return 0
