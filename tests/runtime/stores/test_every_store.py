"""Promises of `runtime.object_store.ObjectStore` that a directory, an S3 server and the simulated store keep alike."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from barnabas.runtime.disk import RealDisk
from barnabas.runtime.object_store import NoSuchObject, ObjectExists, ObjectStore, StoreError
from barnabas.runtime.real import real_world
from barnabas.runtime.world import FileRegion
from tests.runtime.stores.stores import in_directory, in_simulation, opened

Story = Callable[[ObjectStore], object]
Run = Callable[[Story], None]

pytestmark = pytest.mark.feature("TS-03")


@pytest.fixture(params=["directory", "s3", "simulated"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs an async story with a new, empty store."""
    kind = request.param

    def run_story(story: Story) -> None:
        if kind == "simulated":
            in_simulation(lambda store, _universe: story(store))  # type: ignore[arg-type, return-value]
            return

        async def main() -> None:
            if kind == "directory":
                store = in_directory(tmp_path)
            else:
                settings = request.getfixturevalue("moto").settings(prefix=f"tests/{tmp_path.name}")
                store = opened(real_world(), settings)
            await story(store)  # type: ignore[misc]
            await store.close()

        trio.run(main)

    return run_story


def test_an_object_is_read_back_whole_and_in_ranges(run: Run) -> None:
    content = os.urandom(100_000)

    async def story(store: ObjectStore) -> None:
        await store.put("orders-0-x/1.log", [content[:10], content[10:70_000], content[70_000:]])
        assert await store.get("orders-0-x/1.log") == content
        assert await store.get("orders-0-x/1.log", 500) == content[500:]
        assert await store.get("orders-0-x/1.log", 500, 1_000) == content[500:1_500]
        assert await store.size("orders-0-x/1.log") == 100_000

    run(story)


def test_a_range_ends_where_the_object_ends(run: Run) -> None:
    async def story(store: ObjectStore) -> None:
        await store.put("short", [b"0123456789"])
        assert await store.get("short", 8, 100) == b"89"
        assert await store.get("short", 10, 100) == b""
        assert await store.get("short", 10) == b""
        assert await store.get("short", 4_000, 100) == b""
        assert await store.get("short", 3, 0) == b""

    run(story)


def test_an_object_may_be_empty(run: Run) -> None:
    async def story(store: ObjectStore) -> None:
        await store.put("empty", [])
        assert await store.get("empty") == b"" and await store.size("empty") == 0
        assert await store.get("empty", 0, 10) == b""
        assert [each.key for each in await store.list("")] == ["empty"]

    run(story)


def test_a_put_replaces_the_whole_object(run: Run) -> None:
    async def story(store: ObjectStore) -> None:
        await store.put("a", [b"old and long"])
        await store.put("a", [b"new"])
        assert await store.get("a") == b"new"

    run(story)


def test_a_put_that_must_not_replace_fails_where_there_is_one(run: Run) -> None:
    async def story(store: ObjectStore) -> None:
        await store.put("a", [b"first"], if_absent=True)
        with pytest.raises(ObjectExists, match=r"put a\b.*there is an object with this key"):
            await store.put("a", [b"second"], if_absent=True)
        assert await store.get("a") == b"first"
        await store.delete("a")
        await store.put("a", [b"third"], if_absent=True)
        assert await store.get("a") == b"third"

    run(story)


def test_one_of_many_writers_of_a_new_object_wins(run: Run) -> None:
    won: list[bytes] = []

    async def story(store: ObjectStore) -> None:
        async def write(content: bytes) -> None:
            try:
                await store.put("epoch/7", [content], if_absent=True)
                won.append(content)
            except ObjectExists:
                pass

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(write, b"writer %d" % number)
        assert [await store.get("epoch/7")] == won

    run(story)


def test_an_unknown_object_is_named(run: Run) -> None:
    async def story(store: ObjectStore) -> None:
        await store.put("a/b", [b"there"])
        for call in (store.get, store.size):
            with pytest.raises(NoSuchObject, match=r"(get|size) a/c\b.*there is no such object"):
                await call("a/c")
        with pytest.raises(NoSuchObject):
            await store.get("a/c", 5, 10)
        with pytest.raises(NoSuchObject):
            await store.get("a")  # the first part of a key is no object

    run(story)


def test_a_deleted_object_is_gone_and_may_be_deleted_again(run: Run) -> None:
    async def story(store: ObjectStore) -> None:
        await store.put("a/b", [b"there"])
        await store.delete("a/b")
        with pytest.raises(NoSuchObject):
            await store.get("a/b")
        assert await store.list("a/") == []
        await store.delete("a/b")
        await store.delete("never/was/there")

    run(story)


def test_a_list_has_the_keys_with_a_prefix_in_order(run: Run) -> None:
    async def story(store: ObjectStore) -> None:
        for key in ("orders-1-x/2.log", "orders-10-x/1.log", "orders-1-x/1.log", "payments-0-y/1.index"):
            await store.put(key, [key.encode()])
        assert [each.key for each in await store.list("orders-1-x/")] == ["orders-1-x/1.log", "orders-1-x/2.log"]
        assert [each.key for each in await store.list("orders-1")] == [
            "orders-1-x/1.log",
            "orders-1-x/2.log",
            "orders-10-x/1.log",
        ]
        assert len(await store.list("")) == 4
        assert await store.list("nothing/") == []
        [found] = await store.list("payments")
        assert found.size_bytes == len("payments-0-y/1.index")
        assert found.modified_ms > 1_700_000_000_000

    run(story)


def test_bytes_of_a_file_and_of_memory_become_one_object(run: Run, tmp_path: Path) -> None:
    """20 MiB: more than one part of a multipart upload."""
    content = os.urandom(20 << 20)
    path = tmp_path.parent / f"{tmp_path.name}.segment"
    path.write_bytes(b"before" + content + b"after")

    async def story(store: ObjectStore) -> None:
        file = RealDisk().open(str(path))
        await store.put("big", [b"head", FileRegion(file, 6, len(content)), b"tail"])
        whole = b"head" + content + b"tail"
        assert await store.size("big") == len(whole)
        assert await store.get("big", 12_345_678, 3 << 20) == whole[12_345_678:][: 3 << 20]
        assert await store.get("big") == whole

    run(story)
    path.unlink()


def test_a_file_that_ends_too_early_stores_nothing(run: Run, tmp_path: Path) -> None:
    path = tmp_path.parent / f"{tmp_path.name}.segment"
    path.write_bytes(bytes(9 << 20))

    async def story(store: ObjectStore) -> None:
        file = RealDisk().open(str(path))
        for count in (10 << 20, 30 << 20):
            with pytest.raises(StoreError, match=r"\.segment ends at byte 9437184, not"):
                await store.put("cut", [FileRegion(file, 0, count)])
        with pytest.raises(NoSuchObject):
            await store.get("cut")

    run(story)
    path.unlink()


def test_a_file_that_cannot_be_read_is_an_error_of_the_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path.parent / f"{tmp_path.name}.segment"
    path.write_bytes(b"content")

    async def story(store: ObjectStore) -> None:
        file = RealDisk().open(str(path))
        file.close()
        with pytest.raises(OSError, match="the file is closed"):
            await store.put("closed", [FileRegion(file, 0, 7)])

    run(story)
    path.unlink()
