"""An S3 server that keeps files, killed and frozen under puts. Nightly: `make versitygw` builds the server first."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from barnabas.cluster.bucket_check import check_bucket
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.object_store import NoSuchObject, StoreError
from barnabas.runtime.real import real_world
from barnabas.runtime.world import FileRegion
from tests.runtime.stores.stores import opened
from tests.s3_servers import S3Server, versity_server

pytestmark = [pytest.mark.slow, pytest.mark.feature("TS-03")]

LARGE = 96 << 20
"""Twelve parts."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    server = versity_server(tmp_path)
    if server is None:
        pytest.skip("there is no versitygw; `make versitygw` builds it")
    server.start()
    try:
        yield server
    finally:
        server.kill()


async def test_every_property_holds(server: S3Server) -> None:
    open_store = real_world().object_store
    assert open_store is not None
    found = [each async for each in check_bucket(server.settings("check"), open_store, random.SystemRandom())]
    assert [str(each) for each in found if each.verdict != "ok"] == [] and len(found) == 11


async def test_objects_survive_a_kill(server: S3Server) -> None:
    store = opened(real_world(), server.settings())
    contents = {f"orders-0-x/{number}.log": os.urandom(number * 1000) for number in range(20)}
    for key, content in contents.items():
        await store.put(key, [content])
    server.kill()
    server.start()
    assert {each.key for each in await store.list("orders-0-x/")} == contents.keys()
    for key, content in contents.items():
        assert await store.get(key) == content


@pytest.mark.parametrize("parts_read", [1, 4, 9])
async def test_a_put_under_which_the_server_is_killed_is_whole_or_absent(
    server: S3Server, tmp_path: Path, parts_read: int
) -> None:
    """The kill comes when so many parts of the upload have been read from the file."""
    store = opened(real_world(), server.settings(retries=0, timeout_ms=5_000))
    await store.put("before", [b"content"])
    content = os.urandom(LARGE)
    (tmp_path / "log").write_bytes(content)
    file = KillingFile(str(tmp_path / "log"), server, parts_read)
    with pytest.raises(StoreError):
        await store.put("large", [FileRegion(file, 0, LARGE)])  # type: ignore[arg-type]
    server.start()
    assert await store.get("before") == b"content"
    with pytest.raises(NoSuchObject):
        await store.size("large")
    await store.put("large", [content])
    assert await store.get("large") == content


async def test_a_server_that_was_frozen_for_a_moment_is_asked_again(server: S3Server) -> None:
    store = opened(real_world(), server.settings(retries=10, timeout_ms=500))
    await store.put("a", [b"content"])

    async def thaw() -> None:
        await trio.sleep(2)
        server.resume()

    async with trio.open_nursery() as nursery:
        server.pause()
        nursery.start_soon(thaw)
        assert await store.get("a") == b"content"
        await store.put("b", [b"more"])
    assert await store.get("b") == b"more"


class KillingFile:
    """A file that kills the server after some reads."""

    def __init__(self, path: str, server: S3Server, reads: int) -> None:
        self._file = RealDisk().open(path)
        self._server = server
        self._reads = reads
        self.path = path

    def pread(self, count: int, offset: int) -> bytes:
        self._reads -= 1
        if self._reads == 0:
            self._server.kill()
        return self._file.pread(count, offset)
