"""`partition.metadata`: id of the topic whose partition a directory holds. Topics of the same name have different ids.

    version: 0
    topic_id: 2rlQ5PmxTPSkVsC4hAgRyw
"""

from __future__ import annotations

from functools import lru_cache

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.primitives import ZERO_UUID, uuid_from_string, uuid_to_string
from barnabas.runtime.world import Disk
from barnabas.storage.checkpoints import write_durably

PARTITION_METADATA_FILE = "partition.metadata"
_VERSION = "0"


class MalformedPartitionMetadata(Exception):
    """The file does not contain a topic id."""


def format_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: {_VERSION}\ntopic_id: {uuid_to_string(topic_id)}".encode()


def parse_partition_metadata(data: bytes, name: str) -> bytes:
    """The topic id. Raises `MalformedPartitionMetadata`."""
    try:
        return _topic_id_of(data)
    except ValueError as error:
        raise MalformedPartitionMetadata(f"{name}: {error}") from None


@lru_cache(maxsize=32)
def _topic_id_of(data: bytes) -> bytes:
    """The files of all partitions of a topic have the same content. Raises ValueError."""
    fields = {}
    for line in data.decode("utf-8", "replace").splitlines():
        key, colon, value = line.partition(":")
        if not colon:
            raise ValueError(f"expected `key: value`, got {line[:80]!r}")
        fields[key.strip()] = value.strip()
    if fields.get("version") != _VERSION:
        raise ValueError(f"version {fields.get('version')}, expected {_VERSION}")
    try:
        topic_id = uuid_from_string(fields.get("topic_id", ""))
    except ValueError as error:
        raise ValueError(f"topic_id: {error}") from None
    if topic_id == ZERO_UUID:
        raise ValueError("topic_id is zero")
    return topic_id


def write_partition_metadata(disk: Disk, directory: str, topic_id: bytes) -> None:
    write_durably(disk, f"{directory}/{PARTITION_METADATA_FILE}", format_partition_metadata(topic_id))


def begin_partition_metadata(disk: Disk, directory: str, topic_id: bytes) -> None:
    """Write the unsynced file of a new log: until `sync_partition_metadata` a power cut may tear or remove it."""
    file = disk.open(f"{directory}/{PARTITION_METADATA_FILE}", create=True)
    try:
        file.pwrite(format_partition_metadata(topic_id), 0)
    finally:
        file.close()


def sync_partition_metadata(disk: Disk, directory: str) -> None:
    """Make the file of `begin_partition_metadata` durable. The directory may have been removed meanwhile."""
    try:
        file = disk.open(f"{directory}/{PARTITION_METADATA_FILE}")
        try:
            file.sync()
        finally:
            file.close()
        disk.sync_directory(directory)
    except FileNotFoundError:
        return


def read_partition_metadata(disk: Disk, directory: str) -> bytes | None:
    """The topic id; None if there is no file. Raises `MalformedPartitionMetadata`."""
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return None
    return parse_partition_metadata(data, path)


def check_topic_id(found: bytes | None, expected: bytes, name: str) -> None:
    """A directory of another topic must not be used: raises KafkaError INCONSISTENT_TOPIC_ID."""
    if found is not None and found != expected:
        raise KafkaError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"{name} is of topic id {uuid_to_string(found)}, not {uuid_to_string(expected)}",
        )
