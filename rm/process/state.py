"""What a Resource Manager that leads knows: its journal and keys, and the shell of its core."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rm.making import ManagerParts
from rm.process.etcd_store import EtcdJournal
from rm.process.instruments import MeteredStore, instrument
from rm.process.journal_lines import Record
from rm.process.service import ManagerService
from rm.process.store import Journal
from rm.process.trust import Save, Trust, open_keys
from rm.recovery import compact
from weft.protocol.effects import Recovered
from weft.protocol.messages import MANAGER
from weft.runtime.kept_clock import KeptClock
from weft.runtime.process import Process
from weft.runtime.role_settings import RmSettings
from weft.runtime.shell import Shell
from weft.wire.tokens import Keys


class State:
    """The journal and the keys of a manager that leads, and its shell while it does."""

    def __init__(
        self,
        journal: Journal | EtcdJournal | None,
        records: Sequence[Record],
        cluster_ts: int,
        keys: Keys,
        save: Save,
    ) -> None:
        self._journal = journal
        self._records = records
        self._keys, self._save = keys, save
        self.cluster_ts = cluster_ts
        self._shell: Shell | None = None
        self._running: asyncio.Task[Any] | None = None

    def begin(
        self, process: Process, service: ManagerService, settings: RmSettings, parts: ManagerParts
    ) -> None:
        """Let the core know what was known, and serve."""
        journal = self._journal
        if journal is not None and journal.dropped:
            process.log.warning("the journal ends early", dropped=journal.dropped)
        parts = replace(parts, cluster_ts=self.cluster_ts)
        manager = parts.make()
        instrument(process.exposition, manager)
        store = None if journal is None else MeteredStore(journal, process.exposition)
        self._shell = shell = Shell(
            process.clock,
            service,
            store,
            process.exposition.meter,
            checked=settings.check,
            tape=process.record("rm"),
        )
        shell.add(MANAGER, manager, parts)
        shell.post(MANAGER, Recovered(tuple(self._records)))
        self._records = ()
        service.attach(shell, Trust(self._keys, manager.books))
        self._running = process.spawn(shell.run())
        process.spawn(service.turn_keys(self._save, min(60.0, settings.token_key_s / 4)))

    async def end(self) -> None:
        """Write what is to be written, and close."""
        if self._shell is not None and self._running is not None:
            self._shell.end()
            if not self._running.done():
                await self._shell.settle()
        if self._journal is not None:
            self._journal.close()


def from_folder(settings: RmSettings, now_ms: int) -> State:
    """Return the state in the folder of the settings, or an empty one that nothing keeps."""
    folder = settings.state_dir
    if folder is None:
        return State(None, (), now_ms, *open_keys(None, settings.token_key_s))
    journal = Journal(Path(folder), compact)
    journal.keep_clock(KeptClock(settings.epoch_s, settings.time_scale))
    cluster_ts = journal.cluster_ts(now_ms)
    keys = open_keys(folder, settings.token_key_s)
    return State(journal, journal.read(), cluster_ts, *keys)
