"""Reads a capture in the format pcapng, by its specification: packets of TCP, and the streams that they carry."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Packet:
    time_ms: int
    source: tuple[bytes, int]
    target: tuple[bytes, int]
    seq: int
    ack: int
    flags: int
    data: bytes
    comment: str


def packets_of(capture: bytes) -> list[Packet]:
    """All packets; what is no capture fails an assertion."""
    blocks = list(_blocks(capture))
    assert [kind for kind, _ in blocks[:2]] == [0x0A0D0D0A, 1]
    assert struct.unpack_from("<IHH", blocks[0][1]) == (0x1A2B3C4D, 1, 0)
    assert struct.unpack_from("<H", blocks[1][1]) == (101,), "raw IP"
    assert all(kind == 6 for kind, _ in blocks[2:])
    return [_packet(body) for _, body in blocks[2:]]


def streams_of(packets: list[Packet]) -> dict[tuple[tuple[bytes, int], tuple[bytes, int]], bytes]:
    """The bytes of each direction of each connection; a gap fails an assertion."""
    found: dict[tuple[tuple[bytes, int], tuple[bytes, int]], bytearray] = defaultdict(bytearray)
    for each in packets:
        stream = found[each.source, each.target]
        if not each.flags & 2:
            assert each.seq == 1 + len(stream), "the next byte"
            assert each.ack == 1 + len(found[each.target, each.source]), "all that came"
            stream += each.data
    return {ends: bytes(stream) for ends, stream in found.items()}


def frames_of(stream: bytes) -> list[bytes]:
    """Frames of Kafka, without their sizes."""
    frames = []
    while stream:
        size = int.from_bytes(stream[:4], "big")
        frames.append(stream[4 : 4 + size])
        stream = stream[4 + size :]
    return frames


def _blocks(capture: bytes) -> Iterator[tuple[int, bytes]]:
    while capture:
        kind, size = struct.unpack_from("<II", capture)
        assert size % 4 == 0 and capture[size - 4 : size] == capture[4:8]
        yield kind, capture[8 : size - 4]
        capture = capture[size:]


def _packet(body: bytes) -> Packet:
    interface, high, low, captured, original = struct.unpack_from("<IIIII", body)
    assert (interface, captured) == (0, original)
    packet, options = body[20 : 20 + captured], body[20 + captured + -captured % 4 :]
    comment = ""
    if options:
        code, size = struct.unpack_from("<HH", options)
        assert code == 1 and options[-4:] == bytes(4)
        comment = options[4 : 4 + size].decode()
    source, target, head = _addresses(packet)
    ports = struct.unpack_from(">HH", packet, head)
    seq, ack, offset, flags = struct.unpack_from(">IIBB", packet, head + 4)
    data = packet[head + (offset >> 4) * 4 :]
    micros = high << 32 | low
    return Packet(micros // 1000, (source, ports[0]), (target, ports[1]), seq, ack, flags, data, comment)


def _addresses(packet: bytes) -> tuple[bytes, bytes, int]:
    if packet[0] >> 4 == 6:
        assert int.from_bytes(packet[4:6], "big") == len(packet) - 40 and packet[6] == 6
        return packet[8:24], packet[24:40], 40
    assert packet[0] == 0x45 and int.from_bytes(packet[2:4], "big") == len(packet) and packet[9] == 6
    total = sum(struct.unpack_from(">10H", packet))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF, "the checksum of the header"
    return packet[12:16], packet[16:20], 20
