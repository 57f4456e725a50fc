"""Core: states of a record in a share partition, and the legal moves between them (KIP-932).

An acknowledgement moves a record when the share coordinator has stored it. Until then the record stays acquired, and
nobody else can acknowledge or release it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from barnabas.protocol.acknowledge_type import AcknowledgeType


class RecordState(IntEnum):
    """The value is the one in `__share_group_state`, and in ShareGroupState requests."""

    AVAILABLE = 0
    """Nobody has it: the next fetch may acquire it."""
    ACQUIRED = 1
    """One member has it, until it acknowledges, leaves, or its acquisition lock expires."""
    ACKNOWLEDGED = 2
    """It was processed."""
    ARCHIVING = 3
    """It is not delivered any more, and has to be copied to the dead-letter topic (KIP-1191)."""
    ARCHIVED = 4
    """It is not delivered any more, although nobody has processed it."""

    @property
    def is_terminal(self) -> bool:
        return self is RecordState.ACKNOWLEDGED or self is RecordState.ARCHIVED


MOVES: dict[tuple[RecordState, RecordState], str] = {
    (RecordState.AVAILABLE, RecordState.ACQUIRED): "a member fetches it",
    (RecordState.AVAILABLE, RecordState.ARCHIVED): "it is not in the log any more",
    (RecordState.ACQUIRED, RecordState.ACKNOWLEDGED): "accepted",
    (RecordState.ACQUIRED, RecordState.AVAILABLE): "released, the lock expired, or the session was closed",
    (RecordState.ACQUIRED, RecordState.ARCHIVED): "rejected, a gap, of an aborted transaction, or delivered too often",
    (RecordState.ACQUIRED, RecordState.ARCHIVING): "rejected or delivered too often, if dead letters are wanted",
    (RecordState.ARCHIVING, RecordState.ARCHIVED): "the dead-letter topic has its copy",
}
"""(from, to): reason. No other move is legal."""

STATE_AFTER: Mapping[AcknowledgeType, RecordState] = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}
