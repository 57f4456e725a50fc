"""For all bytes that a peer may send, decoding ends in a message or in `MalformedMessage`, with little memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.codec.helpers import MOST_ELEMENTS
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.group_log import StreamsGroupMemberMetadataValue
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from barnabas.protocol.schema import BOOL, INT32, UUID, Message, Struct, array, decode, encode, field
from tests.examples import examples
from tests.protocol.vectors import differences, message_types, read_vectors

VECTORS = [vector for _, vector in read_vectors(str(Path(__file__).parent / "data" / "messages.jsonl.gz"))]
PAIRS = [
    (kind, version)
    for kind in message_types().values()
    for version in range(kind.VERSIONS.lowest, kind.VERSIONS.highest + 1)
]
MANY = settings(max_examples=examples(500), deadline=None)


def decode_or_refuse(kind: type[Message], data: bytes, version: int) -> None:
    try:
        message = decode(kind, memoryview(data), version)
    except MalformedMessage:
        return
    # An accepted message must survive a round trip.
    again = decode(kind, encode(message, version), version)
    assert next(differences(message, again, kind.__name__), None) is None


@pytest.mark.feature("PF-01", "PF-03")
@MANY
@given(pair=st.sampled_from(PAIRS), data=st.binary(max_size=200))
def test_random_bytes(pair: tuple[type[Message], int], data: bytes) -> None:
    decode_or_refuse(pair[0], data, pair[1])


@pytest.mark.feature("PF-01", "PF-03")
@MANY
@given(vector=st.sampled_from(VECTORS), data=st.data())
def test_damaged_messages(vector: dict[str, str], data: st.DataObject) -> None:
    good = bytes.fromhex(vector["hex"])
    at = data.draw(st.integers(0, len(good)))
    removed = data.draw(st.integers(0, 4))
    inserted = data.draw(
        st.one_of(st.binary(max_size=4), st.sampled_from([b"\xff", b"\x80", b"\x7f\xff\xff\xff"]))
    )
    decode_or_refuse(
        message_types()[vector["message"]],
        good[:at] + inserted + good[at + removed :],
        int(vector["version"]),
    )


@pytest.mark.feature("PF-01")
def test_every_cut_is_refused_and_so_is_a_byte_too_many() -> None:
    for vector in VECTORS[::7]:
        kind, version, good = (
            message_types()[vector["message"]],
            vector["version"],
            bytes.fromhex(vector["hex"]),
        )
        for end in range(0, len(good), max(1, len(good) // 50)):
            with pytest.raises(MalformedMessage):
                decode(kind, good[:end], version)
        with pytest.raises(MalformedMessage, match="left over"):
            decode(kind, good + b"\0", version)


class Nothing(Struct):
    since_version_5: int = field(INT32, "5+", default=0)


class Emptiness(Message, versions="0-1"):
    """Arrays of elements that take no bytes, or a single one."""

    nothings: list[Nothing] = field(array(Nothing), "0+", factory=list)
    flags: list[bool] = field(array(BOOL), "1+", factory=list)
    ids: list[bytes] = field(array(UUID), "1+", factory=list)


def test_elements_without_bytes_are_still_counted_against_the_rest() -> None:
    with pytest.raises(MalformedMessage):
        decode(Emptiness, pack(">i", 2**31 - 1), 0)
    with pytest.raises(MalformedMessage):
        decode(Emptiness, pack(">i", 1), 0)
    assert decode(Emptiness, pack(">iii", 0, 0, 0), 1) == Emptiness()


@pytest.mark.feature("PF-01")
@pytest.mark.parametrize("count", [2**31 - 1, 10**6, -2, -(2**31)])
def test_a_huge_or_negative_count_allocates_nothing(count: int) -> None:
    request = pack(">iii", -1, 0, 0) + pack(">ibi", 0, 0, count) + bytes(40)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            decode(FetchRequest, request, 4)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.feature("PF-01")
def test_a_compact_count_of_32_bits_allocates_nothing() -> None:
    head = pack(">ihi", 0, 0, 0)
    with pytest.raises(MalformedMessage):
        decode(FetchResponse, head + b"\xff\xff\xff\xff\x0f" + bytes(20), 13)


def good_heartbeat() -> bytes:
    return encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)


@pytest.mark.feature("PF-01")
@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        (b"\x02\x05\x01a\x05\x01b", "rising"),
        (b"\x02\x05\x01a\x04\x01b", "rising"),
        (b"\x01\x05\x09a", "beyond"),
        (b"\x02\x05\x01a", "too early"),
        (b"\x81\x00\x05\x01a", "varint"),
        (b"\xff\xff\xff\xff\xff\x01", "varint"),
        (b"\xff\xff\xff\xff\x1f", "varint"),
    ],
    ids=[
        "twice the same",
        "falling",
        "too long",
        "one missing",
        "overlong count",
        "endless",
        "above 32 bits",
    ],
)
def test_wrong_tagged_fields(tags: bytes, reason: str) -> None:
    good = good_heartbeat()
    assert good[-1:] == b"\0"
    with pytest.raises(MalformedMessage, match=reason):
        decode(HeartbeatRequest, good[:-1] + tags, 4)


def test_a_known_tagged_field_must_fill_its_size() -> None:
    request = encode(FetchRequest(cluster_id="abc"), 12)
    at = request.rindex(b"\x01\x00\x04\x04abc")
    for size in (b"\x03", b"\x05"):
        with pytest.raises(MalformedMessage):
            decode(FetchRequest, request[: at + 2] + size + request[at + 3 :] + b"z", 12)


def test_null_where_it_is_not_allowed() -> None:
    with pytest.raises(MalformedMessage, match="null"):
        decode(HeartbeatRequest, pack(">hihh", -1, 0, 0, -1), 0)
    with pytest.raises(MalformedMessage, match="null"):
        decode(HeartbeatRequest, b"\x00" + good_heartbeat()[2:], 4)
    assert decode(MetadataRequest, pack(">i", -1), 1).topics is None
    with pytest.raises(MalformedMessage, match="negative"):
        decode(MetadataRequest, pack(">i", -2), 1)
    with pytest.raises(MalformedMessage, match="negative"):
        decode(MetadataRequest, pack(">i", -1), 0)


def test_a_struct_is_there_or_not() -> None:
    kind = StreamsGroupHeartbeatRequest
    good = encode(kind(), 0)
    at = next(i for i in range(len(good)) if good[i : i + 1] == b"\xff" and decode_fails(kind, good, i))
    assert decode(kind, good, 0) == kind(), at
    for marker in (0, 2, 0x80, 0xFE):
        with pytest.raises(MalformedMessage):
            decode(kind, good[:at] + bytes([marker]) + good[at + 1 :], 0)


def decode_fails(kind: type[Message], good: bytes, at: int) -> bool:
    """True if the byte at `at` is a null marker: another value than -1 is refused as such."""
    try:
        decode(kind, good[:at] + b"\x02" + good[at + 1 :], 0)
    except MalformedMessage as error:
        return "marker" in str(error)
    return False


def test_strings_must_be_utf_8() -> None:
    with pytest.raises(MalformedMessage, match="utf-8"):
        decode(HeartbeatRequest, pack(">h2sihh", 2, b"\xc3\x28", 0, 0, 0), 0)


def test_a_version_that_no_class_has_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="versions 0-13, not 14"):
        decode(ProduceRequest, b"", 14)
    with pytest.raises(MalformedMessage, match="not -1"):
        decode(StreamsGroupMemberMetadataValue, b"", -1)


def varint(value: int) -> bytes:
    """Unsigned."""
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


FLOOD = 3_000_000
HOSTILE = {
    "names of no letters": (MetadataRequest, 1, FLOOD.to_bytes(4, "big") + bytes(2 * FLOOD)),
    "structs in structs": (
        FetchRequest,
        4,
        bytes(17) + (1000).to_bytes(4, "big") + (bytes(2) + (1000).to_bytes(4, "big") + bytes(16_000)) * 1000,
    ),
    "numbers": (
        DescribeProducersRequest,
        0,
        b"\x02\x01" + varint(FLOOD + 1) + bytes(4 * FLOOD) + b"\0\0",
    ),
    "tagged fields": (
        MetadataRequest,
        12,
        b"\x01\0\0" + varint(FLOOD) + b"".join(varint(tag) + b"\0" for tag in range(FLOOD)),
    ),
}


@pytest.mark.feature("PF-01", "RP-11")
@pytest.mark.parametrize("what", HOSTILE)
def test_a_frame_full_of_tiny_elements_takes_no_more_memory_than_it_has_bytes(what: str) -> None:
    kind, version, body = HOSTILE[what]
    decode(MetadataRequest, b"\0\0\0\0", 1)  # compiled before it is measured
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage, match="elements"):
            decode(kind, memoryview(body), version)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST_ELEMENTS * 400, f"{peak} bytes for {len(body)}"


def test_a_response_may_be_about_a_whole_cluster() -> None:
    names = [MetadataRequestTopic(name="t")] * MOST_ELEMENTS
    assert len(decode(MetadataRequest, encode(MetadataRequest(topics=names), 4), 4).topics or []) == MOST_ELEMENTS
    with pytest.raises(MalformedMessage):
        decode(MetadataRequest, encode(MetadataRequest(topics=[*names, names[0]]), 4), 4)
    brokers = [MetadataResponseBroker(host="h", rack=None)] * (MOST_ELEMENTS + 1)
    response = MetadataResponse(brokers=brokers)
    assert len(decode(MetadataResponse, encode(response, 4), 4).brokers) == MOST_ELEMENTS + 1
