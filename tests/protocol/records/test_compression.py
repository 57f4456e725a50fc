"""The four codecs: the framings of other clients, and streams that mean harm."""

import gzip
import os
import tracemalloc

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.records.batch import CorruptBatch
from barnabas.protocol.records.compression import Compression, compress, decompress

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
TEXT = b"the same again and again, " * 5000
LIMIT = 1 << 20


@pytest.mark.feature("PF-12")
@pytest.mark.parametrize("codec", list(Compression))
@given(data=st.binary(max_size=300), repeat=st.sampled_from([1, 500]))
def test_compressed_bytes_come_back(codec: Compression, data: bytes, repeat: int) -> None:
    assert decompress(codec, memoryview(compress(codec, data * repeat)), LIMIT) == data * repeat


@pytest.mark.feature("PF-12")
@pytest.mark.parametrize("codec", CODECS)
def test_text_shrinks_and_is_the_same_each_time(codec: Compression) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) / 10
    assert compress(codec, TEXT) == compress(codec, TEXT)


@pytest.mark.feature("PF-12")
@pytest.mark.parametrize(("codec", "levels"), [(1, [1, 9, -1]), (3, [1, 9, 17]), (4, [-5, 3, 19])])
def test_every_level_of_kip_390_is_read_back(codec: int, levels: list[int]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, TEXT, level), LIMIT) == TEXT


@pytest.mark.feature("PF-12")
def test_snappy_is_written_in_xerial_framing_in_blocks_of_32_kib() -> None:
    written = compress(Compression.SNAPPY, TEXT)
    assert written[:16] == b"\x82SNAPPY\x00" + b"\0\0\0\1" * 2
    block = written[20 : 20 + int.from_bytes(written[16:20], "big")]
    assert bytes(cramjam.snappy.decompress_raw(block)) == TEXT[: 32 * 1024]


@pytest.mark.feature("PF-12")
def test_snappy_without_framing_is_read_too() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), LIMIT) == TEXT


@pytest.mark.feature("PF-12")
def test_frames_as_other_clients_write_them_are_read() -> None:
    linked = lz4.frame.compress(TEXT, block_linked=True, content_checksum=True, store_size=True)
    assert decompress(Compression.LZ4, linked, LIMIT) == TEXT
    assert decompress(Compression.GZIP, gzip.compress(TEXT), LIMIT) == TEXT
    unsized = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT)
    assert decompress(Compression.ZSTD, unsized, LIMIT) == TEXT
    small_guess = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(LIMIT))
    assert decompress(Compression.ZSTD, small_guess, LIMIT) == bytes(LIMIT)


def bombs() -> list[object]:
    zeros = bytes(200 << 20)
    return [
        pytest.param(1, gzip.compress(zeros), id="gzip"),
        pytest.param(3, lz4.frame.compress(zeros), id="lz4, honest size"),
        pytest.param(3, lz4.frame.compress(zeros, store_size=False), id="lz4, no size"),
        pytest.param(4, zstandard.compress(zeros), id="zstd, honest size"),
        pytest.param(4, zstandard.ZstdCompressor(write_content_size=False).compress(zeros), id="zstd, no size"),
        pytest.param(2, bytes(cramjam.snappy.compress_raw(zeros)), id="snappy"),
        pytest.param(2, b"\xff\xff\xff\xff\x0f" + b"\0" * 40, id="snappy, claims 4 GiB"),
        pytest.param(2, compress(2, bytes(2 * LIMIT)), id="xerial"),
    ]


@pytest.mark.feature("PF-12")
@pytest.mark.parametrize(("codec", "bomb"), bombs())
def test_a_bomb_is_refused_without_the_memory_it_asks_for(codec: int, bomb: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(CorruptBatch):
        decompress(codec, bomb, LIMIT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * LIMIT + len(bomb)


@pytest.mark.parametrize("codec", CODECS)
def test_a_stream_cut_short_is_corrupt(codec: Compression) -> None:
    whole = compress(codec, os.urandom(70_000))
    for end in (0, 1, 5, len(whole) // 2, len(whole) - 1):
        with pytest.raises(CorruptBatch):
            decompress(codec, whole[:end], LIMIT)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=100))
def test_any_bytes_unfold_or_are_corrupt(codec: Compression, data: bytes) -> None:
    magic = {1: b"\x1f\x8b\x08\x00", 2: b"\x82SNAPPY\x00", 3: b"\x04\x22\x4d\x18", 4: b"\x28\xb5\x2f\xfd"}[codec]
    for stream in (data, magic + data):
        try:
            assert len(decompress(codec, stream, LIMIT)) <= LIMIT
        except CorruptBatch:
            pass


def test_an_unknown_codec_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="unknown compression 5"):
        decompress(5, b"", LIMIT)


def test_snappy_in_very_many_small_blocks_is_refused() -> None:
    head = bytes(compress(Compression.SNAPPY, b""))[:16]
    crumb = b"\0\0\0\1\0"
    assert decompress(Compression.SNAPPY, head + crumb * 4_096, LIMIT) == b""
    with pytest.raises(CorruptBatch, match="more than 4096 small blocks"):
        decompress(Compression.SNAPPY, head + crumb * 4_097, LIMIT)
    whole = compress(Compression.SNAPPY, bytes(32 * 1024))[16:]
    assert len(decompress(Compression.SNAPPY, head + whole * 5_000, 1 << 30)) == 5_000 * 32 * 1024
