"""The content of JoinGroup and SyncGroup in classic groups of consumers: subscription and assignment."""

from __future__ import annotations

from barnabas.protocol.schema import BYTES, INT32, STRING, Message, Struct, array, field


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: str = field(STRING, "0+", default="")
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """The partitions the leader of a classic group gave to a member. Versions 0 to 3."""

    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = field(
        array(ConsumerProtocolAssignmentTopicPartition), "0+", factory=list
    )
    user_data: bytes | None = field(BYTES, "0+", default=None, nullable="0+")


class ConsumerProtocolSubscriptionTopicPartition(Struct):
    topic: str = field(STRING, "1+", default="")
    partitions: list[int] = field(array(INT32), "1+", factory=list)


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """The subscription of a member of a classic group, and its partitions (KIP-429, KIP-792, KIP-881). Versions 0 to
    3."""

    topics: list[str] = field(array(STRING), "0+", factory=list)
    user_data: bytes | None = field(BYTES, "0+", default=None, nullable="0+")
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = field(
        array(ConsumerProtocolSubscriptionTopicPartition), "1+", factory=list, ignorable=True
    )
    generation_id: int = field(INT32, "2+", default=-1, ignorable=True)
    rack_id: str | None = field(STRING, "3+", default=None, nullable="3+", ignorable=True)
