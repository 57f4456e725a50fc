"""A producer takes part in a two-phase commit (KIP-939), as stories: who may end its transaction, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.broker.coordinator.outcome import ProducerStamp
from barnabas.broker.transactions.transaction import EXHAUSTED_EPOCH, MAX_EPOCH, TransactionState
from barnabas.protocol.errors import ErrorCode
from tests.broker.transactions.transaction_shell import A, Asked, B, Shell

S = TransactionState
MONTH_MS = 30 * 24 * 3_600_000

pytestmark = pytest.mark.feature("TX-15")


class TwoPhaseShell(Shell):
    """A coordinator that allows two-phase commit."""

    def __init__(self, level: int = 2) -> None:
        hour = 3_600_000
        super().__init__(
            level,
            transaction_two_phase_commit_enable=True,
            transaction_abort_timed_out_transaction_cleanup_interval_ms=hour,
        )

    def start(self) -> ProducerStamp:
        """A producer that gives up whatever was prepared."""
        while (asked := self.init(enable2_pc=True)).error is ErrorCode.CONCURRENT_TRANSACTIONS:
            pass
        return asked.producer

    def recover(self) -> Asked:
        return self.init(enable2_pc=True, keep_prepared_txn=True)

    def ongoing(self, asked: Asked) -> ProducerStamp:
        """The prepared transaction that the answer names."""
        return ProducerStamp(asked.response.ongoing_txn_producer_id, asked.response.ongoing_txn_producer_epoch)


def prepared(shell: TwoPhaseShell) -> ProducerStamp:
    """A producer with an open transaction in two partitions."""
    producer = shell.start()
    assert shell.add(producer, A, B).error is ErrorCode.NONE
    return producer


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_is_completed_by_the_next_producer(commit: bool) -> None:
    """The scenario of KAFKA-20739: Kafka 4.3.1 refuses the recovery with UNSUPPORTED_VERSION."""
    shell = TwoPhaseShell()
    first = prepared(shell)
    recovered = shell.recover()
    assert shell.ongoing(recovered) == first
    assert recovered.producer == (first.producer_id, first.producer_epoch + 1)
    assert shell.state is S.ONGOING

    ended = shell.end(recovered.producer, commit)
    assert ended.error is ErrorCode.NONE
    (marker,) = shell.markers
    # The partitions know the transaction under the first epoch: the marker's is just above it.
    assert marker.producer == (first.producer_id, first.producer_epoch + 1)
    assert marker.committed is commit and marker.partitions == (A, B)
    assert shell.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    # The epoch goes on, so a late EndTxn of the recovery cannot end the next transaction.
    assert ended.producer == (first.producer_id, first.producer_epoch + 2) == shell.transaction().producer
    assert shell.end(recovered.producer, commit).producer == ended.producer, "a retry gets the same answer"
    assert shell.add(ended.producer, A).error is ErrorCode.NONE
    assert shell.end(recovered.producer, commit).error is ErrorCode.PRODUCER_FENCED


def test_a_prepared_transaction_survives_time_and_coordinators() -> None:
    shell = TwoPhaseShell()
    first = prepared(shell)
    shell.pass_ms(MONTH_MS)
    shell.fail_over()
    shell.pass_ms(MONTH_MS)
    recovered = shell.recover()
    assert shell.ongoing(recovered) == first
    shell.fail_over()
    shell.pass_ms(MONTH_MS)
    assert shell.state is S.ONGOING
    assert shell.end(recovered.producer, True).error is ErrorCode.NONE
    assert shell.markers[-1].committed and shell.state is S.COMPLETE_COMMIT


def test_a_zombie_can_neither_end_nor_grow_the_transaction_that_was_claimed() -> None:
    shell = TwoPhaseShell()
    zombie = prepared(shell)
    recovered = shell.recover().producer
    assert shell.end(zombie, False).error is ErrorCode.PRODUCER_FENCED
    assert shell.add(zombie, ("stock", 0)).error is ErrorCode.PRODUCER_FENCED
    assert shell.verify(zombie, A).error is ErrorCode.PRODUCER_FENCED
    assert shell.init(zombie, enable2_pc=True).error is ErrorCode.PRODUCER_FENCED
    # Nor may the producer that recovers write into what the external coordinator has decided about.
    assert shell.add(recovered, ("stock", 0)).error is ErrorCode.INVALID_TXN_STATE
    assert shell.state is S.ONGOING and shell.transaction().partitions == {A, B}


def test_each_recovery_fences_the_one_before() -> None:
    shell = TwoPhaseShell()
    first = prepared(shell)
    earlier = shell.recover().producer
    later = shell.recover()
    assert shell.ongoing(later) == first, "the external coordinator knows this one"
    assert later.producer == (first.producer_id, first.producer_epoch + 2)
    assert shell.end(earlier, True).error is ErrorCode.PRODUCER_FENCED
    assert shell.end(later.producer, True).producer == (first.producer_id, first.producer_epoch + 3)


def test_nothing_is_kept_if_nothing_is_open() -> None:
    shell = TwoPhaseShell()
    fresh = shell.recover()
    assert shell.ongoing(fresh) == (-1, -1) and fresh.producer == (1000, 0)
    # A commit that succeeded before its producer died: the recovery finds nothing to complete.
    shell.add(fresh.producer, A)
    shell.markers_hang = True
    shell.end(fresh.producer, True)
    assert shell.recover().error is ErrorCode.CONCURRENT_TRANSACTIONS
    shell.take_markers()
    assert shell.ongoing(shell.recover()) == (-1, -1)


@pytest.mark.parametrize("is_claimed", [False, True])
def test_without_keep_the_prepared_transaction_is_aborted(is_claimed: bool) -> None:
    shell = TwoPhaseShell()
    first = prepared(shell)
    newest = shell.recover().producer if is_claimed else first
    assert shell.init(enable2_pc=True).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert shell.state is S.COMPLETE_ABORT and not shell.markers[-1].committed
    given = shell.start()
    assert given.producer_epoch > newest.producer_epoch + 1
    assert shell.end(newest, True).error is ErrorCode.PRODUCER_FENCED


def test_a_transaction_with_a_timeout_is_not_kept() -> None:
    """Nobody could have prepared it: the coordinator may abort it at any time."""
    shell = TwoPhaseShell()
    producer = shell.init().producer
    shell.add(producer, A)
    assert shell.recover().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert shell.state is S.COMPLETE_ABORT
    assert shell.ongoing(shell.recover()) == (-1, -1)


def test_keeping_has_its_conditions() -> None:
    shell = TwoPhaseShell()
    assert shell.init(keep_prepared_txn=True).error is ErrorCode.INVALID_REQUEST
    for level in (0, 1):
        assert TwoPhaseShell(level).recover().error is ErrorCode.UNSUPPORTED_VERSION
    assert Shell().init(keep_prepared_txn=True).error is ErrorCode.UNSUPPORTED_VERSION
    off = Shell().init(enable2_pc=True, keep_prepared_txn=True)
    assert off.error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_exhausted_epochs_bring_other_producer_ids() -> None:
    """Three producer ids meet: that of the markers, that of the recovery, and that of the next transaction."""
    shell = TwoPhaseShell()
    shell.start()
    aged = replace(shell.transaction(), producer_epoch=EXHAUSTED_EPOCH)
    shell._append(aged.record(2))
    first = shell.transaction().producer
    shell.add(first, A)

    recovered = shell.recover()
    assert shell.ongoing(recovered) == first
    assert recovered.producer == (first.producer_id + 1, 0)
    claimed = replace(shell.transaction(), next_producer_epoch=EXHAUSTED_EPOCH)
    shell._append(claimed.record(2))
    newest = ProducerStamp(recovered.producer.producer_id, EXHAUSTED_EPOCH)
    shell.fail_over()
    assert shell.end(recovered.producer, True).error is ErrorCode.PRODUCER_FENCED
    assert shell.end(first, True).error is ErrorCode.PRODUCER_FENCED

    ended = shell.end(newest, True)
    assert shell.markers[-1].producer == (first.producer_id, MAX_EPOCH)
    assert ended.producer == (first.producer_id + 2, 0) == shell.transaction().producer
    assert shell.end(newest, True).producer == ended.producer
    shell.fail_over()
    assert shell.end(newest, True).producer == ended.producer, "the log has what a retry needs"


def test_a_recovery_whose_answer_was_lost_is_repeated() -> None:
    shell = TwoPhaseShell()
    first = prepared(shell)
    shell.is_cut_off = True
    shell.recover()
    shell.fail_over(lost=1)
    assert shell.transaction().client == first
    recovered = shell.recover()
    assert shell.ongoing(recovered) == first
    assert shell.end(recovered.producer, True).error is ErrorCode.NONE
