"""Core: the interface of a coordinator's core: a command and the time go in, an `Outcome` comes out.

A core does not change its durable state when it decides. It returns the records to write, and they come back through
`Machine.replay`, both live and while loading. State that is not durable (waiting answers, session deadlines) may change
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import Notes
from barnabas.storage.producers import Verification


class Now(NamedTuple):
    """Both clocks at one moment, in milliseconds."""

    monotonic_ms: int
    """For deadlines and timers."""
    wall_ms: int
    """For timestamps in records, such as commit time and transaction start."""


class CoordinatorRecord(NamedTuple):
    """One record of an internal topic."""

    key: Message
    value: Message | None
    """None for a tombstone."""
    version: int = 0
    """Schema version of the value."""


class ProducerStamp(NamedTuple):
    """Producer of the transaction that records belong to."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """Destination of the answer to one request. Exactly one of the two callbacks must be called, once."""

    answer: Callable[[Any], None]
    """Sends the response message."""
    refuse: Callable[[ErrorCode], None]
    """Sends a response that holds only this error."""


NOBODY = Reply(lambda response: None, lambda code: None)
"""For callers that take the answer from the outcome themselves."""


@dataclass(slots=True)
class Outcome:
    """Result of one command or timer.

    The records are appended as one batch: all of them are in the log, or none. The answers are sent when everything
    written so far is below the high watermark, so that no client sees state that a failover could lose; this holds for
    answers without records, too.
    """

    records: list[CoordinatorRecord] = field(default_factory=list)
    answers: list[tuple[Reply, Any]] = field(default_factory=list)
    """In the order in which they are sent."""
    producer: ProducerStamp | None = None
    """If set, the records belong to this producer's transaction."""
    verification: Verification | None = None
    """Admits the first records of a transaction after the transaction coordinator has confirmed that this partition is
    part of it; see `Shard.begin_verification`.
    """
    replay: bool = True
    """False if the core has already applied the change to its live state, of which only a part is written (classic
    groups). Such records are replayed only while loading.
    """
    committed: Callable[[], None] | None = None
    """Called when the records are below the high watermark, before the answers are sent; never if the partition is lost
    before that.
    """
    failed: Callable[[KafkaError], Outcome] | None = None
    """Called instead of all that if the append of the records failed. Without it, every reply is refused with the
    error. Replies are also refused if the append cost this broker the partition, because its machine is gone then.
    """
    notes: Notes = field(default_factory=Notes)
    """Decisions and their reasons, published when the records are below the high watermark."""


Operation = Callable[[Now], Outcome]
"""A command with its arguments bound. A KafkaError that it raises becomes the error of the request."""


class Timers(Protocol):
    """Timers of one machine; they are cancelled when it is dropped."""

    def schedule(self, key: Hashable, deadline_ms: int, operation: Operation) -> None:
        """Run `operation` once the monotonic clock reaches `deadline_ms`. Replaces the timer that `key` had.

        If its records cannot be appended, it runs again after 500 ms, unless its outcome has a `failed` handler.
        """

    def cancel(self, key: Hashable) -> None:
        """Does nothing if there is no such timer."""

    def deadline_ms(self, key: Hashable) -> int | None:
        """Deadline of `key`'s timer; None if there is none."""


class Machine(Protocol):
    """The core over one partition. The partition's leader creates one and drops it with the leadership."""

    def replay(self, key: Message, value: Message | None, producer: ProducerStamp | None, offset: int) -> None:
        """Apply the record of the log at `offset`. With `producer` it takes effect when that transaction commits."""

    def replay_marker(self, producer: ProducerStamp, committed: bool) -> None:
        """The producer's transaction on this partition was committed or aborted."""

    def loaded(self, now: Now) -> Outcome:
        """The whole log has been replayed: start the timers."""

    def metadata_changed(self, delta: MetadataDelta, now: Now) -> Outcome:
        """The cluster's metadata has changed."""

    def give_up(self) -> list[Reply]:
        """The leadership has moved: replies that still wait, for the caller to refuse."""
