"""The four codecs of record batches, each in the framing that Kafka's other clients write and read.

Decompression is bounded: the sender of a batch controls neither the memory that it takes nor the time.
The libraries are imported at first use, so that a node which never meets a compressed batch does not load
them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from barnabas.protocol.records.batch import CorruptBatch

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor


class Compression(IntEnum):
    """Attribute bits 0 to 2 of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


DEFAULT_LEVELS: Final = {Compression.GZIP: -1, Compression.LZ4: 9, Compression.ZSTD: 3}
"""KIP-390. Snappy has no levels."""

_CHUNK_BYTES = 1 << 20
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_MOST_SMALL_BLOCKS = 4_096
"""Blocks that a stream may have besides those of the usual size: each costs a microsecond, however small it is."""
_SNAPPY_MAX_RATIO = 64
"""A snappy copy makes at most 64 bytes, so a claim beyond this ratio is a lie not worth the memory."""
_ZSTD_MAX_WINDOW_BYTES = 1 << 27
_ZSTD_FIRST_GUESS_BYTES = 1 << 16
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_SLOW_DEFAULT = 9


class UnfoldsTooFar(CorruptBatch):
    """The stream may be right, but unfolds to more than the caller allows."""


def compress(codec: int, data: bytes, level: int | None = None) -> bytes:
    """`data` as `codec` writes it; `level` as in compression.gzip.level and the like, or the default."""
    codec = Compression(codec)
    if level is None:
        level = DEFAULT_LEVELS.get(codec, 0)
    return _COMPRESSORS[codec](data, level)


def decompress(codec: int, data: bytes | memoryview, limit_bytes: int) -> bytes:
    """The decompressed bytes.

    `UnfoldsTooFar` if they are more than `limit_bytes` (at least 1). Any other `CorruptBatch` if it is no whole stream
    of this codec, or the codec is unknown.
    """
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise CorruptBatch(f"unknown compression {codec}")
    return decompressor(data, limit_bytes)


def _too_large(limit_bytes: int) -> UnfoldsTooFar:
    return UnfoldsTooFar(f"a batch that unfolds to more than {limit_bytes} bytes")


def _copy(data: bytes | memoryview, limit_bytes: int) -> bytes:
    if len(data) > limit_bytes:
        raise _too_large(limit_bytes)
    return bytes(data)


def _compress_gzip(data: bytes, level: int) -> bytes:
    stream = zlib.compressobj(level, zlib.DEFLATED, 31)  # writes no time into its head
    return stream.compress(data) + stream.flush()


def _decompress_gzip(data: bytes | memoryview, limit_bytes: int) -> bytes:
    stream = zlib.decompressobj(31)
    try:
        result = stream.decompress(data, limit_bytes + 1)
    except zlib.error as error:
        raise CorruptBatch(f"gzip: {error}") from None
    if len(result) > limit_bytes:
        raise _too_large(limit_bytes)
    if not stream.eof or stream.unused_data:
        raise CorruptBatch("gzip: not one whole member")
    return result


def _compress_snappy(data: bytes, level: int) -> bytes:
    """Xerial's framing, as the Java client writes it: a head, then blocks with their sizes."""
    import cramjam

    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _decompress_snappy(data: bytes | memoryview, limit_bytes: int) -> bytes:
    """Xerial's framing, or one raw block as some C clients write it."""
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit_bytes)
    parts: list[bytes] = []
    remaining = limit_bytes
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise CorruptBatch("snappy: the head is cut short")
    while position < len(view):
        if len(parts) >= _XERIAL_MOST_SMALL_BLOCKS + (limit_bytes - remaining) // _XERIAL_BLOCK_BYTES:
            raise CorruptBatch(f"snappy: more than {_XERIAL_MOST_SMALL_BLOCKS} small blocks")
        start = position + 4
        position = start + int.from_bytes(view[position:start], "big")
        if position > len(view) or position == start:
            raise CorruptBatch("snappy: a block is cut short")
        part = _decompress_snappy_block(view[start:position], remaining)
        remaining -= len(part)
        parts.append(part)
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, limit_bytes: int) -> bytes:
    import cramjam

    size = shift = 0
    for byte in block[:5]:  # the block begins with its unfolded size, an unsigned varint
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > limit_bytes:
        raise _too_large(limit_bytes)
    if size > len(block) * _SNAPPY_MAX_RATIO:
        raise CorruptBatch(f"snappy: {size} bytes cannot come from {len(block)}")
    try:
        return bytes(cramjam.snappy.decompress_raw(bytes(block)))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy: {error}") from None


def _compress_lz4(data: bytes, level: int) -> bytes:
    """A frame of independent blocks of 64 KiB without checksums or size, as the Java client writes it."""
    import lz4.frame

    # Level 9 is Kafka's default and means the fast compressor there; the others are the slow one's levels.
    return bytes(
        lz4.frame.compress(
            data,
            compression_level=0 if level == _LZ4_SLOW_DEFAULT else max(level, 3),
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
    )


def _decompress_lz4(data: bytes | memoryview, limit_bytes: int) -> bytes:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        parts = [stream.decompress(data, max_length=min(limit_bytes + 1, _CHUNK_BYTES))]
        size = len(parts[0])
        while not stream.eof and not stream.needs_input and size <= limit_bytes:
            parts.append(stream.decompress(b"", max_length=min(limit_bytes + 1 - size, _CHUNK_BYTES)))
            size += len(parts[-1])
            if not parts[-1]:
                break
    except RuntimeError as error:
        raise CorruptBatch(f"lz4: {error}") from None
    if size > limit_bytes:
        raise _too_large(limit_bytes)
    if not stream.eof or stream.unused_data:
        raise CorruptBatch("lz4: not one whole frame")
    return b"".join(parts)


def _compress_zstd(data: bytes, level: int) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=level, write_content_size=True).compress(data)


def _decompress_zstd(data: bytes | memoryview, limit_bytes: int) -> bytes:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
    size = room = 0
    try:
        size = zstandard.frame_content_size(data)
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        if size == 0:
            size = -1  # an empty frame; the library takes a size of 0 for an unknown one
        # Java writes frames of unknown size, so the room for them is guessed and grows until it is enough.
        room = min(limit_bytes, size if size >= 0 else max(_ZSTD_FIRST_GUESS_BYTES, 8 * len(data)))
        while True:
            try:
                return decompressor.decompress(data, max_output_size=max(room, 1), allow_extra_data=False)
            except zstandard.ZstdError:
                if size >= 0 or room >= limit_bytes:
                    raise
            room = min(limit_bytes, room * 8)
    except zstandard.ZstdError as error:
        if size < 0 and room >= limit_bytes and _zstd_goes_on(decompressor, data, limit_bytes):
            raise _too_large(limit_bytes) from None
        raise CorruptBatch(f"zstd: {error}") from None


def _zstd_goes_on(decompressor: ZstdDecompressor, data: bytes | memoryview, limit_bytes: int) -> bool:
    """True if a frame of unknown size unfolds to more than `limit_bytes`: the library's error does not distinguish
    that."""
    import zstandard

    left = limit_bytes + 1
    with decompressor.stream_reader(data) as stream:
        try:
            while left > 0 and (part := stream.read(min(left, _CHUNK_BYTES))):
                left -= len(part)
        except zstandard.ZstdError:
            return False
    return left <= 0


_COMPRESSORS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    Compression.NONE: lambda data, level: data,
    Compression.GZIP: _compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: Final[dict[int, Callable[[bytes | memoryview, int], bytes]]] = {
    Compression.NONE: _copy,
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
