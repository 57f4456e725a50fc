"""Streams groups (KIP-1071) as their coordinator's machine keeps them: members, topologies, tasks."""

from __future__ import annotations

import pytest

from tests.broker.groups.streams_rig import Streams, statuses, tasks

pytestmark = pytest.mark.feature("CG-20")


def test_the_first_member_gets_all_tasks() -> None:
    app = Streams()
    app.bench.create_topic("words", partitions=3)
    joined = app.join("a")
    assert (joined.member_epoch, joined.heartbeat_interval_ms, statuses(joined)) == (2, 5000, [])
    assert tasks(joined) == ({"0": [0, 1, 2]}, {})
    assert app.group.state_name() == "Stable"
    again = app.beat("a", 2, ({"0": [0, 1, 2]}, {}))
    assert tasks(again) is None, "nothing has changed"


def test_a_second_member_gets_a_task_once_the_first_has_stopped_it() -> None:
    app = Streams()
    app.bench.create_topic("words", partitions=4)
    app.join("a")
    joined = app.join("b")
    assert tasks(joined) == ({}, {}), "they are still with a"
    assert app.group.state_name() == "Reconciling"
    revoked = app.beat("a", 2)
    assert (revoked.member_epoch, tasks(revoked)) == (2, ({"0": [0, 1]}, {}))
    assert tasks(app.beat("b", joined.member_epoch)) is None
    acknowledged = app.beat("a", 2, ({"0": [0, 1]}, {}))
    assert acknowledged.member_epoch == 3
    assert tasks(app.beat("b", joined.member_epoch)) == ({"0": [2, 3]}, {})
    assert app.group.state_name() == "Stable"
    described = app.describe()
    assert {it.member_id: it.assignment.active_tasks[0].partitions for it in described.members} == {
        "a": [0, 1],
        "b": [2, 3],
    }
