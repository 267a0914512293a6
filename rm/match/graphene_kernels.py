"""Graphene's figure 15 as one loop over the rows that compete for a node: pick, subtract, repeat.

A row is one ask: identical containers of one stage. Packing scores use demands over the machine's
capacity, work and fairness use demands over the cluster's. `d` is the number of resource types, `k`
the number of candidate rows.

A decision is one call of `decide`, from the tables to the placements: what it takes is mostly the
way in and out, as the loop over some dozens of rows costs less than to make ten arrays.
"""

from typing import NamedTuple

import numpy as np

from rm.ledger.columns import Bools
from rm.ledger.running_kernels import Running
from rm.match.candidate_kernels import Sieve, choose, mean_of_busy, next_is_one
from rm.match.deficit_kernels import (
    Groups,
    Parties,
    book_deficit,
    deficit_factor,
    neediest,
    state_on_node,
)
from rm.match.filter_kernels import Asks, Site, fits_share
from rm.match.limit_kernels import admits, take
from rm.match.overbook_kernels import Room, Trial, Waiting, sooner, what_if
from rm.match.score_kernels import TIE, fill_part, nearness, sum_of
from weft.model.dag import Floats, Ints
from weft.model.resources import TOLERANCE
from weft.policies.compiled import inner_kernel, kernel

# These say what `decide` is to do.
ALL, PICK = range(2)
# priScore is as the ask declares it, or over that of the best pending row, or there is none.
DECLARED, LEFT, NONE = range(3)
# These are the entries of `Desk.known`: the mean score seen, the eta used, the mean srpt, and 1
# once something was overbooked.
SEEN, ETA, WORK, OVERBOOKED = range(4)
# These are the entries of `Desk.tally`: how many candidates fit, which are the first; how many
# there are in all; runs of picks; the last pick; picks.
FIT, ROWS, RUNS, LAST, PICKS = range(5)
COUNTS = 5
# A pick has these terms: perfScore, priScore, pScore, oScore, eta x srpt, and the deficit of the
# group before the pick. The first is the second x the larger of the next two - the fifth.
TERMS_PER_PICK = 6
NODES_PER_WEIGH = 4
UNDECIDED = -1
# These are nodes' slots, and how many containers run there.
Seats = tuple[tuple[int, int], ...]


class Rule(NamedTuple):
    """What counts in a score, and how eta is found; it does not change in the life of a matcher.

    Without `use_pack`, pScore is 1 for all that fits. `priority` is DECLARED, LEFT or NONE. One
    decision looks at no more than `extras` rows that fit with overbooking only; with 0 nothing is
    overbooked. `unit`, of the deficits, is SLOTS, DRF or TIME. `eta` is fixed, or below 0, and then
    eta is `m` x mean score / mean remaining work; both means give this decision at least `weight`,
    from 0 to 1.
    """

    use_pack: bool
    priority: int
    extras: int
    unit: int
    eta: float
    m: float
    weight: float


class Standing(NamedTuple):
    """The tables beside asks and nodes: valid until one of them moves.

    Where one group is `alone`, its counter stays 0 and binds nobody. From a deficit of `bound` on,
    the neediest group goes first. `counters` are deficits by group, `held` (groups, d) is absolute.
    `order`, `active`, `pending` and `remaining` (srpt) are by application slot, `containers` and
    `up` by node. `beyond` (d,) is how far a node may be overbooked, over its capacity.
    """

    who: Parties
    alone: bool
    bound: float
    counters: Floats
    held: Floats
    order: Ints
    active: Bools
    pending: Ints
    remaining: Floats
    containers: Ints
    up: Bools
    beyond: Floats


class Desk(NamedTuple):
    """Arrays for decisions to write on, one after the other; with room for all candidates.

    Of a row only what every pass over the candidates needs is here: on a node with room hundreds of
    rows may fit, and most decisions pick one of them. A pass takes all, whether they may still be
    picked or not: that goes several at a time, while a branch would be taken by half of them.

    * Of shape (k,): `rows`; `app`; `picked`, how often; `pri`, priScore; `near`, the factor of
      pScore for where the input is; `p`, pScore, -1 where a row does not fit; `over`, oScore where
      a row does not fit, 0 where it may not overbook; `value`, the larger of both, -1 where a row
      may not be picked now.
    * `packing` (d, k) is demand over the node's capacity, infinite once nothing is pending. `free`
      (d,) is what is available over that capacity; `room` (d,) is the same with overbooking, and
      below 0 where the node is overbooked.
    * `waiting` are the rows that may be overbooked, `extra` has a place for each of them.
    * `by_app` (2, applications) is srpt, and the best pending priScore.
    * `deficit`, `share` and `marks` are (groups,), `held` is (groups, d).
    * `means` (3,) is of the decisions so far: the mean score, the mean srpt, and how many they
      were.
    * `lacks` (2, k), `more` (2, d) and `work` (d,) are scratch.
    """

    rows: Ints
    app: Ints
    picked: Ints
    pri: Floats
    near: Floats
    packing: Floats
    p: Floats
    over: Floats
    value: Floats
    lacks: Ints
    free: Floats
    room: Floats
    more: Floats
    extra: Ints
    waiting: Waiting
    by_app: Floats
    deficit: Floats
    share: Floats
    held: Floats
    marks: Bools
    work: Floats
    known: Floats
    tally: Ints
    means: Floats


class Answer(NamedTuple):
    """Runs of picks of the same row, in order; the arrays may have to grow.

    `terms` (room, terms) is of the first pick of a run.
    """

    row: Ints
    copies: Ints
    terms: Floats


@kernel
def decide(
    asks: Asks,
    site: Site,
    level: Ints,
    standing: Standing,
    desk: Desk,
    rule: Rule,
    answer: Answer,
    what: int,
) -> int:
    """Fill `answer` with what to grant on a node; return how many runs of picks there are.

    ALL only finds who competes (`desk.rows`), for PICK to go on with, and returns UNDECIDED where
    some rows fit with overbooking only, as what runs nearby decides about them. As many runs as
    `answer` holds: call again with more room and PICK.
    """
    if what != PICK:
        _survey(asks, site, level, standing, desk, rule)
        if desk.tally[ROWS] == 0:
            return 0
        if desk.tally[ROWS] != desk.tally[FIT]:
            return UNDECIDED
    if desk.tally[PICKS] == 0:
        _begin(standing, desk, rule)
    groups = Groups(desk.deficit, desk.share, desk.held, standing.bound, rule.unit)
    return _pick_all(asks, standing, desk, groups, rule, answer)


@inner_kernel
def _survey(
    asks: Asks, site: Site, level: Ints, standing: Standing, desk: Desk, rule: Rule
) -> None:
    """Find the rows that compete for a node, and fill their columns."""
    tally, who, node = desk.tally, standing.who, site.node
    most = rule.extras if standing.containers[node] > 0 else 0
    sieve = Sieve(desk.more, desk.lacks, desk.rows, desk.extra[:most])
    fit, k = choose(asks, site, standing.beyond, sieve)
    tally[FIT], tally[ROWS], tally[RUNS], tally[LAST], tally[PICKS] = fit, k, 0, -1, 0
    if k == 0:
        return
    available, capacity = site.available[node], site.capacity[node]
    for r in range(capacity.shape[0]):
        desk.free[r] = desk.room[r] = 0.0
        if capacity[r] > 0.0:
            desk.free[r] = max(available[r], 0.0) / capacity[r]
            desk.room[r] = available[r] / capacity[r] + standing.beyond[r]
    _describe(asks, capacity, level, desk, rule)
    _pack(desk, rule.use_pack)
    if rule.priority == LEFT:
        pending = asks.pending[: asks.size]
        next_is_one(desk.pri[:k], desk.app[:k], pending, asks.app, asks.pri_score, desk.by_app[1])
    waiting = desk.waiting
    for i in range(k - fit):
        row = desk.rows[fit + i]
        waiting.duration[i], waiting.wait[i] = asks.duration_s[row], np.inf
        waiting.label[i], waiting.serial[i] = asks.label[row], asks.serial[row]
        for r in range(capacity.shape[0]):
            waiting.demand[i, r] = asks.needs[r, row]
    desk.known[WORK] = mean_of_busy(standing.remaining, standing.active, standing.pending)
    desk.known[OVERBOOKED] = 0.0
    if standing.alone:
        desk.deficit[:] = 0.0
        return
    state = Groups(desk.deficit, desk.share, desk.held, standing.bound, rule.unit)
    state_on_node(standing.counters, asks, site, who, standing.held, state, desk.marks, desk.work)


@inner_kernel
def _describe(asks: Asks, capacity: Floats, level: Ints, desk: Desk, rule: Rule) -> None:
    """Fill the columns of the candidates; their priScore is the one declared, or 1.

    `level` is by row; empty where no row prefers any place.
    """
    k, rows = desk.tally[ROWS], desk.rows
    for i in range(k):
        desk.app[i] = asks.app[rows[i]]
        desk.pri[i] = asks.pri_score[rows[i]]
    if rule.priority == NONE:
        desk.pri[:k] = 1.0
    desk.near[:k] = 1.0
    for i in range(k if level.shape[0] > 0 else 0):
        desk.near[i] = nearness(level[rows[i]])
    desk.over[:k] = 0.0
    desk.picked[:k] = 0
    for r in range(capacity.shape[0]):
        packing, needs, most = desk.packing[r], asks.needs[r], capacity[r]
        for i in range(k):
            packing[i] = needs[rows[i]]
        # This loop is apart from the one before, as only this one is vectorised.
        for i in range(k):
            packing[i] = packing[i] / most if most > 0.0 else 0.0


@inner_kernel
def _pack(desk: Desk, use_pack: bool) -> None:
    """Fill `p` of the candidates; without packing all that fits is alike.

    It is the dot product of normalised demand and available, times how near the row is (figure 15
    lines 10 and 11).
    """
    k, p, lacks, near = desk.tally[ROWS], desk.p, desk.lacks[0], desk.near
    p[:k] = 0.0
    lacks[:k] = 0
    for r in range(desk.free.shape[0]):
        packing, free = desk.packing[r], desk.free[r]
        # `fits_share` has the same bound.
        most = max(free + TOLERANCE, 0.0)
        for i in range(k):
            p[i] += packing[i] * free
            lacks[i] += int(packing[i] > most)
    for i in range(k):
        score = (p[i] if use_pack else 1.0) * near[i]
        p[i] = score if lacks[i] == 0 else -1.0


@inner_kernel
def _begin(standing: Standing, desk: Desk, rule: Rule) -> None:
    """Note what is left of each application that competes, and eta."""
    known = desk.known
    total, count = 0.0, 0
    for i in range(desk.tally[ROWS]):
        app = desk.app[i]
        desk.by_app[0, app] = standing.remaining[app]
        if desk.p[i] > 0.0:
            total += desk.pri[i] * desk.p[i]
            count += 1
    known[SEEN] = total / count if count else 0.0
    known[ETA] = eta_now(rule, desk.means, known[SEEN], known[WORK])


@inner_kernel
def eta_now(rule: Rule, means: Floats, score: float, work: float) -> float:
    """Return the eta of a decision whose own mean score is `score`, and mean srpt `work`.

    Numerator and denominator are averaged apart, so that a decision with hardly any work left does
    not throw the ratio. One that tells nothing (nothing demanded, or no work declared) changes
    neither.
    """
    if rule.eta >= 0.0:
        return rule.eta
    top, bottom = means[0], means[1]
    if score > 0.0 and work > 0.0:
        # The first few decisions have a plain mean.
        weight = max(rule.weight, 1.0 / (means[2] + 1.0))
        top += weight * (score - top)
        bottom += weight * (work - bottom)
    return rule.m * top / bottom if bottom > 0.0 else 0.0


@inner_kernel
def _pick_all(
    asks: Asks, standing: Standing, desk: Desk, groups: Groups, rule: Rule, answer: Answer
) -> int:
    """Pick until nothing may be picked any more, or `answer` is full."""
    tally, eta, work, who = desk.tally, desk.known[ETA], desk.work, standing.who
    while tally[RUNS] < answer.row.shape[0]:
        if tally[PICKS] > 0:
            _pack(desk, rule.use_pack)
        _value(asks, who, desk)
        only = -1 if standing.alone else _only(who, desk, groups)
        best = _best(asks, standing, desk, only)
        if best < 0:
            break
        app, row = desk.app[best], desk.rows[best]
        by_over, group = desk.p[best] < 0.0, who.group_of[app]
        if best == tally[LAST]:
            answer.copies[tally[RUNS] - 1] += 1
        else:
            run, work_left = tally[RUNS], eta * desk.by_app[0, app]
            answer.row[run], answer.copies[run] = row, 1
            answer.terms[run, 0] = desk.pri[best] * desk.value[best] - work_left
            answer.terms[run, 1] = desk.pri[best]
            answer.terms[run, 2] = max(desk.p[best], 0.0)
            answer.terms[run, 3] = desk.value[best] if by_over else 0.0
            answer.terms[run, 4] = work_left
            answer.terms[run, 5] = groups.deficit[group]
            tally[RUNS] = run + 1
        tally[LAST] = best
        tally[PICKS] += 1
        if by_over:
            desk.known[OVERBOOKED] = 1.0
        fill_part(asks.needs[:, row], who.total, work)
        if not standing.alone:
            _book(groups, group, work, asks.duration_s[row])
        _place(desk, best, work, asks.duration_s[row])
        take(who.limits, app, work)
        desk.picked[best] += 1
        if desk.picked[best] == asks.pending[row]:
            desk.packing[:, best] = np.inf
    return int(tally[RUNS])


@inner_kernel
def _value(asks: Asks, who: Parties, desk: Desk) -> None:
    """Fill `value`: max(pScore, oScore), or -1. One task a decision is overbooked."""
    k, p, over, value = desk.tally[ROWS], desk.p, desk.over, desk.value
    for i in range(k):
        value[i] = p[i]
    if desk.known[OVERBOOKED] == 0.0:
        for i in range(desk.tally[FIT], k):
            if over[i] > 0.0 and p[i] < 0.0 and fits_share(desk.packing[:, i], desk.room):
                value[i] = over[i]
    if who.limits.binds:
        for i in range(k):
            if value[i] >= 0.0:
                fill_part(asks.needs[:, desk.rows[i]], who.total, desk.work)
                if not admits(who.limits, desk.app[i], desk.work):
                    value[i] = -1.0


@inner_kernel
def _only(who: Parties, desk: Desk, groups: Groups) -> int:
    """Return the group that goes first, as it is owed more than the bound allows; -1: none."""
    here = desk.marks
    here[:] = False
    for i in range(desk.tally[ROWS]):
        if desk.value[i] >= 0.0:
            here[who.group_of[desk.app[i]]] = True
    only = neediest(groups.deficit, groups.share, here)
    return only if only >= 0 and groups.deficit[only] >= groups.bound - TIE else -1


@inner_kernel
def _best(asks: Asks, standing: Standing, desk: Desk, only: int) -> int:
    """Return the eligible row with the highest perfScore, of group `only` if >= 0; -1 if none."""
    value, remaining, eta = desk.value, desk.by_app[0], desk.known[ETA]
    group_of = standing.who.group_of
    best, best_score = -1, -np.inf
    for i in range(desk.tally[ROWS]):
        if value[i] < 0.0 or (only >= 0 and group_of[desk.app[i]] != only):
            continue
        score = desk.pri[i] * value[i] - eta * remaining[desk.app[i]]
        if best < 0 or score > best_score + TIE:
            best, best_score = i, score
        elif score > best_score - TIE and _before(asks, standing.order, desk, i, best):
            best, best_score = i, max(score, best_score)
    return best


@inner_kernel
def _before(asks: Asks, order: Ints, desk: Desk, i: int, other: int) -> bool:
    """Return whether a candidate wins a tie: the earlier application, then the earlier ask."""
    mine, its = order[desk.app[i]], order[desk.app[other]]
    if mine != its:
        return bool(mine < its)
    return bool(asks.serial[desk.rows[i]] < asks.serial[desk.rows[other]])


@inner_kernel
def _book(groups: Groups, g: int, work: Floats, duration_s: float) -> None:
    """Book a picked container's deficit, and what its group holds."""
    held = groups.held[g]
    factor = deficit_factor(work, held, duration_s, groups.unit)
    book_deficit(groups.deficit, groups.share, g, factor)
    for r in range(work.shape[0]):
        held[r] += work[r]


@inner_kernel
def _place(desk: Desk, best: int, work: Floats, duration_s: float) -> None:
    """Subtract a picked container from what is free and left."""
    for r in range(desk.free.shape[0]):
        desk.free[r] = max(0.0, desk.free[r] - desk.packing[r, best])
        desk.room[r] -= desk.packing[r, best]
    app, remaining = desk.app[best], desk.by_app[0]
    remaining[app] = max(0.0, remaining[app] - duration_s * sum_of(work))


@kernel
def weigh(
    site: Site,
    standing: Standing,
    desk: Desk,
    rule: Rule,
    near: tuple[Running, ...],
    seats: Seats,
    now: float,
    trial: Trial,
) -> None:
    """Lower what rows wait by what ends on some nodes, and write `desk.over` if that was all.

    The last call begins with the node that is decided about: then oScore is known of the rows that
    do not fit there. A node twice does no harm.
    """
    fit, k, every = desk.tally[FIT], desk.tally[ROWS], desk.waiting
    extras = k - fit
    waiting = Waiting(
        every.demand[:extras],
        every.duration[:extras],
        every.wait[:extras],
        every.label[:extras],
        every.serial[:extras],
    )
    room = Room(
        site.available, site.capacity, standing.up, site.labels, site.reserved, trial.barred
    )
    for each in range(NODES_PER_WEIGH):
        slot, count = seats[each]
        sooner(waiting, near[each], count, room, slot, now, trial)
    slot, count = seats[0]
    if slot == site.node:
        what_if(desk.over[fit:k], waiting, near[0], count, room, slot, now, trial)
