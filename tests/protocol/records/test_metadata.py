"""Records of the metadata log in their frame."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages import metadata_log
from barnabas.protocol.messages.metadata_log import NoOpRecord, PartitionRecord, RegisterControllerRecord, TopicRecord
from barnabas.protocol.records.metadata import decode_metadata_record, encode_metadata_record
from barnabas.protocol.schema import Message

KINDS = [kind for kind in vars(metadata_log).values() if isinstance(kind, type) and issubclass(kind, Message)]


@pytest.mark.feature("PF-03")
def test_a_frame_has_type_and_version() -> None:
    assert encode_metadata_record(NoOpRecord(), 0) == bytes.fromhex("01 14 00 00")
    topic = TopicRecord(name="t", topic_id=bytes(range(16)))
    framed = encode_metadata_record(topic, 0)
    assert framed[:3] == b"\x01\x02\x00"
    assert decode_metadata_record(framed) == (topic, 0)
    assert decode_metadata_record(memoryview(framed)) == (topic, 0)


@pytest.mark.feature("PF-03")
def test_every_type_in_every_version() -> None:
    types = {kind.API_KEY for kind in KINDS if kind is not Message}
    assert types == set(range(29)) - {6, 13, 16}
    for kind in KINDS:
        for version in range(kind.VERSIONS.lowest, kind.VERSIONS.highest + 1):
            assert decode_metadata_record(encode_metadata_record(kind(), version)) == (kind(), version)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "within its frame"),
        (b"\x01\x14", "within its frame"),
        (b"\x00\x14\x00\x00", "frame version 0"),
        (b"\x02\x14\x00\x00", "frame version 2"),
        (b"\x01\x06\x00\x00", "the type 6"),
        (b"\x01\x14\x01\x00", "not 1"),
        (b"\x01\x14\x00", "too early"),
        (b"\x01\x14\x00\x00\x00", "left over"),
    ],
)
def test_bytes_that_are_no_metadata_record(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason):
        decode_metadata_record(data)


@given(st.binary(max_size=60))
def test_random_bytes_are_refused_or_read(tail: bytes) -> None:
    for kind in (PartitionRecord, RegisterControllerRecord):
        try:
            message, _ = decode_metadata_record(bytes([1, kind.API_KEY, 0]) + tail)
        except MalformedMessage:
            continue
        assert isinstance(message, kind)
