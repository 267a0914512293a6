"""A Node Manager by names and numbers: what the service starts is what a tape makes again."""

from dataclasses import dataclass

import numpy as np

from nm.core import NodeManager
from nm.settings import NodeSettings
from weft.model.ids import NodeId


@dataclass(frozen=True, slots=True)
class NodeParts:
    """All that a node is made with; `capacity` by resource name, `boot` drawn by its process."""

    node_id: NodeId
    address: str
    capacity: dict[str, float]
    rack: str
    labels: tuple[str, ...]
    settings: NodeSettings
    seed: tuple[int, ...]
    boot: int
    lacking: str = ""
    files: bool = False

    def make(self) -> NodeManager:
        """Return a new node."""
        return NodeManager(
            self.node_id,
            self.address,
            self.capacity,
            self.rack,
            self.labels,
            self.settings,
            np.random.default_rng(self.seed),
            boot=self.boot,
            lacking=self.lacking,
            files=self.files,
        )
