"""Who holds what: nodes, applications, users and queues, as arrays by slot.

Nothing is booked beyond a node's capacity; a matcher may overbook divisible resources explicitly,
up to a limit. A slot is freed with its last container and used again.
"""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from rm.ledger.asks import Watcher
from rm.ledger.columns import Bools, Columns
from rm.ledger.ledger_kernels import (
    Asked,
    Holders,
    Used,
    await_more,
    book,
    end,
    free,
    grant,
    too_small,
)
from rm.ledger.queues import QueueTree
from weft.model.dag import Floats, Ints
from weft.model.errors import InvariantError
from weft.model.resources import TOLERANCE, ResourceTypes, Vector
from weft.policies.compiled import direct


class NodeColumns(Columns):
    """Arrays by node slot; those of amounts are (slots, d).

    Between two calls of the ledger:

    * `held` and `containers` count whatever is booked on the node: tasks, masters, and what is kept
      for nobody until the node says that it ended;
    * `available` is `capacity` - `held`, kept beside both as each decision reads it. It is below 0
      where a matcher overbooked, where a node brought more along than it has, and where it came
      back smaller than it was;
    * a node that is not `up` keeps its numbers, as what runs there may still run; only its capacity
      does not count in `Ledger.total`;
    * `labels` is a bit mask, `reserved` the serial of the ask that the node is kept for or 0,
      `seen_s` the last sign of life.
    """

    capacity: Floats
    held: Floats
    available: Floats
    containers: Ints
    up: Bools
    labels: Ints
    rack: Ints
    reserved: Ints
    seen_s: Floats


class AppColumns(Columns):
    """Arrays by application slot; those of amounts are (slots, d).

    Between two calls of the ledger:

    * `held` and `containers` are those of all its attempts together: an attempt that ended holds
      what its nodes have not confirmed to be gone. `masters` counts those of the containers that
      are masters;
    * `pending` is how many containers the current attempt asked for and was not granted,
      `granted_s` when it was last granted one;
    * `queue`, the slot of the leaf queue, and `user`, the slot of (leaf queue, user), change
      together (`move_app`), and what the application holds and asks moves with them, so the sums of
      users and queues are always those of their applications;
    * an `active` slot is somebody's. It is given up with nothing held and nothing pending, and is
      another application's from then on, so nobody keeps a slot over an event but its `App`;
    * the larger `priority` goes first, and the smaller `order`, that of submission;
    * `remaining` and `path` are beliefs of the master, as told last: 0 before its first word.
      `remaining` is srpt, the work of unstarted tasks, s x L1(demand / C); `path` is the longest
      path of the stages that are not done, s;
    * `work` is demand x duration over all of the application's tasks, absolute.
    """

    held: Floats
    containers: Ints
    masters: Ints
    active: Bools
    queue: Ints
    user: Ints
    priority: Ints
    order: Ints
    remaining: Floats
    path: Floats
    work: Floats
    pending: Ints
    granted_s: Floats


class UserColumns(Columns):
    """Per (leaf queue, user) slot; one is in use while the user has an application in the queue.

    `held` (slots, d) goes back to exact zeros with the last application: sums of many floats drift,
    and the next user of the slot would begin with what is left of them. `apps` counts active
    applications, `masters` those of the containers that are masters, `pending` containers that
    these applications asked for and were not granted.
    """

    held: Floats
    containers: Ints
    masters: Ints
    apps: Ints
    pending: Ints
    queue: Ints


class QueueColumns(Columns):
    """Per queue slot, of the queue and all below it; slot 0 is the root.

    So `held[0]` (of (queues, d)) is what all applications hold. It may be less than what nodes
    hold: a container of nobody is charged to its node alone. `masters` counts those of the
    containers that are masters, `users` the active users of a leaf: those with something pending,
    as YARN counts them. Whoever waits for a master, or holds all that he wants, halves nobody's
    limit.
    """

    held: Floats
    containers: Ints
    masters: Ints
    apps: Ints
    users: Ints
    pending: Ints


class Ledger:
    """The books of one cluster; the only place where holdings change."""

    def __init__(self, types: ResourceTypes, queues: QueueTree) -> None:
        d = len(types)
        self.types = types
        self.queues = queues
        self.nodes = NodeColumns(
            {
                "capacity": (np.float64, d),
                "held": (np.float64, d),
                "available": (np.float64, d),
                "containers": (np.int64, 0),
                "up": (np.bool_, 0),
                "labels": (np.int64, 0),
                "rack": (np.int64, 0),
                "reserved": (np.int64, 0),
                "seen_s": (np.float64, 0),
            }
        )
        self.apps = AppColumns(
            {
                "held": (np.float64, d),
                "containers": (np.int64, 0),
                "masters": (np.int64, 0),
                "active": (np.bool_, 0),
                "queue": (np.int64, 0),
                "user": (np.int64, 0),
                "priority": (np.int64, 0),
                "order": (np.int64, 0),
                "remaining": (np.float64, 0),
                "path": (np.float64, 0),
                "work": (np.float64, d),
                "granted_s": (np.float64, 0),
                "pending": (np.int64, 0),
            }
        )
        self.users = UserColumns(
            {
                "held": (np.float64, d),
                "containers": (np.int64, 0),
                "masters": (np.int64, 0),
                "apps": (np.int64, 0),
                "pending": (np.int64, 0),
                "queue": (np.int64, 0),
            }
        )
        self.by_queue = QueueColumns(
            {
                "held": (np.float64, d),
                "containers": (np.int64, 0),
                "masters": (np.int64, 0),
                "apps": (np.int64, 0),
                "users": (np.int64, 0),
                "pending": (np.int64, 0),
            },
            room=len(queues),
        )
        # It grows whenever there may be more room somewhere.
        self.freed = 0
        # This is C, the capacity of the nodes that are up.
        self.total: Floats = np.zeros(d)
        # Slots in use or used before are counted: tables are sliced with them, and they never
        # shrink.
        self.node_count = 0
        self.app_slots = 0
        # These are the users with applications, by (leaf queue, user).
        self.user_slots: dict[tuple[int, str], int] = {}
        self._user_keys: dict[int, tuple[int, str]] = {}
        self._free_apps: list[int] = []
        # Their masters are gone, what they hold is not yet.
        self._leaving: set[int] = set()
        self._free_users: list[int] = []
        self.rigid: Bools = np.array(types.rigid)
        self._no_overbooking: Floats = np.ones(d)
        # It is called when tables have grown and moved.
        self.moved: Callable[[], None] | None = None
        self.watcher: Watcher | None = None
        # The kernels are bound to tables of these sizes.
        self._bound_rooms = (0, 0, 0)
        self._grown()

    # -- nodes -------------------------------------------------------------------------------------

    def add_node(self) -> int:
        """Return a slot for a node that was never seen before."""
        slot = self.node_count
        self.node_count += 1
        self.nodes.grow_to(self.node_count)
        self._grown()
        return slot

    def set_node(self, slot: int, capacity: Vector, up: bool) -> None:
        """Set a node's capacity and whether it is in service."""
        self.freed += 1
        columns = self.nodes.w
        columns["capacity"][slot] = capacity
        columns["available"][slot] = columns["capacity"][slot] - columns["held"][slot]
        was_up, n = columns["up"].item(slot), self.node_count
        columns["up"][slot] = up
        if self.watcher is not None:
            self.watcher.node_set(slot)
        # A new one gives the same sum without adding up all; NumPy sums one column by pairs.
        if up and not was_up and slot == n - 1 and len(self.types) > 1:
            self.total = self.total + columns["capacity"][slot]
            return
        self.total = columns["capacity"][:n][columns["up"][:n]].sum(axis=0)

    def describe_node(self, slot: int, rack: int, labels: int) -> None:
        """Set the number of a node's rack and the bits of its labels, as it reported them."""
        self.freed += 1
        self.nodes.w["rack"][slot], self.nodes.w["labels"][slot] = rack, labels

    def clear_node(self, slot: int) -> None:
        """Clear the slot of a node that is forgotten, so that another may have it."""
        for name in ("held", "containers", "labels", "rack", "reserved"):
            self.nodes.w[name][slot] = 0
        self.set_node(slot, (0.0,) * len(self.types), up=False)

    def heard_of(self, slot: int, now: float) -> None:
        """Note that a node was heard at `now`."""
        self._seen_s[slot] = now

    def heard_of_all(self, slots: list[int] | Ints, now: float) -> None:
        """Note that nodes were heard at `now`."""
        self.nodes.w["seen_s"][slots] = now

    def forgive(self, pause_s: float, now: float) -> None:
        """Take a pause of the manager from the silence of all nodes."""
        seen_s = self.nodes.w["seen_s"][: self.node_count]
        np.minimum(seen_s + pause_s, now, out=seen_s)

    def reserve(self, slots: list[int], serial: int) -> None:
        """Keep nodes for an ask; 0: for nobody."""
        self.nodes.w["reserved"][slots] = serial

    def unreserve(self, slots: Iterable[int], serial: int) -> bool:
        """Free those of the nodes that are reserved for an ask; return whether there were any."""
        kept = [slot for slot in slots if self.nodes.reserved[slot] == serial]
        self.nodes.w["reserved"][kept] = 0
        self.freed += 1
        return bool(kept)

    def empty(self, slot: int) -> Floats:
        """Show a node as empty until `refill` with what this answers."""
        available: Floats = self.nodes.available[slot].copy()
        self.nodes.w["available"][slot] = self.nodes.capacity[slot]
        return available

    def refill(self, slot: int, available: Floats) -> None:
        """Show a node as it is."""
        self.nodes.w["available"][slot] = available

    # -- applications ------------------------------------------------------------------------------

    def open_app(
        self, queue: int, user: str, priority: int, order: int, work: Vector | None = None
    ) -> int:
        """Return a slot for a new application; `work` is demand x duration of its tasks."""
        if self._free_apps:
            slot = self._free_apps.pop()
        else:
            slot = self.app_slots
            self.app_slots += 1
            self.apps.grow_to(self.app_slots)
            self._grown()
        columns = self.apps.w
        columns["active"][slot] = True
        columns["priority"][slot] = priority
        columns["order"][slot] = order
        columns["work"][slot] = 0.0 if work is None else work
        columns["remaining"][slot] = columns["path"][slot] = columns["granted_s"][slot] = 0.0
        self._join(slot, queue, user)
        return slot

    def close_app(self, slot: int) -> None:
        """Close an application's slot; raises InvariantError if it still holds or asks."""
        if self.apps.containers[slot] or self.apps.pending[slot]:
            raise InvariantError(f"application slot {slot} is closed but still holds or asks")
        self._leave(slot)
        self._leaving.discard(slot)
        self.apps.w["active"][slot] = False
        self._free_apps.append(slot)

    def app_over(self, slot: int) -> None:
        """Count an application no longer that holds containers only until they have ended."""
        self._leaving.add(slot)

    def apps_in(self, queue: int) -> int:
        """Return how many applications of a queue, and of those below it, are not over."""
        gone = sum(queue in self.queues.chains[self.apps.queue[slot]] for slot in self._leaving)
        return int(self.by_queue.apps[queue]) - gone

    def apps_of(self, queue: int, user: str) -> int:
        """Return how many applications of a user in a leaf queue are not over."""
        at = self.user_slots.get((queue, user))
        if at is None:
            return 0
        gone = sum(int(self.apps.user[slot]) == at for slot in self._leaving)
        return int(self.users.apps[at]) - gone

    def move_app(self, slot: int, queue: int, user: str) -> None:
        """Move what an application holds and asks to another leaf queue."""
        held, count = self.apps.held[slot].copy(), int(self.apps.containers[slot])
        pending, masters = int(self.apps.pending[slot]), int(self.apps.masters[slot])
        self._shift(slot, -held, -count, -pending, -masters)
        self._leave(slot)
        self._join(slot, queue, user)
        self._shift(slot, held, count, pending, masters)

    def user_name(self, slot: int) -> str:
        """Return the user of an application."""
        return self._user_keys[int(self.apps.user[slot])][1]

    def user_waits(self, slot: int) -> bool:
        """Return whether an application's user has anything pending in its queue."""
        return bool(self.users.pending[self.apps.user[slot]] > 0)

    def set_priority(self, slot: int, priority: int) -> None:
        """Set an application's priority; larger goes first."""
        self.apps.w["priority"][slot] = priority

    def set_work_left(self, slot: int, work: float, path_s: float) -> None:
        """Set what a master says is left of its job: work not started, the longest path (s)."""
        self._remaining[slot], self._path[slot] = work, path_s

    def count_masters(self, slot: int, count: int) -> None:
        """Count containers of an application as its masters'; negative for those that ended."""
        self.apps.w["masters"][slot] += count
        self.users.w["masters"][self.apps.user[slot]] += count
        for above in self.queues.chains[self.apps.queue[slot]]:
            self.by_queue.w["masters"][above] += count

    def no_work_left(self, slot: int) -> None:
        """Set the work left of an application to 0."""
        self.apps.w["remaining"][slot] = 0.0

    def add_pending(self, slot: int, count: int) -> None:
        """Add containers that were asked for; negative for those granted or withdrawn."""
        self._await(slot, count)

    def change_queues(self, tree: QueueTree, now_at: Ints) -> None:
        """Take another tree; `now_at` (queues before,) says where each queue is in it, else -1.

        Whoever is in a queue that is not in it holds and asks nothing, and is nobody any more.
        """
        self.queues = tree
        now_at = np.maximum(now_at, 0)
        n, apps, users = self.app_slots, self.apps.w, self.users.w
        apps["queue"][:n] = now_at[apps["queue"][:n]]
        users["queue"][:] = now_at[users["queue"]]
        self._user_keys = {
            at: (int(now_at[queue]), user) for at, (queue, user) in self._user_keys.items()
        }
        self.user_slots = {key: at for at, key in self._user_keys.items()}
        self.by_queue.begin_anew(len(tree))
        summed = self.by_queue.w
        for (queue, _), at in self.user_slots.items():
            summed["users"][queue] += int(users["pending"][at] > 0)
        for slot in np.flatnonzero(apps["active"][:n]).tolist():
            for above in tree.chains[apps["queue"][slot]]:
                summed["apps"][above] += 1
                for name in ("held", "containers", "masters", "pending"):
                    summed[name][above] += apps[name][slot]
        # The kernels are bound to the tables of before.
        self._bound_rooms = (0, 0, 0)
        self.freed += 1
        self._grown()

    # -- containers --------------------------------------------------------------------------------

    def book(
        self, node: int, app: int, demand: Floats, count: int, limit: Floats | None = None
    ) -> None:
        """Book `count` identical containers; `app` -1 charges no application.

        `limit` has one factor of the capacity per resource, 1 where None; raises InvariantError
        where more than that would be held.
        """
        plain = self._no_overbooking if limit is None else limit
        over = self._book(self._used, node, app, count, demand, plain)
        if over:
            raise self._not_booked(over, node, app, demand, count)
        if self.watcher is not None:
            self.watcher.held(node, app, demand, count)

    def grant(
        self, node: int, app: int, demand: Floats, count: int, limit: Floats | None, now: float
    ) -> None:
        """Book containers, as `book` does, that an application asked for: they wait no longer."""
        plain = self._no_overbooking if limit is None else limit
        over = self._grant(self._used, node, app, count, demand, plain, now)
        if over:
            raise self._not_booked(over, node, app, demand, count)
        if self.watcher is not None:
            self.watcher.held(node, app, demand, count)

    def _not_booked(
        self, over: int, node: int, app: int, demand: Floats, count: int
    ) -> InvariantError:
        if over < 0:
            return _out_of_bounds(node, app, demand)
        return InvariantError(
            f"{count} x {demand[over - 1]:g} {self.types.names[over - 1]} does not fit on node "
            f"slot {node}: {self.nodes.available[node, over - 1]:g} available"
        )

    def free(self, node: int, app: int, demand: Floats, count: int = 1) -> None:
        """Take the demand of one container back, or of several identical ones."""
        self.freed += 1
        if not self._free(self._used, node, app, demand, count):
            raise _out_of_bounds(node, app, demand)
        if self.watcher is not None:
            self.watcher.held(node, app, demand, -count)

    def end(
        self, node: int, app: int, demand: Floats, count: int, held_s: Floats, lasted_s: float
    ) -> None:
        """Free like containers of an application that ended, and count how long they were held.

        To `held_s` (d,) the demand of each x `lasted_s` is added.
        """
        self.freed += 1
        if not self._end(self._used, node, app, demand, count, held_s, lasted_s):
            raise _out_of_bounds(node, app, demand)
        if self.watcher is not None:
            self.watcher.held(node, app, demand, -count)

    def _grown(self) -> None:
        """Bind the kernels to the arrays anew where a table has grown and moved.

        A table that grows is another array, while machine code that was bound to the old one would
        go on writing there, unseen. So whoever adds a slot calls this before anything is booked.
        """
        self._used = Used(self.node_count, self.app_slots)
        rooms = (self.nodes.room, self.apps.room, self.users.room)
        if rooms == self._bound_rooms:
            return
        self._bound_rooms = rooms
        if self.moved is not None:
            self.moved()
        nodes, apps, users, queues = self.nodes.w, self.apps.w, self.users.w, self.by_queue.w
        self._seen_s: Floats = nodes["seen_s"]
        self._remaining: Floats = apps["remaining"]
        self._path: Floats = apps["path"]
        parent, one = self.queues.parent, self._no_overbooking
        holders = Holders(
            nodes["capacity"],
            nodes["held"],
            nodes["available"],
            nodes["containers"],
            apps["held"],
            apps["containers"],
            apps["user"],
            apps["queue"],
            users["held"],
            users["containers"],
            queues["held"],
            queues["containers"],
            parent,
        )
        waiting = Asked(
            holders,
            apps["pending"],
            apps["granted_s"],
            users["pending"],
            queues["pending"],
            queues["users"],
        )
        granted = (self._used, 0, 0, 1, one, one, 1.0)
        self._grant = partial(direct(grant, waiting, *granted), waiting)
        available, capacity = nodes["available"], nodes["capacity"]
        self.too_small = partial(
            direct(too_small, available, capacity, 0, one, one), available, capacity
        )
        self._book = partial(direct(book, holders, self._used, 0, 0, 1, one, one), holders)
        self._free = partial(direct(free, holders, self._used, 0, 0, one, 1), holders)
        ended = (self._used, 0, 0, one, 1, one, 1.0)
        self._end = partial(direct(end, holders, *ended), holders)
        self._await = partial(direct(await_more, waiting, 0, 1), waiting)

    # -- invariants --------------------------------------------------------------------------------

    def check(self, holdings: list[tuple[int, int, Vector]], most: Floats, given: set[int]) -> None:
        """Compare with the containers themselves: (node slot, app slot or -1, demand) each.

        No node holds more than `most` (d,) x its capacity, but those slots in `given`: they hold
        what they brought along.
        """
        d = len(self.types)
        node = np.zeros((self.node_count, d))
        app = np.zeros((max(self.app_slots, 1), d))
        for at, of, demand in holdings:
            node[at] += demand
            if of >= 0:
                app[of] += demand
        n, a = self.node_count, self.app_slots
        scale = np.maximum(self.nodes.capacity[:n].max(axis=0, initial=0.0), 1.0) * n
        _same("nodes", self.nodes.held[:n], node, scale)
        _same("applications", self.apps.held[:a], app[:a], scale)
        queue = np.zeros((len(self.queues), d))
        for slot in range(a):
            for above in self.queues.chains[self.apps.queue[slot]]:
                queue[above] += app[slot]
        _same("queues", self.by_queue.held[: len(self.queues)], queue, scale)
        over = node > self.nodes.capacity[:n] * (most + 2 * TOLERANCE) + 1e-12
        over[list(given)] = False
        if over.any():
            at, r = np.argwhere(over)[0]
            raise InvariantError(f"node slot {at} is over its capacity in {self.types.names[r]}")

    # -- inside ------------------------------------------------------------------------------------

    def _join(self, slot: int, queue: int, user: str) -> None:
        key = (queue, user)
        if key not in self.user_slots:
            fresh = self._free_users.pop() if self._free_users else len(self.user_slots)
            self.user_slots[key] = fresh
            self.users.grow_to(len(self.user_slots))
            self._grown()
            self.users.w["queue"][fresh] = queue
            self._user_keys[fresh] = key
        at = self.user_slots[key]
        self.apps.w["queue"][slot] = queue
        self.apps.w["user"][slot] = at
        self.users.w["apps"][at] += 1
        for above in self.queues.chains[queue]:
            self.by_queue.w["apps"][above] += 1

    def _leave(self, slot: int) -> None:
        queue, at = int(self.apps.queue[slot]), int(self.apps.user[slot])
        self.users.w["apps"][at] -= 1
        if self.users.apps[at] == 0:
            del self.user_slots[self._user_keys.pop(at)]
            # Rounding must not drift into the next use of the slot.
            self.users.w["held"][at] = 0.0
            self._free_users.append(at)
        for above in self.queues.chains[queue]:
            self.by_queue.w["apps"][above] -= 1

    def _shift(self, slot: int, held: Floats, count: int, pending: int, masters: int) -> None:
        user = int(self.apps.user[slot])
        self.users.w["held"][user] += held
        self.users.w["containers"][user] += count
        self.users.w["masters"][user] += masters
        queues, waited = self.by_queue.w, self.users.pending[user] > 0
        self.users.w["pending"][user] += pending
        active = int(self.users.pending[user] > 0) - int(waited)
        queues["users"][self.apps.queue[slot]] += active
        for above in self.queues.chains[self.apps.queue[slot]]:
            queues["held"][above] += held
            queues["containers"][above] += count
            queues["masters"][above] += masters
            queues["pending"][above] += pending
            if not queues["containers"][above]:
                queues["held"][above] = 0.0


def _out_of_bounds(node: int, app: int, demand: Floats) -> InvariantError:
    return InvariantError(
        f"{len(demand)} amounts for node slot {node}, application slot {app}: out of bounds"
    )


def _same(what: str, booked: Floats, counted: Floats, scale: Floats) -> None:
    wrong = np.abs(booked - counted) > 1e-6 * scale
    if wrong.any():
        slot, r = np.argwhere(wrong)[0]
        raise InvariantError(
            f"the books of {what} say {booked[slot, r]:g} in slot {slot}, resource {r}; "
            f"the containers sum to {counted[slot, r]:g}"
        )
