"""Reading partitions by hand, from our cluster and from Apache Kafka."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.consumer import (
    EARLIEST,
    FROM_EARLIEST,
    FROM_LATEST,
    LATEST,
    ConsumerRecord,
    PartitionReader,
    ReadingSettings,
    ResetPolicy,
    open_reader,
)
from barnabas.client.errors import LogTruncationException, OffsetOutOfRangeException
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.client.session import open_cluster
from barnabas.client.settings import ClientSettings
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from tests.compat.client.any_cluster import AnyCluster

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
HOUR_MS = 3_600_000


async def write(cluster: Cluster, partition: TopicPartition, records: Sequence[Record], compression: int = 0) -> None:
    """One batch, acknowledged by all."""
    await cluster.partitions_count(partition.topic, 10_000)
    leadership = cluster.leadership(partition)
    assert leadership is not None
    batch = build_batch(records, compression=compression)
    part = PartitionProduceData(index=partition.partition, records=batch)
    topic = TopicProduceData(name=partition.topic, topic_id=cluster.topic_id(partition.topic), partition_data=[part])
    response = await cluster.call(leadership.node_id, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]))
    assert response.responses[0].partition_responses[0].error_code == 0


async def read(reader: PartitionReader, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while len(records) < count:
        records += await reader.poll(1000, 50)
    return records


def client(any_cluster: AnyCluster) -> ClientSettings:
    return ClientSettings.of({"bootstrap_servers": any_cluster.bootstrap_servers})


@pytest.mark.feature("CG-22")
async def test_every_record_of_every_codec_is_read_once(any_cluster: AnyCluster) -> None:
    topic = any_cluster.create_topic("read", partitions=5)
    partitions = [TopicPartition(topic, index) for index in range(5)]
    with trio.fail_after(30):
        async with open_cluster(client(any_cluster)) as cluster, open_reader(cluster) as reader:
            reader.assign(dict.fromkeys(partitions, 0))
            assert await reader.poll(300) == []
            for codec in CODECS:
                for start in range(0, 200, 20):
                    records = [
                        Record(0, 1000 + start, b"k%d" % codec, b"v%d" % (start + n), (("h", b"x"), ("n", None)))
                        for n in range(20)
                    ]
                    await write(cluster, partitions[codec], records, codec)
            found = await read(reader, 1000)
            for partition in partitions:
                mine = [record for record in found if record.partition == partition.partition]
                assert [record.offset for record in mine] == list(range(200))
                assert [record.value for record in mine] == [b"v%d" % n for n in range(200)]
                assert mine[-1].key == b"k%d" % partition.partition
                assert mine[-1].headers == (("h", b"x"), ("n", None))
                assert (mine[-1].timestamp_ms, mine[-1].leader_epoch) == (1180, 0)
                assert reader.lag(partition) == 0
            await write(cluster, partitions[3], [Record(0, 5, None, None)])
            [record] = await read(reader, 1)
            assert (record.partition, record.offset, record.key, record.value) == (3, 200, None, None)


@pytest.mark.feature("CG-01")
async def test_positions_are_found_by_name_and_by_time(any_cluster: AnyCluster) -> None:
    partition = TopicPartition(any_cluster.create_topic("found"), 0)
    with trio.fail_after(30):
        async with open_cluster(client(any_cluster)) as cluster, open_reader(cluster) as reader:
            now_ms = cluster.world.wall_clock.now_ms()
            for age_ms in (3 * HOUR_MS, 2 * HOUR_MS, HOUR_MS // 2):
                await write(cluster, partition, [Record(0, now_ms - age_ms, None, b"v")])
            assert await reader.offsets_at({partition: EARLIEST}) == {partition: 0}
            assert await reader.offsets_at({partition: LATEST}) == {partition: 3}
            found = await reader.find_offsets({partition: now_ms - HOUR_MS})
            assert found[partition] == (2, now_ms - HOUR_MS // 2, 0)
            assert await reader.offsets_at({partition: now_ms}) == {partition: -1}
            reader.assign({partition: None})
            for policy, expected in (
                (FROM_EARLIEST, 0),
                (FROM_LATEST, 3),
                (ResetPolicy.parse("by_duration:PT1H"), 2),
                (ResetPolicy.parse("by_duration:P1D"), 0),
                (ResetPolicy.parse("by_duration:PT1M"), 3),
            ):
                reader.reset([partition], policy)
                assert await reader.wait_for_position(partition, 10_000) == expected
            reader.seek(partition, 7)
            with pytest.raises(OffsetOutOfRangeException):
                await read(reader, 1)
        from_earliest = ReadingSettings(reset=FROM_EARLIEST)
        async with open_cluster(client(any_cluster)) as cluster, open_reader(cluster, from_earliest) as reader:
            reader.assign({partition: 7})
            assert [record.offset for record in await read(reader, 3)] == [0, 1, 2]


@pytest.mark.feature("CG-22")
async def test_a_position_with_an_epoch_is_held_against_the_log(any_cluster: AnyCluster) -> None:
    partition = TopicPartition(any_cluster.create_topic("epochs"), 0)
    with trio.fail_after(30):
        async with open_cluster(client(any_cluster)) as cluster, open_reader(cluster) as reader:
            await write(cluster, partition, [Record(0, 0, None, b"%d" % n) for n in range(5)])
            reader.assign({partition: OffsetAndMetadata(3, 0, "")})
            assert [record.offset for record in await read(reader, 2)] == [3, 4]
            assert reader.positions() == {partition: OffsetAndMetadata(5, 0)}
            reader.seek(partition, OffsetAndMetadata(9, 0, ""))
            with pytest.raises(LogTruncationException, match="in leader epoch 0; the log diverges at offset 5"):
                await read(reader, 1)
            reader.seek(partition, 4)
            assert [record.offset for record in await read(reader, 1)] == [4]
