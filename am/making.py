"""An Application Master by names and numbers: what the service starts a tape makes again."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from am.ask.registry import Asker, HoldAsker, asker
from am.core import ApplicationMaster
from am.estimates import History
from am.settings import MasterSettings
from weft.model.ids import AttemptId
from weft.model.json_types import Options


@dataclass(frozen=True, slots=True)
class MasterParts:
    """All that a master is made with, but for the history, which changes with every run."""

    attempt_id: AttemptId
    asker: str
    asker_options: Options
    settings: MasterSettings
    seed: tuple[int, ...]

    def make(
        self,
        history: History,
        dress: Callable[[Asker | HoldAsker], Asker | HoldAsker] | None = None,
    ) -> ApplicationMaster:
        """Return a new master; `dress` may wrap its asker, whose decisions it must not change."""
        decider = asker(self.asker, self.asker_options)
        return ApplicationMaster(
            self.attempt_id,
            replace(self.settings, history=history),
            decider if dress is None else dress(decider),
            np.random.default_rng(self.seed),
        )
