"""Keys and values of the coordinators' topics."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages import group_log, share_log, transaction_log
from barnabas.protocol.messages.group_log import OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from barnabas.protocol.records.coordinator import (
    decode_key,
    decode_versioned,
    encode_key,
    encode_versioned,
    record_types,
)


def test_a_key_starts_with_its_type() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    encoded = encode_key(key)
    assert encoded == bytes.fromhex("0001 000167 000174 00000003")
    assert decode_key(record_types(group_log), encoded) == key


def test_a_value_starts_with_its_version() -> None:
    value = OffsetCommitValue(offset=9, leader_epoch=2, metadata="m", commit_timestamp=5)
    encoded = encode_versioned(value, 3)
    assert encoded == bytes.fromhex("0003 0000000000000009 00000002 00016d 0000000000000005")
    assert decode_versioned(OffsetCommitValue, encoded) == (value, 3)
    assert decode_versioned(TransactionLogValue, encode_versioned(TransactionLogValue(), 1))[1] == 1


def test_the_types_of_each_log() -> None:
    groups = record_types(group_log)
    assert sorted(groups) == [*range(9), *range(10, 18), *range(19, 24)]
    assert groups[1] == (OffsetCommitKey, OffsetCommitValue)
    assert sorted(record_types(share_log)) == [0, 1]
    transactions = record_types(transaction_log)
    assert transactions == {0: (TransactionLogKey, TransactionLogValue)}
    for log in (group_log, share_log, transaction_log):
        for kind, (key, value) in record_types(log).items():
            assert (kind, kind) == (key.API_KEY, value.API_KEY)


def test_records_of_newer_versions_are_ignored() -> None:
    assert decode_key(record_types(transaction_log), b"\x00\x63whatever") is None


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0", b"\0\0\0\x09short"])
def test_broken_keys(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_key(record_types(transaction_log), data)
    with pytest.raises(MalformedMessage):
        decode_versioned(TransactionLogValue, data)
