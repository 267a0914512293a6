"""Moves queues' guarantees between members, where a router is the one that does.

`weft.policies.shares` decides. A member takes a change only while the tree that it was made from
holds, so one that is late, comes twice or was overtaken by an operator's changes nothing, and one
that is lost is made again in the next round. So nothing breaks where two routers do it at once.
"""

import asyncio
from collections.abc import Sequence

import structlog

from weft.ha.electing import Leadership, Standing
from weft.ha.etcd import Etcd, EtcdSettings
from weft.model.errors import WeftError
from weft.model.queues import QueueSpec, digest_of
from weft.policies.shares import Member as Told
from weft.policies.shares import moves, shared, sizes_of, wanted_of
from weft.protocol.access import TRUSTED
from weft.protocol.requests import (
    ClusterMetrics,
    GetMetrics,
    GetQueues,
    ListQueues,
    QueueReport,
    Queues,
    SetQueues,
)
from weft.router.routing import Member

# The routers of one etcd elect by this key.
ELECTION = "shares"
_log = structlog.get_logger()


class Turn:
    """Whether it is this router that moves guarantees: alone it is, of several one by a lease."""

    def __init__(self, where: EtcdSettings | None, lease_s: float, address: str) -> None:
        """`where` is the etcd that the routers share, `address` that of this one."""
        self._where, self._lease_s, self._address = where, lease_s, address
        self._leadership = self._stand()

    def _stand(self) -> Leadership | None:
        if self._where is None:
            return None
        made = Leadership(Etcd(self._where), self._lease_s, self._changed, key=ELECTION)
        made.start(self._address)
        return made

    @staticmethod
    def _changed(standing: Standing, reason: str) -> None:
        _log.info("moving guarantees between members", standing=standing.value, reason=reason)

    @property
    def is_mine(self) -> bool:
        """Whether it is now; a router whose lease ended stands for the next one."""
        if self._leadership is None:
            return True
        if self._leadership.standing is Standing.LOST:
            self._leadership = self._stand()
            return False
        return self._leadership.may_order

    def leave(self) -> None:
        """Let another router do it at once."""
        if self._leadership is not None:
            self._leadership.leave()


async def keep_sharing(members: Sequence[Member], every_s: float, turn: Turn) -> None:
    """Look again and again at who wants what where, while it is this router's turn."""
    while True:
        await asyncio.sleep(every_s)
        if turn.is_mine:
            await share(members)


async def share(members: Sequence[Member]) -> int:
    """Have members guarantee what they are to guarantee from now on; return how many changed."""
    there = [one for one in members if one.standing.up]
    answers = await asyncio.gather(*(_told(one) for one in there))
    found = [(one, said) for one, said in zip(there, answers, strict=True) if said is not None]
    if not found or not moves(found[0][1][0]):
        return 0
    parts = sizes_of([metrics for _, (_, _, metrics) in found])
    told = [
        Told(tree, wanted_of(report, metrics.capacity), part)
        for (_, (tree, report, metrics)), part in zip(found, parts, strict=True)
    ]
    # It takes longer than others are to wait where there are thousands of queues.
    trees = await asyncio.to_thread(shared, told)
    changed = [
        (member, before, after)
        for (member, (before, *_)), after in zip(found, trees, strict=True)
        if after != before
    ]
    await asyncio.gather(*(_set(*one) for one in changed))
    return len(changed)


async def _told(member: Member) -> tuple[QueueSpec, QueueReport, ClusterMetrics] | None:
    """Return the queues of a member, who wants what there, and what it has; None: it is gone."""
    asked = (GetQueues(), ListQueues(), GetMetrics())
    try:
        tree, report, metrics = [await member.ask(request, TRUSTED) for request in asked]
    except WeftError:
        return None
    if (
        isinstance(tree, Queues)
        and isinstance(report, QueueReport)
        and isinstance(metrics, ClusterMetrics)
    ):
        return tree.queues, report, metrics
    return None


async def _set(member: Member, before: QueueSpec, after: QueueSpec) -> None:
    try:
        answer = await member.ask(SetQueues(after, base=digest_of(before)), TRUSTED)
    except WeftError as error:
        answer = error
    _log.debug("guarantees moved", member=member.number, answer=type(answer).__name__)
