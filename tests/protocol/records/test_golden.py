"""Batches that Kafka's own code wrote, of every magic and codec, and their contents by its account."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.protocol.records.batch import BatchHeader, crc_is_valid, iterate_batches
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record, decode_records

VECTORS = Path(__file__).parent.parent / "data" / "record-batches.jsonl.gz"
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def load() -> list[Any]:
    with gzip.open(VECTORS, "rt") as lines:
        vectors = [json.loads(line) for line in lines]
    return [pytest.param(v, id=f"{i}-{v['case']}") for i, v in enumerate(vectors)]


def plain(record: Record) -> dict[str, Any]:
    """A record as the vectors spell it."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": None if record.key is None else record.key.hex(),
        "value": None if record.value is None else record.value.hex(),
        "headers": [[key, None if value is None else value.hex()] for key, value in record.headers],
    }


@pytest.mark.feature("PF-07", "PF-08", "PF-09", "PF-10", "PF-12", "PF-14", "PF-15", "PF-16", "PF-18")
@pytest.mark.parametrize("vector", load())
def test_batches_written_by_kafka_decode_as_kafka_describes_them(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    batches = list(iterate_batches(data))
    assert len(batches) == len(vector["batches"])
    for (position, header), expected in zip(batches, vector["batches"], strict=True):
        assert crc_is_valid(data, position, header)
        assert header.magic == expected["magic"]
        assert header.last_offset == expected["last_offset"]
        assert header.size_bytes == expected["size"]
        assert header.compression == CODECS[expected["compression"]]
        assert header.is_log_append_time == (expected["timestamp_type"] == "LogAppendTime")
        assert header.max_timestamp == expected["max_timestamp"]
        assert [plain(record) for record in decode_records(data, position)] == expected["records"]
        if header.magic == 2:
            assert_head_of_v2(header, expected)


def assert_head_of_v2(header: BatchHeader, expected: dict[str, Any]) -> None:
    assert header.base_offset == expected["base_offset"]
    assert header.crc == expected["crc"]
    assert header.partition_leader_epoch == expected["partition_leader_epoch"]
    assert header.producer_id == expected["producer_id"]
    assert header.producer_epoch == expected["producer_epoch"]
    assert header.base_sequence == expected["base_sequence"]
    assert header.last_sequence == expected["last_sequence"]
    assert header.is_transactional == expected["is_transactional"]
    assert header.is_control == expected["is_control"]
    assert header.records_count == len(expected["records"])


@pytest.mark.feature("PF-07", "PF-08", "PF-10")
@pytest.mark.parametrize("vector", load())
def test_we_build_the_very_bytes_that_kafka_built(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    for position, header in iterate_batches(data):
        batch = data[position : position + header.size_bytes]
        if header.magic != 2 or header.compression:
            continue  # only v2 is ever written, and compressors differ
        rebuilt = build_batch(
            decode_records(batch),
            base_offset=header.base_offset,
            keep_offsets=True,
            last_offset=header.last_offset,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            leader_epoch=header.partition_leader_epoch,
            transactional=header.is_transactional,
            control=header.is_control,
        )
        if not header.is_log_append_time:
            assert rebuilt == batch
        else:  # the deltas of the times before the broker's stamp are gone
            assert decode_records(rebuilt) == decode_records(batch)


@pytest.mark.feature("PF-11")
@pytest.mark.parametrize("vector", load())
def test_every_batch_cut_anywhere_is_left_out_and_not_an_error(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    positions = [position for position, _ in iterate_batches(data)]
    for end in {0, 1, 11, 12, 17, 60, 61, len(data) // 2, len(data) - 1}:
        whole = [position for position, _ in iterate_batches(data[:end])]
        assert whole == positions[: len(whole)]
        assert len(whole) < len(positions)
