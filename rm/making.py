"""A Resource Manager by names and numbers: what the service starts is what a tape makes again."""

from dataclasses import dataclass

import numpy as np

from rm.core import ResourceManager
from rm.match.registry import make_matcher
from rm.settings import ManagerSettings
from weft.model.json_types import Options
from weft.model.queues import QueueSpec
from weft.model.resources import ResourceTypes


@dataclass(frozen=True, slots=True)
class ManagerParts:
    """All that a manager is made with; `cluster_ts` in ms since the epoch."""

    cluster_ts: int
    types: ResourceTypes
    queues: QueueSpec
    matcher: str
    matcher_options: Options
    settings: ManagerSettings
    seed: int

    def make(self) -> ResourceManager:
        """Return a new manager; raises InputError for an unknown matcher or parameter."""
        return ResourceManager(
            self.cluster_ts,
            self.types,
            self.queues,
            make_matcher(self.matcher, self.matcher_options),
            self.settings,
            np.random.default_rng(self.seed),
        )
