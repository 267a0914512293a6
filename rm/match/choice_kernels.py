"""What a policy that picks one candidate after another sees of each of them, as plain numbers."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rm.match.candidate_kernels import Candidates
from rm.match.limit_kernels import Limits, used
from rm.match.score_kernels import largest
from rm.match.turn_kernels import compete, hold
from weft.model.dag import Floats, Ints
from weft.policies.compiled import kernel

Shown = NDArray[np.float32]
Mask = NDArray[np.int8]
# What each number of a candidate is:
# alignment: the dot product of its packing and what is free of the node, over the number of
# resources;
# packing: the largest part of the node that one container takes;
# fits: the logarithm of how many more containers of it fit and are wanted;
# duration: the logarithm of 1 + the seconds that the master estimates;
# order: the job's own preferred order (priScore), from 0 to 1;
# pending: the logarithm of 1 + the containers wanted;
# remaining: the work of the application that has not started, over the mean of all;
# path: the logarithm of 1 + the seconds of the application's longest path that is left;
# share: the largest part of the cluster that the application holds;
# queue: what its queue holds over its guarantee, at most 10;
# waited: the logarithm of 1 + the seconds since the ask last got something;
# remote: 0 near its input and without preferred places, 0.5 in the rack, 1 elsewhere;
# line: its place among the candidates by submission, from 0 to 1.
FEATURES = (
    "alignment",
    "packing",
    "fits",
    "duration",
    "order",
    "pending",
    "remaining",
    "path",
    "share",
    "queue",
    "waited",
    "remote",
    "line",
)


class Applications(NamedTuple):
    """What is known of applications and asks; read only.

    `remaining`, `path` (s) and `held` (applications, d) are by application slot; amounts are
    absolute, of the cluster's `total` (d,). `since_s` is by row.
    """

    remaining: Floats
    path: Floats
    held: Floats
    total: Floats
    since_s: Floats
    mean_remaining: float
    now: float


@kernel
def may_pick(found: Candidates, limits: Limits, value: Floats) -> int:
    """Fill `value` (k,): 1 where a candidate may be picked now, -1 where not; return how many."""
    compete(found, limits, found.pending, value)
    count = 0
    for i in range(value.shape[0]):
        count += value[i] > 0.0
    return count


@kernel
def pick(found: Candidates, limits: Limits, chosen: int, copies: int, value: Floats) -> int:
    """Take up to `copies` containers of a candidate, as long as it may be picked; return how many.

    `value` (k,) is as `may_pick` filled it, and is brought up to date.
    """
    taken = 0
    while taken < copies and value[chosen] > 0.0:
        found.pending[chosen] -= 1
        hold(found, limits, chosen)
        taken += 1
        compete(found, limits, found.pending, value)
    return taken


@kernel
def describe_choices(
    found: Candidates, limits: Limits, apps: Applications, value: Floats, out: Floats
) -> None:
    """Fill `out` (k, len(FEATURES)) with what each candidate looks like now.

    Candidates that may not be picked (`value` (k,) below 0) are all 0.
    """
    d = found.free.shape[0]
    for i in range(out.shape[0]):
        out[i] = 0.0
        if value[i] < 0.0:
            continue
        app, row = found.app[i], found.rows[i]
        aligned, copies, share = 0.0, float(found.pending[i]), 0.0
        for r in range(d):
            aligned += found.packing[i, r] * found.free[r]
            if found.packing[i, r] > 0.0:
                copies = min(copies, found.free[r] / found.packing[i, r])
            if apps.total[r] > 0.0:
                share = max(share, apps.held[app, r] / apps.total[r])
        out[i, 0] = aligned / d
        out[i, 1] = largest(found.packing[i])
        out[i, 2] = np.log1p(copies)
        out[i, 3] = np.log1p(found.duration[i])
        out[i, 4] = found.pri[i]
        out[i, 5] = np.log1p(float(found.pending[i]))
        if apps.mean_remaining > 0.0:
            out[i, 6] = apps.remaining[app] / apps.mean_remaining
        out[i, 7] = np.log1p(apps.path[app])
        out[i, 8] = share
        out[i, 9] = _queue_use(limits, app)
        out[i, 10] = np.log1p(max(0.0, apps.now - apps.since_s[row]))
        out[i, 11] = found.level[i] / 2.0
        out[i, 12] = _place_in_line(found.rank, value, i)


@kernel
def show_open(
    described: Floats, value: Floats, largest_shown: float, out: Shown, mask: Mask, shown: Ints
) -> int:
    """Copy what `describe_choices` said of the candidates that may be picked; return how many may.

    Values are cut off at `largest_shown`, and as many candidates are copied as `out` (most,
    len(FEATURES)) has room for. For these `mask` (most,) becomes 1 and `shown` (most,) their
    numbers; both are 0 before.
    """
    count, most = 0, out.shape[0]
    for i in range(value.shape[0]):
        if value[i] > 0.0:
            if count < most:
                mask[count], shown[count] = 1, i
                for k in range(out.shape[1]):
                    out[count, k] = max(-largest_shown, min(largest_shown, described[i, k]))
            count += 1
    return count


@kernel
def _queue_use(limits: Limits, app: int) -> float:
    """Return what an application's queue holds over its guarantee, at most 10; 0 where alone."""
    if not limits.moves or not limits.several:
        return 0.0
    queue = limits.queue[app]
    if limits.capacity[queue] <= 0.0:
        return 10.0
    return float(min(10.0, used(limits, queue) / limits.capacity[queue]))


@kernel
def _place_in_line(rank: Ints, value: Floats, i: int) -> float:
    """Return the part of the candidates that may be picked and were submitted before one."""
    before, others = 0, 0
    for j in range(rank.shape[0]):
        if value[j] > 0.0 and j != i:
            others += 1
            before += rank[j] < rank[i]
    return before / others if others > 0 else 0.0
