"""Periodic elections come in batches, however many partitions are due."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kraft.controller import periodic, token_sweep
from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from tests.kraft.controller.conftest import Cluster, finish
from tests.kraft.controller.test_partitions import set_config

BALANCE_MS, UNCLEAN_MS, SWEEP_MS = 7_000, 3_000, 5_000


def batches(cluster: Any) -> list[int]:
    """Records of each run until none is asked for again."""
    found = []
    while True:
        # Tokens have expired one millisecond after their last one.
        wall_ms = cluster.wall_ms + SWEEP_MS + 1
        result = finish(cluster.controller.run_periodic(len(cluster.log), cluster.now_ms, wall_ms))
        cluster.append(result)
        found.append(len(result.records))
        if not result.response:
            return [count for count in found if count]


@pytest.mark.feature("MB-13", "MB-14")
@pytest.mark.parametrize("kind", ["preferred", "unclean", "tokens"])
@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7])
def test_elections_that_are_due_come_in_batches(
    monkeypatch: pytest.MonkeyPatch, kind: str, limit: int, count: int
) -> None:
    monkeypatch.setattr(periodic, "MAX_ELECTIONS_AT_ONCE", limit)
    monkeypatch.setattr(periodic, "MAX_SWEPT_AT_ONCE", limit)
    monkeypatch.setattr(token_sweep, "MAX_SWEPT_AT_ONCE", limit)
    cluster = Cluster(
        levels={"eligible.leader.replicas.version": 0},
        leader_imbalance_check_interval_ms=BALANCE_MS,
        unclean_leader_election_interval_ms=UNCLEAN_MS,
        metadata_max_idle_interval_ms=0,
        broker_session_timeout_ms=1 << 30,
        delegation_token_secret_key="key",
        delegation_token_expiry_check_interval_ms=SWEEP_MS,
    )
    cluster.start(1, 2)
    if count:
        cluster.create_topic("due", *[[1, 2]] * count)
    cluster.create_topic("fine", [2, 1])
    if kind == "preferred":
        cluster.die(1)
        cluster.restart(1, clean=True)
        cluster.heartbeat(1)
        for index in range(count):
            join(cluster, index)
        wait_ms, wanted = BALANCE_MS, 1
    elif kind == "tokens":
        for _ in range(count):
            cluster.send(CreateDelegationTokenRequest(max_lifetime_ms=SWEEP_MS))
        wait_ms, wanted = SWEEP_MS, 1
    else:
        for index in range(count):
            join(cluster, index, isr=(1,))
        cluster.create_topic("careful", [1])
        cluster.die(1)
        if count:
            assert set_config(cluster, 2, "due", "unclean.leader.election.enable", "true") == 0
        wait_ms, wanted = UNCLEAN_MS, 2
    cluster.now_ms += wait_ms - 1
    assert batches(cluster) == []
    cluster.now_ms += 1
    assert batches(cluster) == [limit] * (count // limit) + [count % limit] * (count % limit > 0)
    assert batches(cluster) == []
    assert {cluster.partition("due", index).leader for index in range(count)} <= {wanted}


def join(cluster: Any, index: int, isr: tuple[int, ...] = (1, 2)) -> None:
    """The leader of a partition proposes this ISR."""
    partition = cluster.partition("due", index)
    cluster.propose_isr(
        "due",
        isr,
        broker_id=partition.leader,
        partition_index=index,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )


@pytest.mark.feature("MB-13")
@pytest.mark.parametrize("balances", [False, True])
@pytest.mark.parametrize("idle_ms", [0, 1, 500])
def test_the_next_run_is_at_the_first_time_of_the_timetable(balances: bool, idle_ms: int) -> None:
    cluster = Cluster(
        leader_imbalance_check_interval_ms=BALANCE_MS,
        unclean_leader_election_interval_ms=UNCLEAN_MS,
        delegation_token_expiry_check_interval_ms=11_000,
        metadata_max_idle_interval_ms=idle_ms,
        auto_leader_rebalance_enable=balances,
        broker_session_timeout_ms=1 << 30,
    )
    began_ms = cluster.now_ms
    due = {"balance": began_ms + BALANCE_MS, "unclean": began_ms + UNCLEAN_MS, "tokens": began_ms + 11_000}
    every = {"balance": BALANCE_MS, "unclean": UNCLEAN_MS, "tokens": 11_000, "idle": idle_ms}
    if not balances:
        del due["balance"]
    if idle_ms:
        due["idle"] = began_ms + idle_ms
    for _ in range(40):
        next_ms = cluster.controller.next_periodic_ms(cluster.now_ms)
        assert next_ms == min(due.values())
        cluster.now_ms = next_ms
        records = len(cluster.log)
        cluster.work()
        idled = due.get("idle") == next_ms
        assert [type(it).__name__ for it in cluster.log[records:]] == ["NoOpRecord"] * idled
        for name, at_ms in due.items():
            if at_ms == next_ms:
                due[name] = next_ms + every[name]
