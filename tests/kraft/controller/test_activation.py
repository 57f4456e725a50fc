"""A controller becomes active: what it writes first."""

from __future__ import annotations

import random

import pytest

from barnabas.kraft.controller.controller import QuorumController
from barnabas.kraft.metadata.bootstrap import bootstrap_records
from barnabas.protocol.messages.metadata_log import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    TopicRecord,
)
from tests.kraft.controller.conftest import Cluster, finish


@pytest.mark.feature("KR-16", "RE-18")
@pytest.mark.parametrize("level", [7, 22, 30])
@pytest.mark.parametrize("elr", [None, 0, 1])
def test_the_first_controller_writes_the_levels_and_one_min_isr_for_all(level: int, elr: int | None) -> None:
    if elr and level < 23:
        return
    levels = {"metadata.version": level} | ({} if elr is None else {"eligible.leader.replicas.version": elr})
    cluster = Cluster(levels=levels, min_insync_replicas=2)
    has_elr = elr == 1 or (elr is None and level == 30)
    config = ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2")
    assert cluster.log == [*bootstrap_records(levels), *[config] * has_elr]
    cluster.fail_over(2)
    assert cluster.log == [*bootstrap_records(levels), *[config] * has_elr], "the next one writes nothing"


@pytest.mark.feature("KR-16")
def test_an_open_transaction_of_the_last_controller_is_aborted() -> None:
    cluster = Cluster()
    cluster.start(1)
    records = [BeginTransactionRecord(name="half a topic"), TopicRecord(name="half", topic_id=b"h" * 16)]
    controller = cluster.controller
    controller.resign()
    finish(controller.handle_commit(len(cluster.log), 1, cluster.now_ms, records))
    cluster.log += records
    cluster.committed = len(cluster.log)
    cluster.activate(2)
    assert cluster.log[-1] == AbortTransactionRecord(reason="Controller failover")
    assert "half" not in cluster.image.topics.by_name and "half" not in controller.committed.topics.by_name
    assert cluster.create_topic("whole", [1]).error_code == 0
    end = len(cluster.log)
    cluster.fail_over(3)
    assert len(cluster.log) == end
    assert "whole" in controller.committed.topics.by_name


@pytest.mark.feature("KR-16")
def test_brokers_that_serve_have_sessions_with_the_next_controller_and_others_have_none() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.die(2)
    standby = QuorumController(cluster.controller.defaults, random.Random(1), [])
    finish(standby.handle_commit(0, 1, cluster.now_ms, cluster.log))
    assert standby.sessions.get(1) is None
    standby.activate(5, len(cluster.log), 77)
    assert standby.sessions.is_valid(1, cluster.epochs[1], 77 + 9_000)
    assert not standby.sessions.is_valid(1, cluster.epochs[1], 77 + 9_001)
    assert standby.sessions.get(2) is None
