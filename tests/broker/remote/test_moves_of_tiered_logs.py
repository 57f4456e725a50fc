"""A tiered replica moves to another log directory of its broker: what is remote is not copied."""

from __future__ import annotations

import pytest

from tests.broker.apis.directories import places, with_two_directories
from tests.broker.apis.rig import Rig, batch_of, on_cluster
from tests.broker.apis.test_log_dir_moves import move, other


@pytest.mark.feature("TS-08", "RE-19")
@on_cluster(
    brokers=3,
    remote__log__storage__system__enable="true",
    barnabas__remote__store__url="file:///store",
    remote__log__manager__task__interval__ms="500",
    log__retention__check__interval__ms="500",
    rlmm__config__remote__log__metadata__topic__num__partitions="1",
)
async def test_a_move_begins_behind_the_remote_segments(rig: Rig) -> None:
    await with_two_directories(rig, 1)
    configs = {"remote_storage_enable": "true", "internal_segment_bytes": "4000", "local_retention_bytes": "1"}
    await rig.create("t", replicas=[1, 2], retention_ms="-1", file_delete_delay_ms="0", **configs)
    await rig.until(lambda: places(rig, 1))
    for number in range(40):
        answer = await rig.produce("t", batch_of(f"{number}-".ljust(1000, "x")))
        assert answer.error_code == 0
    await rig.until(lambda: rig.partition(1, "t").log.local_log_start_offset > 20)
    source, before = places(rig, 1)[0], rig.partition(1, "t").log
    assert await move(rig, other(source), 0) == [0]
    await rig.until(lambda: places(rig, 1)[0] == other(source))
    log = rig.partition(1, "t").log
    assert log is not before
    assert (log.log_start_offset, log.log_end_offset) == (0, 40)
    assert log.local_log_start_offset >= before.local_log_start_offset > 20
    assert log.epochs.entries() == before.epochs.entries()
    assert log.highest_copied_offset == before.highest_copied_offset
    answer = await rig.produce("t", batch_of("after the move"))
    assert answer.base_offset == 40
    await rig.until(lambda: rig.partition(2, "t").log.log_end_offset == 41)
    start = max(log.local_log_start_offset, rig.partition(2, "t").log.local_log_start_offset)
    assert b"".join(log.batches(start)) == b"".join(rig.partition(2, "t").log.batches(start))
    await rig.cluster.stop("broker-1")
    rig.cluster.start("broker-1")
    await rig.cluster.wait_ready()
    await rig.until(lambda: places(rig, 1).get(0) == other(source))
    log = rig.partition(1, "t").log
    assert (log.log_start_offset, log.log_end_offset) == (0, 41)
