"""Topics that are created, grown and deleted by requests of every kind, beside a plain list of topics."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.kraft.controller.state import Asked, ControllerResult
from barnabas.kraft.metadata.image import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.metadata_log import BrokerRegistrationChangeRecord
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import Message
from barnabas.runtime.identity import ANONYMOUS
from tests.examples import examples
from tests.kraft.controller.conftest import Cluster, finish
from tests.kraft.controller.test_plain_changes import Draw, some_of

NAMES = ("a", "b", "a.b", "a_b", "c" * 249, "c" * 250, "", ".", "..", "a b", "ä", "__cluster_metadata")
BROKERS = (1, 2, 3, 4)
DEFAULT_PARTITIONS, DEFAULT_FACTOR = 3, 2
CONFIGS = {"retention.ms": ("5", True), "cleanup.policy": ("soon", False), "no.such": ("1", False)}
"""A value of each key, and whether a topic may have it."""

MAX_REPLICAS = 3
"""Replicas that an assignment may name; 1000 in a real cluster."""
MOST_PARTITIONS, MOST = 13, 14
"""Partitions that a request may name, and records that it may write; 10,000 in a real cluster."""

NONE = ErrorCode.NONE
MUST_BE_POSITIVE = "must be positive, or -1 for the cluster's default"


def partitions_of(topic: CreatableTopic) -> int:
    """Number of partitions that it is to have."""
    return len(topic.assignments) or (DEFAULT_PARTITIONS if topic.num_partitions == -1 else topic.num_partitions)


class Allowance:
    """A quota of partitions that are created and deleted."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, partitions: int) -> None:
        if partitions > self.left:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the quota is exceeded")
        self.left -= partitions


class Topics:
    """A cluster, and the replicas of all partitions by topic."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        level = draw(st.sampled_from([16, 17, 30, 30]))
        self.cluster = Cluster(
            levels={"metadata.version": level},
            num_partitions=DEFAULT_PARTITIONS,
            default_replication_factor=DEFAULT_FACTOR,
        )
        directories = {it: [bytes([it, 1]) * 8, bytes([it, 2]) * 8][: draw(st.integers(1, 2))] for it in BROKERS}
        for broker in BROKERS:
            self.cluster.register(broker, log_dirs=directories[broker])
            if broker == 1 or draw(st.integers(0, 3)):
                self.cluster.heartbeat(broker)
        self.directories = directories if level >= 17 else {it: [] for it in BROKERS}
        if level == 16 and draw(st.booleans()):
            update = FeatureUpdateKey(feature="metadata.version", max_version_level=17, upgrade_type=1)
            assert self.cluster.send(UpdateFeaturesRequest(feature_updates=[update])).error_code == NONE
        records: list[Message] = []
        stopping, cordoned = set(), set()
        for broker, known in self.cluster.image.cluster.brokers.items():
            change = BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=known.epoch)
            if broker > 1 and draw(st.integers(0, 5)) == 0:
                stopping.add(broker)
                change.in_controlled_shutdown = 1
            if level >= 30 and draw(st.integers(0, 3)) == 0:
                change.cordoned_log_dirs = list(some_of(draw, tuple(directories[broker]), least=1))
                cordoned |= {broker} if len(change.cordoned_log_dirs) == len(directories[broker]) else set()
            records.append(change)
        self.cluster.append(ControllerResult(None, records))
        fenced = {it for it in BROKERS if self.cluster.image.cluster.brokers[it].fenced}
        self.active = {*BROKERS} - fenced - stopping
        self.usable = {it for it in BROKERS if it in fenced or it not in stopping} - cordoned
        """Those that get replicas."""
        self.plain: dict[str, list[tuple[int, ...]]] = {}
        self.overrides: dict[str, dict[str, str]] = {}

    def decide(self, request: Message, allowance: Allowance | None = None) -> Any:
        cluster = self.cluster
        asked = Asked(ANONYMOUS, mutations=allowance)  # type: ignore[arg-type]
        steps = cluster.controller.decide(request, request.VERSIONS.highest, len(cluster.log), cluster.now_ms, asked)
        result = finish(steps)
        cluster.append(result)
        return result.response

    def an_allowance(self) -> Allowance:
        return Allowance(self.draw(st.sampled_from([1000, 1000, 3, 0])))

    # -- assignments

    def an_assignment(self) -> list[int]:
        wrong: list[list[int]] = [[], [1, 1], [99], [4, 4, 3]]
        if self.draw(st.integers(0, 5)) == 0:
            return self.draw(st.sampled_from(wrong))  # type: ignore[no-any-return]
        return list(some_of(self.draw, BROKERS, least=1))

    def is_wrong(self, assignments: list[list[int]], factor: int) -> bool:
        return any(
            len(it) != factor
            or len(it) > MAX_REPLICAS
            or len(set(it)) != len(it)
            or not {*it} <= {*BROKERS}
            or not {*it} & self.active
            for it in assignments
        )

    def has_place(self, factor: int) -> bool:
        """True if partitions of so many replicas can be placed."""
        return factor <= len(self.usable) and bool(self.usable & self.active)

    # -- requests

    def a_topic(self) -> CreatableTopic:
        draw = self.draw
        topic = CreatableTopic(
            name=draw(st.sampled_from(NAMES)),
            num_partitions=draw(st.sampled_from([-1, 1, 2, 5, MOST_PARTITIONS, 0, -2])),
            replication_factor=draw(st.sampled_from([-1, 1, 2, 4, 5, 0, -2])),
        )
        if draw(st.integers(0, 2)) == 0:
            count = draw(st.integers(1, 3))
            numbers = list(range(count)) if draw(st.integers(0, 5)) else [0] * count + [2]
            factor = self.an_assignment()
            topic.assignments = [
                CreatableReplicaAssignment(
                    partition_index=it, broker_ids=factor if draw(st.booleans()) else self.an_assignment()
                )
                for it in draw(st.permutations(numbers))
            ]
            topic.num_partitions = topic.replication_factor = -1
            if draw(st.integers(0, 5)) == 0:
                setattr(topic, draw(st.sampled_from(["num_partitions", "replication_factor"])), 2)
        for key in some_of(draw, (0, 1, 2))[: draw(st.sampled_from([0, 0, 0, 1]))]:
            name = list(CONFIGS)[key]
            topic.configs.append(CreatableTopicConfig(name=name, value=CONFIGS[name][0]))
        if draw(st.integers(0, 9)) == 0:
            topic.configs.append(CreatableTopicConfig(name="retention.bytes", value=None))
        return topic

    def error_of_name(self, name: str, others: list[str]) -> ErrorCode:
        if name == "__cluster_metadata":
            return ErrorCode.INVALID_REQUEST
        legal = 0 < len(name) <= 249 and name not in (".", "..") and all(it in "abc._" for it in name)
        if not legal:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if name in self.plain:
            return ErrorCode.TOPIC_ALREADY_EXISTS
        clashes = any(other.replace(".", "_") == name.replace(".", "_") for other in others)
        return ErrorCode.INVALID_TOPIC_EXCEPTION if clashes else NONE

    def error_of(self, topic: CreatableTopic, others: list[str]) -> ErrorCode:
        """The first rule that a new topic breaks, but for its quota."""
        configs = {it.name: it.value for it in topic.configs}
        if (code := self.error_of_name(topic.name, others)) is not NONE:
            return code
        if None in configs.values() or not all(CONFIGS[it][1] for it in configs):
            return ErrorCode.INVALID_CONFIG
        if topic.assignments:
            if (topic.num_partitions, topic.replication_factor) != (-1, -1):
                return ErrorCode.INVALID_REQUEST
            brokers = [it.broker_ids for it in topic.assignments]
            numbers = sorted(it.partition_index for it in topic.assignments)
            wrong = numbers != list(range(len(numbers))) or self.is_wrong(brokers, len(brokers[0])) or not brokers[0]
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT if wrong else NONE
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            return ErrorCode.INVALID_REPLICATION_FACTOR
        if topic.num_partitions < -1 or topic.num_partitions == 0:
            return ErrorCode.INVALID_PARTITIONS
        factor = DEFAULT_FACTOR if topic.replication_factor == -1 else topic.replication_factor
        return NONE if self.has_place(factor) else ErrorCode.INVALID_REPLICATION_FACTOR

    def create(self) -> None:
        draw = self.draw
        request = CreateTopicsRequest(
            topics=[self.a_topic() for _ in range(draw(st.integers(1, 4)))], validate_only=draw(st.integers(0, 5)) == 0
        )
        allowance = self.an_allowance()
        left = allowance.left
        response = self.decide(request, allowance)
        times = Counter(it.name for it in request.topics)
        found = {it.name: it for it in response.topics}
        named = sum(max(0, partitions_of(it)) for it in request.topics)
        if named > MOST_PARTITIONS or self.writes_too_much(request, left):
            assert {it.error_code for it in response.topics} == {ErrorCode.POLICY_VIOLATION}
            return
        assert found.keys() == times.keys() and len(response.topics) == len(times)
        created: list[str] = []
        for topic in request.topics:
            answer = found[topic.name]
            if times[topic.name] > 1:
                assert answer.error_code == ErrorCode.INVALID_REQUEST
                continue
            code = self.error_of(topic, [*self.plain, *created])
            count = partitions_of(topic)
            if code is NONE and count > left:
                code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert answer.error_code == code and (answer.error_message is None) == (code is NONE)
            if code is not NONE:
                if topic.replication_factor in (0, -2) and code is ErrorCode.INVALID_REPLICATION_FACTOR:
                    assert answer.error_message == f"the replication factor {MUST_BE_POSITIVE}"
                if code is ErrorCode.INVALID_PARTITIONS:
                    assert answer.error_message == f"the number of partitions {MUST_BE_POSITIVE}"
                continue
            left -= count
            created.append(topic.name)
            factor = DEFAULT_FACTOR if topic.replication_factor == -1 else topic.replication_factor
            if topic.assignments:
                factor = len(topic.assignments[0].broker_ids)
            assert (answer.num_partitions, answer.replication_factor) == (count, factor)
            assert {it.name: it.value for it in topic.configs}.items() <= {
                it.name: it.value for it in answer.configs
            }.items()
            if not request.validate_only:
                by_hand = {it.partition_index: tuple(it.broker_ids) for it in topic.assignments}
                self.grown(topic.name, [], count, factor, by_hand)
                self.overrides[topic.name] = {it.name: it.value or "" for it in topic.configs}
        assert allowance.left == left

    def writes_too_much(self, request: CreateTopicsRequest, left: int) -> bool:
        """Each topic has a record, and so have its configs and partitions."""
        times = Counter(it.name for it in request.topics)
        created: list[str] = []
        records = 0
        for topic in request.topics:
            count = partitions_of(topic)
            if times[topic.name] == 1 and self.error_of(topic, [*self.plain, *created]) is NONE and count <= left:
                created.append(topic.name)
                left -= count
                records += 1 + len(topic.configs) + count
        return records > MOST

    def grown(
        self, name: str, before: list[tuple[int, ...]], count: int, factor: int, by_hand: dict[int, tuple[int, ...]]
    ) -> None:
        """A topic has so many partitions now; those that are new are placed as they must be."""
        partitions = self.cluster.image.topics.by_name[name].partitions
        assert sorted(partitions) == list(range(count))
        replicas = [partitions[index].replicas for index in range(count)]
        assert replicas[: len(before)] == before
        for index in range(len(before), count):
            partition = partitions[index]
            assert partition.replicas == by_hand.get(index, partition.replicas)
            assert len(set(partition.replicas)) == len(partition.replicas) == factor
            assert by_hand or {*partition.replicas} <= self.usable
            assert partition.isr == tuple(it for it in partition.replicas if it in self.active)
            assert partition.leader == partition.isr[0] and (by_hand or partition.leader == partition.replicas[0])
            assert (partition.leader_epoch, partition.partition_epoch, partition.elr) == (0, 0, ())
            assert partition.directories == tuple(map(self.directory_of_new, partition.replicas))
        self.plain[name] = replicas

    def directory_of_new(self, broker: int) -> bytes:
        known = self.directories[broker]
        if not known:
            return MIGRATING_DIRECTORY
        return known[0] if len(known) == 1 else UNASSIGNED_DIRECTORY

    def grow(self) -> None:
        draw = self.draw
        request = CreatePartitionsRequest(validate_only=draw(st.integers(0, 5)) == 0)
        for _ in range(draw(st.integers(1, 3))):
            name = draw(st.sampled_from([*self.plain, "missing"]))
            has = len(self.plain.get(name, []))
            topic = CreatePartitionsTopic(
                name=name, count=has + draw(st.sampled_from([1, 2, 3, 8, 0, -1])), assignments=None
            )
            if draw(st.integers(0, 2)) == 0:
                count = max(0, topic.count - has + draw(st.sampled_from([0, 0, 0, 1])))
                topic.assignments = [CreatePartitionsAssignment(broker_ids=self.an_assignment()) for _ in range(count)]
            request.topics.append(topic)
        allowance = self.an_allowance()
        left = allowance.left
        response = self.decide(request, allowance)
        times = Counter(it.name for it in request.topics)
        found = {it.name: it.error_code for it in response.results}
        assert found.keys() == times.keys() and len(response.results) == len(times)
        if {*found.values()} == {ErrorCode.POLICY_VIOLATION}:
            wanted = [it.count - len(self.plain.get(it.name, [])) for it in request.topics if it.name in self.plain]
            assert sum(it for it in wanted if it > 0) > MOST
            return
        assert sum(it.count - len(self.plain[it.name]) for it in request.topics if found[it.name] == NONE) <= MOST
        for topic in request.topics:
            before = self.plain.get(topic.name, [])
            more = topic.count - len(before)
            assigned = None if topic.assignments is None else [it.broker_ids for it in topic.assignments]
            if times[topic.name] > 1:
                code = ErrorCode.INVALID_REQUEST
            elif not before:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif more <= 0:
                code = ErrorCode.INVALID_PARTITIONS
            elif assigned is not None and (len(assigned) != more or self.is_wrong(assigned, len(before[0]))):
                code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
            elif assigned is None and not self.has_place(len(before[0])):
                code = ErrorCode.INVALID_REPLICATION_FACTOR
            else:
                code = ErrorCode.THROTTLING_QUOTA_EXCEEDED if more > left else NONE
            assert found[topic.name] == code
            if code is NONE:
                left -= more
                if not request.validate_only:
                    by_hand = {len(before) + place: tuple(it) for place, it in enumerate(assigned or [])}
                    self.grown(topic.name, before, topic.count, len(before[0]), by_hand)
        assert allowance.left == left

    def delete(self) -> None:
        draw = self.draw
        ids = {name: topic.id for name, topic in self.cluster.image.topics.by_name.items()}
        request = DeleteTopicsRequest()
        for _ in range(draw(st.integers(1, 4))):
            name = draw(st.sampled_from([*self.plain, *self.plain, "missing"]))
            by_id = draw(st.booleans())
            request.topics.append(
                DeleteTopicState(
                    name=None if by_id else name, topic_id=ids.get(name, b"?" * 16) if by_id else ZERO_UUID
                )
            )
        if draw(st.integers(0, 5)) == 0:
            name = draw(st.sampled_from([None, *self.plain]))
            request.topics.append(DeleteTopicState(name=name, topic_id=ids.get(name or "", ZERO_UUID)))
        allowance = self.an_allowance()
        left = allowance.left
        response = self.decide(request, allowance)
        names = Counter(it.name for it in request.topics if it.topic_id == ZERO_UUID and it.name is not None)
        wanted_ids = Counter(it.topic_id for it in request.topics if it.name is None and it.topic_id != ZERO_UUID)
        odd = [it for it in request.topics if (it.name is None) == (it.topic_id == ZERO_UUID)]
        found = Counter((it.name, it.topic_id, ErrorCode(it.error_code)) for it in response.responses)
        expected = Counter((it.name, it.topic_id, ErrorCode.INVALID_REQUEST) for it in odd)
        gone: list[str] = []
        by_ids = {topic_id: name for name, topic_id in ids.items()}
        for topic_id, count in wanted_ids.items():
            if count > 1:
                expected[None, topic_id, ErrorCode.INVALID_REQUEST] += 1
            elif topic_id not in by_ids:
                expected[None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID] += 1
            elif not names[by_ids[topic_id]] or names[by_ids[topic_id]] > 1:
                gone.append(by_ids[topic_id])
        for name, count in names.items():
            if count > 1:
                expected[name, ZERO_UUID, ErrorCode.INVALID_REQUEST] += 1
            elif name not in ids:
                expected[name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] += 1
            elif ids[name] in wanted_ids:
                expected[name, ids[name], ErrorCode.INVALID_REQUEST] += 1
            else:
                gone.append(name)
        for name in gone:
            if len(self.plain[name]) > left:
                expected[name, ids[name], ErrorCode.THROTTLING_QUOTA_EXCEEDED] += 1
                continue
            left -= len(self.plain.pop(name))
            del self.overrides[name]
            expected[name, ids[name], NONE] += 1
        assert found == expected and allowance.left == left
        for it in response.responses:
            quota = it.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert (it.error_message == "the quota is exceeded") == quota and (it.error_message is None) == (
                it.error_code == NONE
            )

    def check(self) -> None:
        image = self.cluster.image
        found = {
            name: [topic.partitions[index].replicas for index in range(len(topic.partitions))]
            for name, topic in image.topics.by_name.items()
        }
        assert found == self.plain
        assert {name: image.config(2, name) for name in self.plain} == self.overrides
        assert not [name for kind, name in image.configs if kind == 2 and name not in self.plain]


@pytest.mark.feature("AD-01", "MB-08", "MB-16")
@settings(max_examples=examples(120), deadline=None)
@given(st.data())
def test_topics_are_those_of_a_plain_list(data: st.DataObject) -> None:
    topics = Topics(data.draw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("barnabas.kraft.controller.topics.MAX_PARTITIONS_PER_REQUEST", MOST_PARTITIONS)
        patch.setattr("barnabas.kraft.controller.topics.MAX_REPLICAS", MAX_REPLICAS)
        patch.setattr("barnabas.kraft.controller.state.MAX_RECORDS_PER_OPERATION", MOST)
        topics.create()
        for _ in range(data.draw(st.integers(1, 6))):
            getattr(topics, data.draw(st.sampled_from(["create", "grow", "grow", "delete"])))()
            topics.check()
