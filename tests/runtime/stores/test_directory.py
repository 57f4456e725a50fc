"""The store in a directory: what others and crashes find there."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from barnabas.runtime.object_store import NoSuchObject, StoreError, StoreRefused
from barnabas.runtime.stores import directory
from tests.runtime.stores.stores import in_directory

pytestmark = pytest.mark.feature("TS-03")


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


async def test_keys_are_paths(tmp_path: Path) -> None:
    store = in_directory(tmp_path)
    await store.put("orders-0-x/1.log", [b"content"])
    assert files(tmp_path) == ["orders-0-x/1.log"]
    (tmp_path / "orders-0-x" / "2.log").write_bytes(b"by another program")
    assert await store.get("orders-0-x/2.log") == b"by another program"


async def test_a_put_that_fails_leaves_nothing_and_the_old_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = in_directory(tmp_path)
    await store.put("a/b", [b"old"])

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"^put a/b: No space left on device$"):
        await store.put("a/b", [b"new"])
    monkeypatch.undo()
    assert await store.get("a/b") == b"old"
    assert files(tmp_path) == ["a/b"]


async def test_bytes_that_come_back_different_are_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(path: str, *, from_disk: bool) -> int:
        return 0

    monkeypatch.setattr(directory, "_checksum_of", damaged)
    with pytest.raises(StoreError, match="read back differ"):
        await in_directory(tmp_path).put("a", [b"content"])
    assert files(tmp_path) == []


async def test_bytes_are_read_from_the_disk_to_verify_fully(tmp_path: Path) -> None:
    store = in_directory(tmp_path, verify="full")
    content = os.urandom(3 << 20)
    await store.put("a", [content])
    assert await store.get("a") == content


async def test_the_rest_of_a_crash_is_removed_a_day_later(tmp_path: Path) -> None:
    partial = tmp_path / directory.PARTIAL
    partial.mkdir()
    for name, age_seconds in (("old", 90_000), ("new", 60)):
        (partial / name).write_bytes(b"half")
        os.utime(partial / name, (time.time() - age_seconds,) * 2)
    store = in_directory(tmp_path)
    assert await store.list("") == []
    await store.put("a", [b"content"])
    assert files(tmp_path) == [".partial/new", "a"]


async def test_a_directory_that_is_not_mounted_is_no_empty_store(tmp_path: Path) -> None:
    store = in_directory(tmp_path / "not-mounted")
    for call in (store.put("a", [b"x"]), store.get("a"), store.delete("a"), store.list(""), store.size("a")):
        with pytest.raises(StoreRefused, match="not-mounted is not a directory: create or mount it"):
            await call


async def test_kafkas_directory_is_made(tmp_path: Path) -> None:
    store = in_directory(tmp_path / "a" / "kafka-tiered-storage", creates_directory=True)
    assert await store.list("") == []
    await store.put("b", [b"content"])
    assert files(tmp_path) == ["a/kafka-tiered-storage/b"]
    assert os.listdir(tmp_path / "a" / "kafka-tiered-storage") == ["b"], "Kafka takes any directory for a partition's"


@pytest.mark.parametrize("key", ["", "/a", "a//b", "a/", "../a", "a/../b", ".", "a\0b", ".partial/a"])
async def test_keys_stay_below_the_directory(tmp_path: Path, key: str) -> None:
    store = in_directory(tmp_path / "root")
    (tmp_path / "root").mkdir()
    for call in (store.put(key, [b"x"]), store.get(key), store.delete(key), store.size(key)):
        with pytest.raises(StoreRefused, match="is not a key"):
            await call
    assert files(tmp_path) == []


async def test_a_file_where_a_directory_should_be_is_an_error_of_one_line(tmp_path: Path) -> None:
    store = in_directory(tmp_path)
    await store.put("a", [b"x"])
    with pytest.raises(StoreError, match=r"^put a/b: Not a directory$"):
        await store.put("a/b", [b"x"])
    with pytest.raises(NoSuchObject):
        await store.get("a/b")
    await store.delete("a/b")


async def test_a_server_that_hangs_is_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory on NFS whose server is away: the thread stays in the system call."""
    fifo = tmp_path / "hangs"
    os.mkfifo(fifo)
    store = in_directory(tmp_path, timeout_ms=100)
    try:
        with pytest.raises(StoreError, match=r"^get hangs: no answer in 100 ms$"):
            await store.get("hangs")
    finally:
        os.close(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))
