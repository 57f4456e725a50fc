"""Segments in a store: names, complete copies, damage, deletion, orphans."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio

from barnabas.broker.remote.segment_store import IndexKind, RemoteSegmentStore, SegmentFiles
from barnabas.protocol.primitives import uuid_from_string
from barnabas.runtime.object_store import NoSuchObject, StoreError
from barnabas.runtime.simulated import NodeKilled, Universe, run_simulation
from barnabas.runtime.simulated.object_store import Bucket, FaultKind
from barnabas.runtime.world import FileRegion, World
from barnabas.settings.object_store import StoreSettings
from barnabas.storage.remote.segment import RemotePartitionKey, RemoteSegment, SegmentState

pytestmark = pytest.mark.feature("TS-03")

URL = "s3://segments"
SETTINGS = StoreSettings(URL, timeout_ms=10_000)
KEY = RemotePartitionKey(uuid_from_string("LWgrMmVrT0a__7a4SasuPA"), "orders", 3)
LOG = bytes(range(256)) * 40
SEGMENT = RemoteSegment(
    key=KEY,
    segment_id=uuid_from_string("bCqX9U--S-6U8XUM9II25Q"),
    start_offset=11,
    end_offset=99,
    max_timestamp_ms=1_750_000_000_000,
    broker_id=1,
    event_timestamp_ms=1_750_000_000_000,
    size_bytes=len(LOG),
    state=SegmentState.COPY_SEGMENT_STARTED,
    leader_epochs=((0, 11),),
)
DIRECTORY = "orders-3-LWgrMmVrT0a__7a4SasuPA/"
NAME = DIRECTORY + "00000000000000000011-bCqX9U--S-6U8XUM9II25Q"

Story = Callable[[RemoteSegmentStore, Bucket, World], Awaitable[None]]


def play(story: Story, seed: int = 1) -> Universe:
    """Run a story in a node with an empty store and the file of a segment, which has other bytes around it."""
    universes = []

    async def run(universe: Universe) -> None:
        universes.append(universe)
        universe.disk("broker-1").prepare_directories("/data")

        async def node(world: World) -> None:
            file = world.disk.open("/data/11.log", create=True)
            file.pwrite(b"before" + LOG + b"after", 0)
            assert world.object_store is not None
            store = RemoteSegmentStore(world.object_store(SETTINGS), world.fault_point)
            await story(store, universe.bucket(URL), world)

        await universe.run_node("broker-1", node)

    run_simulation(seed, run)
    return universes[0]


def files(world: World, *, transaction_index: bytes | None = b"aborted") -> SegmentFiles:
    log = FileRegion(world.disk.open("/data/11.log"), len(b"before"), len(LOG))
    return SegmentFiles(log, b"offsets", b"times", transaction_index, b"producers", b"0\n1\n0 11\n")


def test_objects_have_the_names_of_kafkas_local_tiered_storage() -> None:
    async def story(store: RemoteSegmentStore, bucket: Bucket, world: World) -> None:
        await store.copy(SEGMENT, files(world))
        assert {key: stored.data for key, stored in bucket.objects.items()} == {
            f"{NAME}.log": LOG,
            f"{NAME}.index": b"offsets",
            f"{NAME}.timeindex": b"times",
            f"{NAME}.txnindex": b"aborted",
            f"{NAME}.snapshot": b"producers",
            f"{NAME}.leader_epoch_checkpoint": b"0\n1\n0 11\n",
        }

    play(story)


def test_a_segment_is_read_in_ranges_and_its_indexes_whole() -> None:
    async def story(store: RemoteSegmentStore, bucket: Bucket, world: World) -> None:
        await store.copy(SEGMENT, files(world, transaction_index=None))
        assert await store.read(SEGMENT, 0, 1_000_000) == LOG
        assert await store.read(SEGMENT, 1_000, 200) == LOG[1_000:1_200]
        assert await store.read(SEGMENT, len(LOG) - 5, 200) == LOG[-5:]
        assert await store.read(SEGMENT, len(LOG), 200) == b""
        assert await store.read_index(SEGMENT, IndexKind.OFFSET) == b"offsets"
        assert await store.read_index(SEGMENT, IndexKind.TIMESTAMP) == b"times"
        assert await store.read_index(SEGMENT, IndexKind.PRODUCER_SNAPSHOT) == b"producers"
        assert await store.read_index(SEGMENT, IndexKind.LEADER_EPOCH) == b"0\n1\n0 11\n"
        with pytest.raises(NoSuchObject):
            await store.read_index(SEGMENT, IndexKind.TRANSACTION)

    play(story)


def test_a_log_of_another_size_is_not_copied() -> None:
    async def story(store: RemoteSegmentStore, bucket: Bucket, world: World) -> None:
        with pytest.raises(ValueError, match="10240 bytes of log for 10241"):
            await store.copy(replace(SEGMENT, size_bytes=len(LOG) + 1), files(world))
        assert bucket.objects == {}

    play(story)


def test_an_object_that_was_cut_is_an_error() -> None:
    async def story(store: RemoteSegmentStore, bucket: Bucket, world: World) -> None:
        await store.copy(SEGMENT, files(world))
        bucket.objects[f"{NAME}.log"].data = LOG[:100]
        assert await store.read(SEGMENT, 0, 100) == LOG[:100]
        with pytest.raises(StoreError, match="it ends at byte 100, not 10240"):
            await store.read(SEGMENT, 50, 100)

    play(story)


@pytest.mark.parametrize("failing", ["index", "timeindex", "txnindex", "snapshot", "leader_epoch_checkpoint", "log"])
def test_a_copy_that_fails_anywhere_can_be_done_again(failing: str) -> None:
    async def story(store: RemoteSegmentStore, bucket: Bucket, world: World) -> None:
        bucket.fail(FaultKind.ANSWER_LOST, "put", prefix=f"{NAME}.{failing}", remaining=1)
        with pytest.raises(StoreError, match="no answer"):
            await store.copy(SEGMENT, files(world))
        await store.copy(SEGMENT, files(world))
        assert len(bucket.objects) == 6 and await store.read(SEGMENT, 0, 1 << 20) == LOG

    play(story)


def test_a_broker_that_is_killed_in_a_copy_leaves_no_log_without_indexes() -> None:
    for suffix in (".index", ".timeindex", ".txnindex", ".snapshot", ".leader_epoch_checkpoint"):
        stored: set[str] = set()

        async def run(universe: Universe, suffix: str = suffix, stored: set[str] = stored) -> None:
            universe.disk("broker-1").prepare_directories("/data")

            async def node(world: World) -> None:
                world.disk.open("/data/11.log", create=True).pwrite(b"before" + LOG, 0)
                assert world.object_store is not None
                store = RemoteSegmentStore(world.object_store(SETTINGS), world.fault_point)
                await store.copy(SEGMENT, files(world))

            universe.kill_at("broker-1", f"remote.copy.stored{suffix}")
            assert not await universe.run_node("broker-1", node)
            stored.update(universe.bucket(URL).objects)

        run_simulation(1, run)
        assert f"{NAME}{suffix}" in stored and f"{NAME}.log" not in stored


def test_deletion_leaves_nothing_of_a_segment_and_all_of_others() -> None:
    other = replace(SEGMENT, segment_id=uuid_from_string("h956soEzTzi9a-NOQ-DvKA"))

    async def story(store: RemoteSegmentStore, bucket: Bucket, world: World) -> None:
        await store.copy(SEGMENT, files(world))
        await store.copy(other, files(world))
        bucket.fail(FaultKind.UNAVAILABLE, "delete", prefix=f"{NAME}.snapshot", remaining=1)
        with pytest.raises(StoreError):
            await store.delete(SEGMENT)
        await store.delete(SEGMENT)
        assert len(bucket.objects) == 6 and not any(key.startswith(NAME) for key in bucket.objects)
        assert await store.read(other, 0, 1 << 20) == LOG
        await store.delete(SEGMENT)

    play(story)


def test_orphans_are_stored_old_and_unknown() -> None:
    young = replace(SEGMENT, segment_id=uuid_from_string("h956soEzTzi9a-NOQ-DvKA"), start_offset=100)
    known = replace(SEGMENT, segment_id=uuid_from_string("o8CQPT86QQmbFmi3xRmiHA"), start_offset=200)
    elsewhere = replace(SEGMENT, key=KEY._replace(partition=31))

    async def story(store: RemoteSegmentStore, bucket: Bucket, world: World) -> None:
        for segment in (SEGMENT, known, elsewhere):
            await store.copy(segment, files(world))
        bucket.put(DIRECTORY + "notes.txt", b"by somebody", if_absent=False)
        await trio.sleep(3600)
        before_ms = bucket.clock.now_ms() - 60_000
        await store.copy(young, files(world))
        assert [each.start_offset for each in await store.stored(KEY)] == [11, 100, 200]
        [orphan] = await store.orphans(KEY, {known.segment_id}, before_ms)
        assert orphan.segment_id == SEGMENT.segment_id and len(orphan.keys) == 6
        assert orphan.size_bytes == len(LOG) + len(b"offsetstimesabortedproducers0\n1\n0 11\n")
        await store.delete_stored([orphan])
        assert [each.start_offset for each in await store.stored(KEY)] == [100, 200]
        assert DIRECTORY + "notes.txt" in bucket.objects

    play(story)


def test_a_killed_broker_asks_the_store_for_nothing() -> None:
    async def story(store: RemoteSegmentStore, bucket: Bucket, world: World) -> None:
        pass

    universe = play(story)
    process = universe.hosts["broker-1"].process
    assert process is not None and not process.alive
    world_store = universe.bucket(URL)

    async def call() -> None:
        from barnabas.runtime.simulated.object_store import SimulatedObjectStore

        await SimulatedObjectStore(world_store, process, 1000).get("a")

    with pytest.raises(NodeKilled):
        trio.run(call)
