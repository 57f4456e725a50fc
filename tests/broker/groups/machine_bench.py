"""A test bench for a machine over groups: log in memory, manual clocks and timers, configurable topics.

Records are encoded and decoded, so a test sees replayed what a new coordinator would read.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Operation, Outcome, ProducerStamp, Reply
from barnabas.broker.groups.group import GroupContext, GroupDirectory
from barnabas.broker.groups.machine import GroupMachine
from barnabas.broker.traffic import GroupEvents
from barnabas.kraft.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.kraft.metadata.replay import ImageReplay
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import group_log
from barnabas.protocol.messages.metadata_log import PartitionRecord, RemoveTopicRecord, TopicRecord
from barnabas.protocol.records.coordinator import (
    decode_key,
    decode_versioned,
    encode_key,
    encode_versioned,
    record_types,
)
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import Decisions
from barnabas.settings.broker import BrokerSettings, load_broker_settings
from tests.broker.groups.share_states import AskedShareStates

TYPES = record_types(group_log)
WALL_MS = 1_750_000_000_000
DAY_MS = 24 * 60 * 60 * 1000

PROPERTIES = """process.roles=broker
node.id=1
listeners=PLAINTEXT://localhost:9092
controller.listener.names=CONTROLLER
controller.quorum.voters=101@localhost:9093
log.dirs=/d
"""


class Written(NamedTuple):
    """One record of the log."""

    key: bytes
    value: bytes | None
    producer: ProducerStamp | None


class Marker(NamedTuple):
    producer: ProducerStamp
    committed: bool


class Timers:
    """See `broker.coordinator.outcome.Timers`."""

    def __init__(self) -> None:
        self.waiting: dict[Hashable, tuple[int, Operation]] = {}

    def schedule(self, key: Hashable, deadline_ms: int, operation: Operation) -> None:
        self.waiting[key] = (deadline_ms, operation)

    def cancel(self, key: Hashable) -> None:
        self.waiting.pop(key, None)

    def deadline_ms(self, key: Hashable) -> int | None:
        found = self.waiting.get(key)
        return None if found is None else found[0]


class Bench:
    def __init__(self, **overrides: str) -> None:
        settings = {name.replace("__", "."): value for name, value in overrides.items()}
        self.settings: BrokerSettings = load_broker_settings(PROPERTIES, "bench", settings)[0]
        self.image: MetadataImage = EMPTY_IMAGE
        self.monotonic_ms = 1000
        self.clock_error_ms = 0
        """The error of the wall clock."""
        self.log: list[Written | Marker] = []
        self.broken: KafkaError | None = None
        """If set, every append fails."""
        self._topics = self._coordinators = 0
        self.share_states = AskedShareStates()
        self.events = GroupEvents()
        self.decisions = Decisions("broker-1", lambda: WALL_MS + self.monotonic_ms)
        self._begin()

    def _begin(self) -> None:
        self._coordinators += 1
        self.timers = Timers()
        self.machine = GroupMachine(
            GroupContext(
                GroupDirectory(),
                self.timers,
                random.Random(self._coordinators),
                lambda: self.settings,
                lambda: self.image,
                self.share_states,
                events=self.events,
            )
        )

    @property
    def now(self) -> Now:
        return Now(self.monotonic_ms, WALL_MS + self.monotonic_ms + self.clock_error_ms)

    # -- commands

    def ask(self, command: Callable[..., Outcome], *arguments: Any) -> Any:
        """The answer to a command that is answered immediately. Raises KafkaError if it is refused."""
        answers: list[Any] = []
        reply = Reply(answers.append, lambda code: answers.append(KafkaError(code)))
        self.run(partial(command, *arguments, reply))
        (answer,) = answers
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def run(self, operation: Operation) -> Outcome:
        outcome = operation(self.now)
        if outcome.records and self.broken is not None:
            if outcome.failed is not None:
                return self.run(lambda now: outcome.failed(self.broken))  # type: ignore[misc, arg-type]
            for reply, _ in outcome.answers:
                reply.refuse(self.broken.code)
            return outcome
        for record in outcome.records:
            value = None if record.value is None else encode_versioned(record.value, record.version)
            written = Written(encode_key(record.key), value, outcome.producer)
            self.log.append(written)
            if outcome.replay:
                self._replay(self.machine, written)
        self.decisions.take(outcome.notes)
        if outcome.committed is not None:
            outcome.committed()
        for reply, response in outcome.answers:
            reply.answer(response)
        return outcome

    def write(self, key: Message, value: Message | None, version: int = 0) -> None:
        """Append a record as if a command had written it."""
        self.run(lambda now: Outcome([CoordinatorRecord(key, value, version)]))

    def end_transaction(self, producer: ProducerStamp, committed: bool) -> None:
        self.log.append(Marker(producer, committed))
        self.machine.replay_marker(producer, committed)

    @staticmethod
    def _replay(machine: GroupMachine, written: Written) -> None:
        key, value = decoded(written)
        machine.replay(key, value, written.producer, 0)

    def compact(self) -> None:
        """Only the last record of each key is left, tombstones too. For logs without transactions."""
        last = {entry.key: place for place, entry in enumerate(self.log) if isinstance(entry, Written)}
        self.log = [self.log[place] for place in sorted(last.values())]

    def reload(self) -> None:
        """Another broker becomes the leader: it replays the log, and time advances."""
        self._begin()
        for entry in self.log:
            if isinstance(entry, Marker):
                self.machine.replay_marker(*entry)
            else:
                self._replay(self.machine, entry)
        self.run(self.machine.loaded)

    def advance(self, milliseconds: int) -> None:
        """Advance the time and run timers at their deadlines."""
        until_ms = self.monotonic_ms + milliseconds
        while self.timers.waiting:
            key, (deadline_ms, operation) = min(self.timers.waiting.items(), key=lambda it: it[1][0])
            if deadline_ms > until_ms:
                break
            del self.timers.waiting[key]
            self.monotonic_ms = max(self.monotonic_ms, deadline_ms)
            self._run_timer(key, operation)
        self.monotonic_ms = until_ms

    def take_turn(self, key: Hashable) -> None:
        """Run the operation of one timer if it is due."""
        deadline_ms, operation = self.timers.waiting.get(key, (self.monotonic_ms + 1, None))
        if operation is not None and deadline_ms <= self.monotonic_ms:
            del self.timers.waiting[key]
            self._run_timer(key, operation)

    def _run_timer(self, key: Hashable, operation: Operation) -> None:
        outcome = operation(self.now)
        if outcome.records and self.broken is not None and outcome.failed is None:
            if self.timers.deadline_ms(key) is None:
                self.timers.schedule(key, self.monotonic_ms + 500, operation)
            return
        self.run(lambda now: outcome)

    def written_since(self, place: int) -> list[tuple[Message, Message | None]]:
        """The records of the log from `place` on."""
        return [decoded(entry) for entry in self.log[place:] if isinstance(entry, Written)]

    # -- topics

    def create_topic(self, name: str, partitions: int = 1) -> bytes:
        """Returns its id."""
        self._topics += 1
        topic_id = self._topics.to_bytes(16, "big")
        self._change_metadata(_creation(name, topic_id, partitions))
        return topic_id

    def delete_topic(self, name: str) -> None:
        self._change_metadata([RemoveTopicRecord(topic_id=self.image.topics.by_name[name].id)])

    def add_partition(self, name: str) -> None:
        topic = self.image.topics.by_name[name]
        self._change_metadata([_partition(topic.id, len(topic.partitions))])

    def recreate_topic(self, name: str) -> bytes:
        """Delete and recreate it in one step."""
        self._topics += 1
        topic_id = self._topics.to_bytes(16, "big")
        gone = RemoveTopicRecord(topic_id=self.image.topics.by_name[name].id)
        self._change_metadata([gone, *_creation(name, topic_id, 1)])
        return topic_id

    def _change_metadata(self, records: list[Any]) -> None:
        replay = ImageReplay(self.image)
        for record in records:
            replay.replay(record)
        delta = replay.finish(self.image.offset + len(records), 1, self.now.wall_ms)
        self.image = delta.after
        self.run(partial(self.machine.metadata_changed, delta))


def _creation(name: str, topic_id: bytes, partitions: int) -> list[Any]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(_partition(topic_id, index) for index in range(partitions)),
    ]


def _partition(topic_id: bytes, index: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1, directories=[bytes(16)]
    )


def decoded(written: Written) -> tuple[Message, Message | None]:
    key = decode_key(TYPES, written.key)
    assert key is not None
    value = None
    if written.value is not None:
        value, _ = decode_versioned(TYPES[key.API_KEY].value, written.value)
    return key, value
