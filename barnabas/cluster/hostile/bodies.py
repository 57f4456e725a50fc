"""Core: batches with a valid head and CRC. Their bodies agree with the head, or do not."""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.compression import compress
from barnabas.runtime.simulated.chance import Stream

_RECORD = b"\x0c\x00\x00\x00\x01\x01\x00"
"""The smallest record there is, the first of its batch."""
_ZSTD = 4
_SMALL_BOMB = 30_000
"""Records that are folded into a few bytes."""


class Body(NamedTuple):
    """Bytes for a Produce."""

    data: bytes
    is_poison: bool
    """No leader may take it: a consumer could not read what it holds."""


def draw_body(chance: Stream, now_ms: int, producer: tuple[int, int]) -> Body:
    """Any kind of batch, of this producer."""
    kind = chance.choice(
        ("good", "good", "random", "noise", "short", "far", "no zstd", "folded noise", "bomb", "mangled")
    )
    count = chance.choice((1, 2, 5))
    sequence = chance.choice((0, 0, 1, count, 0x7FFF_FFFF))
    match kind:
        case "good" | "mangled":
            values = [(0, now_ms, b"key", chance.randbytes(chance.choice((0, 1, 100))), ()) for _ in range(count)]
            producer_id, epoch = producer
            good = build_batch(values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            if kind == "good":
                return Body(good, False)
            place = chance.randrange(len(good))
            return Body(good[:place] + chance.randbytes(chance.randrange(4)) + good[place + 1 :], False)
        case "random":
            return Body(chance.randbytes(chance.choice((0, 1, 12, 61, 200))), False)
        case "noise":
            return Body(_batch(b"\xff" * chance.choice((1, 30, 300)), count, now_ms), True)
        case "short":
            return Body(_batch(_RECORD, count + 1, now_ms), True)
        case "far":
            return Body(_batch(b"\x14\x00\x00\x80\x80\x80\x80\x08\x01\x01\x00", 1, now_ms), True)
        case "no zstd":
            return Body(_batch(b"this is no frame", 1, now_ms, chance.choice((1, 2, 3, 4))), True)
        case "folded noise":
            return Body(_batch(compress(_ZSTD, b"\xff" * 30), count, now_ms, _ZSTD), True)
        case _:
            # All of them have the offset delta of the first record.
            return Body(_batch(compress(_ZSTD, _RECORD * _SMALL_BOMB), _SMALL_BOMB, now_ms, _ZSTD), True)


def _batch(payload: bytes, count: int, now_ms: int, codec: int = 0) -> bytes:
    tail = struct.pack(">hiqqqhii", codec, count - 1, now_ms, now_ms, -1, -1, -1, count) + payload
    rest = struct.pack(">ibI", 0, 2, crc32c(tail)) + tail
    return struct.pack(">qi", 0, len(rest)) + rest
