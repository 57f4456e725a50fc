"""Core: the records that the application has: undecided, held by a block, or decided and not sent yet.

Locks are looked after halfway through: a held record's lock is renewed, decisions are sent without waiting for the next
fetch. A record that is neither held nor decided is the application's to acknowledge in time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from barnabas.client.errors import IllegalStateException, InvalidRecordStateException
from barnabas.client.metadata import TopicPartition
from barnabas.client.shares.acknowledgements import Acknowledged, TopicIdPartition
from barnabas.client.shares.share_session import Result, Types
from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.protocol.errors import ErrorCode, KafkaError


class DeliveryState(Enum):
    UNDECIDED = "undecided"
    RENEWED = "renewed"
    """The application renews its lock by itself."""
    HELD = "held"
    DECIDED = "decided"


class Session(Protocol):
    """The session that a record was acquired in."""

    @property
    def generation(self) -> int: ...

    def acknowledge(self, place: TopicIdPartition, types: Types) -> None: ...


@dataclass(slots=True, eq=False)
class Delivery:
    """One record in the hands of the application."""

    place: TopicIdPartition
    offset: int
    session: Session
    generation: int
    """Generation of the session that acquired it; a later one cannot acknowledge it."""
    due_ms: int | None
    """Half of its lock's time is over then; None: the time is unknown."""
    state: DeliveryState = DeliveryState.UNDECIDED

    @property
    def name(self) -> str:
        return f"the record at offset {self.offset} of {self.place.topic_partition}"


class Due(NamedTuple):
    """Work for the locks, of one moment."""

    renewals: bool
    """Renewals were given to sessions."""
    decisions: bool
    """Decisions have waited for long enough."""


class Deliveries:
    def __init__(self) -> None:
        self.lock_ms = 0
        """Time of new locks, as the brokers reported last; 0: unknown."""
        self.renews = True
        """False once a broker could not renew."""
        self._open: dict[tuple[TopicIdPartition, int], Delivery] = {}
        """Not decided, by place and offset."""
        self._held: dict[Delivery, None] = {}
        self._decided_due_ms: int | None = None
        """When decisions that were not sent yet should be."""

    def take(self, place: TopicIdPartition, offset: int, session: Session, arrived_ms: int) -> Delivery:
        """The application gets a record."""
        due_ms = arrived_ms + self.lock_ms // 2 if self.lock_ms > 0 else None
        delivery = Delivery(place, offset, session, session.generation, due_ms)
        self._open[place, offset] = delivery
        return delivery

    @property
    def undecided(self) -> list[Delivery]:
        """Records that the application has to acknowledge before it gets more."""
        return [each for each in self._open.values() if each.state is DeliveryState.UNDECIDED]

    @property
    def unfinished(self) -> dict[tuple[TopicIdPartition, int], Delivery]:
        return self._open

    # ---- decisions

    def decide(self, delivery: Delivery, kind: AcknowledgeType) -> Result | None:
        """Returns the result if it cannot be sent any more. IllegalStateException if it was decided before."""
        self._check_undecided(delivery)
        if kind is AcknowledgeType.RENEW:
            if delivery.state is DeliveryState.UNDECIDED:
                delivery.state = DeliveryState.RENEWED
        else:
            delivery.state = DeliveryState.DECIDED
            self._held.pop(delivery, None)
        types = {delivery.offset: kind}
        newest = self._open.get((delivery.place, delivery.offset)) is delivery
        if newest and kind is not AcknowledgeType.RENEW:
            del self._open[delivery.place, delivery.offset]
        if not newest or delivery.session.generation != delivery.generation:
            error = InvalidRecordStateException(
                ErrorCode.INVALID_RECORD_STATE, f"{delivery.name} is not acquired by this consumer any longer"
            )
            return Result(delivery.place, types, error)
        delivery.session.acknowledge(delivery.place, types)
        if delivery.due_ms is not None:
            self._decided_due_ms = min(self._decided_due_ms or delivery.due_ms, delivery.due_ms)
        return None

    def _check_undecided(self, delivery: Delivery) -> None:
        if delivery.state is DeliveryState.DECIDED:
            raise IllegalStateException(f"{delivery.name} is acknowledged already")

    def hold(self, delivery: Delivery) -> None:
        """A block begins to process it. IllegalStateException."""
        self._check_undecided(delivery)
        if delivery.state is DeliveryState.HELD:
            raise IllegalStateException(f"{delivery.name} is in use by another block")
        delivery.state = DeliveryState.HELD
        self._held[delivery] = None

    def forget(self) -> None:
        """The sessions end: nothing can be acknowledged any longer."""
        for delivery in self._open.values():
            delivery.generation = -1
        self._open.clear()
        self._held.clear()
        self._decided_due_ms = None

    # ---- locks

    @property
    def due_ms(self) -> int | None:
        """When to call `look_after_locks`; None: never, as it stands."""
        times = [each.due_ms for each in self._held if each.due_ms is not None] if self.renews else []
        if self._decided_due_ms is not None:
            times.append(self._decided_due_ms)
        return min(times, default=None)

    def look_after_locks(self, now_ms: int) -> Due:
        renewals = 0
        for delivery in list(self._held) if self.renews else ():
            if delivery.due_ms is None or now_ms < delivery.due_ms:
                continue
            if delivery.session.generation == delivery.generation:
                delivery.session.acknowledge(delivery.place, {delivery.offset: AcknowledgeType.RENEW})
                # The result sets it again, from the time of the new lock.
                delivery.due_ms = now_ms + max(1, self.lock_ms // 2)
                renewals += 1
            else:
                delivery.due_ms = None
        decisions = self._decided_due_ms is not None and now_ms >= self._decided_due_ms
        if decisions:
            self._decided_due_ms = None
        return Due(renewals > 0, decisions)

    def finished(self, result: Result, now_ms: int) -> None:
        """An acknowledgement has a result."""
        for offset, kind in result.types.items():
            delivery = self._open.get((result.place, offset)) if kind is AcknowledgeType.RENEW else None
            if delivery is None:
                continue
            if result.error is None:
                delivery.due_ms = now_ms + self.lock_ms // 2 if self.lock_ms > 0 else None
            elif result.error.code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST):
                self.renews = False
            else:
                delivery.due_ms = None


class Commit:
    """Acknowledgements whose results somebody waits for."""

    def __init__(self, unfinished: Iterable[tuple[TopicIdPartition, Types]]) -> None:
        self._left = {(place, offset): None for place, types in unfinished for offset in types}
        self.results: dict[TopicPartition, KafkaError | None] = {
            place.topic_partition: None for place, _ in self._left
        }
        """Errors by partition, as far as they are known."""

    @property
    def is_done(self) -> bool:
        return not self._left

    def note(self, result: Result) -> None:
        concerned = [offset for offset in result.types if (result.place, offset) in self._left]
        for offset in concerned:
            del self._left[result.place, offset]
        if concerned and result.error is not None:
            self.results[result.place.topic_partition] = result.error

    def give_up(self, error: KafkaError) -> None:
        """No further results are awaited."""
        for place, _ in self._left:
            self.results[place.topic_partition] = error
        self._left.clear()


def reported(result: Result) -> Acknowledged | None:
    """The result for the application; None if it concerns gaps only."""
    offsets = tuple(sorted(offset for offset, kind in result.types.items() if kind is not AcknowledgeType.GAP))
    return Acknowledged(result.place.topic_partition, offsets, result.error) if offsets else None
