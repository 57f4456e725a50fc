"""All partitions of a broker beside plain ones: what it holds and answers is computed from the newest metadata."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.replication.partition import Partition, PartitionHost
from barnabas.broker.replication.partitions import PARTITION_ITEMS, Partitions, ReplicationSettings
from barnabas.broker.replication.reads import FetchKind, ReadRequest
from barnabas.broker.replication.replica import FollowerFetch, IsrChangeWanted, ReplicaSettings
from barnabas.kraft.metadata.delta import MetadataDelta, TopicDelta
from barnabas.kraft.metadata.image import (
    BROKER_RESOURCE,
    NO_LEADER,
    TOPIC_RESOURCE,
    BrokerImage,
    ClusterImage,
    FeaturesImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    TopicsImage,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.at_once import at_once
from barnabas.runtime.decisions import Notes
from barnabas.runtime.meter import STEP_ITEMS
from barnabas.settings.topic import TopicConfig
from barnabas.storage.folder import Folder
from barnabas.storage.log import PartitionLog
from tests.examples import examples
from tests.storage.rig import Rig, heads, numbered

SELF, LAG_MS = 1, 1_000
NAMES = ["orders", "stock"]
INDEXES = [0, 1]
ELR = "eligible.leader.replicas.version"
TOPIC_ID = bytes(15) + b"\x07"
Key = tuple[bytes, int]


class Store:
    """Logs on a simulated disk, in two directories."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.fails = False
        self.count = 0
        self.opened: dict[Key, PartitionLog] = {}
        self.deleted: list[str] = []
        self.put_aside_ones: list[str] = []

    def open_log(self, topic_id: bytes, name: str, index: int, config: TopicConfig, directory: bytes) -> PartitionLog:
        if self.fails:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no disk")
        self.count += 1
        path = f"/logs/{'ab'[directory[0] % 2]}/{name}-{index}.{self.count}"
        log = PartitionLog.open(Folder(self.rig.disk, path), key=(name, index), config=config, now_ms=0)
        self.opened[topic_id, index] = log
        return log

    def delete_log(self, log: PartitionLog) -> None:
        self.deleted.append(f"{log.topic}-{log.partition}")
        if self.fails:
            raise OSError("no disk")

    def put_aside(self, log: PartitionLog) -> None:
        self.put_aside_ones.append(f"{log.topic}-{log.partition}")
        if self.fails:
            raise OSError("no disk")


@dataclass
class Held:
    """A replica that the broker must have a log of."""

    name: str
    image: PartitionImage
    offline: bool = False
    directory: str = "a"
    min_isr: int = 1


@dataclass
class Expected:
    """All that the broker must know."""

    held: dict[Key, Held] = field(default_factory=dict)
    without_log: set[Key] = field(default_factory=set)
    deleted: list[str] = field(default_factory=list)
    put_aside: list[str] = field(default_factory=list)
    """Logs that a snapshot does not have: a backup may be older than they are."""
    left: list[tuple[str, str]] = field(default_factory=list)
    """Partition and cause of each removal."""
    is_of_snapshot: bool = False

    def remove(self, key: Key, cause: str) -> None:
        self.without_log.discard(key)
        held = self.held.pop(key, None)
        if held is not None:
            (self.put_aside if self.is_of_snapshot else self.deleted).append(f"{held.name}-{key[1]}")
            self.left.append((f"{held.name}-{key[1]}", cause))


class Broker:
    """Both, and the metadata."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.now_ms = 10_000
        clock: Any = SimpleNamespace(now_ms=lambda: self.now_ms)
        self.notes = Notes()
        self.proposed: list[tuple[str, tuple[int, ...]]] = []
        self.followed: dict[Key, int] = {}
        self.store = Store()
        host = PartitionHost(clock, clock, self.propose, self.follow, lambda partition: None, decisions=self.notes)
        self.min_isr = dict.fromkeys(NAMES, 1)
        self.real = Partitions(ReplicationSettings(SELF, LAG_MS), self.store, host, self.config, lambda: 101)
        self.image = MetadataImage()
        self.brokers = {node: BrokerImage(node, 100 + node, bytes(16), {}, {}, fenced=False) for node in (1, 2, 3)}
        self.topics: dict[bytes, TopicImage] = {}
        self.level = 0
        self.made = 0
        self.expected = Expected()

    def config(self, image: MetadataImage, name: str) -> TopicConfig:
        return TopicConfig(min_insync_replicas=self.min_isr[name])

    def propose(self, partition: Partition, wanted: IsrChangeWanted) -> None:
        self.proposed.append((partition.name, tuple(sorted(wanted.members))))

    def follow(self, partition: Partition, leader: int) -> None:
        self.followed[partition.key] = leader

    # -- changes of the metadata, which take effect with `apply`

    def a_partition(self) -> PartitionImage:
        replicas = tuple(self.draw(st.permutations([1, 2, 3]))[: self.draw(st.integers(1, 3))])
        directories = tuple(bytes([self.draw(st.integers(0, 1))]) * 16 for _ in replicas)
        leader = self.draw(st.sampled_from([*replicas, NO_LEADER]))
        return PartitionImage(replicas, directories, replicas, leader=leader)

    def create(self) -> None:
        names = [name for name in NAMES if name not in {each.name for each in self.topics.values()}]
        if names:
            self.made += 1
            topic_id = self.made.to_bytes(16, "big")
            partitions = {index: self.a_partition() for index in INDEXES[: self.draw(st.integers(1, 2))]}
            self.topics[topic_id] = TopicImage(self.draw(st.sampled_from(names)), topic_id, partitions)

    def delete(self) -> None:
        if self.topics:
            del self.topics[self.draw(st.sampled_from([*self.topics]))]

    def change(self) -> None:
        """Another leader, or other replicas, of one partition."""
        if not self.topics:
            return
        topic = self.topics[self.draw(st.sampled_from([*self.topics]))]
        index = self.draw(st.sampled_from([*topic.partitions]))
        old, new = topic.partitions[index], self.a_partition()
        new = replace(new, leader_epoch=old.leader_epoch + 1, partition_epoch=old.partition_epoch + 1)
        self.topics[topic.id] = replace(topic, partitions=topic.partitions | {index: new})

    def fence(self) -> None:
        node = self.draw(st.sampled_from([2, 3]))
        self.brokers[node] = replace(self.brokers[node], fenced=self.draw(st.booleans()))

    # -- what the broker does

    def apply(self) -> None:
        """The broker reads everything that has changed."""
        before = self.image
        by_name = {topic.name: topic for topic in self.topics.values()}
        topics = TopicsImage(by_name, dict(self.topics))
        cluster, features = ClusterImage(dict(self.brokers)), FeaturesImage(finalized={ELR: self.level})
        self.image = MetadataImage(cluster=cluster, topics=topics, features=features)
        self.expected.is_of_snapshot = self.draw(st.integers(0, 3)) == 3
        delta = MetadataDelta(before, self.image, is_of_snapshot=self.expected.is_of_snapshot)
        for node, broker in self.brokers.items():
            if before.cluster.brokers.get(node) != broker:
                delta.changed_brokers[node] = broker
        for topic_id, gone in before.topics.by_id.items():
            if topic_id not in self.topics:
                delta.deleted_topics[topic_id] = gone
        for topic_id, topic in self.topics.items():
            known = before.topics.by_id.get(topic_id)
            changed = {
                index: image
                for index, image in topic.partitions.items()
                if known is None or known.partitions.get(index) != image
            }
            if changed:
                delta.changed_topics[topic_id] = TopicDelta(topic_id, topic.name, known, topic, changed)
        self.prepare(delta)
        self.expect(delta)
        for _ in self.real.apply_delta(delta):
            pass

    def prepare(self, delta: MetadataDelta) -> None:
        """Before a change, the logs that it needs are made."""
        wanted = [
            (topic.name, index, topic_id, image.directories[image.replicas.index(SELF)])
            for topic_id, topic in delta.changed_topics.items()
            for index, image in topic.changed_partitions.items()
            if SELF in image.replicas and (topic_id, index) not in self.expected.held
        ]
        found = at_once(self.real.prepare(delta))
        assert [(new.topic, new.partition, new.topic_id, new.directory_id) for new in found] == wanted
        assert all(new.config == self.config(self.image, new.topic) for new in found)
        for topic_id, gone in delta.deleted_topics.items():
            if gone.name in {name for name, *_ in wanted}:
                for index in gone.partitions:
                    # The image that is applied still has the topic.
                    self.expected.remove((topic_id, index), "the partition was reassigned to other brokers")

    def expect(self, delta: MetadataDelta) -> None:
        for topic_id, gone in delta.deleted_topics.items():
            for index in gone.partitions:
                self.expected.remove((topic_id, index), "the topic was deleted")
        for topic_id, topic in delta.changed_topics.items():
            for index, image in topic.changed_partitions.items():
                key = (topic_id, index)
                if SELF not in image.replicas:
                    self.expected.remove(key, "the partition was reassigned to other brokers")
                elif key in self.expected.held:
                    self.expected.held[key].image = image
                else:
                    self.opens(key, topic.name, image)

    def opens(self, key: Key, name: str, image: PartitionImage) -> None:
        if self.store.fails:
            self.expected.without_log.add(key)
        else:
            self.expected.without_log.discard(key)
            directory = "ab"[image.directories[image.replicas.index(SELF)][0] % 2]
            self.expected.held[key] = Held(name, image, directory=directory, min_isr=self.min_isr[name])

    def disk(self) -> None:
        self.store.fails = self.draw(st.booleans())

    def open_postponed(self) -> None:
        keys = [(topic_id, index) for topic_id in [*self.topics, bytes(16)] for index in (*INDEXES, 7)]
        key = self.draw(st.sampled_from(keys))
        self.real.open_postponed(*key)
        topic = self.image.topics.by_id.get(key[0])
        if key in self.expected.without_log and topic is not None:
            self.opens(key, topic.name, topic.partitions[key[1]])

    def lose_directory(self) -> None:
        letter = self.draw(st.sampled_from("ab"))
        lost = {key for key, held in self.expected.held.items() if held.directory == letter}
        before = len(self.notes)
        found = self.real.directory_failed(f"/logs/{letter}{self.draw(st.sampled_from(['', '/']))}")
        assert {partition.key for partition in found} == lost
        for key in lost:
            self.expected.held[key].offline = True
        notes = [it for it in self.notes[before:] if "offline" in it.text]
        assert sorted(it.subject for it in notes) == sorted(f"{self.expected.held[key].name}-{key[1]}" for key in lost)
        assert any(it.text.endswith(f"with {len(lost)} replicas") for it in self.notes[before:])

    def configs(self) -> None:
        """The min.insync.replicas of topics, or a feature level, change."""
        name = self.draw(st.sampled_from(NAMES))
        self.min_isr[name] = self.draw(st.integers(1, 3))
        everywhere = [(BROKER_RESOURCE, ""), (BROKER_RESOURCE, "1")]
        resource = self.draw(st.sampled_from([(TOPIC_RESOURCE, name), *everywhere, (BROKER_RESOURCE, "2")]))
        delta = MetadataDelta(self.image, self.image)
        if self.draw(st.booleans()):
            delta.changed_configs[resource] = {"min.insync.replicas": "1"}
        else:
            self.level = self.draw(st.integers(0, 1))
            self.image = replace(self.image, features=FeaturesImage(finalized={ELR: self.level}))
            delta = MetadataDelta(self.real.image, self.image, changed_features={ELR: self.level})
        for _ in self.real.apply_delta(delta):
            pass
        for held in self.expected.held.values():
            if delta.changed_features or resource in everywhere or resource == (TOPIC_RESOURCE, held.name):
                held.min_isr = self.min_isr[held.name]

    def time(self) -> None:
        self.now_ms += self.draw(st.sampled_from([1, LAG_MS]))
        self.real.follower_fetches(self.draw(st.sampled_from([2, 3])))

    # -- answers

    def check(self) -> None:
        held = self.expected.held
        assert {partition.key for partition in self.real} == held.keys() and len(self.real) == len(held)
        assert {partition.key for partition in self.real.led} == {
            key for key, each in held.items() if each.image.leader == SELF and not each.offline
        }
        for key, each in held.items():
            self.check_partition(key, each)
        for topic in (*self.made_ids(), b"\xff" * 16, *NAMES, "unknown"):
            for index in (*INDEXES, 7):
                self.check_lookup(topic, index)
        assert self.store.deleted == self.expected.deleted
        assert self.store.put_aside_ones == self.expected.put_aside
        left = [(it.subject, it.cause) for it in self.notes if "removes its replica" in it.text]
        assert left == self.expected.left

    def made_ids(self) -> list[bytes]:
        return [number.to_bytes(16, "big") for number in range(1, self.made + 1)]

    def check_partition(self, key: Key, held: Held) -> None:
        partition = self.real.find(*key)
        assert partition is not None and partition.name == f"{held.name}-{key[1]}"
        assert partition.log is self.store.opened[key]
        replica = partition.replica
        assert (replica.leader_epoch, replica.partition_epoch) == (held.image.leader_epoch, held.image.partition_epoch)
        assert replica.replicas == held.image.replicas
        leader = NO_LEADER if held.offline else held.image.leader
        assert partition.known_leader() == (leader, held.image.leader_epoch)
        if not held.offline:
            assert self.followed[key] == (NO_LEADER if leader == SELF else leader)
        assert partition.log.config.min_insync_replicas == held.min_isr
        assert replica.settings == ReplicaSettings(LAG_MS, held.min_isr, self.real.image.features.elr_enabled)

    def check_lookup(self, topic: bytes | str, index: int) -> None:
        images = self.image.topics
        image = images.by_id.get(topic) if isinstance(topic, bytes) else images.by_name.get(topic)
        key = (topic, index) if isinstance(topic, bytes) else None if image is None else (image.id, index)
        held = None if key is None else self.expected.held.get(key)
        found = self.real.find(topic, index)
        assert (found is None) == (held is None)
        is_offline = held.offline if held is not None else key in self.expected.without_log
        assert self.real.is_offline(topic, index) == is_offline
        if found is None:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if image is None:
                unknown = isinstance(topic, bytes)
                error = ErrorCode.UNKNOWN_TOPIC_ID if unknown else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif index not in image.partitions:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif is_offline:
                error = ErrorCode.KAFKA_STORAGE_ERROR
            assert self.real.missing_error(topic, index) == error


CHANGES = ["create", "create", "delete", "change", "change", "fence"]
EVENTS = ["apply", "apply", "apply", "disk", "open_postponed", "lose_directory", "configs", "time"]


@pytest.mark.feature("RE-09", "MB-05")
@settings(max_examples=examples(150))
@given(st.data())
def test_a_broker_holds_what_the_metadata_says(data: st.DataObject) -> None:
    broker = Broker(data.draw)
    broker.create()
    broker.apply()
    steps = [*CHANGES, *EVENTS]
    for _ in range(data.draw(st.integers(4, 35))):
        step = data.draw(st.sampled_from(steps))
        getattr(broker, step)()
        if step in EVENTS:
            broker.check()


@pytest.mark.feature("MB-05")
def test_metadata_from_before_the_registration_is_a_mistake() -> None:
    broker = Broker(lambda strategy: None)
    broker.brokers[SELF] = replace(broker.brokers[SELF], epoch=100)
    with pytest.raises(AssertionError, match="metadata older than our registration"):
        broker.apply()


@pytest.mark.feature("MB-05")
def test_many_partitions_are_changed_in_steps() -> None:
    """About as many partitions in each, whatever happens to them."""
    broker = Broker(lambda strategy: None)
    one = PartitionImage((1, 2), (bytes(16),) * 2, (1, 2), leader=1)
    topic = TopicImage("orders", TOPIC_ID, dict.fromkeys(range(300), one))
    registered, topics = ClusterImage(dict(broker.brokers)), TopicsImage({"orders": topic}, {TOPIC_ID: topic})
    image = MetadataImage(cluster=registered, topics=topics)
    created = MetadataDelta(MetadataImage(), image)
    created.changed_topics[TOPIC_ID] = TopicDelta(TOPIC_ID, "orders", None, topic, dict(topic.partitions))
    assert steps_of(broker.real, created) == 300 * PARTITION_ITEMS // STEP_ITEMS
    configs = MetadataDelta(image, image, changed_configs={(TOPIC_RESOURCE, "orders"): {}})
    assert steps_of(broker.real, configs) == 300 // STEP_ITEMS
    fenced = MetadataDelta(image, image, changed_brokers={2: replace(broker.brokers[2], fenced=True)})
    assert steps_of(broker.real, fenced) == 300 // STEP_ITEMS
    deleted = MetadataDelta(image, MetadataImage(cluster=registered), deleted_topics={TOPIC_ID: topic})
    assert steps_of(broker.real, deleted) == 300 * PARTITION_ITEMS // STEP_ITEMS
    assert len(broker.real) == 0


def steps_of(partitions: Partitions, delta: MetadataDelta) -> int:
    return sum(1 for _ in partitions.apply_delta(delta))


@pytest.mark.feature("MB-05")
def test_a_later_registration_does_not_make_known_metadata_wrong() -> None:
    """A broker that registered again reads of that later."""
    epoch = 101
    broker = Broker(lambda strategy: None)
    broker.real._broker_epoch = lambda: epoch
    broker.apply()
    epoch = 500
    broker.brokers[2] = replace(broker.brokers[2], fenced=True)
    broker.apply()
    assert broker.real.image.cluster.brokers[2].fenced


@pytest.mark.feature("RE-09", "MB-03")
def test_a_leader_is_certain_for_a_session_after_the_fetch_of_a_follower() -> None:
    """It may be fenced itself: the controllers do not answer."""
    broker = Broker(lambda strategy: None)
    clock: Any = SimpleNamespace(now_ms=lambda: broker.now_ms)
    looked: list[str] = []
    host = PartitionHost(
        clock,
        clock,
        broker.propose,
        broker.follow,
        lambda partition: looked.append(partition.name),
        may_be_fenced=lambda: True,
        session_timeout_ms=9_000,
    )
    broker.real = Partitions(ReplicationSettings(SELF, LAG_MS), broker.store, host, broker.config, lambda: 101)
    one = PartitionImage((1, 2), (bytes(16),) * 2, (1, 2), leader=1)
    broker.topics = {TOPIC_ID: TopicImage("orders", TOPIC_ID, {0: one})}
    broker.apply()
    partition = broker.real.find(TOPIC_ID, 0)
    assert partition is not None and partition.is_forgotten, "nobody has fetched"
    read = ReadRequest(FetchKind.REPLICA, 0, 100)
    partition.follower_read(FollowerFetch(2, 102, 0, 0), read)
    broker.now_ms += 9_000
    looked.clear()
    partition.wake_if_forgotten()
    assert not partition.is_forgotten and looked == []
    broker.now_ms += 1
    partition.wake_if_forgotten()
    assert partition.is_forgotten and looked == ["orders-0"]


@pytest.mark.feature("RE-18", "MB-05")
@pytest.mark.parametrize("gone", [False, True])
def test_a_log_that_had_no_room_is_opened_later_if_its_partition_is_still_there(gone: bool) -> None:
    broker = Broker(lambda strategy: None)
    one = PartitionImage((1, 2), (bytes(16),) * 2, (1, 2), leader=1)
    broker.topics = {TOPIC_ID: TopicImage("orders", TOPIC_ID, {0: one})}
    broker.store.fails = True
    broker.apply()
    assert broker.real.is_offline("orders", 0) and broker.real.find(TOPIC_ID, 0) is None
    broker.store.fails = False
    if gone:
        broker.topics = {}
        broker.apply()
    broker.real.open_postponed(TOPIC_ID, 0)
    assert (broker.real.find(TOPIC_ID, 0) is None) == gone and not broker.real.is_offline("orders", 0)


@pytest.mark.feature("RE-03", "RE-07", "MB-03")
def test_a_fenced_broker_is_no_longer_waited_for() -> None:
    """It has caught up, so it might join the ISR; a broker that is fenced may not."""
    broker = Broker(lambda strategy: 0)
    one = PartitionImage((1, 2), (bytes(16),) * 2, (1,), leader=1)
    broker.topics = {TOPIC_ID: TopicImage("orders", TOPIC_ID, {0: one})}
    broker.apply()
    partition = broker.real.find(TOPIC_ID, 0)
    assert partition is not None
    partition.follower_read(FollowerFetch(2, broker.brokers[2].epoch, 0, 0), ReadRequest(FetchKind.REPLICA, 0, 100))
    proposal = partition.replica.pending_isr_change
    assert proposal is not None
    partition.isr_change_answered(proposal, ErrorCode.OPERATION_NOT_ATTEMPTED)
    buffer = bytearray(numbered(0))
    partition.append(buffer, heads(buffer), 1)
    assert partition.log.high_watermark == 0
    broker.brokers[2] = replace(broker.brokers[2], fenced=True)
    broker.apply()
    assert partition.log.high_watermark == 1
