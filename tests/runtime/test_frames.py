"""Frames come out whole, however their bytes came in."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.runtime.frames import SCRATCH_BYTES, TRUSTED_BYTES, FrameError, FrameReader
from barnabas.runtime.world import ConnectionLost
from tests.examples import examples


class Pieces:
    """A connection that gives its bytes in pieces of given sizes, as far as the buffer lets it."""

    peer_host, peer_port = "peer", 1

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._data = memoryview(data)
        self._sizes = sizes
        self._turn = 0

    async def receive_into(self, buffer: memoryview) -> int:
        if not self._data:
            raise ConnectionLost("the end")
        size = self._sizes[self._turn % len(self._sizes)]
        self._turn += 1
        count = min(size, len(buffer), len(self._data))
        buffer[:count] = self._data[:count]
        self._data = self._data[count:]
        return count


def read_all(data: bytes, sizes: list[int], max_frame_bytes: int = 1 << 30, scratch_bytes: int = 512) -> list[bytes]:
    frames: list[bytearray] = []

    async def story() -> None:
        reader = FrameReader(Pieces(data, sizes), max_frame_bytes, bytearray(scratch_bytes + 4))
        with pytest.raises(ConnectionLost):
            while True:
                frames.extend(await reader.read())

    trio.run(story)
    return [bytes(frame) for frame in frames]


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


@pytest.mark.feature("PF-01")
@settings(max_examples=examples(150), deadline=None)
@given(
    frames=st.lists(st.binary(max_size=300) | st.integers(0, 100_000).map(bytes), max_size=8),
    sizes=st.lists(st.integers(1, 700) | st.just(1 << 20), min_size=1, max_size=5),
    tail=st.binary(max_size=3),
)
def test_any_split_gives_the_same_frames(frames: list[bytes], sizes: list[int], tail: bytes) -> None:
    if sum(map(len, frames)) > 20_000:
        sizes = [size + 5000 for size in sizes]
    data = b"".join(map(framed, frames)) + tail
    assert read_all(data, sizes) == frames


@pytest.mark.feature("PF-01")
def test_frames_fed_byte_by_byte() -> None:
    frames = [b"", b"a", b"bc" * 50, b""]
    assert read_all(b"".join(map(framed, frames)), [1]) == frames


def test_a_frame_larger_than_the_trusted_size() -> None:
    large = bytes(range(256)) * (TRUSTED_BYTES * 5 // 2 // 256)
    data = framed(b"before") + framed(large) + framed(b"after")
    for size in (TRUSTED_BYTES - 1, 1 << 30, 100_001):
        assert read_all(data, [size], scratch_bytes=SCRATCH_BYTES) == [b"before", large, b"after"]


@pytest.mark.feature("PF-01")
@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_bad_size_is_refused_at_once(size: int) -> None:
    with pytest.raises(FrameError):
        read_all(size.to_bytes(4, "big", signed=True), [100], max_frame_bytes=1000)


def test_a_huge_claim_takes_little_memory() -> None:
    async def story() -> None:
        connection = Pieces((2**31 - 1).to_bytes(4, "big") + b"x" * 10, [100])
        reader = FrameReader(connection, 2**31 - 1, bytearray(1000))
        assert await reader.read() == []
        assert reader._partial is not None
        assert len(reader._partial) <= TRUSTED_BYTES

    trio.run(story)
