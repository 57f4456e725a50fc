"""Producers and their transaction coordinator, as stories."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinator.outcome import ProducerStamp
from barnabas.broker.transactions.machine import TIMED_OUT_AT_ONCE
from barnabas.broker.transactions.transaction import EXHAUSTED_EPOCH, MAX_EPOCH, TransactionState
from barnabas.protocol.errors import ErrorCode
from tests.broker.transactions.transaction_shell import TIMEOUT_MS, A, B, C, Shell, with_epoch

S = TransactionState
LEVELS = pytest.mark.parametrize("level", [0, 1, 2])


# -- the course of a transaction


@pytest.mark.feature("TX-01", "TX-02", "TX-03")
@LEVELS
def test_a_producer_begins_adds_and_commits(level: int) -> None:
    shell = Shell(level)
    producer = shell.init().producer
    assert producer == (1000, 0) and shell.state is S.EMPTY
    assert shell.add(producer, A, C, version=level).error is ErrorCode.NONE
    assert shell.state is S.ONGOING
    assert shell.add(producer, B, version=level).error is ErrorCode.NONE
    assert shell.end(producer, True, level).error is ErrorCode.NONE
    assert shell.state is S.COMPLETE_COMMIT and shell.transaction().partitions == frozenset()
    (ended,) = shell.markers
    assert ended.committed and ended.partitions == (A, B, C) and ended.transaction_version == level


@pytest.mark.feature("TX-05", "TX-06")
def test_in_version_2_each_end_gives_the_next_epoch() -> None:
    shell = Shell()
    producer = shell.init().producer
    for commit in (True, False, True):
        assert shell.add(producer, A).error is ErrorCode.NONE
        afterwards = shell.end(producer, commit).producer
        assert afterwards == (producer.producer_id, producer.producer_epoch + 1)
        assert shell.markers[-1].producer == afterwards, "the marker fences what comes late"
        producer = afterwards


@pytest.mark.feature("TX-06")
def test_in_version_1_the_epoch_stays() -> None:
    shell = Shell(1)
    producer = shell.init().producer
    shell.add(producer, A, version=0)
    shell.end(producer, True, 0)
    assert shell.transaction().producer == producer and shell.markers[-1].producer == producer


@pytest.mark.feature("TX-06", "TX-07")
def test_the_answer_is_sent_when_the_result_is_committed_and_markers_follow() -> None:
    shell = Shell()
    shell.markers_hang = True
    producer = shell.init().producer
    shell.add(producer, A)
    shell.is_cut_off = True
    ended = shell.end(producer, True)
    assert ended.waits and not shell.markers, "no marker before the decision is committed"
    shell.replicate()
    assert ended.producer.producer_epoch == 1 and len(shell.on_their_way) == 1
    assert shell.state is S.PREPARE_COMMIT
    shell.take_markers()
    assert shell.state is S.COMPLETE_COMMIT


@pytest.mark.feature("TX-04")
def test_known_partitions_are_not_written_again() -> None:
    shell = Shell()
    producer = shell.init().producer
    shell.add(producer, A, B)
    written = len(shell.log)
    assert shell.add(producer, B).error is ErrorCode.NONE and len(shell.log) == written
    shell.is_cut_off = True
    shell.add(producer, C)
    again = shell.add(producer, C)
    assert again.waits, "what another request has written is not certain yet"
    shell.replicate()
    assert again.error is ErrorCode.NONE


def test_a_transaction_may_begin_without_partitions() -> None:
    shell = Shell()
    producer = shell.init().producer
    assert shell.add(producer).error is ErrorCode.NONE and shell.state is S.ONGOING
    assert shell.end(producer, True).error is ErrorCode.NONE
    assert shell.transaction().state is S.COMPLETE_COMMIT


@pytest.mark.feature("TX-03")
def test_requests_are_refused_while_markers_are_written() -> None:
    shell = Shell()
    shell.markers_hang = True
    first = shell.init().producer
    shell.add(first, A)
    second = shell.end(first, True).producer
    for asked in (
        shell.end(second, False),
        shell.end(first, True),
        shell.end(first, False),
        shell.init(),
        shell.init(second),
        shell.verify(second, A),
    ):
        assert asked.error is ErrorCode.CONCURRENT_TRANSACTIONS
    shell.take_markers()
    assert shell.add(second, B).error is ErrorCode.NONE


@pytest.mark.feature("TX-03")
def test_a_request_for_the_next_transaction_is_held_until_the_markers_are_written() -> None:
    shell = Shell()
    shell.markers_hang = True
    first = shell.init().producer
    shell.add(first, A)
    second = shell.end(first, True).producer
    begins, zombie = shell.add(second, B), shell.add(first, C)
    goes_on, repeats = shell.add(second, A), shell.add(second, B)
    assert begins.waits and zombie.waits and goes_on.waits and repeats.waits
    written = len(shell.log)
    shell.take_markers()
    assert begins.error is goes_on.error is repeats.error is ErrorCode.NONE
    assert zombie.error is ErrorCode.PRODUCER_FENCED
    assert shell.state is S.ONGOING and shell.transaction().partitions == {A, B}
    assert len(shell.log) == written + 3, "its end, and what each of the two added"


@pytest.mark.feature("TX-03")
@pytest.mark.parametrize(("version", "patience_ms"), [(0, 100), (2, 20)])
def test_it_is_held_for_a_limited_time(version: int, patience_ms: int) -> None:
    """Shorter for requests of brokers, because other requests queue behind them."""
    shell = Shell()
    shell.markers_hang = True
    producer = shell.init().producer
    shell.add(producer, A, version=version)
    producer = shell.end(producer, True, version).producer if version else producer
    if not version:
        shell.end(producer, True, version)
    held = shell.add(producer, B, version=version)
    shell.pass_ms(patience_ms - 1)
    assert held.waits
    shell.pass_ms(1)
    assert held.error is ErrorCode.CONCURRENT_TRANSACTIONS
    shell.take_markers()
    assert shell.state is S.COMPLETE_COMMIT


@pytest.mark.feature("TX-03", "TX-08")
def test_a_held_request_is_refused_if_the_completion_fails_or_the_coordinator_moves() -> None:
    shell = Shell()
    shell.markers_hang = True
    first = shell.init().producer
    shell.add(first, A)
    second = shell.end(first, True).producer
    held = shell.add(second, B)
    shell.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    shell.take_markers()
    assert held.error is ErrorCode.CONCURRENT_TRANSACTIONS
    held = shell.add(second, B)
    shell.append_error = None
    shell.fail_over()
    assert held.error is ErrorCode.NOT_COORDINATOR
    shell.take_markers()
    assert shell.state is S.COMPLETE_COMMIT


# -- InitProducerId


@pytest.mark.feature("TX-02")
@LEVELS
def test_a_new_producer_fences_the_old_one(level: int) -> None:
    shell = Shell(level)
    zombie = shell.init().producer
    newer = shell.init().producer
    assert newer == (zombie.producer_id, 1)
    assert shell.add(zombie, A, version=level).error is ErrorCode.PRODUCER_FENCED
    assert shell.end(zombie, False, level).error is ErrorCode.PRODUCER_FENCED
    assert shell.init(zombie).error is ErrorCode.PRODUCER_FENCED
    assert shell.add(newer, A, version=level).error is ErrorCode.NONE


@pytest.mark.feature("TX-02")
@LEVELS
def test_an_open_transaction_is_aborted_first(level: int) -> None:
    shell = Shell(level)
    shell.markers_hang = True
    zombie = shell.init().producer
    shell.add(zombie, A, version=level)
    assert shell.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert shell.state is S.PREPARE_ABORT
    (ended,) = shell.markers
    assert not ended.committed and ended.producer.producer_epoch == 1, "its markers fence the zombie"
    assert shell.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    shell.take_markers()
    assert shell.init().producer == (zombie.producer_id, 2)
    assert shell.end(zombie, True, level).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.feature("TX-02")
def test_a_zombie_does_not_abort_the_transaction_of_its_successor() -> None:
    shell = Shell()
    zombie = shell.init().producer
    newer = shell.init().producer
    shell.add(newer, A)
    assert shell.init(zombie).error is ErrorCode.PRODUCER_FENCED
    assert shell.state is S.ONGOING


@pytest.mark.feature("TX-02")
def test_a_producer_bumps_its_own_epoch_and_may_retry() -> None:
    shell = Shell()
    producer = shell.init().producer
    raised = shell.init(producer).producer
    assert raised == (producer.producer_id, 1)
    assert shell.init(producer).producer == raised, "the answer was lost"
    assert shell.init(producer).producer == raised, "and again"
    newcomer = shell.init().producer
    assert newcomer.producer_epoch == 2
    assert shell.init(producer).error is ErrorCode.PRODUCER_FENCED
    assert shell.init(raised).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.feature("TX-02")
def test_the_epoch_given_by_an_end_may_be_confirmed() -> None:
    shell = Shell()
    producer = shell.init().producer
    shell.add(producer, A)
    afterwards = shell.end(producer, True).producer
    assert shell.init(producer).producer == afterwards, "the answer to EndTxn was lost"
    assert shell.init(producer).producer == afterwards


@pytest.mark.feature("TX-02")
def test_an_epoch_that_was_never_written_is_not_promised_to_two() -> None:
    shell = Shell()
    first = shell.init().producer
    shell.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shell.init(first).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    shell.append_error = None
    second = shell.init().producer
    assert second.producer_epoch == 1
    assert shell.init(first).error is ErrorCode.PRODUCER_FENCED
    assert shell.add(second, A).error is ErrorCode.NONE


@pytest.mark.feature("TX-02", "TX-11")
def test_a_producer_whose_transaction_timed_out_goes_on_without_a_new_process() -> None:
    for repair in ("abort", "init"):
        shell = Shell()
        producer = shell.init().producer
        shell.add(producer, A)
        shell.pass_ms(TIMEOUT_MS + 10_001)
        assert shell.add(producer, B).error is ErrorCode.PRODUCER_FENCED
        repaired = shell.end(producer, False) if repair == "abort" else shell.init(producer)
        assert shell.add(repaired.producer, A).error is ErrorCode.NONE
        assert shell.end(repaired.producer, True).error is ErrorCode.NONE


@pytest.mark.feature("TX-02")
def test_an_unknown_id_and_epoch_start_again() -> None:
    shell = Shell()
    had = ProducerStamp(7, 5)
    given = shell.init(had).producer
    assert given == (1000, 0)
    assert shell.init(had).producer == given


@pytest.mark.feature("TX-02")
@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_the_timeout_has_bounds(timeout_ms: int) -> None:
    shell = Shell()
    assert shell.init(timeout_ms=timeout_ms).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert shell.init(timeout_ms=900_000).error is ErrorCode.NONE


def test_requests_that_make_no_sense() -> None:
    shell = Shell()
    assert shell.init(transactional_id="").error is ErrorCode.INVALID_REQUEST
    assert shell.init(ProducerStamp(5, -1)).error is ErrorCode.INVALID_REQUEST
    assert shell.init(ProducerStamp(-1, 5)).error is ErrorCode.INVALID_REQUEST
    assert shell.init(enable2_pc=True).error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert shell.init(keep_prepared_txn=True).error is ErrorCode.UNSUPPORTED_VERSION
    producer = ProducerStamp(1, 0)
    assert shell.add(producer, A, transactional_id="").error is ErrorCode.INVALID_REQUEST
    assert shell.end(producer, True, transactional_id="").error is ErrorCode.INVALID_REQUEST
    assert shell.add(producer, A).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert shell.end(producer, True).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert shell.verify(producer, A).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    known = shell.init().producer
    assert shell.add(known._replace(producer_id=5), A).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_without_an_available_producer_id_the_client_must_retry() -> None:
    shell = Shell()
    shell.has_producer_ids = False
    assert shell.init().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not shell.log
    shell.has_producer_ids = True
    assert shell.init().error is ErrorCode.NONE


@pytest.mark.feature("TX-15")
def test_transactions_of_another_coordinator_never_time_out_where_they_are_allowed() -> None:
    hour = 3_600_000
    shell = Shell(
        transaction_two_phase_commit_enable=True, transaction_abort_timed_out_transaction_cleanup_interval_ms=hour
    )
    producer = shell.init(enable2_pc=True).producer
    shell.add(producer, A)
    shell.pass_ms(30 * 24 * hour)
    assert shell.state is S.ONGOING


# -- exhausted epochs


@pytest.mark.feature("TX-02")
@LEVELS
def test_at_the_last_epoch_a_new_producer_id_begins(level: int) -> None:
    shell = Shell(level)
    old = with_epoch(shell, EXHAUSTED_EPOCH)
    given = shell.init(old).producer
    assert given == (old.producer_id + 1, 0)
    assert shell.transaction().previous_producer_id == (old.producer_id if level >= 1 else -1)
    assert shell.init(old).producer == given and shell.init(old).producer == given
    assert shell.init(old._replace(producer_epoch=5)).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.feature("TX-02", "TX-06")
def test_an_end_at_the_last_epoch_goes_on_with_a_new_producer_id() -> None:
    shell = Shell()
    shell.markers_hang = True
    old = with_epoch(shell, EXHAUSTED_EPOCH)
    shell.add(old, A)
    afterwards = shell.end(old, True).producer
    assert afterwards == (old.producer_id + 1, 0)
    prepared = shell.transaction()
    assert prepared.producer == (old.producer_id, MAX_EPOCH) and prepared.next_producer_id == afterwards.producer_id
    assert shell.markers[-1].producer == (old.producer_id, MAX_EPOCH)
    shell.take_markers()
    assert shell.transaction().producer == afterwards
    assert shell.transaction().previous_producer_id == old.producer_id
    assert shell.end(old, True).producer == afterwards, "the answer was lost"
    assert shell.end(old, False).error is ErrorCode.INVALID_TXN_STATE
    zombie = old._replace(producer_epoch=3)
    assert shell.end(zombie, True).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert shell.init(old).producer == afterwards


@pytest.mark.feature("TX-02", "TX-06")
def test_an_epoch_given_by_version_2_survives_a_downgrade_of_the_feature() -> None:
    """The feature level was lowered while a client still uses version 2."""
    shell = Shell(0)
    shell.markers_hang = True
    old = with_epoch(shell, EXHAUSTED_EPOCH)
    shell.add(old, A)
    afterwards = shell.end(old, True).producer
    shell.fail_over()
    shell.take_markers()
    assert shell.transaction().producer == afterwards == (old.producer_id + 1, 0)


@pytest.mark.feature("TX-02")
@LEVELS
def test_fencing_the_last_epoch_leads_to_a_new_producer_id(level: int) -> None:
    shell = Shell(level)
    old = with_epoch(shell, EXHAUSTED_EPOCH)
    shell.add(old, A, version=level)
    assert shell.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert shell.markers[-1].producer == (old.producer_id, MAX_EPOCH)
    newer = shell.init().producer
    assert newer.producer_id == old.producer_id + 1
    assert shell.add(old, A, version=level).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert shell.init(old).error is ErrorCode.PRODUCER_FENCED


def test_without_an_available_producer_id_the_last_epoch_is_ended_later() -> None:
    shell = Shell()
    old = with_epoch(shell, EXHAUSTED_EPOCH)
    shell.add(old, A)
    shell.has_producer_ids = False
    assert shell.end(old, True).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert shell.state is S.ONGOING
    shell.has_producer_ids = True
    assert shell.end(old, True).producer == (old.producer_id + 1, 0)


# -- timeouts


@pytest.mark.feature("TX-11")
@LEVELS
def test_a_transaction_that_is_open_too_long_is_aborted_and_its_producer_fenced(level: int) -> None:
    shell = Shell(level)
    producer = shell.init().producer
    shell.add(producer, A, B, version=level)
    shell.pass_ms(TIMEOUT_MS - 5_000)
    assert shell.state is S.ONGOING
    shell.add(producer, C, version=level)
    shell.pass_ms(15_001)
    assert shell.state is S.COMPLETE_ABORT, "what was added later makes no difference"
    (ended,) = shell.markers
    assert not ended.committed and ended.partitions == (A, B, C)
    assert ended.producer.producer_epoch == 1
    assert shell.add(producer, A, version=level).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.feature("TX-06", "TX-11")
def test_a_commit_after_the_coordinators_own_abort_is_fenced() -> None:
    shell = Shell()
    producer = shell.init().producer
    shell.add(producer, A)
    shell.pass_ms(TIMEOUT_MS + 10_001)
    assert shell.end(producer, True).error is ErrorCode.PRODUCER_FENCED
    assert shell.end(producer, False).producer == (producer.producer_id, 1), "that much is done"


@pytest.mark.feature("TX-11")
def test_many_timeouts_at_once_are_written_in_several_batches() -> None:
    shell = Shell()
    for place in range(120):
        producer = shell.init(transactional_id=f"id-{place}").producer
        shell.add(producer, A, transactional_id=f"id-{place}")
    shell.pass_ms(TIMEOUT_MS + 20_000)
    assert len(shell.markers) == 120
    assert {each.state for each in shell.machine.transactions} == {S.COMPLETE_ABORT}


@pytest.mark.feature("TX-11")
def test_timeouts_that_cannot_be_written_are_retried() -> None:
    shell = Shell()
    producer = shell.init().producer
    shell.add(producer, A)
    shell.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    shell.pass_ms(TIMEOUT_MS + 20_000)
    assert shell.transaction().producer == producer, "the epoch is not used up by trying"
    shell.append_error = None
    shell.pass_ms(10_000)
    assert shell.state is S.COMPLETE_ABORT


@pytest.mark.feature("TX-11")
def test_unused_transactional_ids_expire() -> None:
    day = 24 * 3_600_000
    shell = Shell(transaction_abort_timed_out_transaction_cleanup_interval_ms=3_600_000)
    shell.init(transactional_id="unused")
    producer = shell.init().producer
    shell.pass_ms(6 * day)
    shell.add(producer, A)
    producer = shell.end(producer, True).producer
    shell.pass_ms(1 * day + 3_600_000)
    assert shell.machine.get("unused") is None and shell.state is S.COMPLETE_COMMIT
    assert shell.log[-1][1] is None, "a tombstone"
    shell.pass_ms(7 * day)
    assert len(shell.machine) == 0
    assert shell.add(producer, A).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# -- failover


@pytest.mark.feature("TX-01", "TX-08")
@pytest.mark.parametrize("commit", [True, False])
def test_a_new_coordinator_finishes_decided_transactions(commit: bool) -> None:
    shell = Shell()
    shell.markers_hang = True
    producer = shell.init().producer
    shell.add(producer, A, B)
    shell.end(producer, commit)
    shell.fail_over()
    first, second = shell.markers
    assert first == second and second.committed is commit
    assert shell.end(producer, commit).error is ErrorCode.CONCURRENT_TRANSACTIONS
    shell.take_markers()
    assert shell.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert shell.end(producer, commit).producer == (producer.producer_id, 1)


@pytest.mark.feature("TX-01", "TX-08")
def test_a_result_lost_with_its_coordinator_was_never_sent() -> None:
    shell = Shell()
    producer = shell.init().producer
    shell.add(producer, A)
    shell.is_cut_off = True
    ended = shell.end(producer, True)
    shell.fail_over(lost=1)
    assert ended.error is ErrorCode.NOT_COORDINATOR and not shell.markers
    assert shell.state is S.ONGOING
    assert shell.end(producer, False).error is ErrorCode.NONE
    assert [each.committed for each in shell.markers] == [False]


@pytest.mark.feature("TX-01")
def test_an_unanswered_result_that_survives_holds() -> None:
    shell = Shell()
    producer = shell.init().producer
    shell.add(producer, A)
    shell.is_cut_off = True
    shell.end(producer, True)
    shell.fail_over(lost=0)
    assert shell.state is S.COMPLETE_COMMIT
    assert shell.end(producer, True).producer == (producer.producer_id, 1)


@pytest.mark.feature("TX-11")
def test_a_new_coordinator_enforces_timeouts() -> None:
    shell = Shell()
    producer = shell.init().producer
    shell.add(producer, A)
    shell.pass_ms(TIMEOUT_MS - 10)
    shell.fail_over()
    shell.pass_ms(10_011)
    assert shell.state is S.COMPLETE_ABORT


def test_a_failed_completion_is_retried() -> None:
    shell = Shell()
    shell.markers_hang = True
    producer = shell.init().producer
    shell.add(producer, A)
    shell.end(producer, True)
    shell.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    shell.take_markers()
    shell.pass_ms(2_000)
    assert shell.state is S.PREPARE_COMMIT
    shell.append_error = None
    shell.pass_ms(500)
    assert shell.state is S.COMPLETE_COMMIT and len(shell.markers) == 1


def test_a_failed_write_changes_nothing() -> None:
    shell = Shell()
    producer = shell.init().producer
    shell.add(producer, A)
    before = shell.transaction()
    shell.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    for asked in (shell.init(), shell.add(producer, B), shell.end(producer, True)):
        assert asked.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shell.transaction() == before and not shell.markers


def test_markers_that_come_back_late_change_nothing() -> None:
    shell = Shell()
    shell.markers_hang = True
    producer = shell.init().producer
    shell.add(producer, A)
    producer = shell.end(producer, True).producer
    late = shell.on_their_way[0]
    shell.take_markers()
    shell.add(producer, B)
    producer = shell.end(producer, False).producer
    shell.on_their_way.insert(0, late)
    shell.on_their_way.pop()
    shell.take_markers()
    assert shell.state is S.PREPARE_ABORT, "that was the end of another transaction"


# -- one epoch, many transactions: ends before version 5 keep the epoch, and a client may use any version


@pytest.mark.feature("TX-03", "TX-06")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_in_version_1_each_transaction_of_an_epoch_has_its_own_result(first: bool, second: bool) -> None:
    shell = Shell(1)
    producer = shell.init().producer
    for commit, partition in ((first, A), (second, B)):
        assert shell.add(producer, partition, version=0).error is ErrorCode.NONE
        assert shell.end(producer, commit, 0).producer == producer
        assert shell.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert [(each.producer, each.committed, each.partitions) for each in shell.markers] == [
        (producer, first, (A,)),
        (producer, second, (B,)),
    ]


@pytest.mark.feature("TX-03", "TX-06")
@LEVELS
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("added", [(), (A,)])
@pytest.mark.parametrize("is_cut_off", [False, True])
def test_the_epoch_that_an_end_of_version_2_gave_may_be_used_by_version_1(
    level: int, commit: bool, added: tuple[tuple[str, int], ...], is_cut_off: bool
) -> None:
    """Kafka decides by the version of each request, too."""
    shell = Shell(level)
    first = shell.init().producer
    if added:
        shell.add(first, *added)
    second = shell.end(first, False).producer
    assert second == (first.producer_id, first.producer_epoch + 1)
    shell.is_cut_off = is_cut_off
    asked = [shell.add(second, B, version=0), shell.end(second, commit, 0)]
    assert all(each.waits is is_cut_off for each in asked)
    shell.replicate()
    assert [each.error for each in asked] == [ErrorCode.NONE, ErrorCode.NONE]
    assert asked[1].producer == second
    assert shell.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert [(each.committed, each.partitions, each.transaction_version) for each in shell.markers] == [
        (False, added, 2),
        (commit, (B,), 0),
    ]
    assert [each.producer for each in shell.markers] == [second, second]
    # Each repeats its end in its own way; the one of version 2 has missed a transaction since.
    assert shell.end(second, commit, 0).producer == second
    assert shell.end(first, False).error is ErrorCode.PRODUCER_FENCED
    assert shell.end(second, not commit, 0).error is ErrorCode.INVALID_TXN_STATE


@pytest.mark.feature("TX-03", "TX-06", "TX-08")
@pytest.mark.parametrize("commit", [True, False])
def test_a_new_coordinator_sends_the_latest_transaction_of_an_epoch(commit: bool) -> None:
    shell = Shell()
    second = shell.end(shell.init().producer, False).producer
    shell.markers_hang = True
    shell.add(second, A, version=0)
    shell.end(second, commit, 0)
    shell.fail_over()
    assert [each.partitions for each in shell.markers] == [(), (A,), (A,)] and shell.markers[1] == shell.markers[2]
    assert shell.end(second, commit, 0).error is ErrorCode.CONCURRENT_TRANSACTIONS
    shell.take_markers()
    assert shell.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    third = shell.end(second, False).producer
    assert third == (second.producer_id, second.producer_epoch + 1), "version 2 again"


@pytest.mark.feature("TX-03", "TX-06")
@pytest.mark.parametrize("commit", [True, False])
def test_version_2_may_end_a_transaction_that_version_1_began(commit: bool) -> None:
    shell = Shell()
    first = shell.init().producer
    shell.add(first, A, version=0)
    shell.end(first, not commit, 0)
    shell.add(first, B, version=0)
    second = shell.end(first, commit).producer
    assert [(each.producer, each.committed) for each in shell.markers] == [(first, not commit), (second, commit)]
    assert shell.end(first, commit).producer == second, "its answer may be lost"


# -- delayed requests (KAFKA-17754, KIP-890)


@pytest.mark.feature("TX-05")
@pytest.mark.parametrize("commit", [True, False])
def test_a_delayed_end_does_not_end_the_next_transaction(commit: bool) -> None:
    """An EndTxn was delayed, retried on another connection, and arrives after the next transaction has begun."""
    shell = Shell()
    first = shell.init().producer
    shell.add(first, A)
    second = shell.end(first, commit).producer
    shell.add(second, B)
    assert shell.end(first, commit).error is ErrorCode.PRODUCER_FENCED
    assert shell.state is S.ONGOING
    assert shell.end(second, True).error is ErrorCode.NONE


@pytest.mark.feature("TX-05")
def test_a_late_produce_finds_no_transaction_to_be_in() -> None:
    shell = Shell()
    shell.markers_hang = True
    first = shell.init().producer
    shell.add(first, A)
    assert shell.verify(first, A).response == []
    assert shell.verify(first, A, B).response == [B]
    second = shell.end(first, False).producer
    assert shell.verify(first, A).error is ErrorCode.PRODUCER_FENCED
    assert shell.verify(second, A).error is ErrorCode.CONCURRENT_TRANSACTIONS
    shell.take_markers()
    assert shell.verify(first, A).error is ErrorCode.PRODUCER_FENCED
    assert shell.verify(second, A).response == [A]
    assert shell.add(first, A).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.feature("TX-11")
def test_timeouts_that_cannot_be_written_are_tried_again_after_the_interval() -> None:
    """Even if there are more of them than are aborted at once."""
    shell = Shell(transaction_abort_timed_out_transaction_cleanup_interval_ms=10_000)
    for number in range(TIMED_OUT_AT_ONCE + 1):
        producer = shell.init(transactional_id=f"id {number}").producer
        shell.add(producer, A, transactional_id=f"id {number}")
    shell.pass_ms(TIMEOUT_MS)
    shell.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    due_ms = shell.timers.deadline_ms("timeouts")
    assert due_ms is not None
    shell.pass_ms(due_ms - shell.now_ms)
    assert shell.timers.deadline_ms("timeouts") == due_ms + 10_000
    shell.append_error = None
    shell.pass_ms(10_000)
    assert not [each for each in shell.machine.transactions if each.state is S.ONGOING]
