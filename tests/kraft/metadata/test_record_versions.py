"""The versions of metadata records at each metadata.version."""

from __future__ import annotations

import pytest

from barnabas.kraft.metadata.features import default_levels, obstacle
from barnabas.kraft.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.kraft.metadata.record_versions import encode_records, record_version
from barnabas.kraft.metadata.replay import ImageReplay
from barnabas.kraft.raft.history import OffsetAndEpoch
from barnabas.kraft.snapshots import encode_snapshot
from barnabas.protocol.messages.metadata_log import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from barnabas.protocol.records.metadata import decode_metadata_record
from barnabas.protocol.schema import Message

DIRECTORY = b"d" * 16


def level(number: int, name: str = "metadata.version") -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=number)


def image_of(*records: Message) -> MetadataImage:
    replay = ImageReplay(EMPTY_IMAGE)
    for record in records:
        replay.replay(record)
    return replay.finish(1, 1, 0).after


@pytest.mark.feature("OP-04")
@pytest.mark.parametrize(
    ("record", "versions"),
    [
        (PartitionRecord(), {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 30: 2}),
        (PartitionChangeRecord(), {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 30: 2}),
        (RegisterBrokerRecord(), {7: 1, 8: 2, 16: 2, 17: 3, 29: 3, 30: 4}),
        (BrokerRegistrationChangeRecord(fenced=1), {7: 0, 30: 0}),
        (BrokerRegistrationChangeRecord(in_controlled_shutdown=1), {7: 1, 30: 1}),
        (BrokerRegistrationChangeRecord(log_dirs=[DIRECTORY]), {17: 2, 30: 2}),
        (BrokerRegistrationChangeRecord(cordoned_log_dirs=[]), {30: 3}),
        (NoOpRecord(), {7: 0, 30: 0}),
    ],
)
def test_records_are_written_in_the_version_of_the_level(record: Message, versions: dict[int, int]) -> None:
    assert {at: record_version(record, at) for at in versions} == versions


@pytest.mark.feature("OP-04")
def test_a_level_in_a_batch_counts_for_the_records_after_it() -> None:
    written = encode_records([PartitionRecord(), level(23), PartitionRecord(), level(7), PartitionRecord()], 17)
    read = map(decode_metadata_record, written)
    assert [version for record, version in read if isinstance(record, PartitionRecord)] == [1, 2, 0]


@pytest.mark.feature("OP-04")
def test_a_snapshot_is_written_at_the_level_that_it_begins_with() -> None:
    end, partition = OffsetAndEpoch(offset=1, epoch=1), PartitionRecord(replicas=[1], isr=[1])
    old = b"".join(encode_snapshot(end, [level(7), partition], 0))
    new = b"".join(encode_snapshot(end, [level(30), partition], 0))
    assert b"\x01\x03\x00" in old and b"\x01\x03\x02" in new, "frame version 1, type 3, version"


@pytest.mark.feature("OP-04")
def test_a_level_that_a_later_record_lowers_is_no_error() -> None:
    image = image_of(level(31), level(30), level(7, "share.version"), level(0, "share.version"))
    assert image.features.levels == {"metadata.version": 30}
    assert obstacle(image.features.levels) is None


@pytest.mark.feature("OP-04")
@pytest.mark.parametrize(
    ("record", "line"),
    [
        (level(31), "metadata.version is finalised at 31: this node supports levels 7 to 30"),
        (level(6), "metadata.version is finalised at 6: this node supports levels 7 to 30"),
        (level(2, "share.version"), "share.version is finalised at 2: this node supports levels 0 to 1"),
        (level(1, "teleportation"), "teleportation is finalised at 1: this node supports levels 0 to 0"),
    ],
)
def test_levels_with_which_this_software_does_not_run(record: FeatureLevelRecord, line: str) -> None:
    assert obstacle(image_of(level(30), record).features.levels) == line


@pytest.mark.feature("OP-04")
def test_the_default_levels_of_a_release_are_kafkas() -> None:
    assert default_levels(21).keys() - {"kraft.version"} == {"metadata.version"}
    assert default_levels(25) | {"kraft.version": 1} == {
        "metadata.version": 25,
        "group.version": 1,
        "transaction.version": 2,
        "kraft.version": 1,
    }
    assert default_levels(26)["eligible.leader.replicas.version"] == 1
