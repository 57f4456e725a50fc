"""Planted losses, duplicates and divergent replicas are found from the files, without false findings."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from barnabas.pipeline.batch_rows import SCHEMA
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.jobs.audit import facts_of
from barnabas.pipeline.partition_audit import DIVERGENT, DUPLICATE, HOLE, LOST, MISSING, Account, columns_of, judge
from barnabas.pipeline.segment_plan import SegmentOptions, batch_columns, plan_of
from barnabas.protocol.records.batch import iterate_batches
from barnabas.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    format_offsets,
)
from tests.pipeline.log_rig import BrokerLogs, marker, produced, values

pytestmark = pytest.mark.feature("PL-05")


def cluster(directory: Path) -> Path:
    """Three brokers with the same log: a plain producer, a transactional one with an abort, an idempotent one."""
    broker = BrokerLogs(directory / "1", 1, segment_bytes=4000)
    sequence = 0
    for turn in range(30):
        broker.append(
            values(3, 100),
            produced(7, sequence, 4, transactional=True),
            marker(7, committed=turn % 2 == 0),
            produced(9, sequence, 4),
        )
        sequence += 4
    broker.checkpoint()
    for node in (2, 3):
        shutil.copytree(broker.directory, directory / str(node))
        BrokerLogs(directory / str(node), node)
    return directory


def audited(directory: Path) -> Account:
    options = SegmentOptions((str(directory),), batches=True, skip_gone=True, skip_corrupt=True)
    plan = plan_of(options)
    [facts] = facts_of(plan).values()
    batches = [each for task in plan.tasks for each in batch_columns(task, options, [])]
    return judge(facts, columns_of(pa.Table.from_batches(batches, SCHEMA)))


def rewrite(directory: Path, node: int, segment: int, change: object) -> None:
    """Replace the batches of a segment in one replica by `change` of them."""
    path = sorted((directory / str(node) / "orders-0").glob("*.log"))[segment]
    data = path.read_bytes()
    batches = [data[at : at + header.size_bytes] for at, header in iterate_batches(data)]
    path.write_bytes(b"".join(change(batches)))  # type: ignore[operator]
    path.with_suffix(".index").unlink()


def test_a_healthy_cluster_passes_and_each_offset_is_accounted_for(tmp_path: Path) -> None:
    account = audited(cluster(tmp_path))
    assert account.findings == [] and account.kinds == {} and account.behind == {}
    assert (account.start_offset, account.end_offset) == (0, 360)
    assert (account.records, account.aborted, account.markers) == (270, 60, 30)
    assert (account.compacted, account.lost, account.batches, account.producers) == (0, 0, 120, 2)
    assert account.compared_from == 0 and len(account.digest) == 16


def test_offsets_that_no_replica_has_are_lost(tmp_path: Path) -> None:
    cluster(tmp_path)
    for node in (1, 2, 3):
        rewrite(tmp_path, node, 1, lambda batches: batches[:2] + batches[3:])
    account = audited(tmp_path)
    assert account.kinds[LOST] == 1 and account.lost in (1, 3, 4)
    lost = account.findings[0]
    assert lost.detail == f"no replica has offsets {lost.offset} to {lost.offset + account.lost - 1}, " + (
        "which are below the high watermark"
    )


def test_the_end_may_be_lost_as_well(tmp_path: Path) -> None:
    cluster(tmp_path)
    for node in (1, 2, 3):
        rewrite(tmp_path, node, -1, lambda batches: batches[:-1])
    account = audited(tmp_path)
    assert account.kinds == {LOST: 1} and account.lost == 4 and account.findings[0].offset == 356
    assert account.behind == {1: 356, 2: 356, 3: 356}


def test_a_batch_missing_in_one_replica_is_reported(tmp_path: Path) -> None:
    cluster(tmp_path)
    rewrite(tmp_path, 2, 1, lambda batches: batches[:2] + batches[3:])
    account = audited(tmp_path)
    assert account.kinds == {MISSING: 1} and account.lost == 0
    assert "has a batch that starts there, node 2 has none" in account.findings[0].detail


def test_one_changed_byte_makes_a_replica_diverge(tmp_path: Path) -> None:
    cluster(tmp_path)

    def other_epoch(batches: list[bytes]) -> list[bytes]:
        # Outside of what the checksum covers.
        return [batches[0][:12] + b"\0\0\0\7" + batches[0][16:], *batches[1:]]

    rewrite(tmp_path, 3, 2, other_epoch)
    account = audited(tmp_path)
    assert account.kinds == {DIVERGENT: 1}
    assert account.findings[0].detail == "the batch on node 3 differs from that on node 1"


def test_a_replica_that_stopped_earlier_is_behind_and_no_more(tmp_path: Path) -> None:
    cluster(tmp_path)
    rewrite(tmp_path, 3, -1, lambda batches: batches[:-2])
    account = audited(tmp_path)
    assert account.kinds == {} and list(account.behind) == [3]


def test_a_repeated_batch_is_a_duplicate_and_a_missing_one_a_hole(tmp_path: Path) -> None:
    broker = BrokerLogs(tmp_path / "1", 1)
    broker.append(produced(9, 0, 4), produced(9, 4, 4), produced(9, 8, 4))
    # A broker that forgot the producer would accept these.
    log = broker.log()
    for again in (produced(9, 4, 4), produced(9, 20, 4)):
        buffer = bytearray(again)
        buffer[0:8] = log.log_end_offset.to_bytes(8, "big")
        log.append_as_follower(memoryview(buffer), 0)
    log.set_high_watermark(log.log_end_offset)
    broker.checkpoint()
    account = audited(tmp_path)
    assert account.kinds == {DUPLICATE: 1, HOLE: 1}
    assert [finding.offset for finding in account.findings] == [12, 16]
    assert account.findings[0].detail == (
        "producer 9 in epoch 0 wrote sequences 4 to 7 after 8 to 11 at offset 8"
    )


def test_sequences_go_round(tmp_path: Path) -> None:
    broker = BrokerLogs(tmp_path / "1", 1)
    broker.append(produced(9, 2**31 - 6, 4), produced(9, 2**31 - 2, 4), produced(9, 2, 4))
    broker.checkpoint()
    assert audited(tmp_path).kinds == {}


def test_compacted_records_are_not_lost(tmp_path: Path) -> None:
    cluster(tmp_path)
    for node in (1, 2, 3):
        # Each broker compacts by itself.
        rewrite(tmp_path, node, 0, lambda batches, node=node: batches[: -1 - node])
    cleaned = {("orders", 0): 100}
    for node in (1, 2, 3):
        (tmp_path / str(node) / CLEANER_OFFSET_CHECKPOINT).write_bytes(format_offsets(cleaned))
    account = audited(tmp_path)
    assert account.kinds == {} and account.compared_from == 100
    assert account.compacted > 0 and account.lost == 0
    assert account.records + account.aborted + account.markers + account.compacted == 360


def test_records_that_were_deleted_are_not_lost(tmp_path: Path) -> None:
    cluster(tmp_path)
    for node in (1, 2, 3):
        first, second = sorted((tmp_path / str(node) / "orders-0").glob("*.log"))[:2]
        first.unlink()
        start = {("orders", 0): int(second.stem) + 1}
        (tmp_path / str(node) / LOG_START_OFFSET_CHECKPOINT).write_bytes(format_offsets(start))
    account = audited(tmp_path)
    assert account.kinds == {}
    assert account.records + account.aborted + account.markers == 360 - account.start_offset


def test_batches_written_after_the_facts_do_not_count(tmp_path: Path) -> None:
    cluster(tmp_path)
    for node in (1, 2, 3):
        path = tmp_path / str(node) / REPLICATION_OFFSET_CHECKPOINT
        path.write_bytes(format_offsets({("orders", 0): 348}))
    options = SegmentOptions((str(tmp_path),), batches=True)
    [facts] = facts_of(plan_of(options)).values()
    for node in (1, 2, 3):
        path = tmp_path / str(node) / REPLICATION_OFFSET_CHECKPOINT
        path.write_bytes(format_offsets({("orders", 0): 360}))
    batches = [each for task in plan_of(options).tasks for each in batch_columns(task, options, [])]
    account = judge(facts, columns_of(pa.Table.from_batches(batches, SCHEMA)))
    assert account.kinds == {} and account.records + account.aborted + account.markers == 348


def test_two_copies_of_one_node_are_an_error(tmp_path: Path) -> None:
    cluster(tmp_path)
    shutil.copytree(tmp_path / "1", tmp_path / "again")
    with pytest.raises(PipelineError, match="two directories have orders-0 on 1; give only one of them"):
        audited(tmp_path)
