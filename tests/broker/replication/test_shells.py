"""Replication end to end in one process: real logs, real messages, real tasks; virtual time."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.broker.replication.fetcher import NEW_PARTITION_WAIT_MS
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.reads import FetchKind, ReadRequest
from barnabas.broker.replication.replica import FollowerFetch, Leading, Progress
from barnabas.kraft.metadata.image import NO_LEADER
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.runtime.disk import RealDisk
from tests.broker.replication.shells import LAG_MS, TOPIC, TOPIC_ID, ShellBroker, ShellCluster, until

NewCluster = Callable[..., Any]
Clock = trio.testing.MockClock


@pytest.fixture
def new_cluster(tmp_path: Path) -> NewCluster:
    @asynccontextmanager
    async def make(**config: Any) -> AsyncIterator[ShellCluster]:
        async with trio.open_nursery() as nursery:
            yield ShellCluster(nursery, tmp_path, random.Random(1), **config)
            nursery.cancel_scope.cancel()

    return make


@pytest.mark.feature("RE-01", "RE-02", "RE-04", "RE-09", "RE-21")
async def test_an_acknowledged_record_is_on_all_replicas_byte_for_byte(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    async with new_cluster() as cluster:
        leader = cluster.brokers[1]
        all_answers = [leader.produce(f"record {number}")[1] for number in range(20)]
        assert all_answers[-1] == []
        await until(lambda: all_answers[-1] == [None])
        assert all(answers == [None] for answers in all_answers)
        assert cluster.bytes_of(1) == cluster.bytes_of(2) == cluster.bytes_of(3)
        await until(lambda: cluster.brokers[3].partition.log.high_watermark == 20, 1)
        assert cluster.brokers[2].partition.log.high_watermark == 20


@pytest.mark.feature("RE-09", "RP-05")
async def test_acknowledgement_takes_two_trips_not_a_long_poll(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    async with new_cluster() as cluster:
        await trio.sleep(1)
        begin = trio.current_time()
        _, answers = cluster.brokers[1].produce("hello")
        await until(lambda: answers == [None])
        assert trio.current_time() - begin < 0.02


@pytest.mark.feature("RE-09", "RP-05")
async def test_a_fetch_that_only_reports_progress_would_have_read_nothing(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    """Broker 3 is not in sync, 9 is no replica; a fetch may know too little, too much, or another epoch."""
    async with new_cluster() as cluster:
        leader = cluster.brokers[1].partition
        cluster.brokers[3].stuck = True
        for number in range(3):
            cluster.brokers[1].produce(f"record {number}", acks=1)
        await cluster.tick(LAG_MS)
        await cluster.tick(LAG_MS)
        await until(lambda: leader.log.high_watermark == 3 and cluster.partitions[0].isr == (1, 2))
        epoch = leader.leader_epoch
        only_progress = []
        for node, offset in product((2, 3, 9), range(5)):
            for current, last in product((-1, epoch - 1, epoch, epoch + 1), repeat=2):
                report = FollowerFetch(node, -1, offset, 0)
                if leader.is_caught_up(report, current, last):
                    only_progress.append((node, offset, current, last))
                    read = ReadRequest(FetchKind.REPLICA, offset, 1_000, current, last)
                    found = leader.follower_read(report, read)
                    assert found.records is None and found.diverging_epoch is None
        assert only_progress == [(2, 3, epoch, epoch)]
        progress = [(it.log_end_offset, it.last_fetch_ms) for it in followers_of(leader)]
        await trio.sleep(0.2)
        leader.follower_progressed(FollowerFetch(2, -1, 3, 0))
        (end_offset, fetched_ms), other = [(it.log_end_offset, it.last_fetch_ms) for it in followers_of(leader)]
        assert end_offset == 3 and fetched_ms > progress[0][1] and other == progress[1]


def followers_of(partition: Partition) -> list[Progress]:
    assert isinstance(partition.replica.role, Leading)
    return list(partition.replica.role.followers.values())


@pytest.mark.feature("RE-05", "RE-09")
async def test_readers_see_committed_records_only(new_cluster: NewCluster, autojump_clock: Clock) -> None:
    async with new_cluster() as cluster:
        leader = cluster.brokers[1]
        cluster.brokers[3].stuck = True
        leader.produce("not yet", acks=1)
        await trio.sleep(0.1)
        read = ReadRequest(FetchKind.READ_UNCOMMITTED, 0, 1_000)
        assert leader.partition.read(read).records is None
        assert leader.partition.read(read._replace(kind=FetchKind.REPLICA)).records is not None
        cluster.brokers[3].stuck = False
        await until(lambda: leader.partition.log.high_watermark == 1)
        assert leader.partition.read(read).records is not None
        with pytest.raises(KafkaError) as refusal:
            leader.partition.read(read._replace(offset=5))
        assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.feature("RE-06", "RE-07", "RE-08")
async def test_a_paused_follower_leaves_the_isr_and_comes_back(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    async with new_cluster() as cluster:
        leader = cluster.brokers[1]
        await trio.sleep(0.1)
        cluster.brokers[3].stuck = True
        _, answers = leader.produce("without 3")
        await cluster.tick(LAG_MS)
        assert answers == [], "still waited for"
        await cluster.tick(LAG_MS)
        assert answers == [None]
        assert cluster.partitions[0].isr == (1, 2)
        cluster.brokers[3].stuck = False
        await until(lambda: cluster.partitions[0].isr == (1, 2, 3))
        assert cluster.bytes_of(3) == cluster.bytes_of(1)


@pytest.mark.feature("RE-09")
async def test_too_small_an_isr_refuses_acks_all_before_the_append(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    async with new_cluster(min_insync_replicas=3) as cluster:
        cluster.elect(1, isr=(1, 2))
        cluster.brokers[3].stuck = True
        cluster.learn()
        with pytest.raises(KafkaError) as refusal:
            cluster.brokers[1].produce("refused")
        assert refusal.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert cluster.brokers[1].partition.log.log_end_offset == 0
        assert cluster.brokers[1].produce("taken", acks=1)[0].first_offset == 0


@pytest.mark.feature("RE-13", "RE-14", "RE-09")
async def test_a_deposed_leader_fails_its_waiters_and_cuts_its_tail(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    async with new_cluster() as cluster:
        old, new = cluster.brokers[1], cluster.brokers[2]
        _, answers = old.produce("kept")
        await until(lambda: answers == [None])
        for node in (2, 3):
            cluster.brokers[node].stuck = True
        _, lost = old.produce("lost")
        cluster.elect(2)
        for node in (2, 3):
            cluster.brokers[node].stuck = False
            cluster.brokers[node].learn()
        _, kept = new.produce("instead")
        await trio.sleep(0.1)
        assert old.partition.log.log_end_offset == 2
        old.learn()
        assert lost == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        await until(lambda: kept == [None])
        assert cluster.bytes_of(1) == cluster.bytes_of(2) == cluster.bytes_of(3)
        assert old.partition.log.epochs.entries() == new.partition.log.epochs.entries()
        with pytest.raises(KafkaError) as refusal:
            old.produce("too late")
        assert refusal.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert old.partition.known_leader() == (2, 1)


@pytest.mark.feature("RE-04", "RE-13", "RP-09")
async def test_a_follower_that_truncates_only_an_epoch_still_gets_the_watermark(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    """It comes with the response that says where the logs diverge, of which nothing else is used, and never moves
    again."""
    async with new_cluster() as cluster:
        leader, late = cluster.brokers[1], cluster.brokers[3]
        leader.produce("hello")
        await until(lambda: late.partition.log.log_end_offset == 1)
        late.stuck = True
        cluster.elect(1, isr=(1, 2))
        for node in (1, 2):
            cluster.brokers[node].learn()
        await until(lambda: leader.partition.log.high_watermark == 1)
        cluster.elect(3)
        late.learn()
        assert late.partition.log.latest_epoch == 2, "it led, and took nothing"
        assert late.partition.log.high_watermark == 0
        late.stuck = False
        cluster.elect(1, isr=(1, 2))
        cluster.learn()
        await until(lambda: cluster.partitions[0].isr == (1, 2, 3))
        assert late.partition.log.latest_epoch == 0
        await until(lambda: late.partition.log.high_watermark == 1)


@pytest.mark.feature("RE-04", "RP-09")
async def test_a_watermark_that_came_too_late_for_its_epoch_is_sent_again(
    new_cluster: NewCluster, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same leader is elected again while its response is under way: the follower fetches again, and drops it."""
    async with new_cluster() as cluster:
        leader, follower = cluster.brokers[1], cluster.brokers[3]
        serve = leader.fetch
        dropped: list[FetchResponse] = []

        async def fetch(request: FetchRequest) -> FetchResponse:
            response: FetchResponse = await serve(request)
            reported = [data.high_watermark for topic in response.responses for data in topic.partitions]
            if request.replica_state.replica_id == 3 and reported == [1] and not dropped:
                dropped.append(response)
                cluster.elect(1)
                cluster.learn()
            return response

        monkeypatch.setattr(leader, "fetch", fetch)
        _, answers = leader.produce("hello")
        await until(lambda: bool(dropped))
        assert answers == [None]
        await until(lambda: follower.partition.log.high_watermark == 1)


@pytest.mark.feature("RE-13")
async def test_an_answer_that_goes_over_into_the_next_leaders_records_is_taken_up_to_there(
    new_cluster: NewCluster, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sender read it from its file, slowly, and meanwhile it was deposed, cut its log and followed the next leader:
    the end of the answer is the next leader's, the part before is nobody's (KAFKA-18723)."""
    async with new_cluster() as cluster:
        old, new, follower = (cluster.brokers[node] for node in (1, 2, 3))
        serve, mixed, kept = old.fetch, list[bytes](), bytearray()

        async def fetch(request: FetchRequest) -> FetchResponse:
            response: FetchResponse = await serve(request)
            data = response.responses[0].partitions[0] if response.responses else None
            if not kept or data is None or not data.records:
                return response
            if request.replica_state.replica_id == 2:
                await until(lambda: bool(mixed))
                return response
            region: Any = data.records
            lost = region.file.pread(region.count, region.offset)
            cluster.elect(2)
            for node in (1, 2):
                cluster.brokers[node].learn()
            for text in ("instead", "and more"):
                new.produce(text, acks=1)
            await until(lambda: old.partition.log.log_end_offset == 3)
            instead = cluster.bytes_of(1)[len(kept) :]
            first_size = int.from_bytes(instead[8:12], "big") + 12
            data.records = lost + instead[first_size:]
            mixed.append(data.records)
            return response

        monkeypatch.setattr(old, "fetch", fetch)
        _, answers = old.produce("kept")
        await until(lambda: answers == [None])
        kept += cluster.bytes_of(1)
        old.produce("lost")
        await until(lambda: bool(mixed) and follower.partition.log.log_end_offset > 1)
        assert follower.partition.log.log_end_offset == 2, "what the old leader has sent as such"
        follower.learn()
        await until(lambda: follower.partition.log.high_watermark == 3)
        assert cluster.bytes_of(3) == cluster.bytes_of(2) == cluster.bytes_of(1)


@pytest.mark.feature("RE-02", "RE-14")
async def test_a_leader_that_is_down_is_tried_again_and_at_once_when_metadata_comes(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    async with new_cluster() as cluster:
        follower = cluster.brokers[2]
        cluster.brokers[1].alive = False
        await trio.sleep(10)
        assert 8 <= len(follower.dialled) <= 20, "pauses grow to a second"
        cluster.brokers[1].alive = True
        follower.learn()
        _, answers = cluster.brokers[1].produce("hello")
        cluster.brokers[3].learn()
        await until(lambda: answers == [None], 0.05)


@pytest.mark.feature("RE-02")
async def test_a_new_partition_does_not_wait_for_the_long_poll_of_the_others(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    async with new_cluster() as cluster:
        await trio.sleep(0.2)
        cluster.partitions[1] = cluster.new_partition(1)
        cluster.learn()
        begin = trio.current_time()
        _, answers = cluster.brokers[1].produce("first", index=1)
        await until(lambda: answers == [None])
        assert trio.current_time() - begin < 0.1
        _, answers = cluster.brokers[1].produce("and the old one")
        await until(lambda: answers == [None])


@pytest.mark.feature("RE-16", "RE-17")
async def test_a_replica_that_was_away_too_long_begins_where_the_leader_begins(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    async with new_cluster() as cluster:
        leader, away = cluster.brokers[1], cluster.brokers[3]
        _, answers = leader.produce("old")
        await until(lambda: answers == [None])
        away.stuck = True
        for number in range(5):
            leader.produce(f"record {number}")
        await cluster.tick(3 * LAG_MS)
        assert cluster.partitions[0].isr == (1, 2)
        assert leader.partition.delete_records(-1) == 0, "the others still have it all"
        assert leader.partition.log.log_start_offset == 6
        await until(lambda: cluster.brokers[2].partition.log.log_start_offset == 6)
        leader.produce("new")
        away.stuck = False
        await until(lambda: away.partition.log.log_end_offset == 7)
        log = away.partition.log
        assert log.log_start_offset == 6
        await until(lambda: log.high_watermark == 7)
        await until(lambda: cluster.partitions[0].isr == (1, 2, 3))
        await until(lambda: leader.partition.low_watermark == 6)


@pytest.mark.feature("RE-16")
async def test_after_an_unclean_election_the_longer_log_follows_the_shorter(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    async with new_cluster() as cluster:
        await cluster.unclean_election()
        assert cluster.bytes_of(1) == cluster.bytes_of(2) == cluster.bytes_of(3)
        assert b"the truth now" in cluster.bytes_of(1)


@pytest.mark.feature("RE-01")
async def test_a_deleted_topic_takes_its_logs_and_answers_its_waiters(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    async with new_cluster() as cluster:
        leader = cluster.brokers[1]
        _, answers = leader.produce("nobody will know")
        cluster.has_topic = False
        cluster.learn()
        assert answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert leader.logs.deleted == [f"{TOPIC}-0"]
        assert leader.partitions.find(TOPIC_ID, 0) is leader.partitions.find(TOPIC, 0) is None
        assert leader.partitions.missing_error(TOPIC_ID, 0) == ErrorCode.UNKNOWN_TOPIC_ID
        assert leader.partitions.missing_error(TOPIC, 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await trio.sleep(2)
        assert len(cluster.brokers[2].partitions) == 0


@pytest.mark.feature("RE-01")
async def test_a_replica_that_moves_away_is_deleted_here(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    async with new_cluster() as cluster:
        old = cluster.partitions[0]
        cluster.partitions[0] = type(old)(
            (1, 2), (bytes(16),) * 2, (1, 2), leader=1, leader_epoch=1, partition_epoch=1
        )
        cluster.learn()
        away = cluster.brokers[3]
        assert away.logs.deleted == [f"{TOPIC}-0"]
        assert away.partitions.missing_error(TOPIC_ID, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        _, answers = cluster.brokers[1].produce("two are enough")
        await until(lambda: answers == [None])


class FailingDisk(RealDisk):
    """A disk whose files stop taking writes when `broken` is set."""

    broken = False

    def open(self, path: str, *, create: bool = False) -> Any:
        file = super().open(path, create=create)
        disk = self

        class File:
            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

            def pwrite(self, data: Any, offset: int) -> None:
                if disk.broken:
                    raise OSError(5, "input/output error")
                file.pwrite(data, offset)

        return File()


@pytest.mark.feature("RE-18")
async def test_a_failed_disk_takes_its_partitions_offline(
    new_cluster: NewCluster, autojump_clock: Clock, tmp_path: Path
) -> None:
    async with new_cluster() as cluster:
        leader = cluster.brokers[1]
        disk = FailingDisk()
        leader.logs.disk = disk
        cluster.partitions[1] = cluster.new_partition(1)
        cluster.learn()
        partition = leader.partitions.find(TOPIC_ID, 1)
        assert partition is not None
        partition.log.health.on_failure = lambda error: (
            leader.partitions.directory_failed(str(tmp_path / "1")) and None
        )
        _, waiting = leader.produce("fine", index=1)
        disk.broken = True
        with pytest.raises(KafkaError) as refusal:
            leader.produce("too much", index=1)
        assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert waiting == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert leader.partitions.is_offline(TOPIC, 1)
        with pytest.raises(KafkaError) as refusal:
            partition.read(ReadRequest(FetchKind.READ_UNCOMMITTED, 0, 1_000))
        assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        cluster.elect(2, isr=(2, 3), index=1)
        cluster.learn()
        assert leader.partitions.is_offline(TOPIC_ID, 1)
        _, answers = cluster.brokers[2].produce("elsewhere", index=1)
        await until(lambda: answers == [None])


@pytest.mark.feature("RE-18")
async def test_a_partition_that_gets_no_log_is_offline_too(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    async with new_cluster() as cluster:
        broker = cluster.brokers[1]
        broker.logs.failing = True
        cluster.partitions[1] = cluster.new_partition(1)
        cluster.learn()
        assert broker.partitions.find(TOPIC_ID, 1) is None
        assert broker.partitions.missing_error(TOPIC, 1) == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.feature("RE-10", "MB-05")
async def test_metadata_from_before_our_own_registration_is_refused(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    """A leader that lost its tail must not lead once more in the epoch of its former self."""
    async with new_cluster() as cluster:
        again = ShellBroker(1, cluster, cluster.brokers[1].logs)
        again.epoch = 999
        with pytest.raises(AssertionError, match="older than our registration"):
            again.learn()


class TestIsrChanges:
    @pytest.mark.feature("RE-08")
    async def test_many_partitions_go_in_one_request_one_request_at_a_time(
        self, new_cluster: NewCluster, autojump_clock: Clock
    ) -> None:
        async with new_cluster() as cluster:
            for index in range(1, 10):
                cluster.partitions[index] = cluster.new_partition(1)
            cluster.learn()
            await trio.sleep(0.2)
            cluster.brokers[3].stuck = True
            for index in range(10):
                cluster.brokers[1].produce("x", acks=1, index=index)
            await cluster.tick(2 * LAG_MS)
            assert all(image.isr == (1, 2) for image in cluster.partitions.values())
            (request,) = cluster.asked
            assert len(request.topics[0].partitions) == 10

    @pytest.mark.feature("RE-08")
    async def test_a_controller_in_trouble_is_asked_again(
        self, new_cluster: NewCluster, autojump_clock: Clock
    ) -> None:
        async with new_cluster() as cluster:
            cluster.errors = [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH]
            await trio.sleep(0.1)
            cluster.brokers[3].stuck = True
            _, answers = cluster.brokers[1].produce("x")
            await cluster.tick(2 * LAG_MS)
            assert answers == [None]
            assert len(cluster.asked) == 3

    @pytest.mark.feature("RE-08")
    async def test_isr_changes_overtaken_by_the_metadata_log_are_not_sent(
        self, new_cluster: NewCluster, autojump_clock: Clock
    ) -> None:
        async with new_cluster() as cluster:
            leader = cluster.brokers[1]
            await trio.sleep(0.1)
            cluster.errors = [ErrorCode.NOT_CONTROLLER]
            cluster.brokers[3].stuck = True
            leader.produce("x")
            await trio.sleep(LAG_MS / 1000 + 0.1)
            leader.partition.tick()
            await until(lambda: len(cluster.asked) == 1)
            cluster.elect(NO_LEADER, isr=(1, 2))
            leader.learn()
            await trio.sleep(2)
            assert len(cluster.asked) == 1


@pytest.mark.feature("RE-05")
async def test_an_accepted_isr_holds_before_the_metadata_says_so(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    async with new_cluster() as cluster:
        leader = cluster.brokers[1]
        await trio.sleep(0.1)
        cluster.metadata_is_late = True
        cluster.brokers[3].stuck = True
        _, answers = leader.produce("without 3")
        await cluster.tick(3 * LAG_MS)
        assert answers == [None]
        assert (leader.partition.replica.isr, leader.partition.replica.partition_epoch) == ({1, 2}, 1)
        assert leader.image.topics.by_id[TOPIC_ID].partitions[0].isr == (1, 2, 3), "it knows from the answer"


@pytest.mark.feature("RE-02")
async def test_a_new_partition_lets_the_long_poll_of_the_others_come_back_first(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    """A leader that answers at once needs no second connection."""
    async with new_cluster() as cluster:
        follower = cluster.brokers[2]
        await trio.sleep(0.2)
        cluster.partitions[1] = cluster.new_partition(1)
        cluster.learn()
        dialled = len(follower.dialled)
        cluster.brokers[1].produce("it comes back with this")
        await trio.sleep(NEW_PARTITION_WAIT_MS / 1000 / 2)
        assert len(follower.dialled) == dialled
        await trio.sleep(NEW_PARTITION_WAIT_MS / 1000 * 2)
        assert len(follower.dialled) == dialled
        cluster.partitions[2] = cluster.new_partition(1)
        cluster.learn()
        await trio.sleep(NEW_PARTITION_WAIT_MS / 1000 * 2)
        assert len(follower.dialled) == dialled + 1, "without an answer it is not waited for longer"


@pytest.mark.feature("RE-05")
async def test_another_isr_in_the_same_epoch_makes_everybody_look(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    """A follower that has all there is fetches without being read for, until somebody says that things changed."""
    async with new_cluster() as cluster:
        leader = cluster.brokers[1]
        _, answers = leader.produce("hello")
        await until(lambda: answers == [None])
        await trio.sleep(1)
        state = leader.image.topics.by_id[TOPIC_ID].partitions[0]
        reported = leader.changed
        leader.partition.partition_changed(replace(state, isr=(1, 2), partition_epoch=state.partition_epoch + 1))
        assert leader.partition.replica.isr == {1, 2}
        assert reported.is_set()
