"""Checks that the test shell itself detects violations, also if one epoch has many transactions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.broker.coordinator.outcome import ProducerStamp
from barnabas.broker.transactions.transaction import TransactionState
from barnabas.protocol.errors import ErrorCode
from tests.broker.transactions.transaction_shell import ID, A, B, Shell


def prepared(*, is_replicated: bool = True) -> tuple[Shell, ProducerStamp]:
    """The second transaction of one epoch is to be committed, like the first."""
    shell = Shell(1)
    producer = shell.init().producer
    shell.add(producer, A, version=0)
    assert shell.end(producer, True, 0).error is ErrorCode.NONE
    shell.add(producer, A, version=0)
    shell.markers_hang = True
    shell.is_cut_off = not is_replicated
    shell.end(producer, True, 0)
    return shell, producer


def test_the_result_of_the_previous_transaction_does_not_justify_a_marker() -> None:
    shell, _ = prepared(is_replicated=False)
    assert len(shell.markers) == 1
    with pytest.raises(AssertionError, match="marker sent before the decision was committed"):
        shell.write(shell.markers[0])
    shell.replicate()
    assert len(shell.markers) == 2


def test_markers_must_equal_the_decision() -> None:
    shell, producer = prepared()
    ended = shell.markers[-1]
    for other in (
        replace(ended, committed=False),
        replace(ended, partitions=(A, B)),
        replace(ended, partitions=()),
        replace(ended, transaction_version=2),
        replace(ended, producer=producer._replace(producer_epoch=producer.producer_epoch + 1)),
    ):
        with pytest.raises(AssertionError, match="marker differs from the decision"):
            shell.write(other)
    shell.write(ended)


def test_a_result_holds_for_its_transaction() -> None:
    """The check fails if a coordinator forgets its decision."""
    shell, _ = prepared()
    open_again = replace(shell.transaction(), state=TransactionState.ONGOING)
    shell.machine._transactions[ID] = open_again
    with pytest.raises(AssertionError, match="both committed and aborted"):
        shell._append(open_again.prepared(False, 0, shell.now.wall_ms).record(shell.level))


def test_a_completed_transaction_gets_no_marker() -> None:
    shell, _ = prepared()
    ended = shell.markers[-1]
    shell.take_markers()
    with pytest.raises(AssertionError, match="nothing is decided"):
        shell.write(ended)


def test_an_end_of_version_2_has_an_epoch_of_its_own() -> None:
    shell = Shell()
    producer = shell.init().producer
    shell.add(producer, A)
    stays = replace(shell.transaction().prepared(True, 2, shell.now.wall_ms), producer_epoch=producer.producer_epoch)
    with pytest.raises(AssertionError, match="an epoch of its own"):
        shell._append(stays.record(shell.level))
