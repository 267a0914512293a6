"""Limits of users, masters and queues: UsersManager, AbstractLeafQueue and CSQueueUtils."""

import math

from rm.match.yarn.amounts import Amount, Calculator, single
from rm.match.yarn.books import Application, InPartition, Leaf, Partition, Queue, User
from rm.match.yarn.rules import Rules


def size(rules: Rules, queue: Queue, partition: Partition, cluster: Amount) -> None:
    """Set what a queue is guaranteed and may hold at most (updateEffectiveResources).

    The queue above has its own already.
    """
    calc, part = rules.calculator, queue.by[partition.at]
    above = None if queue.parent is None else queue.parent.by[partition.at]
    if above is not None and part.said is not None:
        least, most = part.said
        part.guaranteed = _scaled(calc, least, queue.parent, partition, cluster)
        bound = above.said[1] if above.said is not None and above.said[1] is not None else None
        bound = above.most if bound is None else bound
        part.most = bound
        if most is not None and calc.compare(partition.total, most, bound) <= 0:
            part.most = most
        part.capacity = _finite(calc.divide(cluster, part.guaranteed, above.guaranteed))
        part.capacity_most = _finite(calc.divide(cluster, part.most, above.most))
    part.absolute = single(part.capacity * (1.0 if above is None else above.absolute))
    upper = 1.0 if above is None else above.absolute_most
    part.absolute_most = single(part.capacity_most * upper)
    if above is None or part.said is None:
        part.guaranteed = calc.share(partition.total, part.absolute)
        part.most = calc.share(partition.total, part.absolute_most)


def _scaled(
    calc: Calculator, least: Amount, above: Queue | None, partition: Partition, cluster: Amount
) -> Amount:
    """Return an amount to be guaranteed, scaled down where all of them are more than there is."""
    assert above is not None
    asked, at = calc.none, partition.at
    for child in above.children:
        if (said := child.by[at].said) is not None:
            asked = calc.add(asked, said[0])
    has = partition.total if above.parent is None else above.by[at].guaranteed
    # YARN does not scale while root's partition is empty.
    if above.parent is None and not calc.positive(has):
        return least
    if calc.compare(cluster, has, asked) >= 0:
        return least
    rows = zip(calc.parts(least), calc.parts(has), calc.parts(asked), strict=True)
    return calc.of(tuple([int(single(single(a) * single(h / s))) if s else a for a, h, s in rows]))


def _finite(ratio: float) -> float:
    return 0.0 if math.isinf(ratio) else single(ratio)


def use_share(rules: Rules, part: InPartition, partition: Partition) -> None:
    """Set how much of its guarantee and of the partition a queue uses (updateUsedCapacity)."""
    calc, total = rules.calculator, partition.total
    if not calc.positive(total):
        part.used_share = part.of_total = 0.0
        return
    guaranteed = part.guaranteed
    if calc.compare(total, guaranteed, rules.minimum_allocation) < 0:
        guaranteed = rules.minimum_allocation
    # Only queues that are guaranteed nothing are compared by their part of the partition.
    if not part.absolute:
        part.of_total = calc.divide(total, part.used, total)
    part.used_share = calc.divide(total, part.used, guaranteed)


def user_limit(rules: Rules, leaf: Leaf, partition: Partition, *, respects: bool = True) -> Amount:
    """Return what each active user of weight 1 may use in a partition (computeUserLimit).

    It is kept until something that it depends on changes. `respects`: not as a guest on nodes
    whose label is shared.
    """
    return _kept_limit(rules, leaf, partition, respects=respects)


def limit_for_all(rules: Rules, leaf: Leaf, partition: Partition) -> Amount:
    """Return what each user of weight 1 may use where all of them count, not the active ones."""
    return _kept_limit(rules, leaf, partition, respects=True, everybody=True)


def _kept_limit(
    rules: Rules, leaf: Leaf, partition: Partition, *, respects: bool, everybody: bool = False
) -> Amount:
    key = (partition.at, respects, everybody)
    kept = leaf.limits.get(key)
    if kept is not None and kept[0] == leaf.version:
        return kept[1]
    users = [user for user in leaf.users.values() if user.known]
    weight = None
    if everybody:
        weight = 0.0
        for user in users:
            weight = single(weight + user.weight)
    limit = _user_limit(rules, leaf, partition, respects=respects, weight=weight)
    leaf.limits[key] = (leaf.version, limit)
    leaf.only_pending = sum([u.pending_apps > 0 and u.active_apps <= 0 for u in users])
    return limit


def _user_limit(
    rules: Rules, leaf: Leaf, partition: Partition, *, respects: bool, weight: float | None = None
) -> Amount:
    """Return the limit of active users, or where `weight` is that of all, of all users."""
    calc, total, least = rules.calculator, partition.total, rules.minimum_allocation
    part = leaf.by[partition.at]
    capacity = part.guaranteed
    if calc.compare(total, capacity, least) < 0:
        capacity = least
    ratio = leaf.ratio[partition.at]
    # What is used of no nodes at all is 0 there: Java casts the NaN of 0 x infinity to that.
    consumed = calc.none if not math.isfinite(ratio) else calc.part_up(total, ratio, least)
    current = capacity
    if calc.compare(total, consumed, capacity) >= 0:
        current = calc.add(consumed, least)
    used = calc.add(leaf.active_used[partition.at], least)
    limit = calc.split(used, leaf.active_weight)
    if weight is not None:
        limit = calc.split(current, weight)
    by_percent = calc.split(calc.share(current, leaf.user_limit), 100)
    if calc.compare(total, limit, by_percent) < 0:
        limit = by_percent
    if not respects:
        most = total
    elif leaf.factor == -1 or part.guaranteed == calc.none:
        most = calc.down(part.most, least)
    else:
        most = calc.share(capacity, leaf.factor)
    if calc.compare(total, limit, most) > 0:
        limit = most
    return calc.up(limit, least)


def in_turn(rules: Rules, leaf: Leaf) -> list[Application]:
    """Return the applications of a leaf queue in the order of its policy."""
    if not leaf.fair:
        return leaf.active
    calc = rules.calculator
    for app in leaf.active:
        if app.unordered:
            app.unordered = False
            held: float = sum([calc.memory_of(one) for one in app.used])
            if held and leaf.fair == "weighted":
                wanted = held + sum([calc.memory_of(one) for one in app.pending])
                held /= math.log1p(wanted) / math.log(2.0)
            app.ordered_by = held
    return sorted(leaf.active, key=_by_held)


def _by_held(app: Application) -> tuple[float, int]:
    return app.ordered_by, app.number


def limit_of(rules: Rules, user: User, limit: Amount) -> Amount:
    """Return a user's own limit, by weight."""
    return rules.calculator.part_down(limit, user.weight, rules.minimum_allocation)


def child_limit(
    rules: Rules, queue: Queue, child: Queue, partition: Partition, cluster: Amount, limit: Amount
) -> Amount:
    """Return what a queue may hold with what the one above may (getResourceLimitsOfChild)."""
    calc, at = rules.calculator, partition.at
    room = calc.sub(limit, queue.by[at].used)
    return calc.down(calc.add(room, child.by[at].used), rules.minimum_allocation)


def set_headroom_limit(rules: Rules, leaf: Leaf, cluster: Amount, limit: Amount) -> None:
    """Keep what the queue may hold now, which headroom and masters' limit go by."""
    calc = rules.calculator
    most = calc.down(leaf.by[0].most, rules.minimum_allocation)
    leaf.headroom_limit = most if calc.compare(cluster, most, limit) <= 0 else limit


def headroom(rules: Rules, app: Application, partitions: list[Partition]) -> Amount:
    """Return what an application may count on: by its user's limit, its queue's, what is free.

    The sum over the partitions that it ever asked for.
    """
    calc, room = rules.calculator, rules.calculator.none
    if not app.told:
        return room
    for at in app.partitions or (0,):
        room = calc.add(room, _headroom(rules, app, partitions[at]))
    return calc.floored(room)


def _headroom(rules: Rules, app: Application, partition: Partition) -> Amount:
    calc, leaf, user, at = rules.calculator, app.leaf, app.user, partition.at
    limit = limit_of(rules, user, user_limit(rules, leaf, partition))
    queue = leaf.current_limit if at == 0 else leaf.by[at].most
    room = calc.least(
        calc.floored(calc.sub(limit, user.used[at])),
        calc.floored(calc.sub(queue, leaf.by[at].used)),
    )
    room = calc.down(room, rules.minimum_allocation)
    root: Queue = leaf
    while root.parent is not None:
        root = root.parent
    free = calc.sub(partition.total, root.by[at].used)
    return free if calc.compare(partition.total, free, room) <= 0 else room


def activate(rules: Rules, leaf: Leaf, partitions: list[Partition], cluster: Amount) -> None:
    """Let applications take part whose masters the limits allow (activateApplications).

    A queue without any may start one whatever its limits. The limit of the first user looked at
    holds for all of them, as there.
    """
    calc = rules.calculator
    for partition in partitions:
        _set_am_limit(rules, leaf, partition)
    limits: dict[int, Amount] = {}
    for app in list(leaf.waiting):
        at = app.master_partition
        part, user = leaf.by[at], app.user
        free = not leaf.active or not calc.positive(part.am_used)
        if not free and not calc.fits(calc.add(app.master, part.am_used), part.am_limit):
            continue
        if at not in limits:
            limits[at] = _user_am_limit(rules, leaf, user, partitions[at], cluster)
        if not free and not calc.fits(calc.add(app.master, user.am_used[at]), limits[at]):
            continue
        user.pending_apps -= 1
        user.active_apps += 1
        app.active = True
        leaf.waiting.remove(app)
        leaf.active.append(app)
        leaf.active.sort(key=lambda one: (-one.priority, one.number))
        part.am_used = calc.add(part.am_used, app.master)
        user.am_used[at] = calc.add(user.am_used[at], app.master)


def _set_am_limit(rules: Rules, leaf: Leaf, partition: Partition) -> None:
    calc, part = rules.calculator, leaf.by[partition.at]
    room = part.guaranteed
    current = leaf.current_limit if partition.at == 0 else calc.none
    if calc.fits(room, current):
        room = current
    part.am_limit = calc.part_up(room, leaf.am_share, rules.minimum_allocation)


def _user_am_limit(
    rules: Rules, leaf: Leaf, user: User, partition: Partition, cluster: Amount
) -> Amount:
    calc, part = rules.calculator, leaf.by[partition.at]
    asking = sum([bool(one.asking) for one in leaf.users.values()]) + leaf.only_pending
    part_each = max(single(leaf.user_limit / 100), single(1 / max(asking, 1)))
    part_each = min(single(part_each * user.weight), 1.0)
    share = leaf.am_share
    if leaf.factor != -1:
        share = single(single(share * part_each) * leaf.factor)
    limit = calc.part_up(part.guaranteed, share, rules.minimum_allocation)
    return limit if calc.compare(cluster, limit, part.am_limit) <= 0 else part.am_limit
