"""Trees of queues that an operator might set next, for the fault search."""

from dataclasses import replace

import numpy as np

from weft.model.queues import STOPPED, QueueSpec

# Queues of this name come and go; nobody submits to them.
_PASSING = "passing"
# A maximum is not so small that jobs would be refused.
_LEAST = 0.5


def other_queues(rng: np.random.Generator, tree: QueueSpec) -> QueueSpec:
    """Draw another tree in which the same leaf queues are: their limits and order may differ.

    A queue of nobody may come, stopped or not, and one that came before may be gone.
    """
    stays = [child for child in tree.children if not child.name.startswith(_PASSING)]
    if not stays:
        return _limited(rng, replace(tree, children=()))
    parts = rng.dirichlet(np.ones(len(stays) + 1)).tolist()
    children = [
        other_queues(rng, replace(child, capacity=part))
        for child, part in zip(stays, parts, strict=False)
    ]
    if rng.random() < 0.5:
        name = f"{_PASSING}-{int(rng.integers(4))}-{tree.name}"
        state = STOPPED if rng.random() < 0.5 else "RUNNING"
        children.append(QueueSpec(name, parts[-1], state=state))
    order = rng.permutation(len(children)).tolist()
    return _limited(rng, replace(tree, children=tuple(children[at] for at in order)))


def _limited(rng: np.random.Generator, queue: QueueSpec) -> QueueSpec:
    """Draw the limits of a queue; the whole cluster is the root's."""
    if queue.name == "root":
        return queue
    return replace(
        queue,
        max_capacity=float(rng.choice([1.0, rng.uniform(max(queue.capacity, _LEAST), 1.0)])),
        user_limit=float(rng.choice([1.0, 0.5, 0.25])),
        user_limit_factor=float(rng.choice([np.inf, 1.0, 4.0])),
        max_am_share=float(rng.choice([1.0, 0.5, 0.1])),
    )
