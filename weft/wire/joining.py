"""What only acknowledges a node's reports waits for company, and leaves as one message."""

from typing import Any

from weft.model.ids import NodeId
from weft.protocol.messages import NodeAnswered
from weft.protocol.record import changed


def acknowledges(message: Any) -> bool:
    """Return whether a message does nothing but acknowledge reports of a node."""
    return type(message) is NodeAnswered and message == NodeAnswered(
        message.node_id, message.response_id, message.acks, life=message.life
    )


def joined(messages: list[Any]) -> list[Any]:
    """Return messages to nodes with one acknowledgement for each node and life of its manager.

    They come last, so that a node knows of the life before.
    """
    if len(messages) < 2:
        return messages
    others: list[Any] = []
    told: dict[tuple[NodeId, int], NodeAnswered] = {}
    for message in messages:
        if not acknowledges(message):
            others.append(message)
            continue
        of = (message.node_id, message.life)
        before = told.get(of)
        told[of] = message
        if before is not None:
            told[of] = changed(message, acks=before.acks + message.acks)
    return [*others, *told.values()]
