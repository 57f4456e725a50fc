"""Producer state of a log: retries, gaps, epochs, open transactions, snapshots."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.storage.log import PartitionLog
from barnabas.storage.producer_snapshot_format import CorruptSnapshot, decode_snapshot, encode_snapshot
from barnabas.storage.producers import ProducerEntry, SequencedBatch
from tests.storage.rig import NOW_MS, PRODUCERS, Rig, all_offsets, append, batch, producer_batch, small_segments

DAY_MS = PRODUCERS.expiration_ms
LAST_SEQUENCE = 0x7FFF_FFFF


def refusal(log: PartitionLog, data: bytes) -> ErrorCode:
    before = log.log_end_offset
    with pytest.raises(KafkaError) as refused:
        append(log, data)
    assert log.log_end_offset == before, "nothing was appended"
    return refused.value.code


def marker(producer_id: int, epoch: int, committed: bool = True, coordinator_epoch: int = 0) -> bytes:
    return bytes(build_end_txn_batch(EndTxn(committed, coordinator_epoch), producer_id, epoch, NOW_MS))


@pytest.mark.feature("PR-12")
def test_each_of_the_last_five_batches_is_acknowledged_again_with_its_offset() -> None:
    log = Rig().open()
    for step in range(7):
        assert append(log, producer_batch(5, 0, 2 * step, count=2)).first_offset == 2 * step
    for step in range(2, 7):
        again = append(log, producer_batch(5, 0, 2 * step, count=2))
        assert (again.first_offset, again.last_offset, again.duplicate) == (2 * step, 2 * step + 1, True)
    assert log.log_end_offset == 14
    assert refusal(log, producer_batch(5, 0, 2, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the sixth last"


@pytest.mark.feature("PR-12")
@pytest.mark.parametrize("sequence", [0, 3, 5, 7, 100])
def test_anything_that_is_no_repetition_and_does_not_follow_is_out_of_order(sequence: int) -> None:
    log = Rig().open()
    append(log, producer_batch(5, 0, 0, count=3))
    append(log, producer_batch(5, 0, 3, count=3))
    assert refusal(log, producer_batch(5, 0, sequence, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, producer_batch(5, 0, 6)).first_offset == 6


@pytest.mark.feature("PR-12")
def test_a_new_epoch_starts_at_sequence_zero_and_fences_the_old_one() -> None:
    log = Rig().open()
    append(log, producer_batch(5, 1, 0))
    assert refusal(log, producer_batch(5, 2, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, producer_batch(5, 2, 0))
    assert refusal(log, producer_batch(5, 1, 1)) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.feature("PR-12")
def test_an_unknown_producer_may_begin_anywhere() -> None:
    """Retention may have deleted its records."""
    log = Rig().open()
    assert append(log, producer_batch(5, 3, 1000)).first_offset == 0
    assert append(log, producer_batch(5, 3, 1001)).first_offset == 1


@pytest.mark.feature("PR-12")
def test_sequences_wrap_to_zero() -> None:
    log = Rig().open()
    append(log, producer_batch(5, 0, LAST_SEQUENCE - 1, count=3))
    assert append(log, producer_batch(5, 0, LAST_SEQUENCE - 1, count=3)).duplicate
    assert refusal(log, producer_batch(5, 0, 0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, producer_batch(5, 0, 1)).first_offset == 3


@pytest.mark.feature("PR-12")
@given(
    st.integers(0, 12),
    st.lists(st.tuples(st.sampled_from(["next", "again", "gap", "two", "reopen"]), st.integers(1, 4)), max_size=14),
)
@example(2, [("next", 3), ("next", 1), ("again", 1), ("gap", 1), ("reopen", 1), ("again", 1), ("next", 2)])
@example(3, [("next", 1), ("two", 3), ("two", 2)])
def test_the_end_of_the_sequences_is_a_place_like_any_other(before_the_end: int, steps: list[tuple[str, int]]) -> None:
    """The same story from sequence 1000 on, and across the wrap from 2147483647 to 0: the same answers."""
    assert outcomes_from(LAST_SEQUENCE - before_the_end, steps) == outcomes_from(1000, steps)


def outcomes_from(sequence: int, steps: list[tuple[str, int]]) -> list[object]:
    """Answers of a log to a producer that begins at `sequence`."""
    rig = Rig()
    log = rig.open(small_segments())
    sent: list[tuple[int, int]] = []
    outcomes: list[object] = []

    def send(*batches: tuple[int, int]) -> None:
        data = [producer_batch(5, 0, first & LAST_SEQUENCE, count=count) for first, count in batches]
        try:
            result = append(log, *data)
        except KafkaError as error:
            outcomes.append(error.code)
        else:
            outcomes.append((result.first_offset, result.last_offset, result.duplicate))
            if not result.duplicate:
                sent.extend(batches)

    send((sequence, 1))
    for step, count in steps:
        following = sum(sent[-1])
        if step == "next":
            send((following, count))
        elif step == "again":
            send(sent[-min(count, len(sent))])
        elif step == "gap":
            send((following + count, 1))
        elif step == "two":
            send((following, count), (following + count, 1))
        else:
            log.close()
            log = rig.open(small_segments(), recovery_point=log.log_end_offset, clean_shutdown=True)
    assert log.producers is not None
    return [*outcomes, (log.producers.entries[5].last_sequence - sequence) & LAST_SEQUENCE]


@pytest.mark.feature("PR-12")
def test_batches_of_one_append_must_follow_each_other() -> None:
    log = Rig().open()
    append(log, producer_batch(5, 0, 0), producer_batch(6, 0, 0), producer_batch(5, 0, 1))
    assert refusal(log, producer_batch(5, 0, 2) + producer_batch(5, 0, 4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, producer_batch(9, 0, 0) + producer_batch(9, 0, 0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.feature("PR-12", "ST-12")
@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_a_retry_across_a_restart_is_recognised(stop: str) -> None:
    rig = Rig()
    config = small_segments()
    log = rig.open(config)
    for step in range(30):
        append(log, producer_batch(5, 0, step), batch())
    if stop == "clean":
        log.close()
    rig.kill()
    again = rig.open(config, clean_shutdown=stop == "clean")
    assert append(again, producer_batch(5, 0, 29)).duplicate
    assert append(again, producer_batch(5, 0, 30)).first_offset == 60


@pytest.mark.feature("PR-12")
def test_a_follower_that_becomes_leader_recognises_a_retry() -> None:
    log = Rig().open()
    follower = Rig(seed=1).open()
    for step in range(8):
        append(log, producer_batch(5, 0, step))
    for data in log.batches(0):
        follower.append_as_follower(data, NOW_MS)
    assert append(follower, producer_batch(5, 0, 7), leader_epoch=1).first_offset == 7
    assert append(follower, producer_batch(5, 0, 4), leader_epoch=1).duplicate


@pytest.mark.feature("PR-12")
def test_truncated_producers_are_forgotten() -> None:
    log = Rig().open(small_segments())
    for step in range(30):
        append(log, producer_batch(5, 0, step))
    log.truncate_to(12)
    assert append(log, producer_batch(5, 0, 11)).first_offset == 11
    assert append(log, producer_batch(5, 0, 12)).first_offset == 12
    assert refusal(log, producer_batch(5, 0, 29)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.truncate_to(0)
    assert log.producers is not None
    assert log.producers.entries == {}


@pytest.mark.feature("ST-12")
def test_silent_producers_expire_unless_they_have_a_transaction_open() -> None:
    rig = Rig()
    log = rig.open()
    append(log, producer_batch(5, 0, 0))
    append(log, producer_batch(6, 0, 0, transactional=True))
    assert log.producers.remove_expired(NOW_MS + DAY_MS - 1) == 0
    assert log.producers.remove_expired(NOW_MS + DAY_MS) == 1
    log.close()
    rig.kill()
    rig.now_ms += 2 * DAY_MS
    again = rig.open(clean_shutdown=True)
    assert again.producers is not None
    assert list(again.producers.entries) == [6]


def test_the_last_stable_offset_waits_for_the_first_open_transaction() -> None:
    log = Rig().open()
    append(log, batch(2))
    append(log, producer_batch(5, 0, 0, transactional=True))
    append(log, producer_batch(6, 0, 0, transactional=True))
    append(log, batch(2))
    log.set_high_watermark(6)
    assert log.last_stable_offset == 2
    append(log, marker(5, 0))
    assert log.last_stable_offset == 2, "the marker is not replicated yet"
    log.set_high_watermark(7)
    assert log.last_stable_offset == 3
    append(log, marker(6, 0, committed=False))
    log.set_high_watermark(8)
    assert log.last_stable_offset == 8
    log.truncate_to(6)
    assert log.last_stable_offset == 2, "the markers are gone, the transactions open again"


@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_open_transactions_survive_a_restart(stop: str) -> None:
    rig = Rig()
    log = rig.open()
    append(log, batch(3))
    append(log, producer_batch(5, 0, 0, transactional=True))
    append(log, producer_batch(6, 0, 0, transactional=True))
    append(log, marker(6, 0))
    if stop == "clean":
        log.close()
    rig.kill()
    again = rig.open(clean_shutdown=stop == "clean")
    again.set_high_watermark(6)
    assert again.last_stable_offset == 3
    append(again, marker(5, 0))
    again.set_high_watermark(7)
    assert again.last_stable_offset == 7


def test_a_producer_cannot_write_beside_its_transaction() -> None:
    log = Rig().open()
    append(log, producer_batch(5, 0, 0, transactional=True))
    assert refusal(log, producer_batch(5, 0, 1)) is ErrorCode.INVALID_TXN_STATE


def test_markers_of_older_epochs_are_fenced() -> None:
    log = Rig().open()
    append(log, producer_batch(5, 3, 0, transactional=True))
    assert refusal(log, marker(5, 2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    append(log, marker(5, 3, coordinator_epoch=7))
    append(log, producer_batch(5, 3, 1, transactional=True))
    assert refusal(log, marker(5, 3, coordinator_epoch=6)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.feature("ST-12")
def test_snapshots_are_taken_at_each_roll_and_go_with_their_segments() -> None:
    rig = Rig()
    log = rig.open(small_segments(segment_bytes=3 * len(producer_batch(5, 0, 0)), retention_bytes=0))
    for step in range(10):
        append(log, producer_batch(5, 0, step))
    names = [name for name in rig.names() if name.endswith(".snapshot")]
    assert names == [f"{offset:020d}.snapshot" for offset in (3, 6, 9)]
    (entry,) = decode_snapshot(rig.disk.read_bytes(f"/logs/orders-0/{names[1]}"))
    assert (entry.producer_id, entry.last_sequence) == (5, 5)
    log.set_high_watermark(9)
    log.delete_old_segments(NOW_MS)
    assert [name for name in rig.names() if name.endswith(".snapshot")] == [f"{9:020d}.snapshot"]
    assert all_offsets(log) == [9]


@pytest.mark.feature("ST-12")
@pytest.mark.parametrize("damage", ["torn", "flipped", "gone"])
def test_a_damaged_snapshot_is_made_up_for_by_the_log(damage: str) -> None:
    rig = Rig()
    config = small_segments()
    log = rig.open(config)
    for step in range(40):
        append(log, producer_batch(5 + step % 2, 0, step // 2))
    log.close()
    path = f"/logs/orders-0/{40:020d}.snapshot"
    file = rig.disk.open(path)
    if damage == "torn":
        file.truncate(20)
    elif damage == "flipped":
        file.pwrite(b"\xff", 30)
    else:
        rig.disk.remove(path)
    again = rig.open(config, clean_shutdown=True)
    for producer_id in (5, 6):
        assert append(again, producer_batch(producer_id, 0, 19)).duplicate


entries = st.builds(
    lambda producer_id, epoch, sequence, offset, transaction: (producer_id, epoch, sequence, offset, transaction),
    st.integers(0, 2**62),
    st.integers(0, 32767),
    st.integers(0, LAST_SEQUENCE),
    st.integers(0, 2**40),
    st.integers(-1, 2**40),
)


@given(st.lists(entries, max_size=8))
def test_a_snapshot_keeps_what_recovery_needs(values: list[tuple[int, int, int, int, int]]) -> None:
    states = []
    for producer_id, epoch, sequence, offset, transaction in values:
        entry = ProducerEntry(producer_id)
        entry.epoch, entry.last_timestamp, entry.transaction_first_offset = epoch, NOW_MS, transaction
        entry.batches = [SequencedBatch(sequence, sequence, offset, offset, NOW_MS)]
        states.append(entry)
    data = encode_snapshot(states)
    found = decode_snapshot(data)
    assert [(entry.producer_id, entry.epoch, entry.batches, entry.transaction_first_offset) for entry in found] == [
        (entry.producer_id, entry.epoch, entry.batches, entry.transaction_first_offset) for entry in states
    ]
    for broken in (data[:-1], b"\0\2" + data[2:], data[:5], data + b"\0", bytes([data[0] ^ 1]) + data[1:]):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(broken)
