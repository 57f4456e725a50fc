"""The reader: reads on through changes of leaders, cut batches, control records and aborted transactions."""

import logging

import pytest
import trio

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import (
    EARLIEST,
    FROM_EARLIEST,
    FROM_LATEST,
    LATEST,
    ConsumerRecord,
    Isolation,
    PartitionReader,
    ReadingSettings,
    ResetPolicy,
    TimestampType,
    list_offsets,
    open_reader,
)
from barnabas.client.consumer.completed_fetch import Unpacking
from barnabas.client.errors import (
    IllegalStateException,
    LogTruncationException,
    NoOffsetForPartitionException,
    OffsetOutOfRangeException,
    RecordDeserializationException,
    TimeoutException,
    TopicAuthorizationException,
    UnreadableBatchException,
    UnsupportedVersionException,
)
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.client.serialization import deserializer_of
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import AbortedTransaction
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.protocol.records.record import Record
from barnabas.runtime.simulated import run_simulation
from tests.barnabas.client.consumer.scripted_brokers import ReadingBrokers, fill, with_reader
from tests.protocol.records.poison import poisons

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
T2 = TopicPartition("t", 2)
U0 = TopicPartition("u", 0)


async def read(reader: PartitionReader, count: int) -> list[ConsumerRecord]:
    """At least `count` records."""
    records: list[ConsumerRecord] = []
    with trio.fail_after(30):
        while len(records) < count:
            records += await reader.poll(1000)
    return records


def test_every_record_is_read_once_from_the_offset_on() -> None:
    async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
        partitions = brokers.create("t", 2)
        values = [b"%d" % n for n in range(400)]
        for partition in partitions:
            fill(partition, *values)
        async with open_reader(cluster) as reader:
            reader.assign({T0: 0, T1: 301})
            records = await read(reader, 499)
            assert await reader.poll(100) == []
            assert reader.position(T0) == reader.position(T1) == 400
            assert reader.high_watermark(T0) == 400
            assert reader.lag(T0) == 0
        first = [record for record in records if record.partition == 0]
        second = [record for record in records if record.partition == 1]
        assert [(record.offset, record.value) for record in first] == list(enumerate(values))
        assert [record.offset for record in second] == list(range(301, 400))
        assert first[0] == ConsumerRecord("t", 0, 0, 7, TimestampType.CREATE_TIME, b"k", b"0", (), 0)

    run_simulation(1, with_reader, story)


@pytest.mark.parametrize("hints", [True, False])
def test_it_follows_the_leader(hints: bool) -> None:
    async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
        brokers.hints = hints
        [partition] = brokers.create("t")
        fill(partition, b"a")
        brokers.epoch_ends = {0: 1}
        async with open_reader(cluster) as reader:
            reader.assign({T0: 0})
            await read(reader, 1)
            partition.leader, partition.epoch = 2, 4
            fill(partition, b"b")
            [record] = await read(reader, 1)
            assert (record.value, record.leader_epoch) == (b"b", 4)
            brokers.universe.kill("b2")
            fill(partition, b"c")
            assert await reader.poll(500) == []
            brokers.epoch_ends = {4: 3}
            partition.leader, partition.epoch = 3, 5
            [record] = await read(reader, 1)
            assert record.value == b"c"
        assert brokers.asked_epochs[0] == (2, 0)
        assert brokers.asked_epochs[-1] == (3, 4)

    run_simulation(2, with_reader, story)


@pytest.mark.feature("CL-03")
def test_a_deposed_leader_does_not_reset_a_position_of_a_later_epoch() -> None:
    async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
        [partition] = brokers.create("t")
        fill(partition, b"a")
        async with open_reader(cluster) as reader:
            reader.assign({T0: OffsetAndMetadata(2, leader_epoch=4)})
            assert await reader.poll(500) == []
            assert reader.position(T0) == 2
            assert brokers.asked_epochs[0] == (1, 4), "by old metadata"
            partition.leader, partition.epoch = 2, 5
            fill(partition, b"b", b"c")
            brokers.epoch_ends = {4: 3}
            [record] = await read(reader, 1)
            assert record.value == b"c"

    run_simulation(2, with_reader, story)


@pytest.mark.feature("CG-01")
class TestPositions:
    def test_seek_forgets_what_was_read_ahead(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            [partition] = brokers.create("t")
            fill(partition, *[b"%d" % n for n in range(9)])
            async with open_reader(cluster) as reader:
                reader.assign({T0: 0})
                await read(reader, 9)
                reader.seek(T0, 4)
                assert [record.offset for record in await read(reader, 5)] == [4, 5, 6, 7, 8]
                reader.seek(T0, 2)
                assert [record.offset for record in await reader.poll(1000, 3)] == [2, 3, 4]
                reader.seek(T0, 1)
                assert [record.offset for record in await reader.poll(1000, 2)] == [1, 2]

        run_simulation(3, with_reader, story)

    def test_partitions_come_and_go(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            for partition in brokers.create("t", 2):
                fill(partition, b"a")
            async with open_reader(cluster) as reader:
                reader.add({T0: 0})
                await read(reader, 1)
                reader.add({T1: None})
                assert reader.uninitialized() == [T1]
                assert await reader.poll(300) == []
                assert reader.positions() == {T0: OffsetAndMetadata(1, 0)}
                with pytest.raises(IllegalStateException, match="t-1 is not known"):
                    reader.position(T1)
                reader.reset([T1], FROM_EARLIEST)
                assert [record.partition for record in await read(reader, 1)] == [1]
                reader.remove([T0])
                assert reader.assigned == [T1]
                with pytest.raises(IllegalStateException, match="t-0 is not assigned"):
                    reader.seek(T0, 0)
                with pytest.raises(ValueError, match="offset must be at least 0; t-1 got -1"):
                    reader.seek(T1, -1)

        run_simulation(4, with_reader, story)

    @pytest.mark.parametrize(
        ("policy", "expected"),
        [("earliest", 3), ("latest", 9), ("by_duration:PT1H", 6), ("by_duration:PT1S", 9)],
    )
    def test_a_reset_asks_the_leader(self, policy: str, expected: int) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            [partition] = brokers.create("t")
            now_ms = cluster.world.wall_clock.now_ms()
            fill(partition, *[b"old"] * 6, timestamp=now_ms - 7_200_000)
            fill(partition, *[b"young"] * 3, timestamp=now_ms - 600_000)
            partition.start_offset = 3
            async with open_reader(cluster, ReadingSettings(reset=ResetPolicy.parse(policy))) as reader:
                reader.assign({T0: None})
                reader.reset([T0])
                assert await reader.wait_for_position(T0, 5000) == expected
                reader.seek(T0, 100)
                assert await reader.poll(3000) == [] or expected < 9
                assert await reader.wait_for_position(T0, 5000) >= expected, "an offset out of range is a new start"

        run_simulation(5, with_reader, story)

    def test_nobody_chooses_where_nobody_may(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            [partition] = brokers.create("t")
            fill(partition, *[b"%d" % n for n in range(6)])
            partition.start_offset = 3
            async with open_reader(cluster) as reader:
                reader.assign({T0: 0})
                for _ in range(2):
                    with pytest.raises(OffsetOutOfRangeException, match="t-0 has no offset 0"):
                        await read(reader, 1)
                reader.seek(T0, 3)
                assert [record.offset for record in await read(reader, 3)] == [3, 4, 5]
                reader.reset([T0])
                with pytest.raises(NoOffsetForPartitionException, match="t-0"):
                    await reader.wait_for_position(T0, 5000)

        run_simulation(6, with_reader, story)

    def test_an_unknown_position_is_not_awaited_for_ever(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            [partition] = brokers.create("t")
            partition.leader = -1
            async with open_reader(cluster) as reader:
                reader.assign({T0: None})
                reader.reset([T0], FROM_LATEST)
                with trio.fail_after(3), pytest.raises(TimeoutException, match="t-0"):
                    await reader.wait_for_position(T0, 2000)

        run_simulation(7, with_reader, story)

    def test_the_lag_is_asked_for_where_nothing_was_fetched(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            [partition] = brokers.create("t")
            fill(partition, *[b"v"] * 9)
            async with open_reader(cluster) as reader:
                reader.assign({T0: 2})
                reader.pause([T0])
                assert reader.lag(T0) is None
                await reader.poll(500)
                assert reader.lag(T0) == 7

        run_simulation(8, with_reader, story)


@pytest.mark.feature("CG-22")
class TestPrefetch:
    def test_a_poll_gives_no_more_than_was_asked_for(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            for partition in brokers.create("t", 3):
                fill(partition, *[b"%d" % n for n in range(200)], per_batch=7)
            async with open_reader(cluster) as reader:
                reader.assign({T0: 0, T1: 0, T2: 0})
                offsets: dict[int, list[int]] = {0: [], 1: [], 2: []}
                while sum(len(each) for each in offsets.values()) < 600:
                    records = await reader.poll(1000, 10)
                    assert 0 < len(records) <= 10
                    for record in records:
                        offsets[record.partition].append(record.offset)
                        assert reader.position(TopicPartition("t", record.partition)) > record.offset
                assert list(offsets.values()) == [list(range(200))] * 3

        run_simulation(9, with_reader, story)

    def test_the_next_records_come_while_the_application_works(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            [partition] = brokers.create("t")
            fill(partition, *[b"%d" % n for n in range(300)])
            async with open_reader(cluster) as reader:
                reader.assign({T0: 0})
                count = len(await reader.poll(1000, 5))
                await trio.sleep(5)
                before = trio.current_time()
                while count < 300:
                    count += len(await reader.poll(1000, 5))
                assert trio.current_time() == before, "everything was there"

        run_simulation(10, with_reader, story)

    def test_no_more_is_read_ahead_than_there_is_room_for(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            [partition] = brokers.create("t")
            fill(partition, *[b"x" * 100] * 900)
            async with open_reader(cluster, ReadingSettings(max_partition_fetch_bytes=4000)) as reader:
                reader.assign({T0: 0})
                await reader.poll(1000, 1)
                await trio.sleep(60)
                assert reader.fetch_metrics.bytes < 2000 + 2000 + 4000
                assert len(await read(reader, 899)) == 899

        run_simulation(11, with_reader, story)

    def test_a_quiet_partition_does_not_hold_up_a_busy_one(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            busy, quiet = brokers.create("t", 2)
            quiet.leader = busy.leader
            fill(busy, *[b"x" * 100] * 900)
            async with open_reader(cluster, ReadingSettings(max_partition_fetch_bytes=2000)) as reader:
                reader.assign({T0: 0, T1: 0})
                before = trio.current_time()
                count = 0
                while count < 900:
                    count += len(await reader.poll(1000, 3))
                assert trio.current_time() - before < 0.15 * 900 * 100 / 1000, "a round trip for every thousand bytes"
                fill(quiet, b"at last")
                assert [record.value for record in await read(reader, 1)] == [b"at last"]
            impatient = [request for _, request in brokers.fetches if request.max_wait_ms == 0]
            assert impatient, "some requests had to leave the busy partition out"

        run_simulation(12, with_reader, story)

    def test_each_partition_has_its_turn(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            busy, small = brokers.create("t", 2)
            small.leader = busy.leader
            fill(busy, *[b"x" * 100] * 900)
            fill(small, b"s")
            async with open_reader(cluster) as reader:
                reader.assign({T0: 0, T1: 0})
                seen = [record.partition for _ in range(40) for record in await reader.poll(1000, 2)]
                assert 1 in seen, "not only when the other one is at its end"

        run_simulation(33, with_reader, story)

    def test_paused_partitions_wait_with_what_they_have(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            for partition in brokers.create("t", 2):
                fill(partition, *[b"%d" % n for n in range(9)])
            async with open_reader(cluster) as reader:
                reader.assign({T0: 0, T1: 0})
                await reader.poll(1000, 1)
                reader.pause([T0])
                assert reader.paused() == [T0]
                records = []
                for _ in range(5):
                    records += await reader.poll(300)
                assert {record.partition for record in records} == {1}
                reader.resume([T0])
                assert reader.paused() == []
                rest = await read(reader, 8)
                assert rest[-1].offset == 8

        run_simulation(13, with_reader, story)

    def test_a_cancelled_poll_has_taken_nothing(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            [partition] = brokers.create("t")
            fill(partition, *[b"%d" % n for n in range(60)])
            async with open_reader(cluster) as reader:
                reader.assign({T0: 0})
                offsets: list[int] = []
                patience = 0.0
                while len(offsets) < 60:
                    patience += 0.01
                    with trio.move_on_after(patience):
                        offsets += [record.offset for record in await reader.poll(1000, 4)]
                assert offsets == list(range(60))

        run_simulation(14, with_reader, story)

    def test_a_poll_that_may_not_wait_still_makes_progress(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            [partition] = brokers.create("t")
            fill(partition, b"a")
            async with open_reader(cluster) as reader:
                reader.assign({T0: 0})
                for _ in range(100):
                    records = await reader.poll(0)
                    if records:
                        break
                    await trio.sleep(0.1)
                assert [record.value for record in records] == [b"a"]

        run_simulation(15, with_reader, story)


@pytest.mark.feature("CG-22")
class TestSessions:
    def test_only_what_changed_is_asked_for(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            partitions = brokers.create("t", 9)
            async with open_reader(cluster) as reader:
                reader.assign({TopicPartition("t", index): 0 for index in range(9)})
                assert await reader.poll(1000) == []
                brokers.fetches.clear()
                fill(partitions[4], b"v")
                await read(reader, 1)
                await reader.poll(1000)
            asked = [
                part.partition
                for _, request in brokers.fetches
                for topic in request.topics
                for part in topic.partitions
            ]
            assert asked == [4], "to send the new offset"

        run_simulation(16, with_reader, story)

    def test_a_broker_that_forgot_the_session_gets_a_full_request(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            [partition] = brokers.create("t")
            async with open_reader(cluster) as reader:
                reader.assign({T0: 0})
                await reader.poll(1000)
                brokers.universe.kill("b1")
                brokers.start_broker(nursery, 1)
                brokers.sessions[1] = type(brokers.sessions[1])(cluster.world.chance)
                fill(partition, b"v")
                assert [record.value for record in await read(reader, 1)] == [b"v"]

        run_simulation(17, with_reader, story)

    @pytest.mark.parametrize("cancelled", [True, False])
    def test_the_end_of_a_reader_ends_its_sessions(self, cancelled: bool) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            brokers.create("t", 3)
            with trio.CancelScope() as scope:
                async with open_reader(cluster) as reader:
                    reader.assign({T0: 0, T1: 0, T2: 0})
                    await reader.poll(1000)
                    assert [len(sessions) for sessions in brokers.sessions.values()] == [1, 1, 1]
                    if cancelled:
                        scope.cancel()
                        await trio.sleep_forever()
            await trio.sleep(1)
            assert [len(sessions) for sessions in brokers.sessions.values()] == [0, 0, 0]

        run_simulation(18, with_reader, story)

    def test_brokers_without_topic_ids_are_read_as_well(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            brokers.max_versions = {ApiKey.FETCH: 11, ApiKey.METADATA: 9}
            for partition in brokers.create("t", 2):
                fill(partition, *[b"%d" % n for n in range(100)])
            async with open_reader(cluster) as reader:
                reader.assign({T0: 0, T1: 0})
                assert len(await read(reader, 200)) == 200

        run_simulation(19, with_reader, story)


@pytest.mark.feature("CG-22")
class TestACutLog:
    """KIP-320: the new leader's log is not the one that was read."""

    def test_is_reported_if_the_policy_is_none(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            async with open_reader(cluster) as reader:
                await cut_after_reading(brokers, reader)
                with pytest.raises(
                    LogTruncationException, match=r"t-0 was read up to offset 9 in leader epoch 0.* at offset 6"
                ) as caught:
                    await read(reader, 1)
                assert caught.value.divergent == OffsetAndMetadata(6, 0)
                reader.seek(T0, caught.value.divergent)
                assert [record.value for record in await read(reader, 2)] == [b"new", b"new"]

        run_simulation(20, with_reader, story)

    @pytest.mark.parametrize("knows", [True, False])
    def test_is_read_from_where_the_logs_part(self, knows: bool) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            async with open_reader(cluster, ReadingSettings(reset=FROM_EARLIEST)) as reader:
                await cut_after_reading(brokers, reader)
                if not knows:
                    brokers.epoch_ends = {}
                records = await read(reader, 2 if knows else 8)
            assert records[0].offset == (6 if knows else 0), "who does not know begins as he would without an offset"
            assert [record.value for record in records[-2:]] == [b"new", b"new"]

        run_simulation(21, with_reader, story)

    def test_a_committed_offset_beyond_it_is_noticed(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            [partition] = brokers.create("t")
            fill(partition, *[b"v"] * 6)
            partition.epoch = 3
            brokers.epoch_ends = {1: 4, 3: 6}
            async with open_reader(cluster) as reader:
                reader.assign({T0: OffsetAndMetadata(5, 2, "")})
                with pytest.raises(LogTruncationException):
                    await read(reader, 1)
                reader.seek(T0, OffsetAndMetadata(4, 1, ""))
                assert [record.offset for record in await read(reader, 2)] == [4, 5]

        run_simulation(22, with_reader, story)

    def test_leaders_that_cannot_be_asked_are_believed(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            brokers.max_versions = {ApiKey.OFFSET_FOR_LEADER_EPOCH: 1}
            async with open_reader(cluster) as reader:
                await cut_after_reading(brokers, reader)
                reader.seek(T0, OffsetAndMetadata(6, 0, ""))
                assert [record.value for record in await read(reader, 2)] == [b"new", b"new"]

        run_simulation(23, with_reader, story)


async def cut_after_reading(brokers: ReadingBrokers, reader: PartitionReader) -> None:
    """Nine records are read; then a replica that has six of them leads, and takes two others."""
    [partition] = brokers.create("t")
    fill(partition, *[b"old"] * 9)
    reader.assign({T0: 0})
    await read(reader, 9)
    del partition.log[-1]
    partition.end_offset = 6
    partition.leader, partition.epoch = 2, 1
    fill(partition, b"new", b"new")
    brokers.epoch_ends = {0: 6, 1: 8}


@pytest.mark.feature("RE-15")
class TestAReplicaNearby:
    def test_is_read_from_when_the_leader_names_it(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            [partition] = brokers.create("t")
            fill(partition, *[b"%d" % n for n in range(90)])
            brokers.preferred, brokers.followers = 3, {3: 1}
            async with open_reader(cluster, ReadingSettings(client_rack="here")) as reader:
                reader.assign({T0: 0})
                assert len(await read(reader, 90)) == 90
                assert [broker for broker, _ in brokers.fetches][:3] == [1, 3, 3]

        run_simulation(24, with_reader, story)

    def test_reads_return_to_the_leader_if_the_replica_dies_or_lags(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            [partition] = brokers.create("t")
            fill(partition, *[b"%d" % n for n in range(9)])
            brokers.preferred, brokers.followers = 3, {3: 1}
            async with open_reader(cluster, ReadingSettings(client_rack="here")) as reader:
                reader.assign({T0: 0})
                await read(reader, 9)
                brokers.preferred = None
                brokers.failing[T0] = [ErrorCode.OFFSET_OUT_OF_RANGE]
                fill(partition, b"next")
                assert [record.value for record in await read(reader, 1)] == [b"next"], (
                    "no reset: only the leader knows"
                )
                brokers.preferred = 3
                await reader.poll(500)
                brokers.preferred = None
                brokers.universe.kill("b3")
                fill(partition, b"last")
                assert [record.value for record in await read(reader, 1)] == [b"last"]

        run_simulation(25, with_reader, story)


def transactional(producer_id: int, *values: bytes, sequence: int = 0) -> bytes:
    records = [Record(0, 0, None, value) for value in values]
    return build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)


@pytest.mark.feature("PF-18")
@pytest.mark.parametrize("isolation", list(Isolation))
def test_aborted_records_are_seen_only_by_those_who_want_them(isolation: Isolation) -> None:
    async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
        [partition] = brokers.create("t")
        partition.append(transactional(1, b"aborted 1"))
        partition.append(transactional(2, b"committed 2"))
        fill(partition, b"plain")
        partition.append(build_end_txn_batch(EndTxn(False, 0), 1, 0, 0))
        partition.append(build_end_txn_batch(EndTxn(True, 0), 2, 0, 0))
        partition.append(transactional(1, b"committed 1", sequence=1))
        partition.append(build_end_txn_batch(EndTxn(True, 0), 1, 0, 0))
        partition.aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
        brokers.last_stable_offset = 5
        async with open_reader(cluster, ReadingSettings(isolation=isolation)) as reader:
            reader.assign({T0: 0})
            values = [record.value for record in await read(reader, 4 - isolation)]
            assert reader.position(T0) == 7, "markers take offsets and are never given"
            assert reader.lag(T0) == 0
        committed = [b"committed 2", b"plain", b"committed 1"]
        assert values == ([b"aborted 1", *committed] if isolation == 0 else committed)

    run_simulation(26, with_reader, story)


class TestWhatIsWrong:
    def test_a_batch_whose_bytes_changed_is_not_given_to_anyone(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            [partition] = brokers.create("t")
            fill(partition, b"good")
            fill(partition, b"evil")
            whole = partition.log[1]
            partition.log[1] = whole.replace(b"evil", b"live")
            async with open_reader(cluster) as reader:
                reader.assign({T0: 0})
                assert [record.value for record in await read(reader, 1)] == [b"good"]
                for _ in range(2):
                    with pytest.raises(KafkaError) as caught:
                        await read(reader, 1)
                    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
                partition.log[1] = whole
                assert [record.value for record in await read(reader, 1)] == [b"evil"], "it is fetched again"

        run_simulation(27, with_reader, story)

    def test_a_batch_that_nobody_can_read_is_not_fetched_again_and_can_be_stepped_over(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            [partition] = brokers.create("t")
            for value in (b"before", b"poison", b"after"):
                fill(partition, value)
            poison = poisons()["no zstd"]
            partition.log[1] = (1).to_bytes(8, "big") + poison[8:]
            async with open_reader(cluster) as reader:
                reader.assign({T0: 0})
                assert [record.value for record in await read(reader, 1)] == [b"before"]
                fetched_bytes = reader.fetch_metrics.bytes
                for _ in range(3):
                    with pytest.raises(UnreadableBatchException, match="offsets 1 to 1 of t-0") as caught:
                        await reader.poll(1000)
                    assert reader.position(T0) == caught.value.offset == 1
                assert reader.fetch_metrics.bytes == fetched_bytes
                reader.seek(T0, caught.value.next_offset)
                assert [record.value for record in await read(reader, 1)] == [b"after"]
            async with open_reader(cluster, ReadingSettings(unpacking=Unpacking(skips_unreadable=True))) as reader:
                reader.assign({T0: 0})
                assert [record.value for record in await read(reader, 2)] == [b"before", b"after"]

        run_simulation(36, with_reader, story)

    def test_a_record_that_cannot_be_deserialized_can_be_stepped_over(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            [partition] = brokers.create("t")
            fill(partition, b"1", b"{", b"3")
            unpacking = Unpacking(value_deserializer=deserializer_of("json"))
            async with open_reader(cluster, ReadingSettings(unpacking=unpacking)) as reader:
                reader.assign({T0: 0})
                assert [record.value for record in await read(reader, 1)] == [1]
                with pytest.raises(RecordDeserializationException) as caught:
                    await reader.poll(1000)
                assert reader.position(T0) == caught.value.offset == 1
                reader.seek(T0, caught.value.offset + 1)
                assert [record.value for record in await read(reader, 1)] == [3]

        run_simulation(28, with_reader, story)

    def test_a_record_that_nobody_steps_over_does_not_hold_up_other_partitions(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            bad, good = brokers.create("t", 2)
            fill(bad, b"{")
            fill(good, *[b"%d" % n for n in range(9)])
            unpacking = Unpacking(value_deserializer=deserializer_of("json"))
            async with open_reader(cluster, ReadingSettings(unpacking=unpacking)) as reader:
                reader.assign({T0: 0, T1: 0})
                values: list[int] = []
                failures = 0
                while len(values) < 9 or not failures:  # whichever of them the broker names first
                    try:
                        values += [record.value for record in await reader.poll(1000, 2)]
                    except RecordDeserializationException:
                        failures += 1
                        await trio.sleep(0.01)
                assert values == list(range(9))

        run_simulation(34, with_reader, story)

    def test_the_others_are_read_meanwhile(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            for partition in brokers.create("t", 2):
                fill(partition, b"v")
            brokers.failing[T0] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
            async with open_reader(cluster) as reader:
                reader.assign({T0: 0, T1: 0})
                found: list[int] = []
                with pytest.raises(TopicAuthorizationException):
                    while True:  # the other leader may have answered first
                        found += [record.partition for record in await reader.poll(1000)]
                found += [record.partition for record in await read(reader, 2 - len(found))]
                assert found == [1, 0], "it was allowed since"

        run_simulation(29, with_reader, story)

    @pytest.mark.parametrize(
        "code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_ID]
    )
    def test_passing_errors_are_retried(self, code: ErrorCode, caplog: pytest.LogCaptureFixture) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            [partition] = brokers.create("t")
            fill(partition, b"v")
            brokers.failing[T0] = [code, code]
            async with open_reader(cluster) as reader:
                reader.assign({T0: 0})
                assert [record.value for record in await read(reader, 1)] == [b"v"]

        with caplog.at_level(logging.ERROR):
            run_simulation(30, with_reader, story)

    def test_brokers_that_cannot_be_read_from_are_reported(self) -> None:
        async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
            brokers.max_versions = {ApiKey.FETCH: 3}
            brokers.create("t")
            async with open_reader(cluster) as reader:
                reader.assign({T0: 0})
                with pytest.raises(UnsupportedVersionException):
                    await read(reader, 1)

        run_simulation(31, with_reader, story)


def test_offsets_are_asked_of_the_leaders_wherever_they_go() -> None:
    async def story(brokers: ReadingBrokers, cluster: Cluster, nursery: trio.Nursery) -> None:
        partitions = brokers.create("t", 2)
        fill(partitions[1], b"a", b"b")
        assert await list_offsets(cluster, {T0: LATEST, T1: LATEST}, 5000) == {T0: 0, T1: 2}
        partitions[1].leader, partitions[1].epoch = 3, 1
        assert await list_offsets(cluster, {T1: EARLIEST}, 5000) == {T1: 0}
        with trio.fail_after(1), pytest.raises(TimeoutException, match="missing-0"):
            await list_offsets(cluster, {TopicPartition("missing", 0): LATEST}, 500)

    run_simulation(32, with_reader, story)
