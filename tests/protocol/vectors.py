"""`python -m tests.protocol.vectors FILE.jsonl`: holds this implementation against vectors of bytes and values.

A line is either a message, `{"message", "version", "json", "hex"}`, or record batches,
`{"case", "batches", "hex"}`. A message must decode to its values, and both the decoded message and one made
from the values must encode to its bytes. Batches must decode to the values of the line; uncompressed ones of
format v2 must be built again to the very bytes. Exit status: 0 if all passed, 1 if not, 2 if the file cannot
be read as vectors.
"""

from __future__ import annotations

import gzip
import json
import math
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from barnabas.protocol.api_keys import API_SPECS
from barnabas.protocol.errors import EncodeError, KafkaError, MalformedMessage
from barnabas.protocol.schema import Message, Struct, decode, encode
from tests.protocol.json_form import JsonFormError, from_json

_OTHER_MODULES = (
    "headers",
    "messages.consumer_protocol",
    "messages.control_records",
    "messages.group_log",
    "messages.metadata_log",
    "messages.principal_data",
    "messages.producer_snapshot",
    "messages.quorum_state",
    "messages.remote_log_metadata",
    "messages.share_log",
    "messages.transaction_log",
)


class Mismatch(Exception):
    """The implementation and the vector disagree; the message has the difference."""


class UnreadableVectors(Exception):
    """The file holds no vectors; one line."""


@cache
def message_types() -> dict[str, type[Message]]:
    """Every message by its name."""
    types: dict[str, type[Message]] = {}
    for spec in API_SPECS.values():
        for kind in (spec.request_type(), spec.response_type()):
            types[kind.__name__] = kind
    for module in _OTHER_MODULES:
        for name, kind in vars(import_module(f"barnabas.protocol.{module}")).items():
            if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message:
                types[name] = kind
    return types


def check_message(vector: dict[str, Any]) -> None:
    """Raises `Mismatch`, or an error of the codec, if a message differs from its line."""
    kind = message_types().get(vector["message"])
    if kind is None:
        raise Mismatch("no message has this name")
    version = vector["version"]
    data = bytes.fromhex(vector["hex"])
    decoded = decode(kind, data, version)
    expected = from_json(kind, vector["json"], version)
    _adopt_missing(expected, decoded)
    difference = next(differences(expected, decoded, kind.__name__), None)
    if difference is not None:
        raise Mismatch(difference)
    _compare_bytes("the decoded message encodes", encode(decoded, version), data)
    _compare_bytes("the values encode", encode(expected, version), data)


def _compare_bytes(what: str, ours: bytes, theirs: bytes) -> None:
    if ours == theirs:
        return
    at = next(
        (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
    )
    raise Mismatch(
        f"{what} to other bytes from {at} on: {ours[at : at + 8].hex()} ({len(ours)} bytes in all), "
        f"not {theirs[at : at + 8].hex()} ({len(theirs)})"
    )


def _adopt_missing(expected: Struct, decoded: Struct) -> None:
    """Copy into `expected` the values that the JSON form lacks: contents of records, unknown tagged fields."""
    expected.unknown_tagged_fields = decoded.unknown_tagged_fields
    for spec in expected.FIELDS:
        ours, theirs = getattr(expected, spec.name), getattr(decoded, spec.name)
        if spec.type.name == "records":
            if ours is not None and theirs is not None and not len(ours):
                setattr(expected, spec.name, theirs)
        elif isinstance(ours, Struct) and isinstance(theirs, Struct):
            _adopt_missing(ours, theirs)
        elif isinstance(ours, list) and isinstance(theirs, list):
            for our_item, their_item in zip(ours, theirs, strict=False):
                if isinstance(our_item, Struct) and isinstance(their_item, Struct):
                    _adopt_missing(our_item, their_item)


def differences(expected: Any, actual: Any, where: str) -> Iterator[str]:
    """Differences between two values, in the order of the fields. NaN equals NaN, and 0.0 is not -0.0."""
    if isinstance(expected, Struct) and type(expected) is type(actual):
        for spec in expected.FIELDS:
            yield from differences(
                getattr(expected, spec.name), getattr(actual, spec.name), f"{where}.{spec.name}"
            )
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            yield f"{where} has {len(actual)} elements, not {len(expected)}"
        for i, (one, other) in enumerate(zip(expected, actual, strict=False)):
            yield from differences(one, other, f"{where}[{i}]")
    elif isinstance(expected, float) and isinstance(actual, float):
        same = struct.pack(">d", expected) == struct.pack(">d", actual)
        if not same and not (math.isnan(expected) and math.isnan(actual)):
            yield f"{where} is {actual!r}, not {expected!r}"
    elif type(expected) is bool or type(actual) is bool:
        if expected is not actual:
            yield f"{where} is {actual!r}, not {expected!r}"
    elif expected != actual:
        yield f"{where} is {actual!r}, not {expected!r}"


def check_batches(vector: dict[str, Any]) -> None:
    """Raises `Mismatch` or `KafkaError` if the batches of a line differ from it."""
    from barnabas.protocol.records.batch import iterate_batches

    data = bytes.fromhex(vector["hex"])
    found = list(iterate_batches(data))
    size = sum(header.size_bytes for _, header in found)
    if size != len(data):
        raise Mismatch(f"the batches end after {size} of {len(data)} bytes")
    if len(found) != len(vector["batches"]):
        raise Mismatch(f"found {len(found)} batches, not {len(vector['batches'])}")
    for i, ((position, header), expected) in enumerate(zip(found, vector["batches"], strict=True)):
        piece = data[position : position + header.size_bytes]
        described = describe_batch(piece)
        for name, value in expected.items():
            if name not in described:
                raise Mismatch(f"batch {i}: nothing is known of {name}")
            if described[name] != value:
                raise Mismatch(f"batch {i}: {name} is {described[name]!r}, not {value!r}")
        if header.magic == 2 and not header.compression:
            _compare_bytes(f"batch {i} is built", rebuild_batch(piece), piece)


def describe_batch(batch: bytes) -> dict[str, Any]:
    """A batch in the form of a line of vectors. Batches of magic 0 and 1 have no CRC over the whole: -1."""
    from barnabas.protocol.records.batch import crc_is_valid, read_header
    from barnabas.protocol.records.compression import Compression
    from barnabas.protocol.records.record import decode_records

    header = read_header(batch)
    if not crc_is_valid(batch, 0, header):
        raise Mismatch("the CRC does not fit the bytes")
    records = decode_records(batch)
    legacy = header.magic < 2
    timestamp_type = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    return {
        "magic": header.magic,
        "base_offset": records[0].offset if legacy and records else header.base_offset,
        "last_offset": header.last_offset,
        "size": header.size_bytes,
        "crc": -1 if legacy else header.crc,
        "compression": Compression(header.compression).name.lower(),
        "timestamp_type": "NoTimestampType" if header.magic == 0 else timestamp_type,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "partition_leader_epoch": header.partition_leader_epoch,
        "is_control": header.is_control,
        "is_transactional": header.is_transactional,
        "records": [
            {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": _hex(record.key),
                "value": _hex(record.value),
                "headers": [[key, _hex(value)] for key, value in record.headers],
            }
            for record in records
        ],
    }


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def rebuild_batch(batch: bytes) -> bytes:
    """The same batch, built again from its records."""
    from barnabas.protocol.records.batch import (
        ATTRIBUTES_POSITION,
        LOG_APPEND_TIME_BIT,
        read_header,
        set_log_append_time,
    )
    from barnabas.protocol.records.builder import build_batch
    from barnabas.protocol.records.record import decode_records

    header = read_header(batch)
    # The broker's time hides the producer's timestamps, which are still in the records.
    unstamped = bytearray(batch)
    unstamped[ATTRIBUTES_POSITION + 1] &= 0xFF ^ LOG_APPEND_TIME_BIT
    built = bytearray(
        build_batch(
            decode_records(unstamped),
            base_offset=header.base_offset,
            keep_offsets=True,
            last_offset=header.last_offset,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            leader_epoch=header.partition_leader_epoch,
            transactional=header.is_transactional,
            control=header.is_control,
            delete_horizon_ms=header.delete_horizon_ms,
        )
    )
    if header.is_log_append_time:
        set_log_append_time(built, 0, header.max_timestamp)
    return bytes(built)


def read_vectors(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, vector) of each line. Raises `UnreadableVectors`. A name ending in `.gz` is unpacked."""
    try:
        data = Path(path).read_bytes()
        text = (gzip.decompress(data) if path.endswith(".gz") else data).decode("utf-8")
    except (OSError, EOFError) as error:
        raise UnreadableVectors(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    except UnicodeDecodeError as error:
        raise UnreadableVectors(f"{path}: not UTF-8 at byte {error.start}") from None
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            vector = json.loads(line)
        except ValueError as error:
            raise UnreadableVectors(f"{path}:{number}: not JSON: {error}") from None
        if not is_vector(vector):
            raise UnreadableVectors(f"{path}:{number}: neither a message nor record batches")
        yield number, vector


def is_vector(vector: Any) -> bool:
    """True if a line has the form of a vector."""
    if not isinstance(vector, dict) or not isinstance(vector.get("hex"), str):
        return False
    if "batches" in vector:
        return isinstance(vector["batches"], list) and all(
            isinstance(expected, dict) for expected in vector["batches"]
        )
    return isinstance(vector.get("message"), str) and type(vector.get("version")) is int and "json" in vector


def check_vector(vector: dict[str, Any]) -> str | None:
    """The reason why a vector fails, or None."""
    check: Callable[[dict[str, Any]], None] = check_batches if "batches" in vector else check_message
    try:
        check(vector)
    except (Mismatch, MalformedMessage, EncodeError, JsonFormError, KafkaError) as error:
        return str(error)
    except ValueError as error:
        return f"the hex is wrong: {error}"
    return None


def main(arguments: Sequence[str]) -> int:
    """The command; gives the exit status."""
    if len(arguments) != 1:
        print("usage: python -m tests.protocol.vectors FILE.jsonl", file=sys.stderr)
        return 2
    path = arguments[0]
    passed = failed = 0
    try:
        for number, vector in read_vectors(path):
            reason = check_vector(vector)
            if reason is None:
                passed += 1
                continue
            failed += 1
            name = vector["case"] if "case" in vector else f"{vector.get('message')} {vector.get('version')}"
            print(f"{path}:{number}: {name}: {reason}")
    except UnreadableVectors as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
