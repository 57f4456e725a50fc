"""A record as a share consumer returns it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

from barnabas.client.consumer.record import TimestampType
from barnabas.client.shares.deliveries import Delivery
from barnabas.protocol.records.record import Headers


class Holder(Protocol):
    """The consumer that a record came from."""

    def hold(self, delivery: Delivery) -> None:
        """Keep the record's lock. IllegalStateException if it is acknowledged already."""

    def let_go(self, delivery: Delivery, error: BaseException | None) -> None:
        """Acknowledge the record as the end of its block says, unless that is done."""


@dataclass(frozen=True, slots=True, eq=False)
class ShareRecord:
    """One record, which this consumer has for the time of its acquisition lock. In explicit mode:

    `async with record: …` accepts it at the end of the block. After an exception, or a cancel, it is released, or
    rejected if the exception is one of the consumer's `reject_on`; the exception goes on. Meanwhile its lock is renewed
    halfway through, if the broker can do so (KIP-1222), and the consumer counts as alive. `acknowledge` in the block
    comes first.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Milliseconds since the epoch; -1 without one."""
    timestamp_type: TimestampType
    key: Any
    """Result of the deserializer, or bytes without one; None if the record has no key."""
    value: Any
    """Result of the deserializer, or bytes without one; None for a tombstone."""
    headers: Headers
    leader_epoch: int | None
    """Epoch of the leader that appended it; None if the batch has none."""
    delivery_count: int
    """Number of times it was delivered to a member of the group, this one included."""
    delivery: Delivery = field(repr=False)
    """For the consumer."""
    holder: Holder = field(repr=False)
    """For `async with`."""

    async def __aenter__(self) -> Self:
        self.holder.hold(self.delivery)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.holder.let_go(self.delivery, error)
