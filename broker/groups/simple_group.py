"""Core: a group that has only offsets, committed by clients that never joined.

It has no record of its own. It exists as long as it has offsets, and is replaced by the first group that a member
creates.
"""

from __future__ import annotations

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now
from barnabas.broker.groups.group import Commit, GroupType
from barnabas.broker.groups.group_memory import HeldBytes
from barnabas.protocol.errors import ErrorCode, KafkaError


class SimpleGroup:
    """Implements `broker.groups.group.Group`. Admin clients see it as a classic group without members."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.held = HeldBytes()

    @property
    def type(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def protocol_type(self) -> str:
        return ""

    def state_name(self) -> str:
        return "Empty"

    def is_empty(self) -> bool:
        return True

    def empty_since_ms(self) -> int | None:
        return None

    def is_subscribed_to(self, topic: str) -> bool:
        return False

    def check_commit(self, commit: Commit, now: Now) -> None:
        if commit.generation_or_epoch >= 0:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        pass

    def check_delete(self) -> None:
        pass

    def tombstones(self) -> list[CoordinatorRecord]:
        return []
