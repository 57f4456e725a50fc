"""One partition of `__remote_log_metadata` as it is read: the core."""

from __future__ import annotations

import pytest

from barnabas.broker.remote.metadata_log import MetadataLog, ReadRecords, decode_batches
from barnabas.protocol.records.batch import CorruptBatch
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from barnabas.storage.remote.metadata_records import encode
from barnabas.storage.remote.segment import (
    MetadataRecord,
    PartitionDelete,
    PartitionDeleteState,
    RemotePartitionKey,
)
from tests.storage.remote.remote_rig import DELETED, DELETING, FINISHED, KEY, moved, numbers, segment

pytestmark = pytest.mark.feature("TS-04")

OTHER = RemotePartitionKey(KEY.topic_id, "orders", 1)


def batch(first_offset: int, *records: MetadataRecord | bytes, epoch: int = 0, compression: int = 0) -> bytes:
    values = [each if isinstance(each, bytes) else encode(each) for each in records]
    return build_batch(
        [Record(0, 0, None, value) for value in values],
        base_offset=first_offset,
        leader_epoch=epoch,
        compression=compression,
    )


def read(log: MetadataLog, data: bytes) -> None:
    found = decode_batches(data, log.wanted, log.probe)
    assert found is not None
    for _ in log.apply(found, log.generation):
        pass


def known(log: MetadataLog, key: RemotePartitionKey = KEY) -> list[int] | None:
    segments = log.segments(key)
    return None if segments is None else sorted(numbers(segments.all()))


def following(*keys: RemotePartitionKey, end: int = 0) -> MetadataLog:
    log = MetadataLog(3)
    log.follow(keys)
    assert log.bounds_are(0, end, log.generation) is None
    return log


def test_answers_come_when_all_is_read_that_was_there() -> None:
    log = following(KEY, end=2)
    read(log, batch(0, segment(1, 0, 9)))
    assert known(log) is None
    read(log, batch(1, moved(1, FINISHED)))
    assert known(log) == [1]
    assert (log.position, log.wants_bounds) == (2, False)


def test_an_empty_log_is_complete() -> None:
    log = MetadataLog(3)
    log.follow([KEY])
    assert known(log) is None
    log.bounds_are(7, 7, log.generation)
    assert (known(log), log.position) == ([], 7)


def test_records_of_others_are_skipped_and_damaged_ones_reported(caplog: pytest.LogCaptureFixture) -> None:
    log = following(KEY, end=4)
    read(log, batch(0, segment(1, 0, 9, key=OTHER), b"\x01\x09", b"\x02", segment(2, 0, 9)))
    assert known(log) == [2]
    assert "offset 1: no metadata record has the type 9" in caplog.text or "ends within" in caplog.text
    assert "offset 2: " in caplog.text


def test_compressed_batches_are_read() -> None:
    log = following(KEY, end=1)
    read(log, batch(0, segment(1, 0, 9), compression=1))
    assert known(log) == [1]


def test_a_damaged_batch_is_refused() -> None:
    data = bytearray(batch(0, segment(1, 0, 9)))
    data[-1] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        decode_batches(bytes(data), {(KEY.topic_id, 0): KEY})


def test_a_partition_that_is_followed_later_gets_the_earlier_records_and_others_skip_them() -> None:
    log = following(KEY, end=0)
    everything = [segment(1, 0, 9), segment(2, 0, 9, key=OTHER), moved(1, FINISHED), moved(1, DELETING)]
    read(log, batch(0, *everything))
    log.follow([OTHER])
    assert (log.position, log.wants_bounds, known(log), known(log, OTHER)) == (0, True, [1], None)
    log.bounds_are(0, 4, log.generation)
    read(log, batch(0, *everything[:2]))
    assert known(log, OTHER) is None
    read(log, batch(2, *everything[2:], moved(1, DELETED)))
    assert (known(log), known(log, OTHER)) == ([], [2])


def test_a_whole_batch_that_begins_before_the_position_is_applied_from_there_on() -> None:
    log = following(KEY, end=3)
    read(log, batch(0, segment(1, 0, 9), moved(1, FINISHED)))
    read(log, batch(0, segment(1, 0, 9), moved(1, FINISHED), moved(1, DELETING)))
    assert known(log) == [1]
    assert log.position == 3


def test_data_fetched_before_the_position_jumped_is_of_no_use() -> None:
    log = following(KEY, end=1)
    before = log.generation
    found = decode_batches(batch(0, segment(1, 0, 9)), log.wanted)
    log.follow([OTHER])
    assert found is not None
    assert list(log.apply(found, before)) == []
    assert log.position == 0


def test_records_are_forgotten_and_read_again_when_the_log_was_truncated() -> None:
    log = following(KEY, end=1)
    read(log, batch(0, segment(1, 0, 9), epoch=1))
    log.truncated()
    assert (known(log), log.position, log.wants_bounds) == (None, 0, True)
    log.bounds_are(0, 1, log.generation)
    read(log, batch(0, segment(2, 0, 9), epoch=2))
    assert known(log) == [2]


def test_a_log_that_is_shorter_than_what_was_read_was_truncated() -> None:
    log = following(KEY, end=2)
    read(log, batch(0, segment(1, 0, 9), moved(1, FINISHED)))
    log.follow([OTHER])
    report = log.bounds_are(0, 1, log.generation)
    assert report is not None
    assert "ends at 1 now" in report
    read(log, batch(0, segment(1, 0, 9)))
    segments = log.segments(KEY)
    assert segments is not None
    assert segments.segment_for(0, 0) is None


def test_other_records_where_records_were_read_before_are_noticed_when_reading_again() -> None:
    log = following(KEY, end=2)
    read(log, batch(0, segment(1, 0, 9), moved(1, FINISHED), epoch=1))
    log.follow([OTHER])
    log.bounds_are(0, 3, log.generation)
    read(log, batch(0, segment(1, 0, 9), epoch=1))
    read(log, batch(1, segment(2, 0, 9), segment(3, 0, 9), epoch=2))
    assert (known(log), log.position) == (None, 0)


def test_records_that_retention_has_deleted_are_reported() -> None:
    log = following(KEY, end=1)
    read(log, batch(0, segment(1, 0, 9)))
    log.wants_bounds = True
    report = log.bounds_are(5, 9, log.generation)
    assert report is not None
    assert "records from 1 on are lost" in report
    assert log.position == 5


def test_a_publisher_waits_for_its_record_and_learns_if_it_has_no_effect() -> None:
    log = following(KEY, end=0)
    outcomes: list[str | None] = []
    log.when_read(KEY, 1, outcomes.append)
    read(log, batch(0, segment(1, 0, 9)))
    assert outcomes == []
    read(log, batch(1, moved(1, FINISHED), moved(1, DELETED)))
    assert outcomes == [None]
    log.when_read(KEY, 2, outcomes.append)
    assert outcomes[1] is not None
    assert "cannot move to DELETE_SEGMENT_FINISHED" in outcomes[1]


def test_a_publisher_that_does_not_wait_any_more_is_not_called() -> None:
    log = following(KEY, end=0)
    outcomes: list[str | None] = []
    log.when_read(KEY, 0, outcomes.append)()
    read(log, batch(0, segment(1, 0, 9)))
    assert outcomes == []


def test_publishers_do_not_wait_for_a_partition_that_is_dropped_nor_for_a_truncated_log() -> None:
    log = following(KEY, OTHER, end=0)
    outcomes: list[str | None] = []
    log.when_read(KEY, 5, outcomes.append)
    log.when_read(OTHER, 6, outcomes.append)
    log.forget([(KEY.topic_id, 0)])
    assert outcomes == [None]
    log.truncated()
    assert outcomes == [None, "the log was truncated"]


def test_a_finished_deletion_of_a_partition_forgets_its_segments() -> None:
    log = following(KEY, end=0)
    read(log, batch(0, segment(1, 0, 9), moved(1, FINISHED)))
    read(log, batch(2, PartitionDelete(KEY, PartitionDeleteState.DELETE_PARTITION_MARKED, 0, 1)))
    assert known(log) == [1]
    read(log, batch(3, PartitionDelete(KEY, PartitionDeleteState.DELETE_PARTITION_FINISHED, 0, 1)))
    assert known(log) == []


def test_steps_are_short() -> None:
    log = following(KEY, end=0)
    records = [(number, segment(number, number, number)) for number in range(2_000)]
    found = ReadRecords(list(records), 2_000, 0, [], None)
    assert sum(1 for _ in log.apply(found, log.generation)) == 10
    assert len(known(log) or ()) == 2_000
