"""Asks the members, by number, by load, or all; `weft.wire.services` serves what it answers."""

import asyncio
import hashlib
import heapq
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar

import structlog

from weft.model.errors import InputError, WeftError
from weft.model.ids import DIGITS, app_of_container
from weft.policies.members import Standing, least_outstanding, work_s
from weft.policies.shares import sizes_of, whole
from weft.protocol.access import Caller
from weft.protocol.requests import (
    UNREACHABLE,
    ApplicationReport,
    ClientRequest,
    ClusterMetrics,
    ContainerReport,
    DecommissionNode,
    Explain,
    FindSubmission,
    GetApplication,
    GetJob,
    GetManager,
    GetMetrics,
    GetQueues,
    ListApplications,
    ListContainers,
    ListNodes,
    ListQueues,
    ManagerReport,
    NewApplication,
    NodeReport,
    Page,
    Queues,
    RecommissionNode,
    Refused,
    SetQueues,
    SubmitApplication,
    UpdateNode,
)
from weft.router import merging
from weft.wire.channel import MEMBER_GONE, UnreachableError
from weft.wire.client import ManagerConnection

# A member that is not there is tried again for so long, s, for what only it can answer.
PATIENCE_S = 2.0
# The members are asked so often how they stand, s.
REPORTS_S = 1.0
# A member that does not answer for so long is taken for gone, s.
REPORT_DEADLINE_S = 5.0
# So many may watch all members at a time; for a slow one a batch waits, and then its members do.
WATCHERS_MAX, WAITING_BATCHES_MAX = 20, 1
# A watch that a member ended is tried again after so long, s.
WATCH_AGAIN_S = 1.0
# One page has so many applications or nodes where the client names no number.
PAGE_MAX = 1_000

# Answers that may be large are taken in so many at a time: of each member, and of lists of all.
READS_MAX = 2
_LISTS = (ListApplications, ListNodes, ListQueues)
_LARGE = (*_LISTS, Explain, GetApplication, GetJob, GetQueues, ListContainers)

# A member's listing is over.
_OVER = "-"

_NOT_YET = "it was not asked yet"
_log = structlog.get_logger()


class Member:
    """One member: the connection to it, and how it stands."""

    def __init__(self, number: int, address: str, deadline_s: float) -> None:
        """Connect; `number` is its place among the members, from 1."""
        self.number = number
        self.address = address
        self.connection = ManagerConnection(address, deadline_s, patience_s=0.0)
        self.standing = Standing()
        self.metrics: ClusterMetrics | None = None
        self.problem = _NOT_YET
        self._reads = asyncio.Semaphore(READS_MAX)

    async def ask(self, request: ClientRequest, caller: Caller, patience_s: float = 0.0) -> Any:
        """Ask for a caller; raises WeftError where the member does not answer."""
        user = "" if caller.everything else caller.user
        try:
            async with self._reads if isinstance(request, _LARGE) else nullcontext():
                # A job is megabytes, which nobody reads here.
                passed_on = isinstance(request, GetJob)
                answer = await self.connection.ask(request, patience_s, user, passed_on=passed_on)
        except UnreachableError as error:
            text = f"{MEMBER_GONE}{self.number} ({error})"
            raise UnreachableError(text, sent=error.sent) from None
        if not self.standing.up:
            # Whoever saw its answer must not be told afterwards that it is gone.
            await self.look()
        return answer

    async def stands(self, request: GetManager, caller: Caller) -> ManagerReport:
        """Return what its manager says of itself, or that it cannot be reached."""
        problem = self.problem
        if self.standing.up:
            try:
                report = await self.ask(request, caller)
                if isinstance(report, ManagerReport):
                    return report
                problem = str(report)
            except WeftError as error:
                problem = str(error)
        return ManagerReport(self.address, UNREACHABLE, reason=problem)

    async def look(self) -> None:
        """Ask how it stands."""
        try:
            found = await asyncio.wait_for(self.connection.ask(GetMetrics()), REPORT_DEADLINE_S)
            if not isinstance(found, ClusterMetrics):
                raise WeftError(str(found))
        except (WeftError, TimeoutError) as error:
            self._is_up(str(error) or f"no answer within {REPORT_DEADLINE_S:g} s")
            return
        self.reported(found)

    def reported(self, found: ClusterMetrics) -> None:
        """Take how it says that it stands."""
        self._is_up("")
        self.metrics = found
        self.standing = Standing(True, found.outstanding_s, found.capacity, found.labels)

    def _is_up(self, problem: str) -> None:
        if problem and (not self.problem or self.problem is _NOT_YET):
            _log.warning("a member is gone", member=self.number, reason=problem)
        elif self.problem and not problem:
            _log.info("a member is there", member=self.number, address=self.address)
        self.problem, self.standing.up = problem, not problem


class Router:
    """Serves the requests of clients of all members; keeps nothing but how the members stand."""

    def __init__(self, addresses: Sequence[str], deadline_s: float = 20.0) -> None:
        """Each member has an address, one host:port or several with commas; from member 1 on."""
        self.members = [
            Member(number, address, deadline_s) for number, address in enumerate(addresses, 1)
        ]
        self._since_s = time.time()
        self._lists = asyncio.Semaphore(READS_MAX)
        self.address = ""
        self._watchers = 0

    async def close(self) -> None:
        """Close the connections."""
        for member in self.members:
            await member.connection.close()

    async def look(self) -> None:
        """Ask all members how they stand."""
        await asyncio.gather(*(member.look() for member in self.members))

    async def keep_looking(self) -> None:
        """Ask them again and again."""
        while True:
            await self.look()
            await asyncio.sleep(REPORTS_S)

    async def ask(self, request: ClientRequest, caller: Caller) -> Any:
        """Answer a client's request; raises WeftError where the member that has to is not there."""
        number = getattr(request, "app_id", 0)
        if number:
            return await self._of(number).ask(request, caller, PATIENCE_S)
        if isinstance(request, SubmitApplication):
            return await self._submit(request, caller)
        handler = self._HANDLERS.get(type(request))
        if handler is None:
            return await self._first(request, caller)
        async with self._lists if isinstance(request, _LISTS) else nullcontext():
            return await handler(self, request, caller)

    def _of(self, number: int) -> Member:
        """Return the member that gave this number to an application."""
        return self.members[(number - 1) % len(self.members)]

    # -- submissions -------------------------------------------------------------------------------

    async def _submit(self, request: SubmitApplication, caller: Caller) -> Any:
        """Submit once: an id that may have been sent before is looked for in every member first.

        So it is refused while a member that may have it is not there. If it is nowhere, all routers
        name the same member for it, which tells repetitions apart.
        """
        key = request.submission_id
        home: list[int] = []
        if key and not request.fresh:
            found = await self._known(FindSubmission(key), caller)
            if not _is_unknown(found):
                return found
            home = [hash_of(key) % len(self.members)]
        standings = [member.standing for member in self.members]
        problem = "no member of the cluster answers"
        for at in home or least_outstanding(standings, request.job):
            member, before = self.members[at], self.members[at].standing
            # Until the member reports again, the job counts by the estimate.
            before.outstanding_s += work_s(request.job, before)
            try:
                return await member.ask(request, caller)
            except UnreachableError as error:
                if error.sent or home:
                    raise
                # Another one may take what was never sent.
                before.up, problem = False, str(error)
        raise WeftError(problem)

    async def _new(self, request: NewApplication, caller: Caller) -> Any:
        standings = [member.standing for member in self.members]
        up = [at for at, standing in enumerate(standings) if standing.up]
        if not up:
            raise WeftError("no member of the cluster answers")
        least = min(up, key=lambda at: standings[at].outstanding_s)
        return await self.members[least].ask(request, caller)

    # -- all members -------------------------------------------------------------------------------

    async def _all(self, request: ClientRequest, caller: Caller) -> list[Any]:
        """Return what each member answers; raises WeftError where one is not there."""
        return await asyncio.gather(*(member.ask(request, caller) for member in self.members))

    async def _known(self, request: ClientRequest, caller: Caller) -> Any:
        """Return the first answer that says more than that there is no such thing.

        Where there is none, every member has to say so: raises WeftError where one is not there.
        """
        answer: Any = None
        problem: WeftError | None = None
        for member in self.members:
            try:
                answer = await member.ask(request, caller)
            except WeftError as error:
                problem = error
                continue
            if not _is_unknown(answer):
                return answer
        if problem is not None:
            raise problem
        return answer

    async def _there(self, request: ClientRequest, caller: Caller) -> list[tuple[Member, Any]]:
        """Return what each member answers that is there; raises WeftError where none is."""

        async def asked(member: Member) -> Any:
            try:
                return await member.ask(request, caller)
            except WeftError as error:
                return error

        up = [member for member in self.members if member.standing.up]
        answers = await asyncio.gather(*(asked(member) for member in up))
        found = [
            (member, answer)
            for member, answer in zip(up, answers, strict=True)
            if not isinstance(answer, WeftError)
        ]
        if not found:
            raise WeftError("no member of the cluster answers")
        return found

    def _all_but(self, there: Iterable[Member]) -> tuple[int, ...]:
        """Return the numbers of the other members."""
        answered = {member.number for member in there}
        return tuple(one.number for one in self.members if one.number not in answered)

    async def _first(self, request: ClientRequest, caller: Caller) -> Any:
        return (await self._there(request, caller))[0][1]

    async def _metrics(self, request: GetMetrics, caller: Caller) -> Any:
        found = await self._there(request, caller)
        for member, one in found:
            if isinstance(one, ClusterMetrics):
                member.reported(one)
        total = merging.metrics(_good(one for _, one in found))
        return replace(total, missing=self._all_but(member for member, _ in found))

    async def _queues(self, request: ListQueues, caller: Caller) -> Any:
        found = await self._there(request, caller)
        told = [member.metrics for member, _ in found if member.metrics is not None]
        trees = [tree for member, tree in found if member.metrics is not None]
        if refused := next((one for one in trees if isinstance(one, Refused)), None):
            return refused
        total = merging.metrics(told).capacity
        numbers = [member.number for member, _ in found if member.metrics is not None]
        root = merging.queues(trees, sizes_of(told), total, numbers)
        return replace(root, missing=self._all_but(member for member, _ in found))

    async def _applications(self, request: ListApplications, caller: Caller) -> Any:
        """Return a page of all members' applications, the newest first over all of them.

        Its token has one of each member: where its list goes on, or `-` where it is over.
        """
        tokens = request.page.split(",") if request.page else [""] * len(self.members)
        if len(tokens) != len(self.members):
            raise InputError("page", f"{request.page!r:.40} was never given out")
        most = min(request.limit or PAGE_MAX, PAGE_MAX)
        open_ = [at for at, token in enumerate(tokens) if token != _OVER]
        asked = [
            self._page(at, replace(request, limit=most, page=tokens[at]), caller) for at in open_
        ]
        pages = dict(zip(open_, await asyncio.gather(*asked), strict=True))
        if refused := next((one for one in pages.values() if isinstance(one, Refused)), None):
            return refused
        # Each member's own order stays: a number that was reserved may be older than its job.
        rows = ([(at, item) for item in reversed(page.items)] for at, page in pages.items())
        newest = heapq.merge(*rows, key=lambda row: row[1].submitted_s, reverse=True)
        taken: list[tuple[int, ApplicationReport]] = list(islice(newest, most))
        for at, page in pages.items():
            mine = [item for owner, item in taken if owner == at]
            if len(mine) == len(page.items):
                tokens[at] = page.next or _OVER
            elif mine:
                tokens[at] = str(mine[-1].app_id)
        more = any(token != _OVER for token in tokens)
        return Page(
            tuple(item for *_, item in reversed(taken)),
            ",".join(tokens) if more else "",
            tuple(number for page in pages.values() for number in page.missing),
        )

    async def _nodes(self, request: ListNodes, caller: Caller) -> Any:
        """Return a page of the nodes of one member after the other, or those of one name."""
        if request.node:
            found, gone = await self._named(request.node, caller)
            return Page(tuple(node for _, node in found), "", gone)
        at, _, token = request.page.partition(":") if request.page else ("0", "", "")
        if not re.fullmatch(DIGITS, at) or int(at) >= len(self.members):
            raise InputError("page", f"{request.page!r:.40} was never given out")
        page = await self._page(int(at), replace(request, page=token), caller)
        if isinstance(page, Refused):
            return page
        after = f"{at}:{page.next}" if page.next else f"{int(at) + 1}:"
        over = not page.next and int(at) + 1 == len(self.members)
        return Page(page.items, "" if over else after, page.missing)

    async def _page(self, at: int, request: Any, caller: Caller) -> Any:
        """Return a page of one member's listing; of one that is gone, an empty one."""
        member = self.members[at]
        if member.standing.up:
            try:
                return await member.ask(request, caller)
            except WeftError as error:
                _log.warning("a listing lacks a member", member=member.number, reason=str(error))
        return Page((), missing=(member.number,))

    # -- one node ----------------------------------------------------------------------------------

    async def _named(
        self, name: str, caller: Caller
    ) -> tuple[list[tuple[Member, NodeReport]], tuple[int, ...]]:
        """Return the nodes of a name with their members, and the numbers of members that are gone.

        `2/n1` is member 2's n1. Raises InputError where there is no such member.
        """
        number, slash, own = name.partition("/")
        asked = self.members
        if slash and re.fullmatch(DIGITS, number):
            asked = [member for member in self.members if member.number == int(number)]
            if not asked:
                raise InputError("node", f"{name!r}: there are {len(self.members)} members")
            name = own
        pages = await asyncio.gather(
            *(self._page(member.number - 1, ListNodes(node=name), caller) for member in asked)
        )
        found = zip(asked, pages, strict=True)
        nodes = [(member, node) for member, page in found for node in _items(page)]
        return nodes, tuple(gone for page in pages for gone in getattr(page, "missing", ()))

    async def _of_node(self, request: Any, caller: Caller) -> Any:
        """Have the member of a node do what is asked; one of several has to be named."""
        name = request.node_id
        nodes, _ = await self._named(name, caller)
        if len(nodes) > 1:
            known = ", ".join(f"{one.number}/{name} ({node.address})" for one, node in nodes)
            return Refused(
                "invalid_argument", "node_id", f"{len(nodes)} members have a node {name!r}: {known}"
            )
        if nodes:
            ((member, node),) = nodes
            return await member.ask(replace(request, node_id=node.node_id), caller, PATIENCE_S)
        return await self._known(request, caller)

    async def _tree(self, request: GetQueues, caller: Caller) -> Any:
        """Return the queues as they were set, wherever their guarantees are."""
        answer = await self._first(request, caller)
        return Queues(whole(answer.queues)) if isinstance(answer, Queues) else answer

    async def _set_queues(self, request: SetQueues, caller: Caller) -> Any:
        """Set all members' queues, or none's: each says first whether it can."""
        if request.base:
            return Refused("invalid_argument", "base", "members have trees of their own")
        for dry_run in (True,) if request.dry_run else (True, False):
            for answer in await self._all(replace(request, dry_run=dry_run), caller):
                if isinstance(answer, Refused):
                    return answer
        return answer

    async def _manager(self, request: GetManager, caller: Caller) -> Any:
        said = await asyncio.gather(*(member.stands(request, caller) for member in self.members))
        there = [one for one in said if one.standing != UNREACHABLE]
        if not there:
            raise WeftError("no member of the cluster answers")
        gone = [
            f"{number} ({one.reason})"
            for number, one in enumerate(said, 1)
            if one.standing == UNREACHABLE
        ]
        text = f"a router of {len(said)} members"
        return ManagerReport(
            self.address,
            "ALONE",
            since_s=self._since_s,
            reason=f"{text}, gone: {', '.join(gone)}" if gone else text,
            time_scale=there[0].time_scale,
            members=tuple(said),
        )

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any, Caller], Awaitable[Any]]]] = {
        NewApplication: _new,
        GetMetrics: _metrics,
        ListQueues: _queues,
        ListApplications: _applications,
        ListNodes: _nodes,
        DecommissionNode: _of_node,
        RecommissionNode: _of_node,
        UpdateNode: _of_node,
        GetQueues: _tree,
        SetQueues: _set_queues,
        GetManager: _manager,
    }

    # -- what only passes through ------------------------------------------------------------------

    def leave(self, reports: Sequence[ContainerReport]) -> list[bytes]:
        """Return the tokens by which the logs of reported containers are read."""
        tokens = (
            self._of(app_of_container(one.container_id)).connection.log_token(one.container_id)
            for one in reports
        )
        return [token for token in tokens if token]

    async def watch(self, after: int = 0) -> AsyncIterator[tuple[int, list[str]]]:
        """Yield the facts of all members, each with its `member`, numbered by this router.

        `after` 1: those first that the members still keep. What another number names is not known
        any more, so the first batch is then a jump, which is a loss.
        """
        if self._watchers >= WATCHERS_MAX:
            raise InputError("", f"{WATCHERS_MAX} watchers are the most at a time")
        batches: asyncio.Queue[list[str]] = asyncio.Queue(WAITING_BATCHES_MAX)

        async def follow(member: Member) -> None:
            last = 1 if after == 1 else 0
            while True:
                try:
                    async for first, facts in member.connection.watch(last):
                        last = first + len(facts) - 1
                        await batches.put(
                            [json.dumps({**fact, "member": member.number}) for fact in facts]
                        )
                except WeftError as error:
                    _log.warning("a member is not watched", member=member.number, reason=str(error))
                await asyncio.sleep(WATCH_AGAIN_S)

        self._watchers += 1
        number = int(time.time() * 1e6)
        tasks = [asyncio.create_task(follow(member)) for member in self.members]
        try:
            while True:
                lines = await batches.get()
                yield number + 1, lines
                number += len(lines)
        finally:
            self._watchers -= 1
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _good(answers: Iterable[Any]) -> list[Any]:
    """Return the answers that are no refusals; raises WeftError where there is none."""
    rows = list(answers)
    good = [one for one in rows if not isinstance(one, Refused)]
    if not good:
        raise WeftError(rows[0].problem if rows else "no member of the cluster answers")
    return good


def _items(page: Any) -> tuple[Any, ...]:
    """Return what is on a page; a refusal has nothing."""
    return page.items if isinstance(page, Page) else ()


def _is_unknown(answer: Any) -> bool:
    return isinstance(answer, Refused) and answer.code == "not_found"


def hash_of(key: str) -> int:
    """Return a number that is the same in every process."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
