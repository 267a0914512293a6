"""What the live shell asks of the world: a role's service, and a store."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from weft.model.errors import WeftError
from weft.model.ids import AppId, ContainerId
from weft.protocol.effects import MakePlan
from weft.protocol.facts import Fact, RunFact
from weft.protocol.messages import Address, MasterLaunch, TaskLaunch


class StoreUnavailableError(WeftError):
    """The store takes nothing now (its disk is full, or read-only); it may again later."""


class Outside:
    """What effects do in the world; a role's service overrides what its core uses."""

    def send(self, sends: Sequence[tuple[Address, Any]]) -> None:
        """Send what one round has to send, in order: (to, message)."""

    def launch(self, core: Address, item: TaskLaunch | MasterLaunch) -> None:
        """Start a process or a master; `ProcessEnded` must follow."""
        raise NotImplementedError

    def kill(self, core: Address, container: ContainerId) -> None:
        """Kill what runs in a container."""
        raise NotImplementedError

    def clean(self, core: Address, app: AppId) -> None:
        """Remove what an application that is over left on this host, but for logs."""

    def plan(self, core: Address, order: MakePlan) -> None:
        """Build a plan elsewhere; `PlanReady` must follow."""
        raise NotImplementedError

    def note(self, core: Address, fact: Fact | RunFact, now: float) -> None:
        """Take a fact, or that of a run of containers, for logs and metrics."""

    def idle(self, cores: Sequence[Address]) -> None:
        """Count cores whose empty heartbeats were left out (`Shell`, `leaves_out`)."""

    def stalled(self, reason: str) -> None:
        """Learn that the store takes nothing, for a reason; an empty one: it does again."""

    def may_pass(self, to: Address) -> bool:
        """Return whether an answer says nothing but what was known before the store stalled."""
        return False

    def stopped(self, core: Address, reason: str) -> None:
        """Learn that a core is done; it was taken out of the shell."""

    def failed(self, core: Address, error: Exception) -> None:
        """Learn that a core raised, which is a bug; it was taken out of the shell."""
        raise error


class Store(Protocol):
    """Where `Persist` goes: `append` must be durable when it returns."""

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write records; called on another thread, one call at a time.

        Raises StoreUnavailableError, nothing being written, when it is worth another try.
        """
        ...
