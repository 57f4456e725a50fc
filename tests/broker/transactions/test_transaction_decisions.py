"""Decision notes of transaction coordinators: epochs, results with reasons, hanging transactions."""

from __future__ import annotations

import pytest

from barnabas.broker.transactions.decision_notes import MAX_NAMED
from barnabas.broker.transactions.machine import HANGING_MS
from barnabas.broker.transactions.transaction import EXHAUSTED_EPOCH
from barnabas.protocol.errors import ErrorCode
from tests.broker.transactions.transaction_shell import ID, TIMEOUT_MS, A, B, Shell, with_epoch

pytestmark = pytest.mark.feature("OB-07")


def story(shell: Shell) -> list[str]:
    return [it.sentence for it in shell.decisions.since(0, f"transaction {ID}")]


def test_a_transaction_from_its_producer_to_its_last_marker() -> None:
    shell = Shell()
    shell.markers_hang = True
    producer = shell.init().producer
    shell.add(producer, A, B)
    shell.pass_ms(300)
    shell.end(producer, True)
    shell.pass_ms(20)
    shell.take_markers()
    assert story(shell) == [
        "transaction payments belongs to producer 1000 in epoch 0: requested by InitProducerId; the id was unknown",
        "transaction payments is to be committed, its producer's epoch goes 0 -> 1: requested by its producer (EndTxn)",
        "transaction payments is committed: all 2 partitions have their marker, 20 ms after the decision",
    ]
    begun, decided, done = shell.decisions.since(0)
    assert (decided.facts["open_ms"], decided.facts["partitions"], done.facts["took_ms"]) == (300, 2, 20)
    assert begun.facts["producer_epoch_before"] == -1


def test_another_producer_with_the_same_id_aborts_what_was_open() -> None:
    shell = Shell()
    first = shell.init().producer
    shell.add(first, A)
    shell.init()
    assert story(shell)[1] == (
        "transaction payments is to be aborted, its producer's epoch goes 0 -> 1: "
        "another producer started with this id (InitProducerId) and fences the previous one"
    )
    assert shell.decisions.since(0, "orders-0"), "it is part of the partition's story"
    second = shell.init()
    assert second.error is ErrorCode.NONE
    assert story(shell)[-1].endswith("requested by InitProducerId; epoch 1 is fenced")


def test_a_timeout_is_noted_with_its_duration() -> None:
    shell = Shell()
    producer = shell.init().producer
    shell.add(producer, A)
    shell.pass_ms(TIMEOUT_MS + 20_000)
    cause = shell.decisions.since(0, f"transaction {ID}")[1].cause
    assert cause == "it was open for 70000 ms, its timeout is 60000 ms (transaction.timeout.ms)"


def test_a_hanging_transaction_is_noted_once() -> None:
    shell = Shell()
    shell.markers_hang = True
    producer = shell.init().producer
    shell.add(producer, A, B)
    shell.end(producer, False)
    shell.pass_ms(3 * HANGING_MS)
    hanging = [it for it in story(shell) if "hangs" in it]
    assert hanging == [
        "transaction payments hangs: it is to be aborted since 30000 ms, "
        "and not all of its partitions have accepted their marker: orders-0, orders-1"
    ]
    shell.take_markers()
    assert story(shell)[-1].startswith("transaction payments is aborted: all 2 partitions have their marker")


def test_uncommitted_decisions_are_not_noted() -> None:
    shell = Shell()
    producer = shell.init().producer
    shell.add(producer, A)
    count = len(story(shell))
    shell.is_cut_off = True
    shell.end(producer, True)
    shell.fail_over(lost=1)
    assert len(story(shell)) == count


def test_routine_commits_do_not_displace_other_notes() -> None:
    shell = Shell()
    producer = shell.init().producer
    shell.add(producer, A)
    shell.init()
    for _ in range(1_500):
        producer = shell.init().producer
    notes = story(shell)
    assert any("another producer started" in it for it in notes)
    assert len(notes) < 1_500


def test_an_epoch_of_zero_is_fenced_as_any_other() -> None:
    shell = Shell()
    shell.init()
    shell.init()
    assert story(shell)[1] == (
        "transaction payments belongs to producer 1000 in epoch 1: requested by InitProducerId; epoch 0 is fenced"
    )


def test_a_producer_id_of_exhausted_epochs_is_named() -> None:
    shell = Shell()
    shell.init(with_epoch(shell, EXHAUSTED_EPOCH))
    assert story(shell)[-1] == (
        "transaction payments belongs to producer 1001 in epoch 0: "
        "requested by InitProducerId; the epochs of producer 1000 are exhausted"
    )


def test_a_claim_is_noted_with_what_it_claims() -> None:
    shell = Shell(transaction_two_phase_commit_enable=True)
    first = shell.init(enable2_pc=True).producer
    shell.add(first, A, B)
    shell.init(enable2_pc=True, keep_prepared_txn=True)
    note = shell.decisions.since(0, f"transaction {ID}")[-1]
    assert note.what == "transaction payments stays open; producer 1000 in epoch 1 may complete it"
    assert dict(note.facts) == {"producer_id": 1000, "producer_epoch": 1, "producer_epoch_before": 0, "partitions": 2}


def test_a_clock_that_goes_back_makes_no_duration_negative() -> None:
    shell = Shell()
    shell.markers_hang = True
    producer = shell.init().producer
    shell.add(producer, A)
    shell.now_ms -= 100
    shell.end(producer, True)
    shell.now_ms -= 100
    shell.take_markers()
    decided, done = shell.decisions.since(0, f"transaction {ID}")[-2:]
    assert (decided.facts["open_ms"], done.facts["took_ms"]) == (0, 0)


@pytest.mark.parametrize("count", [MAX_NAMED, MAX_NAMED + 1])
def test_the_first_partitions_of_a_hanging_transaction_are_named(count: int) -> None:
    shell = Shell()
    shell.markers_hang = True
    producer = shell.init().producer
    shell.add(producer, *(("orders", index) for index in range(count)))
    shell.end(producer, True)
    shell.pass_ms(2 * HANGING_MS)
    (hanging,) = [it for it in shell.decisions.since(0, f"transaction {ID}") if "hangs" in it.what]
    named = [f"orders-{index}" for index in range(MAX_NAMED)]
    more = " …" if count > MAX_NAMED else ""
    assert hanging.cause.endswith(f"accepted their marker: {', '.join(named)}{more}")
    assert list(hanging.also) == named
    assert hanging.facts["partitions"] == count and hanging.facts["waited_ms"] == HANGING_MS


def test_a_timed_out_transaction_is_part_of_the_story_of_its_first_partitions() -> None:
    shell = Shell()
    producer = shell.init().producer
    shell.add(producer, *(("orders", index) for index in range(MAX_NAMED + 1)))
    shell.pass_ms(TIMEOUT_MS + 20_000)
    (decided,) = [it for it in shell.decisions.since(0, f"transaction {ID}") if "is to be aborted" in it.what]
    assert list(decided.also) == [f"orders-{index}" for index in range(MAX_NAMED)]


def test_an_expired_id_is_noted_with_the_time_it_was_unused() -> None:
    shell = Shell(
        transactional_id_expiration_ms=55_000, transaction_remove_expired_transaction_cleanup_interval_ms=7_000
    )
    shell.pass_ms(1_000)
    shell.init()
    shell.pass_ms(60_000)
    (note,) = [it for it in shell.decisions.since(0, f"transaction {ID}") if "forgotten" in it.what]
    assert note.what == "transaction payments is forgotten"
    assert note.cause == "it was unused for 55000 ms (transactional.id.expiration.ms)"
    assert dict(note.facts) == {"producer_id": 1000, "producer_epoch": 0}
