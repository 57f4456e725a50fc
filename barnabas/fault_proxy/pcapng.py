"""Core: messages of a proxy as a capture in the format pcapng, which Wireshark and tshark read and dissect.

A connection of a client is one of TCP, with its addresses and ports and the headers that its bytes would have had: the
client's port, and that of the broker, by which Wireshark recognises Kafka on 9092. Checksums of TCP are 0, as in
captures of cards that compute them. Times are those at which the proxy saw a message.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

Address = tuple[str, int]

SEGMENT_BYTES = 32 << 10
_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_BYTE_ORDER = 0x1A2B3C4D
_RAW_IP = 101
_COMMENT, _APPLICATION = 1, 4
_SYN, _PSH, _ACK = 2, 8, 16
_TCP, _HOPS, _WINDOW, _TCP_BYTES = 6, 64, 65_535, 20
_WRAP = 1 << 32


def beginning() -> bytes:
    """The first bytes of a capture."""
    section = struct.pack("<IHHq", _BYTE_ORDER, 1, 0, -1) + _option(_APPLICATION, "barnabas proxy")
    return _block(_SECTION, section) + _block(_INTERFACE, struct.pack("<HHI", _RAW_IP, 0, 0))


@dataclass(slots=True)
class _End:
    """One end of a connection; `next` is the number of its next byte."""

    ip: bytes
    port: int
    next: int = 0


@dataclass(slots=True)
class CapturedConnection:
    """A connection of a client to a broker. Every method returns blocks to be appended to the capture."""

    client: Address
    broker: Address
    _client: _End = field(init=False)
    _broker: _End = field(init=False)

    def __post_init__(self) -> None:
        one, other = map(ipaddress.ip_address, (self.client[0], self.broker[0]))
        if one.version != other.version:
            one, other = (each if each.version == 6 else _as_ipv6(each) for each in (one, other))
        self._client = _End(one.packed, self.client[1])
        self._broker = _End(other.packed, self.broker[1])

    def opened(self, time_ms: int) -> bytes:
        """The three segments that begin a connection."""
        client, broker = self._client, self._broker
        syn = self._segment(time_ms, client, broker, _SYN)
        client.next = 1
        answer = self._segment(time_ms, broker, client, _SYN | _ACK)
        broker.next = 1
        return syn + answer + self._segment(time_ms, client, broker, _ACK)

    def message(self, time_ms: int, data: bytes, comment: str, *, is_request: bool, most_bytes: int) -> bytes:
        """The segments of a message, which begins with its size. Those behind `most_bytes` are left out, as from a
        capture that lost packets."""
        source, target = self._ends(is_request)
        written = bytearray()
        for part in _parts(data, most_bytes):
            flags = _ACK | (_PSH if len(part) < SEGMENT_BYTES else 0)
            written += self._segment(time_ms, source, target, flags, part, "" if written else comment)
            source.next += len(part)
        source.next += max(0, len(data) - most_bytes)
        return bytes(written)

    def note(self, time_ms: int, comment: str, *, is_request: bool) -> bytes:
        """A segment without data that has a comment."""
        source, target = self._ends(is_request)
        return self._segment(time_ms, source, target, _ACK, b"", comment)

    def _ends(self, is_request: bool) -> tuple[_End, _End]:
        return (self._client, self._broker) if is_request else (self._broker, self._client)

    def _segment(
        self, time_ms: int, source: _End, target: _End, flags: int, data: memoryview | bytes = b"", comment: str = ""
    ) -> bytes:
        acked = target.next % _WRAP if flags & _ACK else 0
        offset = _TCP_BYTES // 4 << 4
        head = struct.pack(
            ">HHIIBBHHH", source.port, target.port, source.next % _WRAP, acked, offset, flags, _WINDOW, 0, 0
        )
        packet = b"".join((_ip_head(source.ip, target.ip, len(head) + len(data)), head, data))
        micros = time_ms * 1000
        body = struct.pack("<IIIII", 0, micros >> 32, micros & 0xFFFFFFFF, len(packet), len(packet))
        return _block(_PACKET, body + _padded(packet) + _option(_COMMENT, comment))


def _parts(data: bytes, most_bytes: int) -> Iterator[memoryview]:
    view = memoryview(data)[:most_bytes]
    for start in range(0, len(view), SEGMENT_BYTES):
        yield view[start : start + SEGMENT_BYTES]


def _ip_head(source: bytes, target: bytes, length: int) -> bytes:
    if len(source) == 16:
        return struct.pack(">IHBB", 6 << 28, length, _TCP, _HOPS) + source + target
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + length, 0, 0x4000, _HOPS, _TCP, 0) + source + target
    total = sum(struct.unpack(">10H", head))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack(">H", ~total & 0xFFFF) + head[12:]


def _as_ipv6(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv6Address:
    return ipaddress.IPv6Address(f"::ffff:{address}")


def _block(kind: int, body: bytes) -> bytes:
    size = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + size + body + size


def _option(code: int, text: str) -> bytes:
    """One option and the end of options; nothing for no text."""
    value = text.encode()[:0xFFFF]
    return struct.pack("<HH", code, len(value)) + _padded(value) + struct.pack("<HH", 0, 0) if value else b""


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
