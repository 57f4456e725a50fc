"""Golden bytes: what Kafka's own serializers wrote for given values."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from barnabas.protocol.schema import Message, decode
from tests.protocol.vectors import check_vector, message_types, read_vectors

DATA = Path(__file__).parent / "data"

MESSAGES: dict[str, list[dict[str, Any]]] = defaultdict(list)
for _, vector in read_vectors(str(DATA / "messages.jsonl.gz")):
    MESSAGES[vector["message"]].append(vector)
BATCHES = [vector for _, vector in read_vectors(str(DATA / "record-batches.jsonl.gz"))]

OLDEST_VERSIONS_WITHOUT_VECTORS = {
    "FetchRequest": 4,
    "FetchResponse": 4,
    "ListOffsetsRequest": 1,
    "ListOffsetsResponse": 1,
    "OffsetCommitRequest": 2,
    "OffsetCommitResponse": 2,
    "OffsetFetchRequest": 1,
    "OffsetFetchResponse": 1,
    "ProduceRequest": 3,
    "ProduceResponse": 3,
    "RequestHeader": 1,
}
"""Versions below these were dropped by Kafka 4, whose serializers wrote the vectors."""


@pytest.mark.feature("PF-01", "PF-02", "PF-03", "PF-19")
@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_message_decodes_to_the_values_and_encodes_to_the_bytes(name: str) -> None:
    failures = {vector["version"]: check_vector(vector) for vector in MESSAGES[name]}
    assert {version: reason for version, reason in failures.items() if reason is not None} == {}


@pytest.mark.feature("PF-03")
def test_there_are_vectors_for_each_version_of_each_message() -> None:
    assert sum(map(len, MESSAGES.values())) == 1456
    assert set(MESSAGES) == set(message_types())
    for name, kind in message_types().items():
        versions = {vector["version"] for vector in MESSAGES[name]}
        first = OLDEST_VERSIONS_WITHOUT_VECTORS.get(name, kind.VERSIONS.lowest)
        assert versions == set(range(first, kind.VERSIONS.highest + 1)), name


@pytest.mark.feature("PF-07", "PF-08", "PF-09", "PF-10", "PF-12", "PF-14", "PF-15", "PF-16", "PF-18")
@pytest.mark.parametrize("vector", BATCHES, ids=[vector["case"] for vector in BATCHES])
def test_batches_decode_to_their_records(vector: dict[str, Any]) -> None:
    assert check_vector(vector) is None


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_bytes_and_views_decode_alike(name: str) -> None:
    kind: type[Message] = message_types()[name]
    for vector in MESSAGES[name]:
        data = bytes.fromhex(vector["hex"])
        version = vector["version"]
        whole = decode(kind, data, version)
        assert decode(kind, memoryview(data), version) == whole
        assert decode(kind, bytearray(data), version) == whole
        # A view into the middle of a larger, writable buffer is what a connection hands over.
        padded = memoryview(bytearray(b"before" + data + b"after"))[6 : 6 + len(data)]
        assert decode(kind, padded, version) == whole
