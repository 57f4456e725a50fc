"""Changes of configs reach the partitions that they concern, and no others."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing

from barnabas.broker.replication.decision_notes import note_isr_wanted
from barnabas.broker.replication.partitions import Partitions
from barnabas.broker.replication.replica import IsrChangeWanted, LeadershipTaken
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigResource
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.decisions import Decisions
from barnabas.storage.log import PartitionLog
from tests.broker.replication.shells import LAG_MS, TOPIC, ShellCluster
from tests.broker.replication.test_replica import Stage, partition

Clock = trio.testing.MockClock


@asynccontextmanager
async def cluster_of_three(path: Path) -> AsyncIterator[ShellCluster]:
    async with trio.open_nursery() as nursery:
        yield ShellCluster(nursery, path, random.Random(1), min_insync_replicas=2)
        nursery.cancel_scope.cancel()


def change_configs(partitions: Partitions, *resources: ConfigResource) -> None:
    delta = MetadataDelta(partitions.image, partitions.image)
    for resource in resources:
        delta.changed_configs[resource] = {"min.insync.replicas": "1"}
    for _ in partitions.apply_delta(delta):
        pass


@pytest.mark.feature("RE-09")
@pytest.mark.parametrize(
    ("resource", "concerns"),
    [
        ((TOPIC_RESOURCE, TOPIC), True),
        ((TOPIC_RESOURCE, "another"), False),
        ((BROKER_RESOURCE, ""), True),
        ((BROKER_RESOURCE, "1"), True),
        ((BROKER_RESOURCE, "2"), False),
        ((TOPIC_RESOURCE, "1"), False),
    ],
)
async def test_a_config_reaches_the_partitions_of_its_topic_or_broker(
    tmp_path: Path, autojump_clock: Clock, resource: ConfigResource, concerns: bool
) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        leader = cluster.brokers[1]
        cluster.config = replace(cluster.config, min_insync_replicas=1)
        change_configs(leader.partitions, resource)
        expected = 1 if concerns else 2
        assert leader.partition.log.config.min_insync_replicas == expected
        assert leader.partition.replica.settings.min_insync_replicas == expected


@pytest.mark.feature("RE-09")
async def test_a_shorter_lag_time_drops_a_late_replica_at_once(tmp_path: Path, autojump_clock: Clock) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        leader = cluster.brokers[1]
        await trio.sleep(0.1)
        cluster.brokers[3].stuck = True
        leader.produce("without 3")
        await trio.sleep(LAG_MS / 2000)
        assert leader.partition.replica.pending_isr_change is None
        shorter = replace(leader.partition.replica.settings, replica_lag_time_max_ms=LAG_MS // 4)
        leader.partition.settings_changed(shorter)
        proposed = leader.partition.replica.pending_isr_change
        assert proposed is not None and proposed.members == {1, 2}


@pytest.mark.feature("ST-12")
async def test_retention_reports_the_deleted_segments_and_survives_a_failed_log(
    tmp_path: Path, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        cluster.partitions[1] = cluster.new_partition(1)
        cluster.learn()
        partitions = cluster.brokers[1].partitions
        assert len(partitions) == 2 and sum(each.apply_retention() for each in partitions) == 0

        def delete(log: PartitionLog, now_ms: int) -> int:
            if log.partition == 0:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk failed")
            return 3

        monkeypatch.setattr(PartitionLog, "delete_old_segments", delete)
        assert sum(each.apply_retention() for each in partitions) == 3


@pytest.mark.feature("RE-12")
def test_the_note_of_an_isr_change_has_offset_and_delay_of_each_replica() -> None:
    decisions = Decisions("broker-1", lambda: 0)
    replica = Stage(log_end_offset=9).replica
    wanted = IsrChangeWanted(((1, 101), (2, 102)), 5, 8, because_of=((2, 9, None), (3, 4, 700)))
    note_isr_wanted(decisions, "t-0", cast(Any, replica), wanted)
    (note,) = decisions.since(0, "t-0")
    assert note.facts["replica_offsets"] == (9, 4)
    assert note.facts["replica_behind_ms"] == (-1, 700), "-1: not caught up in this leader epoch"


@pytest.mark.feature("RE-05")
def test_a_new_leader_counts_from_the_end_that_its_log_has_now() -> None:
    """The log may have grown while this replica followed, or have been repaired before it led."""
    stage = Stage(log_end_offset=3)
    taken = stage.replica.partition_changed(partition(1, isr=(1,)), 20, stage.now_ms)
    assert taken[0] == LeadershipTaken(5, 20)
    assert stage.replica.log_end_offset == stage.replica.high_watermark == 20


def test_the_end_of_the_log_is_taken_over_by_a_follower() -> None:
    stage = Stage(log_end_offset=30, high_watermark=25)
    stage.replica.partition_changed(partition(2), 20, stage.now_ms)
    assert (stage.replica.log_end_offset, stage.replica.high_watermark) == (20, 20)
