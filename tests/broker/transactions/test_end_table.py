"""EndTxn in every state, by every version, from every possible producer: one table."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinator.outcome import ProducerStamp
from barnabas.broker.transactions.transaction import (
    LEGAL_PREVIOUS,
    EndStep,
    IllegalStep,
    Transaction,
    TransactionState,
)
from barnabas.protocol.errors import ErrorCode, KafkaError

S = TransactionState
E = ErrorCode
COMMIT, ABORT = True, False
V1, V2 = 0, 2

# State of a transaction of epoch 5; in version 2 its end has bumped the epoch to 6.
NOW = {V1: ProducerStamp(7, 5), V2: ProducerStamp(7, 6)}


def in_state(state: TransactionState, version: int) -> Transaction:
    ended = state in (S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
    epoch = NOW[version].producer_epoch if ended else 5
    return Transaction("payments", 7, epoch, 60_000, state, previous_producer_id=7, transaction_version=version)


TABLE = [
    # state, version of transaction and request, commit?, epoch of the request, result
    (S.EMPTY, V1, COMMIT, 5, E.INVALID_TXN_STATE),
    (S.EMPTY, V1, ABORT, 5, E.INVALID_TXN_STATE),
    (S.EMPTY, V2, COMMIT, 5, E.INVALID_TXN_STATE),
    (S.EMPTY, V2, ABORT, 5, EndStep.END_NOTHING),
    (S.EMPTY, V2, ABORT, 4, E.PRODUCER_FENCED),
    (S.EMPTY, V2, ABORT, 6, E.PRODUCER_FENCED),
    (S.ONGOING, V1, COMMIT, 5, EndStep.END),
    (S.ONGOING, V1, ABORT, 5, EndStep.END),
    (S.ONGOING, V1, COMMIT, 4, E.PRODUCER_FENCED),
    (S.ONGOING, V1, COMMIT, 6, E.PRODUCER_FENCED),
    (S.ONGOING, V2, COMMIT, 5, EndStep.END),
    (S.ONGOING, V2, ABORT, 5, EndStep.END),
    (S.ONGOING, V2, COMMIT, 4, E.PRODUCER_FENCED),
    (S.ONGOING, V2, COMMIT, 6, E.PRODUCER_FENCED),
    (S.PREPARE_COMMIT, V1, COMMIT, 5, E.CONCURRENT_TRANSACTIONS),
    (S.PREPARE_COMMIT, V1, ABORT, 5, E.CONCURRENT_TRANSACTIONS),
    (S.PREPARE_COMMIT, V1, COMMIT, 4, E.PRODUCER_FENCED),
    (S.PREPARE_COMMIT, V2, COMMIT, 5, E.CONCURRENT_TRANSACTIONS),
    (S.PREPARE_COMMIT, V2, ABORT, 6, E.CONCURRENT_TRANSACTIONS),
    (S.PREPARE_ABORT, V1, ABORT, 5, E.CONCURRENT_TRANSACTIONS),
    (S.PREPARE_ABORT, V1, COMMIT, 5, E.CONCURRENT_TRANSACTIONS),
    (S.PREPARE_ABORT, V2, ABORT, 5, E.CONCURRENT_TRANSACTIONS),
    (S.PREPARE_ABORT, V2, COMMIT, 5, E.CONCURRENT_TRANSACTIONS),
    (S.COMPLETE_COMMIT, V1, COMMIT, 5, EndStep.REPEATED),
    (S.COMPLETE_COMMIT, V1, ABORT, 5, E.INVALID_TXN_STATE),
    (S.COMPLETE_COMMIT, V1, COMMIT, 4, E.PRODUCER_FENCED),
    (S.COMPLETE_COMMIT, V2, COMMIT, 5, EndStep.REPEATED),
    (S.COMPLETE_COMMIT, V2, ABORT, 5, E.INVALID_TXN_STATE),
    (S.COMPLETE_COMMIT, V2, COMMIT, 6, E.INVALID_TXN_STATE),
    (S.COMPLETE_COMMIT, V2, ABORT, 6, EndStep.END_NOTHING),
    (S.COMPLETE_COMMIT, V2, COMMIT, 4, E.PRODUCER_FENCED),
    (S.COMPLETE_COMMIT, V2, ABORT, 7, E.PRODUCER_FENCED),
    (S.COMPLETE_ABORT, V1, ABORT, 5, EndStep.REPEATED),
    (S.COMPLETE_ABORT, V1, COMMIT, 5, E.INVALID_TXN_STATE),
    (S.COMPLETE_ABORT, V1, COMMIT, 4, E.PRODUCER_FENCED),
    (S.COMPLETE_ABORT, V2, ABORT, 5, EndStep.REPEATED),
    (S.COMPLETE_ABORT, V2, COMMIT, 5, E.PRODUCER_FENCED),
    (S.COMPLETE_ABORT, V2, COMMIT, 6, E.INVALID_TXN_STATE),
    (S.COMPLETE_ABORT, V2, ABORT, 6, EndStep.END_NOTHING),
    (S.COMPLETE_ABORT, V2, ABORT, 4, E.PRODUCER_FENCED),
]


@pytest.mark.feature("TX-06")
@pytest.mark.parametrize(("state", "version", "commit", "epoch", "expected"), TABLE)
def test_the_table(
    state: TransactionState, version: int, commit: bool, epoch: int, expected: EndStep | ErrorCode
) -> None:
    transaction = in_state(state, version)
    found: EndStep | ErrorCode
    try:
        found = transaction.check_end(ProducerStamp(7, epoch), commit, version)
    except KafkaError as error:
        found = error.code
    assert found is expected


@pytest.mark.feature("TX-06")
@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
@pytest.mark.parametrize("commit", [COMMIT, ABORT])
def test_another_producer_id_cannot_end_the_transaction(state: TransactionState, version: int, commit: bool) -> None:
    transaction = in_state(state, version)
    with pytest.raises(KafkaError) as refused:
        transaction.check_end(ProducerStamp(8, transaction.producer_epoch), commit, version)
    assert refused.value.code is E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("state", [S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_an_end_of_version_1_is_not_mistaken_for_the_bump_of_version_2(state: TransactionState) -> None:
    """After an upgrade a zombie with the previous epoch must not pass for a producer whose answer was lost."""
    transaction = in_state(state, V1)
    with pytest.raises(KafkaError) as refused:
        transaction.check_end(ProducerStamp(7, 4), state is S.COMPLETE_COMMIT, V2)
    assert refused.value.code is E.PRODUCER_FENCED


# -- state transitions


@pytest.mark.feature("TX-03")
@pytest.mark.parametrize("old", list(S))
@pytest.mark.parametrize("new", list(S))
def test_no_other_step_than_those_of_the_table(old: TransactionState, new: TransactionState) -> None:
    transaction = in_state(old, V2)
    if old in LEGAL_PREVIOUS[new]:
        assert transaction.to(new).state is new
    else:
        with pytest.raises(IllegalStep):
            transaction.to(new)


@pytest.mark.feature("TX-03")
def test_the_table_equals_kafkas() -> None:
    assert {new.value: {old.value for old in olds} for new, olds in LEGAL_PREVIOUS.items()} == {
        0: {0, 4, 5},
        1: {0, 1, 4, 5},
        2: {1},
        3: {0, 1, 4, 5, 7},
        4: {2},
        5: {3},
        6: {0, 4, 5},
        7: {1},
    }
