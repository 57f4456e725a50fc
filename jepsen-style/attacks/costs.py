"""Small requests that cost a broker much time or memory."""

from __future__ import annotations

import time
from collections.abc import Mapping

import zstandard

from attacks.scene import Scene
from attacks.target import GROUPS
from attacks.wire import NONE, Peer, batch, frame
from barnabas.cluster.layout import Node
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from barnabas.protocol.messages.describe_topic_partitions import TopicRequest as NamedTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.layout import Fields
from barnabas.protocol.schema import Message

MANY = 65_000
"""Nearly as many elements as a request may have."""
LIST_OFFSETS_VERSION, OFFSET_FETCH_VERSION, FIND_COORDINATOR_VERSION, METADATA_VERSION = 7, 8, 4, 12
SNAPPY, ZSTD = 2, 4
XERIAL_HEAD = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2
COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR = 14, 16
_RECORD = b"\x0c\x00\x00\x00\x01\x01\x00"
"""The smallest record there is: no key, no value, no headers."""
_CHUNK_RECORDS = 100_000


def list_offsets_of_one_partition(scene: Scene) -> None:
    """ListOffsets by time of one partition, named in 2,000 entries."""
    topic = "looked-up"
    leader = _topic_with_records(scene, topic)
    _measure(scene, leader, list_offsets_request(topic, 2_000), LIST_OFFSETS_VERSION)


def offset_fetch_of_many_groups(scene: Scene) -> None:
    """OffsetFetch of 20,000 groups."""
    node = scene.target.coordinator(GROUPS, "g0")
    _measure(scene, node, offset_fetch_request("g"), OFFSET_FETCH_VERSION)


def bomb_looked_up(scene: Scene) -> None:
    """A zstd batch of 2 kB with 3,000,000 empty records, and a look-up by time in it."""
    _bomb_and_look_up(scene, "bomb", batch(_bomb(3_000_000), 3_000_000, ZSTD))


def bomb_compacted(scene: Scene) -> None:
    """A zstd batch of 6.5 kB with 10,000,000 records to a compacted topic."""
    topic = "bomb-compacted"
    leader = _created(scene, topic, {"cleanup.policy": "compact"})
    _measure(scene, leader, produce_request(topic, batch(_bomb(10_000_000), 10_000_000, ZSTD)), 9)


def bomb_of_good_records(scene: Scene) -> None:
    """A zstd batch of 1,000,000 records with nothing wrong in them, to an ordinary topic, and a look-up by time."""
    payload = zstandard.ZstdCompressor(level=12).compress(_good_records(1_000_000))
    _bomb_and_look_up(scene, "good-bomb", batch(payload, 1_000_000, ZSTD))


def snappy_crumbs(scene: Scene) -> None:
    """A snappy batch of 900 kB in 180,000 blocks that are empty."""
    topic = "crumbs"
    leader = _created(scene, topic)
    crumbs = XERIAL_HEAD + (b"\x00\x00\x00\x01" + b"\x00") * 180_000
    _measure(scene, leader, produce_request(topic, batch(crumbs, 1, SNAPPY)), 9, times=5)


def describe_one_group(scene: Scene) -> None:
    """DescribeGroups that names one group with a member of 800 kB 3,000 times."""
    group = "described"
    node = scene.target.coordinator(GROUPS, group)
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(800_000))],
    )
    with scene.peer(node) as member:
        while (joined := member.call(join, 3)).error_code != NONE:
            if joined.error_code not in {COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR}:
                scene.report(f"the group cannot be joined: error {joined.error_code}")
                return
            time.sleep(0.1)
        share = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
        member.call(
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=[share],
            ),
            2,
        )
        _measure(scene, node, DescribeGroupsRequest(groups=[group] * 3_000), 5)


def describe_one_partition(scene: Scene) -> None:
    """DescribeProducers that names one partition of 1,000 producers 1,000 times."""
    topic = "many-producers"
    leader = _created(scene, topic)
    with scene.peer(leader) as peer:
        for _ in range(1_000):
            producer = peer.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
            if producer.error_code != NONE:
                continue
            ids = {"producer_id": producer.producer_id, "producer_epoch": 0, "base_sequence": 0}
            peer.call(produce_request(topic, build_batch([_record()], **ids)), 9)
    entry = TopicRequest(name=topic, partition_indexes=[0] * 1_000)
    _measure(scene, leader, DescribeProducersRequest(topics=[entry]), 0)


def find_many_coordinators(scene: Scene) -> None:
    """FindCoordinator of 65,000 keys, four times."""
    scene.target.coordinator(GROUPS, "warm")
    _measure(scene, scene.victim, find_coordinator_request("k"), FIND_COORDINATOR_VERSION, times=4)


def metadata_of_unknown_topics(scene: Scene) -> None:
    """Metadata of 65,000 topics that do not exist, four times."""
    _measure(scene, scene.victim, metadata_request("t"), METADATA_VERSION, times=4)


def partitions_of_unknown_topics(scene: Scene) -> None:
    """DescribeTopicPartitions of 60,000 topics in no order, and again with a cursor that cannot be."""
    names = [f"topic-{number * 7_919 % 60_000:05}" for number in range(60_000)]
    topics = [NamedTopic(name=name) for name in names]
    cursor = Cursor(topic_name=max(names), partition_index=-1)
    frames = [frame(DescribeTopicPartitionsRequest(topics=topics, cursor=it), 0) for it in (None, cursor)]
    scene.begin()
    with scene.peer() as peer:
        for data in frames:
            scene.send(peer, data)
            peer.swallow()


def list_offsets_request(topic: str, entries: int) -> ListOffsetsRequest:
    """By time, of one partition that is named so many times."""
    wanted = ListOffsetsPartition(partition_index=0, timestamp=time.time_ns() // 1_000_000 - 60_000)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])] * entries)


def offset_fetch_request(prefix: str) -> OffsetFetchRequest:
    """20,000 groups whose ids begin with `prefix`."""
    topics = [OffsetFetchRequestTopics(name=f"{prefix}t", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=f"{prefix}{number}", topics=topics) for number in range(20_000)]
    return OffsetFetchRequest(groups=groups)


def find_coordinator_request(prefix: str) -> FindCoordinatorRequest:
    """65,000 groups whose ids begin with `prefix`."""
    return FindCoordinatorRequest(key_type=GROUPS, coordinator_keys=[f"{prefix}{number}" for number in range(MANY)])


def metadata_request(prefix: str) -> MetadataRequest:
    """65,000 topics whose names begin with `prefix`; they do not exist."""
    topics = [MetadataRequestTopic(name=f"{prefix}{number}") for number in range(MANY)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def produce_request(topic: str, records: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=memoryview(bytearray(records)))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=topics)


def produce_error(peer: Peer, topic: str, records: bytes) -> int:
    """The error code of the answer to one batch."""
    answer = peer.call(produce_request(topic, records), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


def _measure(scene: Scene, node: Node, request: Message, version: int, times: int = 1) -> None:
    """One request, of which nothing but the cost is of interest."""
    data = frame(request, version) * times
    scene.begin(node)
    with scene.peer() as peer:
        scene.send(peer, data)
        for _ in range(times):
            peer.swallow()


def _bomb_and_look_up(scene: Scene, topic: str, bomb: bytes) -> None:
    leader = _created(scene, topic)
    request = frame(produce_request(topic, bomb), 9)
    look_up = frame(list_offsets_request(topic, 1), LIST_OFFSETS_VERSION)
    scene.begin(leader)
    with scene.peer() as peer:
        for data in (request, look_up):
            scene.send(peer, data)
            peer.swallow()


def _created(scene: Scene, topic: str, configs: Mapping[str, str] | None = None) -> Node:
    """Creates the topic; gives the leader of its only partition."""
    scene.target.create_topic(topic, configs=configs)
    return scene.target.leaders(topic)[0]


def _topic_with_records(scene: Scene, topic: str) -> Node:
    """One large batch of 10,000 records."""
    leader = _created(scene, topic)
    with scene.peer(leader) as peer:
        error = produce_error(peer, topic, build_batch([_record()] * 10_000))
    if error != NONE:
        scene.report(f"records cannot be produced: error {error}")
    return leader


def _record() -> Fields:
    return (0, time.time_ns() // 1_000_000, b"k", b"v", ())


def _bomb(records: int) -> bytes:
    """This many of the smallest records, compressed with zstd."""
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    chunk = _RECORD * _CHUNK_RECORDS
    folded = [compressor.compress(chunk) for _ in range(records // _CHUNK_RECORDS)]
    return b"".join([*folded, compressor.flush()])


def _good_records(count: int) -> bytes:
    """The smallest records, with the offsets that they have in a batch."""
    chunks = []
    for delta in range(count):
        offset = _varint(delta << 1)
        chunks.append(b"%c\x00\x00%b\x01\x01\x00" % ((5 + len(offset)) << 1, offset))
    return b"".join(chunks)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
