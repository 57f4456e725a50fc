"""Random commands, failures and failovers: what must hold after every one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.kraft.metadata.image import EMPTY_IMAGE, NO_LEADER, MetadataImage
from barnabas.kraft.metadata.loader import MetadataLoader
from barnabas.kraft.metadata.record_versions import encode_records
from barnabas.kraft.metadata.snapshot import image_to_records
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.metadata_log import AbortTransactionRecord
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.examples import examples
from tests.kraft.controller.conftest import finish
from tests.kraft.metadata.replaying import applied

BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b")

ACTIONS = (
    "register",
    "restart cleanly",
    "heartbeat",
    "want fence",
    "want shutdown",
    "die",
    "unregister",
    "create",
    "delete",
    "grow",
    "propose isr",
    "propose stale isr",
    "reassign",
    "cancel reassignment",
    "elect preferred",
    "elect unclean",
    "min isr",
    "careless",
    "producer ids",
    "features",
    "time",
    "hold",
    "commit",
    "fail over",
)


def check_image(image: MetadataImage) -> None:
    """Invariants of a single image."""
    elr_enabled = image.features.elr_enabled
    for topic in image.topics.by_name.values():
        assert image.topics.by_id[topic.id] is topic
        assert sorted(topic.partitions) == list(range(len(topic.partitions)))
        for partition in topic.partitions.values():
            where = f"{topic.name}: {partition}"
            replicas = set(partition.replicas)
            assert len(partition.replicas) == len(replicas) == len(partition.directories), where
            assert len(set(partition.isr)) == len(partition.isr), where
            assert set(partition.isr) <= replicas, where
            assert set(partition.elr) <= replicas, where
            assert not set(partition.isr) & set(partition.elr), where
            assert partition.leader == NO_LEADER or partition.leader in partition.isr, where
            assert set(partition.adding_replicas) <= replicas, where
            assert set(partition.removing_replicas) <= replicas, where
            assert not set(partition.adding_replicas) & set(partition.removing_replicas), where
            assert elr_enabled or not partition.elr, where
            assert elr_enabled or partition.isr, where
            assert replicas & {*partition.isr, *partition.elr, *partition.last_known_elr}, f"waits for nobody: {where}"
            if partition.leader != NO_LEADER:
                assert image.cluster.brokers[partition.leader].active, where
                assert all(image.cluster.brokers[it].active for it in partition.isr), where
    assert len(image.topics.by_id) == len(image.topics.by_name)


def check_step(before: MetadataImage, after: MetadataImage) -> None:
    """Invariants between an image and a later one."""
    for topic_id, topic in after.topics.by_id.items():
        old_topic = before.topics.by_id.get(topic_id)
        if old_topic is None:
            continue
        for index, old in old_topic.partitions.items():
            new = topic.partitions[index]
            assert new.leader_epoch >= old.leader_epoch
            assert new.partition_epoch >= old.partition_epoch
            if new != old:
                assert new.partition_epoch > old.partition_epoch, (old, new)
            if new.leader != old.leader:
                assert new.leader_epoch > old.leader_epoch, (old, new)
    for broker_id, broker in after.cluster.brokers.items():
        known = before.cluster.brokers.get(broker_id)
        if known is not None:
            assert broker.epoch >= known.epoch
            assert broker.epoch > known.epoch or broker.incarnation_id == known.incarnation_id
    assert after.producer_ids.next_producer_id >= before.producer_ids.next_producer_id


class Walk:
    """A cluster under random commands, with what outlives a failover remembered beside it."""

    def __init__(self, cluster: Any, draw: Callable[[int, int], int]) -> None:
        self.cluster = cluster
        self.draw = draw
        self.raft_epoch = 1
        self.committed_blocks: list[int] = []

    def step(self, action: str) -> None:
        cluster = self.cluster
        broker_id = BROKERS[self.draw(0, len(BROKERS) - 1)]
        topic = TOPICS[self.draw(0, len(TOPICS) - 1)]
        registered = broker_id in cluster.image.cluster.brokers
        exists = topic in cluster.image.topics.by_name
        if registered:
            cluster.epochs[broker_id] = cluster.image.cluster.brokers[broker_id].epoch
        if action == "register":
            cluster.register(broker_id)
        elif action == "restart cleanly" and registered:
            cluster.register(broker_id, previous_broker_epoch=cluster.epochs[broker_id])
        elif action == "heartbeat" and registered:
            cluster.heartbeat(broker_id)
        elif action == "want fence" and registered:
            cluster.heartbeat(broker_id, want_fence=True)
        elif action == "want shutdown" and registered:
            cluster.heartbeat(broker_id, want_shut_down=True)
        elif action == "die" and registered:
            cluster.die(broker_id)
        elif action == "unregister":
            cluster.send(UnregisterBrokerRequest(broker_id=broker_id))
        elif action == "create":
            cluster.create_topic(topic, partitions=2, factor=self.draw(1, 3))
        elif action == "delete":
            cluster.send(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)]))
        elif action == "grow" and exists:
            count = len(cluster.image.topics.by_name[topic].partitions) + 1
            grown = CreatePartitionsTopic(name=topic, count=count, assignments=None)
            cluster.send(CreatePartitionsRequest(topics=[grown]))
        elif action in ("propose isr", "propose stale isr") and exists:
            self._propose(topic, stale=action == "propose stale isr")
        elif action in ("reassign", "cancel reassignment") and exists:
            self._reassign(topic, cancel=action == "cancel reassignment")
        elif action == "elect preferred":
            cluster.send(ElectLeadersRequest(election_type=0, topic_partitions=None))
        elif action == "elect unclean":
            cluster.send(ElectLeadersRequest(election_type=1, topic_partitions=None))
        elif action == "min isr":
            self._configure(4, "", "min.insync.replicas", str(self.draw(1, 3)))
        elif action == "careless" and exists:
            value = "true" if self.draw(0, 1) else "false"
            self._configure(2, topic, "unclean.leader.election.enable", value)
        elif action == "producer ids" and registered:
            self._allocate(broker_id)
        elif action == "features":
            level = self.draw(0, 1)
            update = FeatureUpdateKey(
                feature="eligible.leader.replicas.version",
                max_version_level=level,
                upgrade_type=1 if level else 2,
            )
            cluster.send(UpdateFeaturesRequest(feature_updates=[update]))
        elif action == "time":
            cluster.now_ms += self.draw(1, 400_000)
            cluster.work()
        elif action == "hold":
            cluster.hold = True
        elif action == "commit":
            cluster.commit()
        elif action == "fail over":
            self.raft_epoch += 1
            cluster.fail_over(self.raft_epoch)

    def _propose(self, topic: str, *, stale: bool) -> None:
        partition = self.cluster.partition(topic)
        if partition.leader == NO_LEADER:
            return
        chosen = [it for it in partition.replicas if it == partition.leader or self.draw(0, 1)]
        fields = {"partition_epoch": partition.partition_epoch - 1} if stale else {}
        for broker in self.cluster.image.cluster.brokers.values():
            self.cluster.epochs[broker.id] = broker.epoch
        answer = self.cluster.propose_isr(topic, chosen, **fields)
        assert not stale or answer.error_code != 0

    def _reassign(self, topic: str, *, cancel: bool) -> None:
        chosen = [it for it in BROKERS if self.draw(0, 1)]
        partition = ReassignablePartition(partition_index=0, replicas=None if cancel else chosen)
        wanted = ReassignableTopic(name=topic, partitions=[partition])
        self.cluster.send(AlterPartitionReassignmentsRequest(topics=[wanted]))

    def _configure(self, resource_type: int, name: str, key: str, value: str) -> None:
        change = AlterableConfig(name=key, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[change])
        self.cluster.send(IncrementalAlterConfigsRequest(resources=[resource]))

    def _allocate(self, broker_id: int) -> None:
        ask = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=self.cluster.epochs[broker_id])
        answer = self.cluster.send(ask)
        if answer.error_code == 0 and self.cluster.committed == len(self.cluster.log):
            self.committed_blocks.append(answer.producer_id_start)


@pytest.mark.feature("RE-08", "MB-10", "MB-12", "MB-15", "MB-21", "KR-16", "MB-06")
@settings(deadline=None, max_examples=examples(120), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), actions=st.lists(st.sampled_from(ACTIONS), min_size=5, max_size=60))
def test_whatever_happens(make_cluster: Any, data: st.DataObject, actions: list[str]) -> None:
    cluster = make_cluster(min_insync_replicas=2)
    cluster.start(1, 2, 3)
    walk = Walk(cluster, lambda low, high: data.draw(st.integers(low, high)))
    committed = cluster.controller.committed
    for action in actions:
        before = cluster.image
        walk.step(action)
        check_image(cluster.image)
        if action != "fail over":
            check_step(before, cluster.image)
        check_step(committed, cluster.controller.committed)
        committed = cluster.controller.committed
    cluster.commit()
    assert cluster.image.same_content(cluster.controller.committed), "what was decided on is what was committed"
    assert len(set(walk.committed_blocks)) == len(walk.committed_blocks), "no producer id twice"
    check_other_ways_to_the_image(cluster, cluster.controller.committed)


def check_other_ways_to_the_image(cluster: Any, image: MetadataImage) -> None:
    """One batch or many, from the log or from a snapshot: always the same image."""
    follower = MetadataLoader()
    for offset, record in enumerate(cluster.log):
        follower.handle_commit(offset, 1, 0, [record])
    assert follower.image.same_content(image)
    whole = [record for record in cluster.log if not isinstance(record, AbortTransactionRecord)]
    assert applied(EMPTY_IMAGE, whole, 0, 0, 0).same_content(image)
    snapshot = list(image_to_records(image))
    loaded = applied(EMPTY_IMAGE, snapshot, 0, 0, 0)
    assert loaded.same_content(image)
    written = list(encode_records(snapshot, 7))
    again = list(encode_records(image_to_records(loaded), 7))
    assert written == again


def test_decisions_that_build_on_each_other_see_the_log_as_it_will_be(cluster: Any) -> None:
    """Records are taken together, or one after the other."""
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=2) for name in ("a", "b")]
    end = len(cluster.log)
    decision = cluster.controller.decide(CreateTopicsRequest(topics=topics), 7, end, cluster.now_ms)
    records = finish(decision).records
    for place in range(len(records) + 1):
        state = cluster.controller._state(end, cluster.now_ms)
        after = finish(finish(state.after(records[:place])).after(records[place:]))
        assert (after.next_offset, after.image.offset) == (end + len(records), end + len(records) - 1)
        assert set(after.image.topics.by_name) == {"a", "b"}
        assert set(state.image.topics.by_name) == set()
