"""Consumer groups (KIP-848): one heartbeat, an assignment made here, and no barrier. A core.

Every member tells with its heartbeat what it subscribes to and what it owns, and is told what to give up and what to
take. Knows no offsets and no other kind of group.
"""

from __future__ import annotations

from broker.coordinator.outcome import Now, Outcome, Reply
from broker.groups.group import Client, GroupContext
from kraft.metadata.delta import MetadataDelta
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_describe import DescribedGroup
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.schema import Message


class ConsumerGroups:
    """The consumer groups of one partition of `__consumer_offsets`."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, version: int, reply: Reply, now: Now
    ) -> Outcome:
        """Join, stay, or leave. Raises KafkaError."""
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)

    def describe(self, group_id: str) -> DescribedGroup:
        """Raises KafkaError: GROUP_ID_NOT_FOUND."""
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

    def replay(self, key: Message, value: Message | None) -> None:
        """A record of a type in `protocol.messages.group_log` whose key is a `ConsumerGroup…Key`."""

    def loaded(self, now: Now) -> Outcome:
        """All of the log has been replayed: sessions begin anew."""
        return Outcome()

    def metadata_changed(self, delta: MetadataDelta, now: Now) -> Outcome:
        """Topics came, went or grew."""
        return Outcome()

    def give_up(self) -> list[Reply]:
        """The partition is led elsewhere: those who wait."""
        return []
