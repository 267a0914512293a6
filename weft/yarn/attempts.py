"""The attempts of foreign masters that talk to this gateway, by their tokens."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from weft.model.ids import AttemptId
from weft.yarn import hadoop_pb2 as pb
from weft.yarn import translate
from weft.yarn.errors import not_allowed
from weft.yarn.masters import ForeignMaster
from weft.yarn.tokens import MASTER


class Masters:
    """Every attempt of a foreign master that talks to this gateway."""

    def __init__(self, make: Callable[[AttemptId], Awaitable[ForeignMaster]]) -> None:
        self._make = make
        self._known: dict[AttemptId, ForeignMaster] = {}

    async def of(self, attempt: AttemptId) -> ForeignMaster:
        """Return the attempt's master, made on its first call; raises HadoopError."""
        found = self._known.get(attempt)
        if found is None:
            made = await self._make(attempt)
            found = self._known.setdefault(attempt, made)
        return found

    def known(self, attempt: AttemptId) -> ForeignMaster | None:
        """Return the attempt's master, if it ever called."""
        return self._known.get(attempt)

    def hear(self, batch: list[Any]) -> None:
        """Take messages of the Resource Manager to any of the attempts."""
        for message in batch:
            found = self._known.get(message.attempt_id)
            if found is not None:
                found.hear(message)

    async def repeat(self) -> None:
        """Say again, now and then, what was not acknowledged, and forget who is gone for long."""
        while True:
            await asyncio.sleep(1.0)
            for found in self._known.values():
                if found.owes:
                    found.beat()

    def __iter__(self) -> Iterator[ForeignMaster]:
        return iter(list(self._known.values()))

    def forget(self, attempt: AttemptId) -> None:
        """Forget an attempt that is over and will not call again."""
        self._known.pop(attempt, None)


def attempt_of(caller: Any) -> AttemptId:
    """Return the attempt that a caller's token speaks for; raises HadoopError for any other."""
    if caller.kind != MASTER:
        raise not_allowed("only a master with its token may call this")
    identifier = pb.MasterTokenIdentifier()
    identifier.ParseFromString(caller.identifier)
    return translate.read_attempt(identifier.attempt)
