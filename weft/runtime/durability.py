"""What persists, and all that has to wait for it."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from weft.protocol.effects import Effect, Note, Persist, Send
from weft.protocol.messages import Address, client_address
from weft.runtime.interfaces import Outside, Store, StoreUnavailableError

_CLIENT = client_address("")
# A store that takes nothing is tried again after this time on the wall clock.
STORE_RETRY_S = 0.5
# It is the core, its order, and when the order was given.
Out = tuple[Address, Effect, float]


class Keeping:
    """Does effects through `carry_out`; `awake` is called when the store failed for good."""

    def __init__(
        self,
        store: Store,
        outside: Outside,
        carry_out: Callable[[list[Out]], None],
        awake: Callable[[], None],
    ) -> None:
        # After a failure of the store nothing may continue.
        self.failure: Exception | None = None
        # While ending, a store that takes nothing has failed.
        self.ending = False
        self._store = store
        self._outside = outside
        self._carry_out = carry_out
        self._awake = awake
        self._held: deque[tuple[list[Mapping[str, Any]], list[Out]]] = deque()
        self._committing: asyncio.Task[None] | None = None
        self._stalled = False

    async def settle(self) -> None:
        """Wait until everything persisted so far is durable and its effects are done."""
        while self._committing is not None and self.failure is None:
            await self._committing

    def do(self, out: list[Out]) -> None:
        """Do effects in order; those after a `Persist` once it is durable."""
        if self._stalled:
            out = self._meanwhile(out)
        first = next((i for i, item in enumerate(out) if type(item[1]) is Persist), None)
        if first is None and self._committing is None:
            self._carry_out(out)
            return
        if self._committing is None:
            self._carry_out(out[:first])
            out = out[first:]
        records = [e.record for _, e, _ in out if isinstance(e, Persist)]
        later = [item for item in out if type(item[1]) is not Persist]
        self._held.append((records, later))
        if self._committing is None:
            self._committing = asyncio.get_running_loop().create_task(self._commit())

    async def _commit(self) -> None:
        """Write what rounds persisted, many rounds at once, then do what had to wait for it."""
        try:
            while self._held:
                rounds = list(self._held)
                self._held.clear()
                records = [record for batch, _ in rounds for record in batch]
                if records:
                    await self._append(records)
                self._carry_out([item for _, later in rounds for item in later])
        except Exception as error:
            self.failure = error
            self._awake()
            return
        self._committing = None

    async def _append(self, records: list[Mapping[str, Any]]) -> None:
        """Write records; a store that takes nothing is tried again until it does."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(None, self._store.append, records)
                break
            except StoreUnavailableError as error:
                if self.ending:
                    raise
                if not self._stalled:
                    self._stalled = True
                    self._outside.stalled(str(error))
            await asyncio.sleep(STORE_RETRY_S)
        if self._stalled:
            self._stalled = False
            self._outside.stalled("")

    def _meanwhile(self, out: list[Out]) -> list[Out]:
        """Return what waits for a stalled store.

        Reads are answered. What else is said is lost, as cores repeat it; to keep it would fill the
        memory.
        """
        passing, waiting = [], []
        for item in out:
            effect = item[1]
            if isinstance(effect, Note) or (
                isinstance(effect, Send) and self._outside.may_pass(effect.to)
            ):
                passing.append(item)
            elif not isinstance(effect, Send) or effect.to.startswith(_CLIENT):
                waiting.append(item)
        self._carry_out(passing)
        return waiting
