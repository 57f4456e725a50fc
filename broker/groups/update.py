"""One command on a consumer group, as far as it has come. A core."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.coordinator.outcome import CoordinatorRecord, Now, Outcome, Reply
from protocol.schema import Message


@dataclass(slots=True)
class Update:
    """What has been decided so far. Nothing of it is true before it is replayed."""

    now: Now
    records: list[CoordinatorRecord] = field(default_factory=list)
    answers: list[tuple[Reply, Message]] = field(default_factory=list)

    def outcome(self) -> Outcome:
        return Outcome(self.records, list(self.answers))
