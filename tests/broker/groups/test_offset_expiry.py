"""Expiry of offsets: retention (KIP-211), deleted topics, and groups without offsets."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinator.outcome import Operation, Outcome, ProducerStamp
from barnabas.broker.groups import offset_cleanup
from barnabas.broker.groups.group import GroupType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.group_log import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tests.broker.groups.machine_bench import DAY_MS, WALL_MS, Bench
from tests.broker.groups.offset_words import FakeGroup, commit, everything, fetch, txn_commit

CHECK_MS = 600_000
"""offsets.retention.check.interval.ms"""

RETENTION_MS = 7 * DAY_MS


def loaded() -> Bench:
    bench = Bench()
    bench.create_topic("t", 3)
    bench.create_topic("u")
    bench.reload()
    return bench


@pytest.mark.feature("CG-05")
def test_offsets_of_a_group_that_nobody_joined_expire_each_by_its_own_commit() -> None:
    bench = loaded()
    commit(bench, "t", 1)
    bench.advance(DAY_MS)
    commit(bench, "t", 2, partition=1)
    bench.advance(RETENTION_MS - DAY_MS - 1)
    assert everything(bench) == {("t", 0): 1, ("t", 1): 2}
    bench.advance(CHECK_MS)
    assert everything(bench) == {("t", 1): 2}
    bench.advance(DAY_MS)
    assert everything(bench) == {}
    assert bench.machine.offsets.group("g") is None
    # The group never had a record, so it needs no tombstone.
    assert all(isinstance(key, OffsetCommitKey) for key, _ in bench.written_since(0))


@pytest.mark.feature("CG-05")
def test_a_commit_with_its_own_retention_time() -> None:
    bench = loaded()
    commit(bench, "t", 1, version=4, retention_ms=1000)
    commit(bench, "t", 2, partition=1, version=4, retention_ms=2 * RETENTION_MS)
    bench.advance(CHECK_MS)
    assert everything(bench) == {("t", 1): 2}
    bench.reload()
    bench.advance(RETENTION_MS + CHECK_MS)
    assert everything(bench) == {("t", 1): 2}
    bench.advance(RETENTION_MS)
    assert everything(bench) == {}


@pytest.mark.feature("CG-05")
def test_offsets_expire_after_the_last_member_left_and_the_group_with_them() -> None:
    bench = loaded()
    commit(bench, "t", 1)
    bench.advance(RETENTION_MS - 2 * CHECK_MS)
    group = FakeGroup(state="Empty", since_ms=bench.now.wall_ms)
    bench.machine.groups.put(group)
    bench.advance(RETENTION_MS - CHECK_MS)
    assert everything(bench) == {("t", 0): 1}
    place = len(bench.log)
    bench.advance(2 * CHECK_MS)
    assert everything(bench) == {}
    tombstones = bench.written_since(place)
    assert tombstones[:2] == [
        (OffsetCommitKey(group="g", topic="t", partition=0), None),
        (GroupMetadataKey(group="g"), None),
    ]


@pytest.mark.feature("CG-05", "CG-08", "CG-12")
def test_an_empty_classic_group_is_removed_with_its_last_offset() -> None:
    bench = loaded()
    left_ms = bench.now.wall_ms + DAY_MS
    value = GroupMetadataValue(protocol_type="consumer", generation=3, current_state_timestamp=left_ms)
    bench.write(GroupMetadataKey(group="g"), value, 3)
    commit(bench, "t", 1)
    bench.reload()
    bench.advance(RETENTION_MS + DAY_MS - CHECK_MS)
    assert everything(bench) == {("t", 0): 1}
    bench.advance(2 * CHECK_MS)
    assert bench.machine.groups.get("g") is None
    bench.reload()
    assert bench.machine.offsets.group("g") is None
    # A group that never had offsets is removed at the next check.
    bench.write(GroupMetadataKey(group="g"), value, 3)
    bench.advance(CHECK_MS)
    assert bench.machine.groups.get("g") is None


@pytest.mark.feature("CG-05")
@pytest.mark.parametrize(
    ("group", "left"),
    [
        # The offsets of subscribed topics are kept; others of the group expire.
        (FakeGroup(topics=["t"]), {("t", 0): 1}),
        (FakeGroup(kind=GroupType.CONSUMER, topics=["u"]), {("u", 0): 2}),
        # The subscriptions are not known yet, or never.
        (FakeGroup(state="PreparingRebalance"), {("t", 0): 1, ("u", 0): 2}),
        (FakeGroup(state="CompletingRebalance"), {("t", 0): 1, ("u", 0): 2}),
        (FakeGroup(protocol_type="connect"), {("t", 0): 1, ("u", 0): 2}),
    ],
    ids=lambda it: f"{it.type.value}-{it.state}-{it.protocol_type}" if isinstance(it, FakeGroup) else "",
)
def test_offsets_in_use_do_not_expire(group: FakeGroup, left: dict[tuple[str, int], int]) -> None:
    bench = loaded()
    commit(bench, "t", 1)
    commit(bench, "u", 2)
    bench.machine.groups.put(group)
    bench.advance(RETENTION_MS + CHECK_MS)
    assert everything(bench) == left
    assert bench.machine.groups.get("g") is group


@pytest.mark.feature("CG-05", "TX-04")
def test_an_open_transaction_keeps_the_offset_and_the_group() -> None:
    bench = loaded()
    commit(bench, "t", 1)
    bench.advance(RETENTION_MS - CHECK_MS)
    txn_commit(bench, "t", 2, 7)
    txn_commit(bench, "t", 3, 7, group="other")
    bench.machine.groups.put(FakeGroup("other", state="Empty"))
    place = len(bench.log)
    bench.advance(3 * CHECK_MS)
    assert bench.written_since(place) == []
    assert fetch(bench, "t") == 1
    bench.end_transaction(ProducerStamp(7, 0), True)
    bench.advance(CHECK_MS)
    # Counts from the commit, not from the marker.
    assert fetch(bench, "t") == 2
    bench.advance(RETENTION_MS)
    assert fetch(bench, "t") == -1


@pytest.mark.feature("CG-05")
def test_a_failed_write_is_retried_at_the_next_check() -> None:
    bench = loaded()
    commit(bench, "t", 1)
    bench.broken = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    bench.advance(RETENTION_MS + CHECK_MS)
    assert fetch(bench, "t") == 1
    bench.broken = None
    bench.advance(CHECK_MS)
    assert fetch(bench, "t") == -1


@pytest.mark.feature("CG-05")
def test_many_offsets_expire_in_batches_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_cleanup, "RECORDS_IN_ONE_STEP", 4)
    bench = loaded()
    for index in range(10):
        commit(bench, "t", index, group=f"g{index // 3}", partition=index % 3)
    sizes = []
    run = bench.run

    def counted(operation: object) -> object:
        outcome = run(operation)  # type: ignore[arg-type]
        sizes.append(len(outcome.records))
        return outcome

    bench.run = counted  # type: ignore[assignment, method-assign]
    bench.advance(RETENTION_MS + CHECK_MS)
    assert list(bench.machine.offsets.all_groups()) == []
    assert max(sizes) == 4 and sum(sizes) == 10


@pytest.mark.feature("CG-05")
def test_offsets_are_examined_in_steps_and_a_commit_between_two_of_them_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_cleanup, "OFFSETS_IN_ONE_STEP", 4)
    bench = loaded()
    for partition in range(20):
        commit(bench, "t", partition, partition=partition)
    steps: list[int] = []
    run = bench.run

    def watched(operation: Operation) -> Outcome:
        outcome = run(operation)
        if outcome.records:
            steps.append(len(outcome.records))
            bench.run = run  # type: ignore[method-assign]
            commit(bench, "t", 99, partition=19)
            bench.run = watched  # type: ignore[method-assign]
        return outcome

    bench.run = watched  # type: ignore[method-assign]
    bench.advance(RETENTION_MS + CHECK_MS)
    assert steps == [4, 4, 4, 4, 3]
    assert everything(bench) == {("t", 19): 99}


@pytest.mark.feature("CG-05")
def test_a_clean_up_whose_write_fails_halfway_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_cleanup, "OFFSETS_IN_ONE_STEP", 2)
    bench = loaded()
    for partition in range(6):
        commit(bench, "t", partition, partition=partition)
    run = bench.run

    def fails_later(operation: Operation) -> Outcome:
        outcome = run(operation)
        if outcome.records:
            bench.broken = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return outcome

    bench.run = fails_later  # type: ignore[method-assign]
    bench.advance(RETENTION_MS + 10)
    assert len(everything(bench)) == 4
    bench.run, bench.broken = run, None  # type: ignore[method-assign]
    bench.advance(offset_cleanup.RETRY_MS + 10)
    assert everything(bench) == {}


@pytest.mark.feature("CG-05")
def test_offsets_of_a_deleted_topic_are_removed_at_once() -> None:
    bench = loaded()
    commit(bench, "t", 1)
    commit(bench, "u", 2)
    txn_commit(bench, "t", 3, 7, partition=1)
    bench.delete_topic("t")
    bench.advance(0)
    assert everything(bench) == {("u", 0): 2}
    bench.end_transaction(ProducerStamp(7, 0), True)
    assert everything(bench) == {("u", 0): 2}


@pytest.mark.feature("CG-05")
def test_a_recreated_topic_has_no_offsets() -> None:
    bench = loaded()
    commit(bench, "t", 1)
    # An older release wrote no topic id.
    bench.machine.replay(
        OffsetCommitKey(group="g", topic="t", partition=1),
        OffsetCommitValue(offset=4, commit_timestamp=WALL_MS),
        None,
        0,
    )
    bench.recreate_topic("t")
    commit(bench, "t", 5, partition=2)
    bench.advance(0)
    assert everything(bench) == {("t", 2): 5}
    bench.advance(0)
    assert everything(bench) == {("t", 2): 5}


@pytest.mark.feature("CG-05", "CG-12")
def test_a_topic_deleted_while_there_was_no_leader_is_noticed_after_loading() -> None:
    bench = loaded()
    commit(bench, "t", 1)
    bench.broken = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    bench.delete_topic("t")
    bench.advance(1000)
    assert fetch(bench, "t") == 1
    bench.broken = None
    bench.reload()
    bench.advance(0)
    assert fetch(bench, "t") == -1


@pytest.mark.feature("CG-05")
def test_tombstones_of_deleted_topics_are_retried_until_written() -> None:
    bench = loaded()
    commit(bench, "t", 1)
    bench.broken = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    bench.delete_topic("t")
    bench.advance(2000)
    bench.broken = None
    bench.advance(500)
    assert fetch(bench, "t") == -1
