"""The versions in which metadata records are written at each metadata.version, as Kafka's controllers choose them.

A reader of an older release knows the records of its level only. So a log and its snapshots hold no newer version of a
record than the level that was finalised before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.kraft.metadata.features import (
    CORDONED_DIRECTORIES_SINCE,
    DIRECTORIES_SINCE,
    ELR_SINCE,
    METADATA_VERSION,
    MIGRATION_SINCE,
)
from barnabas.protocol.messages.metadata_log import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from barnabas.protocol.records.metadata import encode_metadata_record
from barnabas.protocol.schema import Message

_PARTITION_STEPS = (ELR_SINCE, DIRECTORIES_SINCE)
_REGISTRATION_STEPS = (CORDONED_DIRECTORIES_SINCE, DIRECTORIES_SINCE, MIGRATION_SINCE)


def record_version(record: Message, metadata_version: int) -> int:
    """The version in which `record` is written at this level of metadata.version."""
    kind = type(record)
    if kind is PartitionRecord or kind is PartitionChangeRecord:
        return sum(metadata_version >= since for since in _PARTITION_STEPS)
    if kind is RegisterBrokerRecord:
        return 1 + sum(metadata_version >= since for since in _REGISTRATION_STEPS)
    if isinstance(record, BrokerRegistrationChangeRecord):
        return _registration_change_version(record)
    return 0


def _registration_change_version(record: BrokerRegistrationChangeRecord) -> int:
    """The lowest version with the fields that are set: decisions set no field that the level does not have."""
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0


def encode_records(records: Iterable[Message], metadata_version: int) -> Iterator[bytes]:
    """The values of records that follow each other in the log. A FeatureLevelRecord among them changes the level of
    those after it."""
    for record in records:
        yield encode_metadata_record(record, record_version(record, metadata_version))
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            metadata_version = record.feature_level
