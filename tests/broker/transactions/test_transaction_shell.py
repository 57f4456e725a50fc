"""Checks that the test shell itself detects violations, also if one epoch has many transactions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.coordinator.outcome import ProducerStamp
from broker.transactions.transaction import TransactionState
from protocol.errors import ErrorCode
from tests.broker.transactions.transaction_shell import ID, A, B, Shell


def prepared(*, hears: bool = True) -> tuple[Shell, ProducerStamp]:
    """The second transaction of one epoch is to be committed, like the first."""
    shell = Shell(1)
    producer = shell.init().producer
    shell.add(producer, A, version=0)
    assert shell.end(producer, True, 0).error is ErrorCode.NONE
    shell.add(producer, A, version=0)
    shell.markers_hang = True
    shell.is_cut_off = not hears
    shell.end(producer, True, 0)
    return shell, producer


def test_the_result_of_the_transaction_before_is_no_leave_to_tell_this_one() -> None:
    shell, _ = prepared(hears=False)
    assert len(shell.told) == 1
    with pytest.raises(AssertionError, match="told before it was committed"):
        shell.write(shell.told[0])
    shell.replicate()
    assert len(shell.told) == 2


def test_what_is_told_is_what_was_decided() -> None:
    shell, producer = prepared()
    told = shell.told[-1]
    for other in (
        replace(told, committed=False),
        replace(told, partitions=(A, B)),
        replace(told, partitions=()),
        replace(told, transaction_version=2),
        replace(told, producer=producer._replace(producer_epoch=producer.producer_epoch + 1)),
    ):
        with pytest.raises(AssertionError, match="told otherwise than decided"):
            shell.write(other)
    shell.write(told)


def test_a_result_holds_for_its_transaction() -> None:
    """As if a coordinator had forgotten its decision."""
    shell, _ = prepared()
    open_again = replace(shell.transaction(), state=TransactionState.ONGOING)
    shell.machine._transactions[ID] = open_again
    with pytest.raises(AssertionError, match="both committed and aborted"):
        shell._append(open_again.prepared(False, 0, shell.now.wall_ms).record(shell.level))


def test_nothing_is_told_of_what_is_at_its_end() -> None:
    shell, _ = prepared()
    told = shell.told[-1]
    shell.take_markers()
    with pytest.raises(AssertionError, match="nothing is decided"):
        shell.write(told)


def test_an_end_of_version_2_has_an_epoch_of_its_own() -> None:
    shell = Shell()
    producer = shell.init().producer
    shell.add(producer, A)
    stays = replace(shell.transaction().prepared(True, 2, shell.now.wall_ms), producer_epoch=producer.producer_epoch)
    with pytest.raises(AssertionError, match="an epoch of its own"):
        shell._append(stays.record(shell.level))
