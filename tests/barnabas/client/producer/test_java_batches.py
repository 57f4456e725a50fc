"""Batches as Kafka's own producer lays them out for the same records: ours are equal, byte by byte.

`data/java_batches/WriteBatches.java` has written them. What compressors make of the same bytes is theirs: there the
head is compared, and what was compressed.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.client.metadata import TopicPartition
from barnabas.client.producer.buffer_pool import BufferPool
from barnabas.client.producer.memory_records_builder import BatchFormat, ProducerId
from barnabas.client.producer.partition_queue import QueueSettings
from barnabas.client.producer.partitioner import partition_for_key
from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.client.producer.record_accumulator import RecordAccumulator
from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, CONTROL_BIT, BatchHeader, crc_is_valid, iterate_batches
from barnabas.protocol.records.compression import Compression, decompress
from barnabas.protocol.records.layout import Fields
from barnabas.protocol.records.record import decode_records

DATA = Path(__file__).with_name("data") / "java_batches"
CASES: list[dict[str, Any]] = json.loads((DATA / "cases.json").read_text())
WRITTEN_BY_BROKERS = 16
"""Base offset, size, and leader epoch: the first of these and the last are the broker's."""
MUCH = 2**30
CUT_OTHERWISE = {"one-by-one", "larger-than-a-batch"}
"""Cases with a record larger than batch.size: docs/differences.md."""


class Nobody:
    """Collects the batches that ended."""

    def decided(self, batch: ProducerBatch) -> None: ...
    def split(self, batch: ProducerBatch) -> None: ...


def logs_of(name: str) -> dict[int, bytes]:
    """By partition: what is in the log after Kafka's own producer sent the records of a case."""
    with gzip.open(DATA / "batches.jsonl.gz", "rt") as lines:
        value = [json.loads(line) for line in lines]
    return {each["partition"]: b64decode(each["log"]) for each in value if each["name"] == name}


def batches_of(log: bytes) -> list[tuple[BatchHeader, bytes]]:
    """Those of the producer."""
    found = []
    for position, header in iterate_batches(log):
        assert crc_is_valid(log, position, header)
        if not header.attributes & CONTROL_BIT:
            found.append((header, log[position : position + header.size_bytes]))
    return found


def records_of(case: dict[str, Any]) -> Iterator[tuple[int | None, Fields]]:
    """(partition, record) as `WriteBatches.java` makes them."""
    for each in case["records"]:
        headers = tuple((name, content(value)) for name, value in each["headers"])
        for count in range(each["times"]):
            record = (0, each["timestamp"] + count, content(each["key"]), content(each["value"]), headers)
            yield each["partition"], record


def content(value: str | int | None) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else bytes.fromhex(value)
    return bytes(index * 31 % 251 for index in range(value))


def lay_out(case: dict[str, Any], producers: dict[int, ProducerId]) -> dict[int, list[bytes]]:
    """By partition: the batches in which our producer sends the records of a case."""
    codec = Compression[case["compression"].upper()]
    accumulator = RecordAccumulator(
        BatchFormat(case["batch_size"], codec, None, case["transactional"]),
        QueueSettings(idempotent=case["idempotent"]),
        BufferPool(MUCH),
        trio.Event,
        Nobody(),
    )
    for partition, record in records_of(case):
        chosen = partition
        if chosen is None:
            assert record[2] is not None, "a key chooses"
            chosen = partition_for_key(record[2], case["partitions"])
        place = TopicPartition("t", chosen)
        if accumulator.append(place, record, 0) is None:
            memory_bytes = accumulator.new_batch_bytes(record)
            assert accumulator.pool.try_allocate(memory_bytes)
            assert accumulator.append(place, record, 0, memory_bytes) is not None
    accumulator.begin_flush()
    sent: dict[int, list[bytes]] = {}
    for index in range(case["partitions"]):
        queue = accumulator.queue(TopicPartition("t", index))
        if case["idempotent"] and index in producers:
            queue.assign(producers[index])
        while batches := accumulator.drain([queue], MUCH, 0):
            for batch in batches:
                sent.setdefault(index, []).append(batch.encoded)
                queue.acked(batch, 0, -1)
    return sent


@pytest.mark.feature("CL-02")
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_our_batches_are_those_of_kafkas_own_producer(case: dict[str, Any]) -> None:
    theirs = {index: batches for index, log in logs_of(case["name"]).items() if (batches := batches_of(log))}
    producers = {
        index: ProducerId(batches[0][0].producer_id, batches[0][0].producer_epoch) for index, batches in theirs.items()
    }
    ours = lay_out(case, producers)
    assert sorted(ours) == sorted(theirs), "the same records are in the same partitions"
    for index, batches in theirs.items():
        if case["name"] in CUT_OTHERWISE:
            assert contents_of(ours[index]) == contents_of([batch for _, batch in batches])
            continue
        assert len(ours[index]) == len(batches)
        for our, (header, their) in zip(ours[index], batches, strict=True):
            if case["compression"] == "none":
                assert our[WRITTEN_BY_BROKERS:] == their[WRITTEN_BY_BROKERS:]
                assert our[8:12] == their[8:12], "the size"
            else:
                assert_equal_but_for_the_compressor(our, their, header.compression)


def contents_of(batches: list[bytes]) -> list[tuple[int, tuple[object, ...]]]:
    """Each record with its sequence."""
    found = []
    for batch in batches:
        [(_, head)] = iterate_batches(batch)
        for place, record in enumerate(decode_records(batch)):
            found.append((head.base_sequence + place, tuple(record)[1:]))
    return found


def assert_equal_but_for_the_compressor(our: bytes, their: bytes, codec: int) -> None:
    [(_, head)] = iterate_batches(our)
    [(_, their_head)] = iterate_batches(their)
    head = head._replace(
        base_offset=their_head.base_offset,
        partition_leader_epoch=their_head.partition_leader_epoch,
        batch_length=their_head.batch_length,
        crc=their_head.crc,
    )
    assert head == their_head
    assert codec != Compression.NONE
    plain = decompress(codec, our[BATCH_HEADER_BYTES:], MUCH)
    assert plain == decompress(codec, their[BATCH_HEADER_BYTES:], MUCH)


def test_the_cases_have_what_is_to_be_compared() -> None:
    """Guards against comparing nothing with nothing."""
    of_several = logs_of("many-batches-idempotent")
    sequences = [header.base_sequence for header, _ in batches_of(of_several[0])]
    assert len(sequences) > 2 and sequences == sorted(set(sequences)) and sequences[0] == 0
    assert all(batches_of(log) for log in logs_of("keyed").values())
    assert all(logs_of(name) for name in CUT_OTHERWISE)
    [(transactional, _)] = batches_of(logs_of("transaction")[0])
    assert transactional.is_transactional and transactional.producer_id >= 0
