"""A test rig for consumer groups in virtual time: configurable topics, and members that follow the protocol.

Records are encoded and decoded. After every command it checks what must always hold: no partition has two owners,
epochs only increase, states change as the tables allow, and a new core that reads the log has the same state.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Any

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Operation, Outcome, Reply
from barnabas.broker.groups.consumer_group import GROUP_MOVES, ConsumerGroup, GroupState
from barnabas.broker.groups.consumer_groups import ConsumerGroups
from barnabas.broker.groups.consumer_member import MEMBER_MOVES, STATIC_LEAVE_EPOCH, MemberState
from barnabas.broker.groups.group import Client, GroupContext, GroupDirectory
from barnabas.broker.groups.group_memory import MEMBER_BYTES, NAME_BYTES, size_of_names
from barnabas.broker.groups.state_transitions import is_legal
from barnabas.broker.traffic import GroupEvents
from barnabas.kraft.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.kraft.metadata.replay import ImageReplay
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import group_log
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.messages.metadata_log import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from barnabas.protocol.records.coordinator import (
    decode_key,
    decode_versioned,
    encode_key,
    encode_versioned,
    record_types,
)
from barnabas.protocol.schema import decode, encode
from barnabas.runtime.decisions import Decisions
from tests.broker.groups.share_states import AskedShareStates
from tests.broker.some_settings import some_settings

TYPES = dict(record_types(group_log))
GROUP = "readers"
WALL_MS = 1_750_000_000_000
SESSION_MS = 45_000
HEARTBEAT_MS = 5_000
REBALANCE_MS = 60_000


class Timers:
    """See `broker.coordinator.outcome.Timers`."""

    def __init__(self) -> None:
        self.due: dict[Hashable, tuple[int, int, Operation]] = {}
        self._order = 0

    def schedule(self, key: Hashable, deadline_ms: int, operation: Operation) -> None:
        self._order += 1
        self.due[key] = (deadline_ms, self._order, operation)

    def cancel(self, key: Hashable) -> None:
        self.due.pop(key, None)

    def deadline_ms(self, key: Hashable) -> int | None:
        return self.due[key][0] if key in self.due else None

    def pop_due(self, now_ms: int) -> tuple[int, Operation] | None:
        first = min(self.due.items(), key=lambda item: item[1][:2], default=None)
        if first is None or first[1][0] > now_ms:
            return None
        del self.due[first[0]]
        return first[1][0], first[1][2]


class Rig:
    """One partition of `__consumer_offsets` with consumer groups only."""

    def __init__(self, seed: int = 0, **settings: Any) -> None:
        # Most stories are about single steps, so assignments are computed at once unless a story configures an
        # interval.
        settings.setdefault("group_consumer_assignment_interval_ms", 0)
        self.settings = some_settings(**settings)
        self.image: MetadataImage = EMPTY_IMAGE
        self.monotonic_ms = 1_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.written: list[CoordinatorRecord] = []
        """Records of the last command."""
        self.broken: ErrorCode | None = None
        """If set, every append fails."""
        self._chance = random.Random(seed)
        self._topics = 0
        self._epochs: dict[str, int] = {}
        self._states: dict[str, GroupState] = {}
        self._member_states: dict[tuple[str, str], MemberState] = {}
        self.decisions = Decisions("broker-1", lambda: WALL_MS + self.monotonic_ms)
        self.events = GroupEvents()
        self._noted_targets: int | None = 0
        """Target assignments that were noted; None after a write failed, because a metric counts a failed one, too."""
        self.core = self._begin()

    def _begin(self) -> ConsumerGroups:
        self.timers = Timers()
        self.directory = GroupDirectory()
        context = GroupContext(
            self.directory,
            self.timers,
            self._chance,
            lambda: self.settings,
            lambda: self.image,
            AskedShareStates(),
            events=self.events,
        )
        return self.make_core(context)

    def make_core(self, context: GroupContext) -> ConsumerGroups:
        return ConsumerGroups(context)

    def set_setting(self, name: str, value: Any) -> None:
        """Change a setting at run time."""
        self.settings = replace(self.settings, **{name: value})

    @property
    def now(self) -> Now:
        return Now(self.monotonic_ms, WALL_MS + self.monotonic_ms)

    @property
    def group(self) -> ConsumerGroup:
        return self.core.group(GROUP)

    # -- topics

    def change_metadata(self, *changes: object) -> None:
        replay = ImageReplay(self.image)
        for change in changes:
            replay.replay(change)
        delta = replay.finish(self.image.offset + 1, 1, WALL_MS)
        self.image = delta.after
        self.run(partial(self.core.metadata_changed, delta))

    def create_topic(self, name: str, partitions: int) -> bytes:
        self._topics += 1
        topic_id = self._topics.to_bytes(16, "big")
        self.change_metadata(
            TopicRecord(name=name, topic_id=topic_id),
            *(self._partition(topic_id, number) for number in range(partitions)),
        )
        return topic_id

    def add_partitions(self, name: str, count: int) -> None:
        topic = self.image.topics.by_name[name]
        first = len(topic.partitions)
        self.change_metadata(*(self._partition(topic.id, first + number) for number in range(count)))

    def delete_topic(self, name: str) -> None:
        self.change_metadata(RemoveTopicRecord(topic_id=self.image.topics.by_name[name].id))

    def set_config(self, name: str, value: str, group: str = GROUP) -> None:
        self.change_metadata(ConfigRecord(resource_type=32, resource_name=group, name=name, value=value))

    @staticmethod
    def _partition(topic_id: bytes, number: int) -> PartitionRecord:
        return PartitionRecord(
            topic_id=topic_id, partition_id=number, replicas=[1], isr=[1], leader=1, directories=[bytes(15) + b"\x01"]
        )

    # -- the duties of the shard

    def run(self, operation: Operation, reply: Reply | None = None) -> None:
        try:
            outcome = operation(self.now)
        except KafkaError as error:
            assert reply is not None, "a timer must not raise"
            reply.refuse(error.code)
            return
        if outcome.records and self.broken is not None:
            self._noted_targets = None
            if outcome.failed is not None:
                instead = outcome.failed(KafkaError(self.broken))
                assert not instead.records
                for answered, response in instead.answers:
                    answered.answer(response)
                return
            for refused, _ in outcome.answers:
                refused.refuse(self.broken)
            return
        self.written = outcome.records
        for record in outcome.records:
            value = None if record.value is None else encode_versioned(record.value, record.version)
            self.log.append((encode_key(record.key), value))
            if outcome.replay:
                self._replay(self.core, *self.log[-1])
        self.decisions.take(outcome.notes)
        if self._noted_targets is not None:
            self._noted_targets += sum("has a new target assignment" in it.text for it in outcome.notes)
            events = self.events
            assigned = events.consumer_rebalances + events.share_rebalances + events.streams_rebalances
            assert assigned == self._noted_targets, "each assignment is noted and counted"
        for answered, response in outcome.answers:
            answered.answer(response)
        self.check()

    def pass_ms(self, duration_ms: int) -> None:
        until_ms = self.monotonic_ms + duration_ms
        while (due := self.timers.pop_due(until_ms)) is not None:
            deadline_ms, operation = due
            self.monotonic_ms = max(self.monotonic_ms, deadline_ms)
            self.run(operation)
        self.monotonic_ms = until_ms

    def take_turn(self, key: Hashable) -> bool:
        """Run the operation of one timer, and return True, if it is due."""
        deadline_ms = self.timers.deadline_ms(key)
        if deadline_ms is None or deadline_ms > self.monotonic_ms:
            return False
        _, _, operation = self.timers.due.pop(key)
        self.run(operation)
        return True

    def _replay(self, core: ConsumerGroups, key: bytes, value: bytes | None) -> None:
        decoded_key = decode_key(TYPES, key)
        assert decoded_key is not None
        core.replay(
            decoded_key, None if value is None else decode_versioned(TYPES[decoded_key.API_KEY].value, value)[0]
        )

    def fail_over(self, compacted: bool = False) -> None:
        """Another broker becomes the leader and reads the log, compacted if requested."""
        self.core.give_up()
        if compacted:
            last = {key: place for place, (key, _) in enumerate(self.log)}
            self.log = [
                (key, value) for place, (key, value) in enumerate(self.log) if last[key] == place and value is not None
            ]
        self.core = self._begin()
        for key, value in self.log:
            self._replay(self.core, key, value)
        self.run(self.core.loaded)

    # -- invariants

    def forget_group(self) -> None:
        """The group was deleted: one that is made again may begin in any state and epoch."""
        self._states.pop(GROUP, None)
        self._epochs.pop(GROUP, None)

    def check(self) -> None:
        held = [group.held.size_bytes for group in self.directory]
        assert self.directory.memory.held_bytes == sum(held) and all(size >= 0 for size in held)
        for group in self.directory:
            if not isinstance(group, ConsumerGroup):
                # It may have been recreated as a consumer group, with any initial state and epoch.
                self._states.pop(group.group_id, None)
                self._epochs.pop(group.group_id, None)
                continue
            self._check_owners(group)
            self._check_moves(group)
            self._check_memory(group)
            for member in group.members.values():
                timer = self.timers.deadline_ms(("consumer-session", group.group_id, member.member_id))
                assert timer is not None, f"nobody would notice that {member.member_id} is silent"

    def _check_owners(self, group: ConsumerGroup) -> None:
        owners: dict[tuple[bytes, int], str] = {}
        for member in group.members.values():
            for owned in (member.assigned, member.revoking):
                for topic_id, partitions in owned.items():
                    for number in partitions:
                        other = owners.setdefault((topic_id, number), member.member_id)
                        assert other == member.member_id, f"{number} is {other}'s and {member.member_id}'s"
                        assert group.owners.epoch(topic_id, number) == member.epoch
            assert not any(
                number in member.revoking.get(topic_id, {})
                for topic_id, partitions in member.assigned.items()
                for number in partitions
            )
        for topic_id, epochs in group.owners:
            assert all((topic_id, number) in owners for number in epochs)

    def _check_memory(self, group: ConsumerGroup) -> None:
        names = sum(size_of_names(member.topic_names) for member in group.members.values())
        patterns = sum(NAME_BYTES + len(each.topic_pattern) for each in group.members.values() if each.topic_pattern)
        metadata = sum(
            len(protocol.metadata)
            for member in group.members.values()
            if member.classic is not None
            for protocol in member.classic.supported_protocols
        )
        assert group.held.size_bytes == len(group.members) * MEMBER_BYTES + names + patterns + metadata

    def _check_moves(self, group: ConsumerGroup) -> None:
        assert group.epoch >= self._epochs.get(group.group_id, 0), "epochs only rise"
        assert group.assignment_epoch <= group.epoch
        self._epochs[group.group_id] = group.epoch
        assert is_legal(GROUP_MOVES, self._states.get(group.group_id, GroupState.EMPTY), group.state)
        self._states[group.group_id] = group.state
        for member in group.members.values():
            key = (group.group_id, member.member_id)
            before = self._member_states.get(key, MemberState.STABLE)
            assert member.epoch == STATIC_LEAVE_EPOCH or is_legal(MEMBER_MOVES, before, member.state)
            self._member_states[key] = member.state

    # -- requests

    def ask(
        self, request: Any, version: int, command: Callable[..., Outcome] | None = None, client_id: str = "client"
    ) -> Any:
        """The answer; only the code for a refused request."""
        answers: list[Any] = []
        reply = Reply(answers.append, answers.append)
        request = decode(type(request), encode(request, version), version)
        command = command or self.core.heartbeat
        operation = partial(command, request, Client(client_id, "/127.0.0.1"), version, reply)
        self.run(operation, reply)
        self.await_answer(answers)
        (answer,) = answers
        if not isinstance(answer, ErrorCode):
            encode(answer, version)
        return answer

    def await_answer(self, answers: list[Any]) -> None:
        """Every request is answered at once here."""

    def heartbeat(self, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        fields.setdefault("group_id", GROUP)
        answer = self.ask(ConsumerGroupHeartbeatRequest(**fields), version)
        if isinstance(answer, ErrorCode):
            return ConsumerGroupHeartbeatResponse(error_code=answer)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer


class Reader:
    """A consumer that follows its assignment as clients do: it revokes first, then takes new partitions."""

    def __init__(self, rig: Rig, member_id: str, *topics: str, **fields: Any) -> None:
        self.rig = rig
        self.member_id = member_id
        self.topics = list(topics)
        self.fields = fields
        """Fields of the request: `instance_id`, `server_assignor`, `subscribed_topic_regex`, …"""
        self.epoch = 0
        self.owned: dict[bytes, set[int]] = {}
        self.response = ConsumerGroupHeartbeatResponse()
        self.missed_an_answer = False

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.response.error_code)

    @property
    def partitions(self) -> set[tuple[str, int]]:
        """Partitions that it owns."""
        topics = self.rig.image.topics.by_id
        return {(topics[topic_id].name, number) for topic_id, owned in self.owned.items() for number in owned}

    def join(self) -> ConsumerGroupHeartbeatResponse:
        self.epoch = 0
        self.owned = {}
        return self._send(
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=self.topics,
            topic_partitions=[],
            **self.fields,
        )

    def beat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat that reports the owned partitions."""
        fields.setdefault("topic_partitions", self._reported())
        return self._send(**fields)

    def just_beat(self) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat without optional fields."""
        return self._send()

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        return self.rig.heartbeat(
            member_id=self.member_id, member_epoch=epoch, instance_id=self.fields.get("instance_id")
        )

    def _reported(self) -> list[TopicPartitions]:
        return [
            TopicPartitions(topic_id=topic_id, partitions=sorted(owned))
            for topic_id, owned in self.owned.items()
            if owned
        ]

    def _send(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        fields.setdefault("instance_id", self.fields.get("instance_id"))
        if self.missed_an_answer:
            # Clients then send all fields.
            fields = {
                "rebalance_timeout_ms": REBALANCE_MS,
                "subscribed_topic_names": self.topics,
                "topic_partitions": self._reported(),
                **self.fields,
                **fields,
            }
            self.missed_an_answer = False
        self.response = self.rig.heartbeat(member_id=self.member_id, member_epoch=self.epoch, **fields)
        if self.response.error_code == ErrorCode.NONE:
            self.epoch = self.response.member_epoch
            if self.response.assignment is not None:
                self.owned = {
                    topic.topic_id: set(topic.partitions) for topic in self.response.assignment.topic_partitions
                }
        return self.response


def settle(*readers: Reader, rounds: int = 10) -> None:
    """All of them send heartbeats until nothing changes."""
    rig = readers[0].rig
    for _ in range(rounds):
        for reader in readers:
            reader.beat()
            assert reader.error is ErrorCode.NONE, (reader.error, reader.response.error_message)
        rig.pass_ms(HEARTBEAT_MS)
        if rig.group.state is GroupState.STABLE:
            break
    for reader in readers:
        reader.beat()
    assert rig.group.state is GroupState.STABLE, rig.group
