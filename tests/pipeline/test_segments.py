"""Logs are read from their files, up to the high watermark and without aborted records."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.client.offset_lookup import Isolation
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.jobs.segments import account, survey
from barnabas.pipeline.log_files import (
    BrokenLog,
    Fault,
    index_entries,
    log_end_offset,
    read_batches,
    segment_files,
)
from barnabas.pipeline.log_transactions import find_transactions
from barnabas.pipeline.replicas import Range, best_replica, find_replicas, ranges_of_files, topic_choice
from barnabas.pipeline.segment_plan import SegmentOptions, batch_columns, plan_of, record_columns
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.storage.names import TRANSACTION_INDEX_SUFFIX
from tests.pipeline.log_rig import BrokerLogs, marker, numbers_of, produced, values

pytestmark = pytest.mark.feature("PL-05")


def read(options: SegmentOptions, faults: list[Fault] | None = None) -> list[int]:
    faults = [] if faults is None else faults
    return [number for task in plan_of(options).tasks for number in numbers_of(record_columns(task, options, faults))]


@pytest.fixture
def logs(tmp_path: Path) -> BrokerLogs:
    return BrokerLogs(tmp_path / "data")


def filled(logs: BrokerLogs, batches: int = 100) -> BrokerLogs:
    for number in range(batches):
        logs.append(values(5, 5 * number))
    return logs


def options_of(logs: BrokerLogs) -> SegmentOptions:
    return SegmentOptions((str(logs.directory),))


def test_every_segment_is_a_task_and_every_record_is_in_one_of_them(logs: BrokerLogs) -> None:
    filled(logs).checkpoint()
    plan = plan_of(options_of(logs))
    assert len(plan.tasks) == len(segment_files(logs.path())) > 10
    assert read(options_of(logs)) == list(range(500))


def test_a_large_segment_is_split_where_its_index_has_batches(tmp_path: Path) -> None:
    logs = filled(BrokerLogs(tmp_path, segment_bytes=10_000_000)).checkpoint()
    logs.log().active_segment.write_out()
    [segment] = segment_files(logs.path())
    options = replace(options_of(logs), split_bytes=4000)
    tasks = plan_of(options).tasks
    assert len(tasks) == -(-segment.size_bytes // 4000) > 3
    assert [task.until_offset for task in tasks[:-1]] == [task.from_offset for task in tasks[1:]]
    assert read(options) == list(range(500))


def test_an_index_of_other_bytes_is_no_more_than_a_hint(tmp_path: Path) -> None:
    logs = filled(BrokerLogs(tmp_path, segment_bytes=10_000_000)).checkpoint()
    logs.log().active_segment.write_out()
    index = next(logs.path().glob("*.index"))
    entries = index.read_bytes()
    index.write_bytes(b"".join(entries[at : at + 4] + b"\0\0\x10" + entries[at + 7 : at + 8] for at in range(0, 80, 8)))
    assert read(replace(options_of(logs), split_bytes=4000)) == list(range(500))


def test_nothing_above_the_high_watermark_is_read(logs: BrokerLogs) -> None:
    filled(logs).checkpoint(high_watermarks={("orders", 0): 123})
    assert read(options_of(logs)) == list(range(123))


def test_nothing_counts_as_long_as_nobody_wrote_down_how_far_it_does(logs: BrokerLogs) -> None:
    filled(logs)
    assert read(options_of(logs)) == []


def test_the_zeros_at_the_end_of_a_preallocated_index_are_no_entries(logs: BrokerLogs) -> None:
    filled(logs).checkpoint()
    segment = segment_files(logs.path())[0]
    offsets, positions = index_entries(segment)
    with segment.path.with_suffix(".index").open("ab") as index:
        index.write(bytes(800))
    assert [list(each) for each in index_entries(segment)] == [list(offsets), list(positions)]


# Transactions


def settled_log(logs: BrokerLogs) -> list[int]:
    """Transactions of two producers, one after another and interleaved; returns the committed values."""
    kept = []
    sequence = 0
    for turn in range(40):
        start = 10 * turn
        logs.append(produced(7, sequence, 5, start=start, transactional=True))
        logs.append(produced(8, sequence, 5, start=start + 5, transactional=True))
        logs.append(marker(7, committed=turn % 3 == 0), marker(8, committed=turn % 2 == 0))
        sequence += 5
        kept += [*range(start, start + 5)] * (turn % 3 == 0) + [*range(start + 5, start + 10)] * (turn % 2 == 0)
    return kept


def test_aborted_records_are_left_out_while_the_index_is_in_memory(logs: BrokerLogs) -> None:
    kept = settled_log(logs)
    logs.checkpoint()
    assert read(options_of(logs)) == kept
    everything = replace(options_of(logs), isolation=Isolation.READ_UNCOMMITTED)
    assert read(everything) == list(range(400))
    # The active segment's entries are in no file yet, and those of the others are.
    indexes = sorted(logs.path().glob(f"*{TRANSACTION_INDEX_SUFFIX}"))
    assert len(indexes) > 3


def test_without_index_and_snapshot_the_batches_show_the_transactions(logs: BrokerLogs) -> None:
    kept = settled_log(logs)
    logs.checkpoint()
    for path in [*logs.path().glob("*.txnindex"), *logs.path().glob("*.snapshot"), *logs.path().glob("*.index")]:
        path.unlink()
    assert read(options_of(logs)) == kept


def test_reading_ends_at_an_open_transaction(logs: BrokerLogs) -> None:
    logs.append(values(5, 0), produced(7, 0, 5, start=5, transactional=True), values(5, 10))
    logs.checkpoint()
    assert read(options_of(logs)) == list(range(5))
    assert read(replace(options_of(logs), isolation=Isolation.READ_UNCOMMITTED)) == list(range(15))
    for number in range(100):
        logs.append(values(5, 15 + 5 * number))
    logs.checkpoint()
    assert find_transactions(logs.path(), 515, 515).last_stable_offset == 5, "the snapshot remembers it"
    logs.append(build_end_txn_batch(EndTxn(True, 0), 7, 0, 0))
    logs.checkpoint()
    assert read(options_of(logs)) == list(range(515))


def test_the_files_agree_with_the_broker(logs: BrokerLogs) -> None:
    settled_log(logs)
    log = logs.log()
    for until in (0, 3, 100, 333, log.log_end_offset):
        found = find_transactions(logs.path(), until, log.segments[-1].base_offset)
        expected = [entry for entry in log.aborted_transactions(0, log.log_end_offset) if entry.last_offset < until]
        assert list(found.aborted) == [(each.producer_id, each.first_offset, each.last_offset) for each in expected]


# Damage, and brokers that go on writing


def test_a_torn_tail_is_reported(logs: BrokerLogs) -> None:
    filled(logs).checkpoint()
    last = segment_files(logs.path())[-1]
    with last.path.open("r+b") as file:
        file.truncate(last.size_bytes - 7)
    assert log_end_offset(logs.path()) == 495
    plan = plan_of(options_of(logs))
    assert [(end, wanted) for _, end, wanted in plan.short] == [(495, 500)]
    assert read(options_of(logs)) == list(range(495))
    with pytest.raises(BrokenLog, match=r"torn from offset 495 on: .* the file has only \d+ more"):
        list(read_batches(logs.path(), 0, 500))


@pytest.mark.parametrize("at", [70, 12], ids=["a record", "the length"])
def test_a_corrupt_batch_is_reported_or_skipped(logs: BrokerLogs, at: int) -> None:
    filled(logs).checkpoint()
    segment = segment_files(logs.path())[2]
    _, positions = index_entries(segment)
    place = int(positions[1])
    with segment.path.open("r+b") as file:
        file.seek(place + at - (2 if at == 12 else 0))
        file.write(b"\xff\xff")
    with pytest.raises(PipelineError, match=rf"{segment.path.name} at byte {place}: (corrupt|torn) from offset"):
        read(options_of(logs))
    faults: list[Fault] = []
    values = read(replace(options_of(logs), skip_corrupt=True), faults)
    assert [fault.position for fault in faults] == [place]
    lost = sorted(set(range(500)) - set(values))
    assert lost[0] == faults[0].offset and lost == list(range(lost[0], lost[-1] + 1))
    assert len(lost) == 5 if at == 70 else lost[-1] + 1 == segment_files(logs.path())[3].base_offset


def test_an_error_travels_from_executors() -> None:
    fault = Fault("a.log", 3, 4, "torn", "so it is")
    assert pickle.loads(pickle.dumps(BrokenLog(fault))).fault == fault


def test_the_active_segment_grows_while_it_is_read(logs: BrokerLogs) -> None:
    filled(logs, 3).checkpoint()

    def growing() -> Iterator[int]:
        for chunk in read_batches(logs.path(), 0, 1000, chunk_bytes=300):
            for batch in chunk.batches:
                yield batch.header.base_offset
                if logs.log().log_end_offset < 1000:
                    logs.append(values(5, logs.log().log_end_offset))

    offsets = list(growing())
    assert offsets == list(range(0, offsets[-1] + 5, 5)) and offsets[-1] > 15


def test_segments_are_deleted_while_they_are_read(logs: BrokerLogs) -> None:
    filled(logs).checkpoint()
    segments = segment_files(logs.path())
    given = []
    with pytest.raises(BrokenLog, match=r"gone from offset .* on: older segments were deleted") as caught:
        for chunk in read_batches(logs.path(), 0, 500, chunk_bytes=500):
            given += [batch.header.base_offset for batch in chunk.batches]
            for segment in segments[:5]:
                segment.path.unlink(missing_ok=True)
    # The one that was open is read to its end.
    assert given == list(range(0, segments[1].base_offset, 5))
    assert caught.value.fault.offset == segments[1].base_offset

    faults: list[Fault] = []
    options = replace(options_of(logs), skip_gone=True)
    task = replace(plan_of(options).tasks[0], from_offset=0, until_offset=500)
    assert numbers_of(record_columns(task, options, faults)) == list(range(segments[5].base_offset, 500))
    assert [fault.kind for fault in faults] == ["gone"]


def test_segments_are_merged_by_compaction_while_they_are_read(logs: BrokerLogs) -> None:
    filled(logs).checkpoint()
    first, second, third = segment_files(logs.path())[:3]
    given = []
    for chunk in read_batches(logs.path(), 0, 500, chunk_bytes=500):
        if not given:
            merged = first.path.with_suffix(".merged")
            merged.write_bytes(first.path.read_bytes() + second.path.read_bytes() + third.path.read_bytes())
            merged.rename(first.path)
            second.path.unlink()
            third.path.unlink()
        given += [batch.header.base_offset for batch in chunk.batches]
    assert given == list(range(0, 500, 5))


# Which replica


def test_a_replica_with_all_committed_records_is_read(tmp_path: Path) -> None:
    brokers = [BrokerLogs(tmp_path / f"broker-{node}", node) for node in (1, 2, 3)]
    for node, broker in enumerate(brokers):
        # The second has the newest epoch; the third is behind.
        for number in range(20 if node < 2 else 10):
            broker.append(values(5, 5 * number), leader_epoch=1 if node == 1 and number == 19 else 0)
        broker.log().flushes.work()
        broker.checkpoint(high_watermarks={("orders", 0): 40 if node == 2 else 90})
    replicas = find_replicas([tmp_path], topic_choice())
    assert [replica.node_id for replica in replicas] == [1, 2, 3]
    [(key, known)] = ranges_of_files(replicas).items()
    assert key == ("orders", 0) and known == Range(0, 90, 90)
    assert best_replica(replicas, known)[0].node_id in (1, 2)
    assert best_replica(replicas, replace(known, leader=3))[0].node_id != 3, "its log ends too early"
    assert best_replica(replicas, replace(known, leader=1))[0].node_id == 1
    assert read(SegmentOptions((str(tmp_path),))) == list(range(90))


def test_an_audit_sees_every_batch_of_every_replica(tmp_path: Path) -> None:
    for node in (1, 2):
        BrokerLogs(tmp_path / str(node), node).append(
            produced(7, 0, 3, transactional=True), marker(7, committed=False), values(2)
        )
        logs = BrokerLogs(tmp_path / str(node), node)
        logs.log()
        logs.checkpoint(high_watermarks={("orders", 0): 6})
    options = replace(SegmentOptions((str(tmp_path),)), batches=True)
    batches = [each for task in plan_of(options).tasks for each in batch_columns(task, options, [])]
    rows = [row for each in batches for row in each.to_pylist()]
    facts = [(row["node"], row["base_offset"], row["records"], row["marker"], row["aborted"]) for row in rows]
    one = [(0, 3, None, True), (3, 1, "abort", False), (4, 2, None, False)]
    assert facts == [(node, *row) for node in (1, 2) for row in one]
    digests = [row["digest"] for row in rows]
    assert digests[:3] == digests[3:] and len(set(digests)) == 3


def test_topics_are_chosen_by_name_or_pattern(tmp_path: Path) -> None:
    logs = BrokerLogs(tmp_path)
    for topic in ("orders", "orders-eu", "flights", "__consumer_offsets"):
        logs.append(values(1), topic=topic)
    logs.checkpoint()

    def topics(**chosen: str) -> list[str]:
        return [replica.topic for replica in find_replicas([tmp_path], topic_choice(**chosen))]

    assert topics() == ["flights", "orders", "orders-eu"]
    assert topics(pattern="orders.*") == ["orders", "orders-eu"]
    assert topics(subscribe="flights, __consumer_offsets") == ["__consumer_offsets", "flights"]
    assert find_replicas([logs.path("flights")], topic_choice())[0].topic == "flights"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "option path is missing"),
        ({"path": "/tmp", "rows": "pages"}, "option rows must be records or batches; got 'pages'"),
        ({"path": "/tmp", "includeHeader": "true"}, "no option includeHeader; did you mean includeHeaders"),
        ({"path": "/tmp", "format": "2"}, "the source has no option format$"),
        ({"path": "/tmp", "splitBytes": "1m"}, "option splitBytes must be a number of bytes; got '1m'"),
        ({"path": "/tmp", "kafka.isolation.level": "none"}, "read_committed or read_uncommitted"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], line: str) -> None:
    with pytest.raises(PipelineError, match=line):
        SegmentOptions.parse(options)


def test_a_topic_that_is_in_no_directory_is_an_error(logs: BrokerLogs) -> None:
    filled(logs).checkpoint()
    topic = logs.path().name.rpartition("-")[0]
    with pytest.raises(PipelineError, match="no partition of fligths is in"):
        plan_of(replace(options_of(logs), subscribe=f"{topic}, fligths"))


def test_directories_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="no such directory; give log directories"):
        plan_of(SegmentOptions((str(tmp_path / "nowhere"),)))
    with pytest.raises(PipelineError, match="no requested partition is in"):
        plan_of(SegmentOptions((str(tmp_path),)))
    with pytest.raises(PipelineError, match="subscribe and subscribePattern exclude each other"):
        topic_choice("a", "b")
    with pytest.raises(PipelineError, match="subscribePattern"):
        topic_choice(pattern="(")


def test_a_survey_counts_readable_records_and_reports_faults(logs: BrokerLogs) -> None:
    kept = settled_log(logs)
    logs.checkpoint()
    options = options_of(logs)
    plan = plan_of(options)
    summary = account(plan, [survey(task, options) for task in plan.tasks])
    [row] = summary["partitions"]
    counts = (summary["records"], row["aborted"], row["markers"], summary["faults"])
    assert counts == (len(kept), 400 - len(kept), 80, [])
    assert (row["from"], row["until"], row["high_watermark"]) == (0, 480, 480)

    last = segment_files(logs.path())[-1]
    with last.path.open("r+b") as file:
        file.truncate(last.size_bytes - 3)
    damaged = plan_of(options)
    [fault] = account(damaged, [survey(task, options) for task in damaged.tasks])["faults"]
    assert fault.endswith("ends at offset 479, below the high watermark 480; no other replica has more")
    with pytest.raises(PipelineError, match="torn from offset 479"):
        [batch for task in plan.tasks for batch in record_columns(task, options, [])]
