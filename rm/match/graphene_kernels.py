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
from rm.match.candidate_kernels import Candidates, choose, describe, mean_of_busy, next_is_one
from rm.match.deficit_kernels import (
    Groups,
    Parties,
    book_deficit,
    deficit_factor,
    neediest,
    state_on_node,
)
from rm.match.filter_kernels import Asks, Site, fits_share
from rm.match.limit_kernels import Limits, admits, take
from rm.match.overbook_kernels import Room, Waiting, sooner, what_if
from rm.match.score_kernels import TIE, nearness, pack_score, sum_of
from weft.compiled import inner_kernel, kernel, making_kernel
from weft.dag import Floats, Ints

ALL, SURVEY, PICK = range(3)  # what `decide` is to do
DECLARED, LEFT, NONE = range(3)  # priScore: as asked, over the best pending one, none
# entries of `Desk.known`: mean score seen, eta used, mean srpt, 1 once something was overbooked
SEEN, ETA, WORK, OVERBOOKED = range(4)
# entries of `Desk.tally`: rows that fit, candidates, those still in, runs of picks, the last pick,
# picks
FIT, ROWS, IN, RUNS, LAST, PICKS = range(6)
COUNTS = 6
TERMS = ("perf", "pack", "overbook", "work", "deficit")
LOOK = 4  # nodes that one call of `weigh` looks at
UNDECIDED = -1
Seats = tuple[tuple[int, int], ...]  # nodes' slots, and how many containers run there


class Rule(NamedTuple):
    """What counts in a score, and how eta is found: of one matcher, for good."""

    penalty: float  # factor of pScore for a row that prefers other machines
    use_pack: bool  # False: pScore is 1 for all that fits
    priority: int  # DECLARED, LEFT or NONE
    most: int  # picks in one decision
    extras: int  # rows that fit with overbooking only, at most; 0: nothing is overbooked
    unit: int  # of the deficits: SLOTS, DRF or TIME
    eta: float  # fixed; below 0: eta = m x mean score / mean remaining work
    m: float
    weight: float  # of this decision in both means, at least, 0 to 1
    relative: bool  # oScore is over the duration, at most 1


class Standing(NamedTuple):
    """The tables beside asks and nodes: valid until one of them moves."""

    who: Parties
    alone: bool  # one group only: its counter stays 0 and binds nobody
    bound: float  # a deficit from which on the neediest group goes first
    counters: Floats  # deficits by group
    held: Floats  # by group, absolute, (groups, d)
    order: Ints  # by application slot, as the next three
    active: Bools
    pending: Ints
    remaining: Floats  # srpt
    containers: Ints  # by node
    up: Bools  # by node
    beyond: Floats  # (d,) how far a node may be overbooked, over its capacity


class Desk(NamedTuple):
    """Arrays for decisions to write on, one after the other; with room for all candidates."""

    found: Candidates
    chosen: Ints
    more: Floats  # (2, d)
    extra: Ints  # (rows that may be overbooked,)
    demand: Floats  # theirs, absolute, (rows, d)
    wait: Floats  # until they fit without overbooking, s
    over: Floats  # (k,) oScore where a row does not fit, 0: may not overbook
    group: Ints  # (k,) whose deficit a row counts for
    near: Floats  # (k,) factor of pScore for where the input is
    p: Floats  # (k,)
    value: Floats  # (k,)
    inside: Ints  # (k,) candidates that may still be picked
    by_app: Floats  # (2, applications): srpt, best pending priScore
    deficit: Floats  # (groups,)
    share: Floats  # (groups,)
    held: Floats  # (groups, d)
    marks: Bools  # (groups,)
    work: Floats  # (d,)
    known: Floats
    tally: Ints
    means: Floats  # (3,) of decisions so far: mean score, mean srpt, and how many they were


class Answer(NamedTuple):
    """Runs of picks of the same row, in order; the arrays may have to grow."""

    row: Ints
    copies: Ints
    terms: Floats  # (room, terms) of the first pick of a run


@kernel
def decide(
    asks: Asks, site: Site, level: Ints, standing: Standing, desk: Desk, rule: Rule, answer: Answer,
    what: int,
) -> int:  # fmt: skip
    """Fill `answer` with what to grant on a node; return how many runs of picks there are.

    SURVEY: only find who competes (`desk.found`), for PICK to go on with, and return UNDECIDED; so
    does ALL where some rows fit with overbooking only, as what runs nearby decides about them. As
    many runs as `answer` holds: call again with more room and PICK.
    """
    if what != PICK:
        _survey(asks, site, level, standing, desk, rule)
        if desk.tally[ROWS] == 0:
            return 0
        if what == SURVEY or desk.tally[ROWS] != desk.tally[FIT]:
            return UNDECIDED
    groups = Groups(desk.deficit, desk.share, desk.held, standing.bound, rule.unit)
    if desk.tally[PICKS] == 0:
        _begin(standing, desk, rule)
    return _pick_all(standing.who.limits, standing.alone, desk, groups, rule, answer)


@kernel
def _survey(
    asks: Asks, site: Site, level: Ints, standing: Standing, desk: Desk, rule: Rule
) -> None:  # fmt: skip
    """Find the rows that compete for a node, and fill their columns."""
    found, tally, who = desk.found, desk.tally, standing.who
    most = rule.extras if standing.containers[site.node] > 0 else 0
    fit, k = choose(asks, site, standing.beyond, desk.more, desk.chosen, desk.extra[:most])
    tally[FIT], tally[ROWS], tally[IN], tally[RUNS], tally[PICKS] = fit, k, k, 0, 0
    tally[LAST] = -1
    if k == 0:
        return
    part = _part(found, k)
    describe(asks, site, desk.chosen, level, standing.order, who.total, standing.beyond, part)
    if rule.priority == LEFT:
        next_is_one(
            part.pri, part.app, asks.pending[: asks.size], asks.app, asks.pri_score, desk.by_app[1]
        )
    for i in range(k):
        desk.over[i] = 0.0
        desk.inside[i] = i
        if rule.priority == NONE:
            found.pri[i] = 1.0
    for i in range(k - fit):
        desk.wait[i] = np.inf
        for r in range(desk.demand.shape[1]):
            desk.demand[i, r] = asks.demand[found.rows[fit + i], r]
    desk.known[WORK] = mean_of_busy(standing.remaining, standing.active, standing.pending)
    desk.known[OVERBOOKED] = 0.0
    state = Groups(desk.deficit, desk.share, desk.held, standing.bound, rule.unit)
    if standing.alone:
        state.deficit[:] = 0.0
    else:
        state_on_node(
            standing.counters, asks, site, who, standing.held, state, desk.marks, desk.work
        )


@inner_kernel
def _part(found: Candidates, k: int) -> Candidates:
    """Return the first `k` candidates."""
    return Candidates(
        found.rows[:k], found.fit, found.packing[:k], found.work[:k], found.duration[:k],
        found.pri[:k], found.pending[:k], found.app[:k], found.rank[:k], found.level[:k],
        found.free, found.room,
    )  # fmt: skip


@kernel
def _begin(standing: Standing, desk: Desk, rule: Rule) -> None:
    """Note what a decision goes by.

    That is whose deficit each row counts for, what is left of each application, and eta.
    """
    found, k, known = desk.found, desk.tally[ROWS], desk.known
    total, count = 0.0, 0
    for i in range(k):
        app = found.app[i]
        desk.group[i] = standing.who.group_of[app]
        desk.by_app[0, app] = standing.remaining[app]
        desk.near[i] = nearness(found.level[i], rule.penalty)
        p = _p_score(found, i, desk.near[i], rule.use_pack)
        if p > 0.0 and found.pending[i] > 0:
            total += found.pri[i] * p
            count += 1
    known[SEEN] = total / count if count else 0.0
    known[ETA] = eta_now(rule, desk.means, known[SEEN], known[WORK])


@inner_kernel
def _p_score(found: Candidates, i: int, near: float, use_pack: bool) -> float:
    """Return pScore of a row, -1 where it does not fit; without packing all that fits is alike."""
    if use_pack:
        return pack_score(found.packing[i], found.free, near)
    return near if fits_share(found.packing[i], found.free) else -1.0


@kernel
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
        weight = max(rule.weight, 1.0 / (means[2] + 1.0))  # a plain mean of the first few
        top += weight * (score - top)
        bottom += weight * (work - bottom)
    return rule.m * top / bottom if bottom > 0.0 else 0.0


@kernel
def _pick_all(
    limits: Limits, alone: bool, desk: Desk, groups: Groups, rule: Rule, answer: Answer
) -> int:
    """Pick until nothing may be picked any more, or `answer` is full.

    Terms: perfScore, pScore, oScore, eta x srpt, deficit of the group before the pick.
    """
    found, tally, eta = desk.found, desk.tally, desk.known[ETA]
    while tally[PICKS] < rule.most and tally[RUNS] < answer.row.shape[0]:
        _value(limits, desk, rule)
        only = -1 if alone else _only(desk, groups)
        best = _best(desk, only)
        if best < 0:
            break
        app = found.app[best]
        by_over = desk.p[best] < 0.0
        if best == tally[LAST]:
            answer.copies[tally[RUNS] - 1] += 1
        else:
            run, work_left = tally[RUNS], eta * desk.by_app[0, app]
            answer.row[run], answer.copies[run] = found.rows[best], 1
            answer.terms[run, 0] = found.pri[best] * desk.value[best] - work_left
            answer.terms[run, 1] = max(desk.p[best], 0.0)
            answer.terms[run, 2] = desk.value[best] if by_over else 0.0
            answer.terms[run, 3] = work_left
            answer.terms[run, 4] = groups.deficit[desk.group[best]]
            tally[RUNS] = run + 1
        tally[LAST] = best
        tally[PICKS] += 1
        found.pending[best] -= 1
        if by_over:
            desk.known[OVERBOOKED] = 1.0
        if not alone:
            _book(found, best, desk.group[best], groups)
        _place(found, best, desk.by_app[0])
        take(limits, app, found.work[best])
    return int(tally[RUNS])


@kernel
def _value(limits: Limits, desk: Desk, rule: Rule) -> None:
    """Fill `value` with max(pScore, oScore) of the rows that are in.

    It is -1 where a row may not be picked now; those that no longer fit are out for good, as room
    only shrinks. One task a decision is overbooked.
    """
    found, inside, tally = desk.found, desk.inside, desk.tally
    overbooked, kept = desk.known[OVERBOOKED] > 0.0, 0
    for place in range(tally[IN]):
        i = inside[place]
        if found.pending[i] <= 0:
            continue
        p = _p_score(found, i, desk.near[i], rule.use_pack)
        value = p
        if p < 0.0:
            if overbooked or desk.over[i] <= 0.0 or not fits_share(found.packing[i], found.room):
                continue
            value = desk.over[i]
        desk.p[i] = p
        desk.value[i] = value if admits(limits, found.app[i], found.work[i]) else -1.0
        inside[kept] = i
        kept += 1
    tally[IN] = kept


@kernel
def _only(desk: Desk, groups: Groups) -> int:
    """Return the group that goes first, as it is owed more than the bound allows; -1: none."""
    here = desk.marks
    here[:] = False
    for place in range(desk.tally[IN]):
        i = desk.inside[place]
        if desk.value[i] >= 0.0:
            here[desk.group[i]] = True
    only = neediest(groups.deficit, groups.share, here)
    return only if only >= 0 and groups.deficit[only] >= groups.bound - TIE else -1


@kernel
def _best(desk: Desk, only: int) -> int:
    """Return the eligible row with the highest perfScore, of group `only` if >= 0; -1 if none."""
    found, value, remaining, eta = desk.found, desk.value, desk.by_app[0], desk.known[ETA]
    best, best_score = -1, -np.inf
    for place in range(desk.tally[IN]):
        i = desk.inside[place]
        if value[i] < 0.0 or (only >= 0 and desk.group[i] != only):
            continue
        score = found.pri[i] * value[i] - eta * remaining[found.app[i]]
        if best < 0 or score > best_score + TIE:
            best, best_score = i, score
        elif score > best_score - TIE and found.rank[i] < found.rank[best]:
            best, best_score = i, max(score, best_score)
    return best


@kernel
def _book(found: Candidates, best: int, g: int, groups: Groups) -> None:
    """Book a picked container's deficit, and what its group holds."""
    work, held = found.work[best], groups.held[g]
    factor = deficit_factor(work, held, found.duration[best], groups.unit)
    book_deficit(groups.deficit, groups.share, g, factor)
    for r in range(work.shape[0]):
        held[r] += work[r]


@kernel
def _place(found: Candidates, best: int, remaining: Floats) -> None:
    """Subtract a picked container from what is free and left."""
    for r in range(found.free.shape[0]):
        found.free[r] = max(0.0, found.free[r] - found.packing[best, r])
        found.room[r] -= found.packing[best, r]
    app = found.app[best]
    remaining[app] = max(0.0, remaining[app] - found.duration[best] * sum_of(found.work[best]))


@making_kernel
def weigh(
    site: Site, standing: Standing, desk: Desk, rule: Rule, near: tuple[Running, ...], seats: Seats,
    now: float,
) -> None:  # fmt: skip
    """Lower `desk.wait` by what ends on LOOK nodes, and write `desk.over` if that was all.

    The last call begins with the node that is decided about: then oScore is known of the rows that
    do not fit there. A node twice does no harm.
    """
    fit, k = desk.tally[FIT], desk.tally[ROWS]
    waiting = Waiting(desk.demand[: k - fit], desk.found.duration[fit:k], desk.wait[: k - fit])
    available, capacity = site.available, site.capacity
    for each in range(LOOK):
        slot, count = seats[each]
        sooner(waiting, near[each], count, available[slot], capacity[slot], now, desk.work)
    slot, count = seats[0]
    if slot == site.node:
        room = Room(available, capacity, standing.up)
        what_if(desk.over[fit:k], waiting, near[0], count, room, slot, now, rule.relative)
