"""Core: the durable state of share partitions, as leaders, group coordinators and share coordinators exchange it.

A share partition is one partition as one share group reads it. Its leader keeps which records are acquired in memory,
and stores at the share coordinator what must survive: the start offset, and the batches after it that are acknowledged,
archived, or were delivered before (KIP-932, "Durable share-partition state").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from barnabas.protocol.primitives import uuid_from_string, uuid_to_string

UNINITIALIZED_OFFSET = -1
"""Start offset of a share partition whose leader must choose it by `share.auto.offset.reset`."""
NO_EPOCH = -1
"""Leader or state epoch of a caller that does not know one: it is not compared."""
MOST_INDEX_DIGITS = 11
UNKNOWN_COUNT = -1
"""Delivery-complete count of a caller that does not know it."""


class SharePartitionKey(NamedTuple):
    """One partition of one share group."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """Key of FindCoordinator (type 2): `group:topic id:partition`, the id as Kafka's Uuid prints it."""
        return f"{self.group_id}:{uuid_to_string(self.topic_id)}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> SharePartitionKey:
        """The reverse of `coordinator_key`; a group id may contain colons. ValueError."""
        group_and_topic, _, index = text.rpartition(":")
        group_id, _, topic_id = group_and_topic.rpartition(":")
        if not group_id.strip():
            raise ValueError(f"the key must be group:topic id:partition; got {text!r}")
        if not index.removeprefix("-").isdecimal() or len(index) > MOST_INDEX_DIGITS:
            raise ValueError(f"the partition must be a number; got {index!r}")
        return cls(group_id, uuid_from_string(topic_id), int(index))


class StateBatch(NamedTuple):
    """Offsets from `first_offset` to `last_offset`, both inclusive, in one state."""

    first_offset: int
    last_offset: int
    state: int
    """AVAILABLE 0, ACKNOWLEDGED 2, ARCHIVED 4; int8."""
    delivery_count: int


@dataclass(frozen=True, slots=True)
class ShareState:
    """The stored state of a share partition."""

    state_epoch: int
    """Grows when the group is deleted and created again, or its offsets are altered."""
    start_offset: int
    batches: tuple[StateBatch, ...] = ()
    """In order, none overlapping another."""


@dataclass(frozen=True, slots=True)
class ShareStateChange:
    """A leader's change of the stored state."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = UNKNOWN_COUNT
    """Records from the start offset on that need no further delivery; for the lag (KIP-1226)."""
    batches: tuple[StateBatch, ...] = ()
    """Only those that changed."""


@dataclass(frozen=True, slots=True)
class ShareStateSummary:
    """The part of the stored state that lag and offsets of a group are computed from."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = UNKNOWN_COUNT


class ShareStateStore(Protocol):
    """Reads and writes stored states at the share coordinators, wherever they are.

    Each call finds the coordinator, retries what passes (a moved or loading coordinator, a lost connection) for a
    bounded time, and is done when the change is replicated. Calls made together travel together. All raise KafkaError:
    FENCED_LEADER_EPOCH or FENCED_STATE_EPOCH if a newer epoch wrote, INVALID_REQUEST if the partition was never
    initialized, UNKNOWN_TOPIC_OR_PARTITION if it is gone, COORDINATOR_NOT_AVAILABLE if no coordinator answered in time.
    """

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """The state, read by the leader of `leader_epoch`, which fences earlier leaders."""

    async def write(self, key: SharePartitionKey, change: ShareStateChange) -> None: ...

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """Begin a state; `start_offset` may be UNINITIALIZED_OFFSET."""

    async def delete(self, key: SharePartitionKey) -> None: ...

    async def summary(self, key: SharePartitionKey, leader_epoch: int) -> ShareStateSummary:
        """UNINITIALIZED_OFFSET and epoch 0 if the partition was never initialized."""

