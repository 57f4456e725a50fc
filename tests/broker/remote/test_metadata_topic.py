"""`__remote_log_metadata` on simulated clusters: what one broker publishes, the others read."""

from __future__ import annotations

import pytest
import trio

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.storage.remote.metadata_records import metadata_partition
from barnabas.storage.remote.segment import RemotePartitionKey
from tests.broker.apis.rig import Rig, on_cluster
from tests.broker.remote.metadata_rig import FEW, TOPIC, all_know, attached, known
from tests.storage.remote.remote_rig import DELETED, DELETING, FINISHED, KEY, moved, segment

pytestmark = pytest.mark.feature("TS-04")

OTHER = RemotePartitionKey(KEY.topic_id, "orders", 1)
ALONE = {**FEW, "rlmm__config__remote__log__metadata__topic__replication__factor": "1"}


@on_cluster(brokers=3, **FEW)
async def test_records_of_one_broker_are_read_by_the_others(rig: Rig) -> None:
    remotes = [attached(rig.broker(node)) for node in (1, 2, 3)]
    for remote in remotes:
        remote.follow([KEY])
    await all_know(rig, remotes, KEY, [])
    await remotes[0].publish(segment(1, 0, 99))
    assert known(remotes[0], KEY) == [1], "its own record was read back"
    await remotes[0].publish(moved(1, FINISHED))
    segments = remotes[0].segments(KEY)
    assert segments is not None
    assert segments.segment_for(0, 50) is not None
    await all_know(rig, remotes, KEY, [1])
    await remotes[1].publish(moved(1, DELETING))
    await remotes[1].publish(moved(1, DELETED))
    assert known(remotes[1], KEY) == []
    await all_know(rig, remotes, KEY, [])


@on_cluster(brokers=3, **FEW)
async def test_the_topic_is_as_kafka_creates_it(rig: Rig) -> None:
    attached(rig.broker(1)).follow([KEY])
    await rig.until(lambda: TOPIC in rig.broker(1).metadata.image.topics.by_name)
    image = rig.broker(1).metadata.image
    assert len(image.topics.by_name[TOPIC].partitions) == 3
    assert all(len(placed.replicas) == 3 for placed in image.topics.by_name[TOPIC].partitions.values())
    assert dict(image.config(2, TOPIC)) == {
        "cleanup.policy": "delete",
        "min.insync.replicas": "2",
        "remote.storage.enable": "false",
        "retention.ms": "-1",
    }


@on_cluster(**ALONE)
async def test_without_followed_partitions_there_is_no_topic(rig: Rig) -> None:
    remote = attached(rig.broker(1))
    remote.follow([])
    await trio.sleep(5)
    assert TOPIC not in rig.broker(1).metadata.image.topics.by_name


@on_cluster(**ALONE)
async def test_a_record_without_effect_is_reported_to_its_publisher(rig: Rig) -> None:
    remote = attached(rig.broker(1))
    remote.follow([KEY])
    await remote.publish(segment(1, 0, 99))
    with pytest.raises(KafkaError, match="cannot move to DELETE_SEGMENT_FINISHED") as refused:
        await remote.publish(moved(1, DELETED))
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert known(remote, KEY) == [1]


@on_cluster(**ALONE)
async def test_many_records_at_once_share_batches_and_keep_their_order(rig: Rig) -> None:
    remote = attached(rig.broker(1))
    remote.follow([KEY])
    await remote.publish(segment(0, 0, 0))
    async with trio.open_nursery() as nursery:
        for number in range(1, 300):
            nursery.start_soon(remote.publish, segment(number, number, number))
    async with trio.open_nursery() as nursery:
        for number in range(300):
            nursery.start_soon(remote.publish, moved(number, FINISHED))
    segments = remote.segments(KEY)
    assert segments is not None
    assert all(segments.segment_for(0, number) is not None for number in range(300))
    index = metadata_partition(KEY, 3)
    log = rig.partition(1, TOPIC, index).log
    assert len(list(log.batches(0))) < 20


@on_cluster(**ALONE)
async def test_a_partition_that_is_followed_later_is_read_from_the_start(rig: Rig) -> None:
    remote = attached(rig.broker(1))
    remote.follow([KEY])
    await remote.publish(segment(1, 0, 99))
    await remote.publish(segment(2, 0, 99, key=OTHER))
    assert known(remote, OTHER) is None
    remote.follow([KEY, OTHER])
    assert known(remote, KEY) == [1]
    await all_know(rig, [remote], OTHER, [2])
    remote.follow([OTHER])
    assert known(remote, KEY) is None
    remote.follow([KEY, OTHER])
    await all_know(rig, [remote], KEY, [1])


@on_cluster(**ALONE)
async def test_a_topic_that_was_created_again_has_no_segments_of_its_predecessor(rig: Rig) -> None:
    remote = attached(rig.broker(1))
    again = KEY._replace(topic_id=bytes(15) + b"\x09")
    remote.follow([KEY, again])
    await remote.publish(segment(1, 0, 99))
    await all_know(rig, [remote], again, [])
    assert known(remote, KEY) == [1]


@on_cluster(brokers=3, **FEW)
async def test_a_restarted_broker_reads_everything_again(rig: Rig) -> None:
    first = attached(rig.broker(1))
    first.follow([KEY])
    await first.publish(segment(1, 0, 99))
    await first.publish(moved(1, FINISHED))
    await rig.cluster.stop("broker-2")
    await first.publish(segment(2, 100, 199))
    rig.cluster.start("broker-2")
    await rig.cluster.wait_ready()
    second = attached(rig.broker(2))
    second.follow([KEY])
    assert known(second, KEY) is None
    await all_know(rig, [first, second], KEY, [1, 2])


@on_cluster(brokers=3, **FEW)
async def test_records_are_published_and_read_while_the_leader_moves(rig: Rig) -> None:
    """Each broker that is up publishes in turn, and leaders are killed meanwhile."""
    index = metadata_partition(KEY, 3)
    attached(rig.broker(1)).follow([KEY])
    await rig.until(lambda: rig.leader(TOPIC, index) > 0 if TOPIC in rig.broker(1).metadata.image.topics.by_name else 0)
    for number in range(6):
        leader = rig.leader(TOPIC, index)
        remotes = {node: attached(rig.broker(node)) for node in (1, 2, 3)}
        for remote in remotes.values():
            remote.follow([KEY])
        await all_know(rig, list(remotes.values()), KEY, list(range(number)))
        publisher = next(node for node in (1, 2, 3) if node != leader)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(remotes[publisher].publish, segment(number, 10 * number, 10 * number + 9))
            if number % 2:
                rig.cluster.kill(rig.name(leader))
        others = [remotes[node] for node in (1, 2, 3) if node != leader]
        await all_know(rig, others, KEY, list(range(number + 1)))
        if number % 2:
            rig.cluster.start(rig.name(leader))
            await rig.cluster.wait_ready()


@on_cluster(**ALONE)
async def test_a_deleted_metadata_topic_is_reported_and_nothing_is_forgotten(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    remote = attached(rig.broker(1))
    remote.follow([KEY])
    await remote.publish(segment(1, 0, 99))
    await remote.publish(moved(1, FINISHED))
    assert remote.lost is None
    await rig.ask(1, DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=10_000))
    await rig.until(lambda: remote.lost)
    assert "the records of 1 segments of 1 partitions are lost" in caplog.text
    assert known(remote, KEY) == [1]
    with pytest.raises(KafkaError, match="has to be created again"):
        await remote.publish(segment(2, 100, 199))
    await rig.create(TOPIC, partitions=7)
    await remote.publish(segment(3, 100, 199))
    await remote.publish(moved(1, DELETING))
    await all_know(rig, [remote], KEY, [1, 3])
    fresh = attached(rig.broker(1))
    fresh.follow([KEY])
    await all_know(rig, [fresh], KEY, [3])


@on_cluster(**{**ALONE, "rlmm__config__remote__log__metadata__consume__wait__ms": "3000"})
async def test_publishing_fails_in_time_if_the_topic_cannot_be_created(rig: Rig) -> None:
    remote = attached(rig.broker(1))
    rig.cluster.kill("controller-101")
    with pytest.raises(KafkaError, match="could not be created in time"), trio.fail_after(5):
        await remote.publish(segment(1, 0, 99))


@on_cluster(brokers=3, **FEW)
async def test_records_that_an_unclean_election_takes_back_are_forgotten(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Broker 3 has read a record that only broker 1 had; broker 2 leads without it."""
    unclean = {"min_insync_replicas": "1", "unclean_leader_election_enable": "true"}
    await rig.create(TOPIC, partitions=1, replicas=[1, 2], **unclean)
    remote = attached(rig.broker(3))
    remote.follow([KEY])
    await remote.publish(segment(1, 0, 99))
    await remote.publish(moved(1, FINISHED))
    await rig.cluster.stop("broker-2")
    await remote.publish(segment(2, 100, 199))
    await remote.publish(moved(1, DELETING))
    assert known(remote, KEY) == [1, 2]
    rig.cluster.kill("broker-1")
    rig.cluster.start("broker-2")
    await all_know(rig, [remote], KEY, [1])
    assert "was truncated" in caplog.text or "is read again" in caplog.text
    segments = remote.segments(KEY)
    assert segments is not None
    assert segments.segment_for(0, 50) is not None, "its deletion has not begun"
    await remote.publish(segment(3, 100, 199))
    await all_know(rig, [remote], KEY, [1, 3])
    rig.cluster.start("broker-1")
    await rig.cluster.wait_ready()
    fresh = attached(rig.broker(1))
    fresh.follow([KEY])
    await all_know(rig, [remote, fresh], KEY, [1, 3])


@on_cluster(brokers=3, **FEW)
async def test_a_cut_off_leader_does_not_keep_its_readers(rig: Rig) -> None:
    """Power cuts close no connection: the metadata says that the broker does not answer any more."""
    index = metadata_partition(KEY, 3)
    attached(rig.broker(1)).follow([KEY])
    await rig.until(lambda: TOPIC in rig.broker(1).metadata.image.topics.by_name)
    await rig.until(lambda: rig.leader(TOPIC, index) > 0)
    leader = rig.leader(TOPIC, index)
    others = [attached(rig.broker(node)) for node in (1, 2, 3) if node != leader]
    for remote in others:
        remote.follow([KEY])
    await others[0].publish(segment(1, 0, 99))
    rig.cluster.power_cut(rig.name(leader))
    with trio.fail_after(30):
        await others[0].publish(segment(2, 100, 199))
    await all_know(rig, others, KEY, [1, 2])


@on_cluster(**ALONE)
async def test_a_log_of_thousands_of_records_is_read(rig: Rig) -> None:
    remote = attached(rig.broker(1))
    remote.follow([OTHER])
    await remote.publish(segment(0, 0, 0, key=OTHER))
    async with trio.open_nursery() as nursery:
        for number in range(3_000):
            nursery.start_soon(remote.publish, segment(number, number, number))
    again = attached(rig.broker(1))
    again.follow([KEY])
    await rig.until(lambda: again.segments(KEY) is not None)
    assert len(again.segments(KEY) or ()) == 3_000
