"""What a rebuilt Resource Manager says when it is asked: the answers that its clients would get."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from rm.core import ResourceManager
from weft.model.errors import InputError, WeftError
from weft.model.ids import AppId
from weft.model.job import Job
from weft.protocol.effects import ClientRequested, Send
from weft.protocol.requests import (
    ApplicationJob,
    ApplicationReport,
    ClientRequest,
    ClusterMetrics,
    ContainerReport,
    Explain,
    Explanation,
    GetApplication,
    GetJob,
    GetMetrics,
    ListApplications,
    ListContainers,
    ListNodes,
    ListQueues,
    NodeReport,
    Page,
    QueueReport,
    Refused,
)

Answer = TypeVar("Answer")


class AskedManager:
    """Reads a manager that stands still at `now`, s on the cluster's clock."""

    def __init__(self, manager: ResourceManager, now: float) -> None:
        self._manager, self._now = manager, now

    def _ask(self, request: ClientRequest, kind: type[Answer]) -> Answer:
        """Return the manager's answer; raises InputError for what it refuses."""
        orders = self._manager.handle(ClientRequested("replay", request), self._now)
        for order in orders:
            if isinstance(order, Send) and order.to == "client:replay":
                if isinstance(order.message, Refused):
                    raise InputError(order.message.place, order.message.problem)
                if isinstance(order.message, kind):
                    return order.message
        raise WeftError(f"the manager did not answer {type(request).__name__}")

    def applications(
        self, states: Iterable[str] = (), queue: str = "", user: str = "", limit: int = 0
    ) -> tuple[ApplicationReport, ...]:
        """Return reports of applications, the newest last."""
        pages: list[Page[ApplicationReport]] = []
        while not pages or pages[-1].next:
            page = pages[-1].next if pages else ""
            asked = ListApplications(tuple(states), queue, user, limit, page)
            pages.append(self._ask(asked, Page))
        return tuple(report for page in reversed(pages) for report in page.items)

    def application(self, app: AppId) -> ApplicationReport:
        """Return one application with its stages."""
        return self._ask(GetApplication(app), ApplicationReport)

    def explain(self, app: AppId) -> Explanation:
        """Return why its pending stages are pending."""
        return self._ask(Explain(app), Explanation)

    def nodes(self) -> tuple[NodeReport, ...]:
        """Return reports of all nodes."""
        return self._all(lambda page: ListNodes((), 0, page))

    def containers(self, app: AppId) -> tuple[ContainerReport, ...]:
        """Return containers of an application, running and lately ended."""
        return self._all(lambda page: ListContainers(app, page=page))

    def _all(self, asked: Callable[[str], ClientRequest]) -> tuple[Any, ...]:
        """Follow the pages of a listing."""
        page = self._ask(asked(""), Page)
        found = [*page.items]
        while page.next:
            page = self._ask(asked(page.next), Page)
            found += page.items
        return tuple(found)

    def job(self, app: AppId) -> Job:
        """Return the job of an application."""
        return self._ask(GetJob(app), ApplicationJob).job

    def queues(self) -> QueueReport:
        """Return the tree of queues."""
        return self._ask(ListQueues(), QueueReport)

    def metrics(self) -> ClusterMetrics:
        """Return counts over the cluster."""
        return self._ask(GetMetrics(), ClusterMetrics)
