"""The words in which a coordinator's core speaks: a command and the time go in, an `Outcome` comes out.

A core never changes its durable state when it decides. It says which records it wants written; they come back through
`Machine.replay`, live and at loading alike. What is not durable (who waits for an answer, when somebody was last
heard) it may change at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from kraft.metadata.delta import MetadataDelta
from protocol.errors import ErrorCode, KafkaError
from protocol.schema import Message
from runtime.decisions import Notes
from storage.producers import Verification


class Now(NamedTuple):
    """The two clocks at one moment, in milliseconds."""

    monotonic_ms: int
    """For deadlines and timers."""
    wall_ms: int
    """For what is written into records: commit timestamps, start of a transaction."""


class CoordinatorRecord(NamedTuple):
    """One record of an internal topic."""

    key: Message
    value: Message | None
    """None is a tombstone."""
    version: int = 0
    """In which the value is written."""


class ProducerStamp(NamedTuple):
    """Whose transaction records belong to."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """Where the answer to one request goes; to be used once, whichever way."""

    answer: Callable[[Any], None]
    """Takes the response message."""
    refuse: Callable[[ErrorCode], None]
    """Answers with nothing but an error."""


NOBODY = Reply(lambda response: None, lambda code: None)
"""For callers that take the answer out of the outcome."""


@dataclass(slots=True)
class Outcome:
    """What one command or timer leads to.

    The records are appended as one batch: all of them are in the log, or none. The answers leave when everything that
    was written so far is below the high watermark, so that nobody learns what a failover could take back; that holds
    for answers without records, too.
    """

    records: list[CoordinatorRecord] = field(default_factory=list)
    answers: list[tuple[Reply, Any]] = field(default_factory=list)
    """In the order in which they leave."""
    producer: ProducerStamp | None = None
    """Set: the records belong to this producer's transaction."""
    verification: Verification | None = None
    """By which the first records of a transaction are let in, once the transaction's coordinator has said that this
    partition is in it; see `Shard.begin_verification`."""
    replay: bool = True
    """False where the core has already made the records' change to a state of which only a part is written (classic
    groups): then they are replayed at loading only."""
    committed: Callable[[], None] | None = None
    """Called when the records are below the high watermark, before the answers leave; never if the partition is lost
    before."""
    failed: Callable[[KafkaError], Outcome] | None = None
    """Called in place of all that if the records could not be appended. Without it every reply is refused; so they are
    if the partition was lost in the attempt, for then there is no machine any more."""
    notes: Notes = field(default_factory=Notes)
    """What is decided and why, for people; told when the records are below the high watermark."""


Operation = Callable[[Now], Outcome]
"""A command with its arguments bound. May raise KafkaError: then the request is refused with its code."""


class Timers(Protocol):
    """Timers of one machine; all end with it."""

    def schedule(self, key: Hashable, deadline_ms: int, operation: Operation) -> None:
        """Run `operation` once the monotonic clock reaches `deadline_ms`; replaces what `key` had before.

        If its records cannot be appended it is run again 500 ms later, unless its outcome says what to do (`failed`).
        """

    def cancel(self, key: Hashable) -> None:
        """Nothing happens if there is no such timer."""

    def deadline_ms(self, key: Hashable) -> int | None:
        """When the timer of `key` is due; None if there is none."""


class Machine(Protocol):
    """The core over one partition. Whoever leads the partition has one; it is dropped with the leadership."""

    def replay(self, key: Message, value: Message | None, producer: ProducerStamp | None) -> None:
        """A record is in the log. With `producer` it counts only once that transaction is committed."""

    def replay_marker(self, producer: ProducerStamp, committed: bool) -> None:
        """The producer's transaction on this partition ended."""

    def loaded(self, now: Now) -> Outcome:
        """All of the log has been replayed: timers may begin."""

    def metadata_changed(self, delta: MetadataDelta, now: Now) -> Outcome:
        """The cluster's metadata went on."""

    def give_up(self) -> list[Reply]:
        """The partition is led elsewhere: whoever still waits for an answer, to be refused by the caller."""
