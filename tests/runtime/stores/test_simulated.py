"""The faults of the simulated store, and that it outlives the processes that use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from barnabas.runtime.object_store import NoSuchObject, ObjectStore, StoreError, StoreRefused
from barnabas.runtime.simulated import Universe, run_simulation
from barnabas.runtime.simulated.object_store import Bucket, FaultKind
from barnabas.runtime.world import World
from barnabas.settings.object_store import StoreSettings
from tests.runtime.stores.stores import URL, in_simulation, opened

SETTINGS = StoreSettings(URL, timeout_ms=10_000)

Story = Callable[[ObjectStore, Bucket, Universe], Awaitable[None]]


def play(story: Story, seed: int = 1) -> Universe:
    return in_simulation(lambda store, universe: story(store, universe.bucket(URL), universe), seed)


@pytest.mark.parametrize(
    ("kind", "error", "text", "is_stored"),
    [
        (FaultKind.UNAVAILABLE, StoreError, "put a: 503 Service Unavailable", False),
        (FaultKind.LOST, StoreError, "put a: no answer in 10000 ms", False),
        (FaultKind.ANSWER_LOST, StoreError, "put a: no answer in 10000 ms", True),
        (FaultKind.REFUSED, StoreRefused, "put a: 403 Forbidden: the access key is not known", False),
        (FaultKind.FULL, StoreError, "put a: the store is full", False),
    ],
)
def test_a_fault_has_its_error_and_its_effect(
    kind: FaultKind, error: type[StoreError], text: str, is_stored: bool
) -> None:
    async def story(store: ObjectStore, bucket: Bucket, universe: Universe) -> None:
        bucket.fail(kind, "put", remaining=1)
        began = universe.time.now
        with pytest.raises(error) as raised:
            await store.put("a", [b"content"])
        assert str(raised.value) == text
        assert (universe.time.now - began >= 10.0) == ("no answer" in text)
        assert (bucket.find("a") is not None) == is_stored
        await store.put("a", [b"content"])
        assert await store.get("a") == b"content"

    play(story)


def test_a_late_put_arrives_after_the_deletion() -> None:
    async def story(store: ObjectStore, bucket: Bucket, universe: Universe) -> None:
        bucket.fail(FaultKind.LATE, "put", remaining=1)
        with pytest.raises(StoreError, match="no answer"):
            await store.put("a", [b"content"])
        await store.delete("a")
        with pytest.raises(NoSuchObject):
            await store.get("a")
        await trio.sleep(61)
        assert await store.get("a") == b"content"

    play(story)


def test_a_list_may_be_behind() -> None:
    behind = set()

    async def story(store: ObjectStore, bucket: Bucket, universe: Universe) -> None:
        await store.put("old", [b""])
        await trio.sleep(120)
        bucket.list_lag_ms = 30_000.0
        await store.put("new", [b""])
        await trio.sleep(10)
        await store.delete("old")
        await trio.sleep(10)
        behind.add(tuple(each.key for each in await store.list("")))
        await trio.sleep(31)
        assert [each.key for each in await store.list("")] == ["new"]

    for seed in range(20):
        play(story, seed)
    assert behind == {("old",), ("new", "old"), ("new",)}


def test_an_hour_away_and_back() -> None:
    async def story(store: ObjectStore, bucket: Bucket, universe: Universe) -> None:
        await store.put("a", [b"content"])
        fault = bucket.fail(FaultKind.LOST)
        for call in (store.get("a"), store.size("a"), store.list(""), store.delete("a"), store.put("b", [])):
            with pytest.raises(StoreError):
                await call
        await trio.sleep(3600)
        bucket.faults.remove(fault)
        assert await store.get("a") == b"content"
        assert bucket.met["get", "lost"] == 1 and bucket.met["get", "served"] == 1

    play(story)


def test_a_store_without_room_takes_what_replaces_and_what_is_left() -> None:
    async def story(store: ObjectStore, bucket: Bucket, universe: Universe) -> None:
        bucket.capacity_bytes = 10
        await store.put("a", [b"123456"])
        with pytest.raises(StoreError, match="the store is full"):
            await store.put("b", [b"12345"])
        await store.put("a", [b"1234567890"])
        await store.delete("a")
        await store.put("b", [b"12345"])
        assert bucket.used_bytes == 5

    play(story)


def test_an_object_can_be_damaged() -> None:
    async def story(store: ObjectStore, bucket: Bucket, universe: Universe) -> None:
        await store.put("a", [bytes(1000)])
        bucket.flip_bit("a")
        damaged = await store.get("a")
        assert len(damaged) == 1000 and sum(each.bit_count() for each in damaged) == 1

    play(story)


def test_a_slow_upload_is_a_timeout() -> None:
    async def story(store: ObjectStore, bucket: Bucket, universe: Universe) -> None:
        bucket.bytes_per_ms = 1.0
        with pytest.raises(StoreError, match="no answer in 10000 ms"):
            await store.put("a", [bytes(20_000)])

    play(story)


def test_all_nodes_see_one_bucket_and_it_survives_a_power_cut() -> None:
    read: list[bytes] = []

    async def writer(world: World) -> None:
        await opened(world, SETTINGS).put("a", [b"content"])
        await trio.sleep_forever()

    async def reader(world: World) -> None:
        read.append(await opened(world, SETTINGS).get("a"))

    async def run(universe: Universe) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(universe.run_node, "broker-1", writer)
            await trio.sleep(5)
            universe.power_cut("broker-1")
            await universe.run_node("broker-2", reader)
        assert universe.buckets.keys() == {URL}

    run_simulation(1, run)
    assert read == [b"content"]


def test_a_killed_process_has_stored_all_of_an_object_or_nothing() -> None:
    content = bytes(range(256)) * 4_000
    found = set()

    async def writer(world: World) -> None:
        await opened(world, SETTINGS).put("a", [content])

    def at(kill_after_seconds: float) -> None:
        async def run(universe: Universe) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(universe.run_node, "broker-1", writer)
                await trio.sleep(kill_after_seconds)
                universe.kill("broker-1")
                await trio.sleep(60)
            found.add(universe.bucket(URL).find("a"))

        run_simulation(7, run)

    for milliseconds in range(0, 40, 2):
        at(milliseconds / 1000)
    assert found == {None, content}


def test_a_seed_replays() -> None:
    async def story(store: ObjectStore, bucket: Bucket, universe: Universe) -> None:
        bucket.fail(FaultKind.UNAVAILABLE, probability=0.3)
        bucket.fail(FaultKind.LATE, "put", probability=0.3)
        bucket.list_lag_ms = 5_000.0
        for number in range(30):
            try:
                await store.put(f"a/{number}", [bytes(number)])
                seen = [each.key for each in await store.list("a/")]
                universe.trace(f"{number} {seen}")
            except StoreError as error:
                universe.trace(str(error))

    assert play(story, 5).digest() == play(story, 5).digest()
    assert play(story, 5).digest() != play(story, 6).digest()
