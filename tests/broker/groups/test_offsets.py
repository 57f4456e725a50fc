"""Committed offsets: permissions, records, fetches and transactions."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinator.outcome import ProducerStamp
from barnabas.broker.groups.group import Commit, GroupType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.group_log import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from barnabas.protocol.records.coordinator import read_int16
from tests.broker.groups.machine_bench import WALL_MS, Bench, Written
from tests.broker.groups.offset_words import (
    FakeGroup,
    commit,
    delete_offsets,
    everything,
    fetch,
    fetch_group,
    txn_commit,
)

PRODUCER = ProducerStamp(7, 0)


def raises(code: ErrorCode) -> pytest.RaisesExc[KafkaError]:
    return pytest.RaisesExc(KafkaError, check=lambda error: error.code is code)


# -- commit and fetch


@pytest.mark.feature("CG-03", "CG-04")
def test_a_commit_without_a_group_creates_one_with_only_offsets() -> None:
    bench = Bench()
    bench.create_topic("t")
    assert fetch(bench, "t") == -1
    assert commit(bench, "t", 42, metadata="here", leader_epoch=3) == ErrorCode.NONE
    (topic,) = fetch_group(bench, {"t": [0, 1]}).topics
    there, none = topic.partitions
    assert (there.committed_offset, there.committed_leader_epoch, there.metadata) == (42, 3, "here")
    assert (none.committed_offset, none.committed_leader_epoch, none.metadata, none.error_code) == (-1, -1, "", 0)
    group = bench.machine.offsets.group("g")
    assert group is not None
    assert (group.type, group.state_name(), group.protocol_type) == (GroupType.CLASSIC, "Empty", "")


@pytest.mark.feature("CG-03")
def test_records_are_those_of_kafka() -> None:
    bench = Bench()
    topic_id = bench.create_topic("t")
    commit(bench, "t", 42, metadata="here", leader_epoch=3)
    commit(bench, "t", 43, version=4, retention_ms=1000, metadata=None)
    written = [entry for entry in bench.log if isinstance(entry, Written)]
    assert [read_int16(entry.value or b"") for entry in written] == [4, 1]
    (key, value), (_, old) = bench.written_since(0)
    assert key == OffsetCommitKey(group="g", topic="t", partition=0)
    assert value == OffsetCommitValue(
        offset=42, leader_epoch=3, metadata="here", commit_timestamp=WALL_MS + 1000, topic_id=topic_id
    )
    assert isinstance(old, OffsetCommitValue)
    assert (old.offset, old.metadata, old.expire_timestamp) == (43, "", WALL_MS + 2000)


@pytest.mark.feature("CG-03")
def test_metadata_has_a_limit_in_characters() -> None:
    bench = Bench(offset__metadata__max__bytes="4")
    bench.create_topic("t")
    assert commit(bench, "t", 1, metadata="grün") == ErrorCode.NONE
    assert commit(bench, "t", 2, metadata="gruen") == ErrorCode.OFFSET_METADATA_TOO_LARGE
    # Java counts a character outside the basic multilingual plane twice.
    assert commit(bench, "t", 3, metadata="\U0001f680\U0001f680") == ErrorCode.NONE
    assert commit(bench, "t", 4, metadata="\U0001f680\U0001f680!") == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert txn_commit(bench, "t", 5, 7, metadata="gruen") == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert fetch(bench, "t") == 3


@pytest.mark.feature("CG-03")
def test_a_retention_beyond_all_time_lasts_for_ever() -> None:
    bench = Bench()
    bench.create_topic("t")
    assert commit(bench, "t", 1, version=4, retention_ms=(1 << 63) - 1) == ErrorCode.NONE
    ((_, value),) = bench.written_since(0)
    assert isinstance(value, OffsetCommitValue)
    assert value.expire_timestamp == (1 << 63) - 1
    # A negative retention has expired at once.
    assert commit(bench, "t", 1, version=4, retention_ms=-(1 << 63)) == ErrorCode.NONE


@pytest.mark.feature("CG-03")
@pytest.mark.parametrize(
    ("version", "generation", "there", "expected"),
    [
        (9, 3, False, ErrorCode.GROUP_ID_NOT_FOUND),
        (8, 3, False, ErrorCode.ILLEGAL_GENERATION),
        (9, 0, False, ErrorCode.GROUP_ID_NOT_FOUND),
        (9, 0, True, ErrorCode.UNKNOWN_MEMBER_ID),
        (8, 0, True, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_generation_of_a_group_that_nobody_joined(
    version: int, generation: int, there: bool, expected: ErrorCode
) -> None:
    bench = Bench()
    bench.create_topic("t")
    if there:
        commit(bench, "t", 1)
    with raises(expected):
        commit(bench, "t", 2, generation=generation, member="m", version=version)
    assert fetch(bench, "t") == (1 if there else -1)


@pytest.mark.feature("CG-03")
def test_a_commit_with_a_generation_in_a_transaction_needs_the_group() -> None:
    bench = Bench()
    bench.create_topic("t")
    with raises(ErrorCode.ILLEGAL_GENERATION):
        txn_commit(bench, "t", 2, 7, generation=1)


@pytest.mark.feature("CG-03")
@pytest.mark.parametrize(
    ("error", "in_transaction"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
        (ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION),
        (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID),
        (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS),
        # Producers do not know the errors of the newer protocol.
        (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_the_group_checks_each_commit(error: ErrorCode, in_transaction: ErrorCode) -> None:
    bench = Bench()
    bench.create_topic("t")
    group = FakeGroup(error=error)
    bench.machine.groups.put(group)
    with raises(error):
        commit(bench, "t", 1, member="m", generation=5, version=7)
    with raises(in_transaction):
        txn_commit(bench, "t", 1, 7, generation=5)
    assert group.commits == [Commit("m", None, 5, False, 7), Commit("", None, 5, True, 5)]
    assert bench.log == []


class OwnersGroup(FakeGroup):
    """Its member has owned only partition 0 since the epoch of the commit."""

    def check_commit_of(self, commit: Commit, topic: str, topic_id: bytes, partition: int) -> None:
        if partition != 0:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)


@pytest.mark.feature("CG-03", "CG-13")
def test_a_commit_with_an_older_epoch_is_checked_by_partition() -> None:
    bench = Bench()
    bench.create_topic("t", 2)
    bench.machine.groups.put(OwnersGroup(kind=GroupType.CONSUMER))
    assert commit(bench, "t", 1, member="m", generation=5) == ErrorCode.NONE
    with raises(ErrorCode.STALE_MEMBER_EPOCH):
        commit(bench, "t", 1, partition=1, member="m", generation=5)
    with raises(ErrorCode.ILLEGAL_GENERATION):
        txn_commit(bench, "t", 1, 7, partition=1, generation=5)


@pytest.mark.feature("CG-04")
def test_all_topics_of_a_group() -> None:
    bench = Bench()
    bench.create_topic("t", 2)
    bench.create_topic("u")
    commit(bench, "t", 1, partition=1)
    commit(bench, "t", 2)
    commit(bench, "u", 3)
    commit(bench, "u", 4, group="other")
    assert everything(bench) == {("t", 1): 1, ("t", 0): 2, ("u", 0): 3}
    assert everything(bench, "nobody") == {}


@pytest.mark.feature("CG-04")
def test_members_of_a_group_may_have_to_show_their_epoch() -> None:
    bench = Bench()
    bench.create_topic("t")
    commit(bench, "t", 1)
    bench.machine.groups.put(FakeGroup(error=ErrorCode.STALE_MEMBER_EPOCH))
    with raises(ErrorCode.STALE_MEMBER_EPOCH):
        fetch_group(bench, {"t": [0]}, member_epoch=3)
    # A group about to be removed has no committed offsets.
    bench.machine.groups.put(FakeGroup(error=ErrorCode.GROUP_ID_NOT_FOUND))
    assert fetch(bench, "t") == -1
    assert everything(bench) == {}


@pytest.mark.feature("CG-04")
def test_offsets_of_a_former_topic_of_the_same_name_do_not_count() -> None:
    bench = Bench()
    topic_id = bench.create_topic("t")
    commit(bench, "t", 1)
    (mine,) = fetch_group(bench, {"t": [0]}, topic_id=topic_id).topics
    (others,) = fetch_group(bench, {"t": [0]}, topic_id=bytes(range(16))).topics
    assert mine.partitions[0].committed_offset == 1
    assert (others.partitions[0].committed_offset, others.partitions[0].error_code) == (-1, 0)


# -- transactions


@pytest.mark.feature("TX-04", "CG-04")
def test_an_offset_in_a_transaction_waits_for_its_marker() -> None:
    bench = Bench()
    bench.create_topic("t")
    commit(bench, "t", 1)
    assert txn_commit(bench, "t", 5, 7) == ErrorCode.NONE
    assert fetch(bench, "t") == 1
    assert fetch(bench, "t", stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    bench.end_transaction(PRODUCER, True)
    assert fetch(bench, "t", stable=True) == 5


@pytest.mark.feature("TX-04", "CG-04")
def test_an_aborted_transaction_leaves_nothing() -> None:
    bench = Bench()
    bench.create_topic("t")
    txn_commit(bench, "t", 5, 7)
    assert bench.machine.offsets.group("g") is not None
    bench.end_transaction(PRODUCER, False)
    assert fetch(bench, "t", stable=True) == -1
    assert bench.machine.offsets.group("g") is None
    # A marker of a producer without offset commits is ignored.
    bench.end_transaction(ProducerStamp(8, 0), True)


@pytest.mark.feature("TX-04", "CG-12")
def test_the_later_record_wins_in_a_transaction_or_not() -> None:
    bench = Bench()
    bench.create_topic("t")
    txn_commit(bench, "t", 5, 7)
    commit(bench, "t", 3)
    bench.end_transaction(PRODUCER, True)
    assert fetch(bench, "t") == 3
    bench.reload()
    assert fetch(bench, "t") == 3
    txn_commit(bench, "t", 6, 7)
    bench.reload()
    assert fetch(bench, "t", stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    bench.end_transaction(PRODUCER, True)
    assert fetch(bench, "t") == 6


@pytest.mark.feature("TX-04")
def test_two_producers_of_one_group() -> None:
    bench = Bench()
    bench.create_topic("t", 2)
    txn_commit(bench, "t", 5, 7)
    txn_commit(bench, "t", 6, 8, partition=1)
    bench.end_transaction(PRODUCER, True)
    assert fetch(bench, "t", stable=True) == 5
    assert fetch(bench, "t", 1, stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    bench.end_transaction(ProducerStamp(8, 0), True)
    assert everything(bench) == {("t", 0): 5, ("t", 1): 6}


@pytest.mark.feature("TX-04")
def test_a_transaction_needs_a_producer() -> None:
    bench = Bench()
    bench.create_topic("t")
    with raises(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        txn_commit(bench, "t", 5, -1)


@pytest.mark.feature("TX-04")
def test_records_of_a_transaction_carry_its_producer() -> None:
    bench = Bench()
    bench.create_topic("t")
    txn_commit(bench, "t", 5, 7)
    commit(bench, "t", 5)
    assert [entry.producer for entry in bench.log if isinstance(entry, Written)] == [PRODUCER, None]


# -- delete


@pytest.mark.feature("CG-03")
def test_offsets_can_be_deleted() -> None:
    bench = Bench()
    bench.create_topic("t", 3)
    commit(bench, "t", 1)
    txn_commit(bench, "t", 2, 7, partition=1)
    assert delete_offsets(bench, "t", 0, 1, 2, 2) == [0, 0, 0]
    deleted = bench.written_since(2)
    assert deleted == [(OffsetCommitKey(group="g", topic="t", partition=it), None) for it in (0, 1)]
    bench.end_transaction(PRODUCER, True)
    assert everything(bench) == {}
    with raises(ErrorCode.GROUP_ID_NOT_FOUND):
        delete_offsets(bench, "t", 0)


@pytest.mark.feature("CG-03")
def test_offsets_in_use_cannot_be_deleted() -> None:
    bench = Bench()
    bench.create_topic("t")
    bench.create_topic("u")
    commit(bench, "t", 1)
    commit(bench, "u", 1)
    bench.machine.groups.put(FakeGroup(topics=["t"]))
    assert delete_offsets(bench, "t", 0) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert delete_offsets(bench, "u", 0) == [ErrorCode.NONE]
    bench.machine.groups.put(FakeGroup(protocol_type="connect"))
    with raises(ErrorCode.NON_EMPTY_GROUP):
        delete_offsets(bench, "t", 0)
    bench.machine.groups.put(FakeGroup(protocol_type="connect", state="Empty"))
    assert delete_offsets(bench, "t", 0) == [ErrorCode.NONE]


# -- records


@pytest.mark.feature("CG-12")
def test_a_new_coordinator_knows_all_that_was_committed() -> None:
    bench = Bench()
    bench.create_topic("t", 3)
    commit(bench, "t", 1, metadata="m", leader_epoch=4)
    txn_commit(bench, "t", 2, 7, partition=1)
    commit(bench, "t", 9, partition=2)
    delete_offsets(bench, "t", 2)
    bench.reload()
    bench.end_transaction(PRODUCER, True)
    assert everything(bench) == {("t", 0): 1, ("t", 1): 2}
    assert fetch_group(bench, {"t": [0]}).topics[0].partitions[0].metadata == "m"


@pytest.mark.feature("CG-12")
def test_old_records_are_read() -> None:
    bench = Bench()
    bench.create_topic("t")
    key = LegacyOffsetCommitKey(group="g", topic="t", partition=0)
    value = LegacyOffsetCommitValue(offset=11, metadata="old", commit_timestamp=WALL_MS)
    bench.machine.replay(key, value, None, 0)
    assert fetch(bench, "t") == 11
    assert [group.group_id for group in bench.machine.offsets.all_groups()] == ["g"]
    bench.machine.replay(key, None, None, 0)
    assert fetch(bench, "t") == -1


@pytest.mark.feature("CG-03")
def test_a_failed_write_changes_nothing() -> None:
    bench = Bench()
    bench.create_topic("t")
    bench.broken = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    with raises(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        commit(bench, "t", 1)
    with raises(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        txn_commit(bench, "t", 1, 7)
    assert fetch(bench, "t", stable=True) == -1
    assert bench.machine.offsets.group("g") is None
