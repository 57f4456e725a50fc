"""Clients read across the seam between the remote store and the disks; followers and copies begin behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from barnabas import Admin, Consumer, Producer
from barnabas.client.admin import AlterConfigOp, ConfigResource, OffsetSpec, ResourceType
from barnabas.client.cluster import TopicPartition
from barnabas.client.shares.share_consumer import ShareConsumer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.runtime.simulated.object_store import Bucket, FaultKind
from tests.broker.remote.test_copies_in_a_cluster import URL, Tiers

T0 = TopicPartition("t", 0)


class Reading(Tiers):
    """Tiers with readers."""

    @property
    def bucket(self) -> Bucket:
        return self.cluster.universe.buckets[URL]

    async def read(self, count: int, offset: int = 0, **options: Any) -> list[tuple[int, bytes | None]]:
        """(offset, first word of the value) of so many records."""
        found: list[tuple[int, bytes | None]] = []
        async with Consumer(**self.client, **options) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, offset)
            with trio.fail_after(120):
                while len(found) < count:
                    for record in await consumer.poll(1_000):
                        found.append((record.offset, (record.value or b"").partition(b" ")[0]))
        return found

    async def until_remote(self, beyond: int = 30) -> None:
        """Until every replica has its first `beyond` offsets only in the store."""
        await self.until(lambda: len(self.logs()) == 3 and self.least_local_start() > beyond)

    async def fill_one(self, number: int) -> None:
        async with Producer(**self.client) as producer:
            await producer.send("t", b"%05d " % number, partition=0)

    async def lose_disk(self, name: str) -> None:
        self.cluster.kill(name)
        await self.cluster._cluster.nodes[name].ended.wait()
        self.cluster.universe.disk(name).wipe()
        self.cluster.start(name)
        await self.cluster.wait_ready()

    def in_sync(self) -> set[int]:
        """The ISR, as the first broker that is up knows it."""
        for node in self.cluster._cluster.brokers:
            if node.broker is not None:
                image = node.broker.metadata.partition("t", 0)
                return set() if image is None else set(image.isr)
        return set()

    def least_local_start(self) -> int:
        return min(log.local_log_start_offset for log in self.logs().values())

    async def offsets(self, *specs: OffsetSpec) -> list[int]:
        async with Admin(**self.client) as admin:
            return [(await admin.list_offsets({T0: spec}))[T0].offset for spec in specs]


def on_tiers(seed: int = 1, **settings: str) -> Callable[[Callable[[Reading], Awaitable[None]]], Callable[[], None]]:
    def decorate(story: Callable[[Reading], Awaitable[None]]) -> Callable[[], None]:
        def test() -> None:
            tiers = Reading(seed, **settings)
            tiers.run(lambda: story(tiers))

        test.__name__, test.__doc__ = story.__name__, story.__doc__
        return test

    return decorate


NUMBERED = [(offset, b"%05d" % offset) for offset in range(60)]


@pytest.mark.feature("TS-06")
@on_tiers()
async def test_a_consumer_reads_from_the_beginning_to_the_end(tiers: Reading) -> None:
    await tiers.create()
    await tiers.fill()
    await tiers.until_remote()
    assert await tiers.read(60) == NUMBERED
    local_start = tiers.least_local_start()
    assert await tiers.read(60 - local_start + 3, offset=local_start - 3) == NUMBERED[local_start - 3 :]
    assert await tiers.read(60, max_partition_fetch_bytes=100) == NUMBERED


@pytest.mark.feature("TS-06", "CL-06")
@on_tiers()
async def test_a_reader_of_committed_records_gets_no_aborted_ones(tiers: Reading) -> None:
    await tiers.create()
    committed = []
    async with Producer(**tiers.client, transactional_id="x") as producer:
        for number in range(30):
            producer.begin_transaction()
            for _ in range(2):
                await producer.send("t", b"%05d " % number + b"x" * 400, partition=0)
            if number % 3:
                await producer.commit_transaction()
                committed += [b"%05d" % number] * 2
            else:
                await producer.abort_transaction()
    await tiers.until_remote(40)
    found = await tiers.read(len(committed), isolation_level="read_committed")
    assert [value for _, value in found] == committed
    everything = await tiers.read(60, isolation_level="read_uncommitted")
    assert [value for _, value in everything] == [b"%05d" % (number // 2) for number in range(60)]


@pytest.mark.feature("TS-09")
@on_tiers()
async def test_offsets_of_both_tiers(tiers: Reading) -> None:
    await tiers.create()
    async with Producer(**tiers.client) as producer:
        for number in range(60):
            time_ms = 1_000_000 + number * 1_000
            await producer.send("t", b"%05d " % number + b"x" * 500, partition=0, timestamp_ms=time_ms)
    await tiers.until_remote()
    leader = tiers.logs()[int((await tiers.cluster.leader_of("t")).rpartition("-")[2])]
    local_start, copied = leader.local_log_start_offset, leader.highest_copied_offset
    found = await tiers.offsets(
        OffsetSpec.earliest(),
        OffsetSpec.earliest_local(),
        OffsetSpec.latest_tiered(),
        OffsetSpec.earliest_pending_upload(),
        OffsetSpec.latest(),
    )
    assert found == [0, local_start, copied, copied + 1, 60]
    times = [0, 1_000_000, 1_000_001, 1_005_500, 1_000_000 + (local_start - 1) * 1_000 + 1, 1_059_000, 1_059_001]
    found = await tiers.offsets(*map(OffsetSpec.for_timestamp, times))
    assert found == [0, 0, 1, 6, local_start, 59, -1]


@pytest.mark.feature("TS-06", "TS-09")
@on_tiers(remote_fetch_max_wait_ms="300", remote_list_offsets_request_timeout_ms="2000")
async def test_while_the_store_is_away_the_tail_is_served_and_old_records_come_later(tiers: Reading) -> None:
    await tiers.create()
    await tiers.fill()
    await tiers.until_remote()
    fault = tiers.bucket.fail(FaultKind.UNAVAILABLE)
    async with trio.open_nursery() as nursery, Consumer(**tiers.client) as tail:
        tail.assign([T0])
        tail.seek(T0, 60)
        old: list[list[tuple[int, bytes | None]]] = []

        async def read_old() -> None:
            old.append(await tiers.read(60))

        nursery.start_soon(read_old)
        for number in range(60, 80):
            await tiers.fill_one(number)
            began = trio.current_time()
            records = []
            while not records:
                records = await tail.poll(1_000)
            assert [record.offset for record in records] == [number]
            assert trio.current_time() - began < 1
        assert old == []
        tiers.bucket.faults.remove(fault)
    assert old[0][:60] == NUMBERED


@pytest.mark.feature("TS-06")
@on_tiers(remote_fetch_max_wait_ms="100")
async def test_a_store_that_takes_longer_than_fetches_wait_still_answers(tiers: Reading) -> None:
    await tiers.create()
    await tiers.fill()
    await tiers.until_remote()
    tiers.bucket.latency_ms = (700.0, 0.0)
    assert await tiers.read(60) == NUMBERED
    leader = tiers.cluster._cluster.nodes[await tiers.cluster.leader_of("t")].broker
    assert leader is not None
    assert leader.remote is not None
    families = {family.name: family for family in leader.remote.families()}
    assert sum(count for _, count in families["kafka_server_brokertopicmetrics_remotefetchbytes"].samples) > 10_000
    assert next(iter(families["kafka_server_delayedremotefetchmetrics_expires"].samples))[1] > 0
    assert leader.remote.reading.reads.queue.running == 0


@pytest.mark.feature("TS-09")
@on_tiers(remote_list_offsets_request_timeout_ms="2000", barnabas_remote_store_timeout_ms="60000")
async def test_a_look_up_by_time_that_takes_too_long_times_out(tiers: Reading) -> None:
    await tiers.create()
    await tiers.fill()
    await tiers.until_remote()
    fault = tiers.bucket.fail(FaultKind.LOST, "get")
    leader = await tiers.cluster.leader_of("t")
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=1)])
    began = trio.current_time()
    answer = await tiers.cluster._ask([leader], ListOffsetsRequest(topics=[asked]))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert 2 <= trio.current_time() - began < 3
    tiers.bucket.faults.remove(fault)
    assert await tiers.offsets(OffsetSpec.for_timestamp(1)) == [0]


@pytest.mark.feature("TS-06")
@on_tiers(remote_log_manager_fetch_max_bytes_per_second="2000")
async def test_old_reads_are_held_to_their_rate(tiers: Reading) -> None:
    await tiers.create()
    await tiers.fill()
    await tiers.until_remote(40)
    local_start = tiers.least_local_start()
    began = trio.current_time()
    assert await tiers.read(60, max_partition_fetch_bytes=2_000) == NUMBERED
    at_most = 2_000
    assert trio.current_time() - began > local_start * 500 / at_most / 2, "half of the time that the rate asks for"


@pytest.mark.feature("TS-08", "RE-14")
@on_tiers()
async def test_a_replica_that_lost_its_disk_downloads_nothing_that_is_remote(tiers: Reading) -> None:
    await tiers.create()
    async with Producer(**tiers.client) as producer:
        for number in range(60):
            await producer.send("t", b"%05d " % number + b"x" * 500, partition=0)
        await tiers.until_remote(40)
        leader = await tiers.cluster.leader_of("t")
        lost = next(name for name in tiers.cluster.brokers if name != leader)
        await tiers.lose_disk(lost)
        number = int(lost.rpartition("-")[2])
        await tiers.until(lambda: number in tiers.logs() and tiers.logs()[number].log_end_offset == 60)
        logs = tiers.logs()
        own, leads = logs[number], logs[int(leader.rpartition("-")[2])]
        assert own.log_start_offset == 0
        assert own.local_log_start_offset > 40
        assert own.epochs.entries() == leads.epochs.entries()
        assert own.producers is not None
        assert leads.producers is not None
        assert own.producers.entries.keys() == leads.producers.entries.keys()
        # It leads, and knows the producer.
        others = [name for name in tiers.cluster.brokers if name != lost]
        await tiers.until(lambda: tiers.in_sync() == {1, 2, 3})
        for name in others:
            await tiers.cluster.stop(name)
        assert tiers.cluster._leader("t", 0) == lost
        tiers.cluster.start(*others)
        await tiers.cluster.wait_ready()
        assert await tiers.read(60) == NUMBERED
        await producer.send("t", b"%05d " % 60, partition=0)
    assert (await tiers.read(61))[-1] == (60, b"00060")


@pytest.mark.feature("TS-08")
@on_tiers(follower_fetch_last_tiered_offset_enable="true", log_retention_check_interval_ms="3600000")
async def test_an_empty_replica_may_skip_what_is_copied_only_if_its_leader_sends_it_there(tiers: Reading) -> None:
    """KIP-1023 as in 4.3: the leader still has all records, so the replica fetches them."""
    await tiers.create()
    await tiers.fill()
    await tiers.until(lambda: len(tiers.objects()) > 5)
    lost = next(name for name in tiers.cluster.brokers if name != await_leader(tiers))
    await tiers.lose_disk(lost)
    number = int(lost.rpartition("-")[2])
    await tiers.until(lambda: number in tiers.logs() and tiers.logs()[number].log_end_offset == 60)
    assert tiers.logs()[number].local_log_start_offset == 0


def await_leader(tiers: Reading) -> str:
    return tiers.cluster._leader("t", 0)


@pytest.mark.feature("TS-06", "CG-17")
@on_tiers(group_share_min_heartbeat_interval_ms="500", group_share_heartbeat_interval_ms="500")
async def test_a_share_group_begins_with_records_that_are_only_remote(tiers: Reading) -> None:
    await tiers.create()
    await tiers.fill()
    await tiers.until_remote()
    async with Admin(**tiers.client) as admin:
        earliest = [AlterConfigOp("share.auto.offset.reset", "earliest")]
        await admin.incremental_alter_configs({ConfigResource(ResourceType.GROUP, "g"): earliest})
    found: list[tuple[int, bytes]] = []
    async with ShareConsumer("t", **tiers.client, group_id="g") as consumer:
        with trio.fail_after(120):
            while len(found) < 60:
                for record in await consumer.poll(1_000):
                    found.append((record.offset, (record.value or b"").partition(b" ")[0]))
    assert found == NUMBERED
