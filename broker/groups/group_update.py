"""Core: the state of one command on a consumer group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome, Reply
from barnabas.broker.groups.group import describes_all
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import Notes


@dataclass(slots=True)
class Update:
    """Decisions so far. They take effect only by replay."""

    now: Now
    may_describe: Callable[[str], bool] = describes_all
    """True for a topic that the sender of the command may describe; see `Client`."""
    records: list[CoordinatorRecord] = field(default_factory=list)
    answers: list[tuple[Reply, Message]] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)
    undo: Callable[[], None] | None = None
    """If set, the group has already been replaced by one of another kind, and the records only matter for loading. Must
    be called if they cannot be written.
    """

    def outcome(self) -> Outcome:
        outcome = Outcome(self.records, list(self.answers), notes=self.notes)
        if self.undo is not None:
            outcome.replay = False
            outcome.failed = self._failed
        return outcome

    def _failed(self, error: KafkaError) -> Outcome:
        assert self.undo is not None
        self.undo()
        for reply, _ in self.answers:
            reply.refuse(error.code)
        return Outcome()
