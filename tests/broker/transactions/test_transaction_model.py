"""Random histories of producers, timeouts, failovers and failed writes: the invariants of `transaction_shell`, and at
the end every decided transaction is complete.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.broker.coordinator.outcome import ProducerStamp
from barnabas.broker.transactions.transaction import AT_REST, EXHAUSTED_EPOCH, PREPARED, TransactionState
from barnabas.protocol.errors import ErrorCode
from tests.broker.transactions.transaction_shell import A, Asked, B, C, Shell
from tests.examples import examples

IDS = st.sampled_from(["payments", "orders"])
PARTITIONS = st.lists(st.sampled_from([A, B, C]), min_size=1, max_size=3)
VERSIONS = st.sampled_from([0, 2])
EXPECTED_ERRORS = {
    ErrorCode.NONE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


class Transactions(RuleBasedStateMachine):
    """Producers remember every id and epoch they ever had, and may use any of them."""

    @initialize(level=st.sampled_from([0, 1, 2]))
    def begin(self, level: int) -> None:
        self.shell = Shell(level, transaction_two_phase_commit_enable=True)
        self.had: dict[str, list[ProducerStamp]] = {"payments": [], "orders": []}
        self.waiting: list[tuple[str, str, bool, ProducerStamp, Asked]] = []
        self.promised: dict[tuple[str, ProducerStamp], bool] = {}

    def pick(self, data: Any, transactional_id: str) -> ProducerStamp:
        """Usually the newest; sometimes a zombie's."""
        had = self.had[transactional_id][-4:] or [ProducerStamp(1000, 0)]
        return had[-1] if data.draw(st.integers(0, 2)) else data.draw(st.sampled_from(had))

    def asked(
        self, kind: str, transactional_id: str, asked: Asked, commit: bool = False, by: ProducerStamp | None = None
    ) -> None:
        self.waiting.append((kind, transactional_id, commit, by or ProducerStamp(-1, -1), asked))
        self.listen()

    def listen(self) -> None:
        still: list[tuple[str, str, bool, ProducerStamp, Asked]] = []
        for kind, transactional_id, commit, by, asked in self.waiting:
            if asked.waits:
                still.append((kind, transactional_id, commit, by, asked))
                continue
            assert asked.error in EXPECTED_ERRORS
            if asked.error is ErrorCode.NONE and kind != "add":
                if asked.producer not in self.had[transactional_id]:
                    self.had[transactional_id].append(asked.producer)
                if kind == "end with bump":
                    known = self.promised.setdefault((transactional_id, by), commit)
                    assert known is commit, "one epoch, one transaction, one result"
        self.waiting = still

    @rule(data=st.data(), transactional_id=IDS, bump=st.booleans())
    def init(self, data: Any, transactional_id: str, bump: bool) -> None:
        had = self.pick(data, transactional_id) if bump else None
        self.asked("init", transactional_id, self.shell.init(had, transactional_id))

    @rule(transactional_id=IDS, keep=st.booleans())
    def init_two_phase(self, transactional_id: str, keep: bool) -> None:
        if keep and self.shell.level < 2:
            return
        before = self.shell.machine.get(transactional_id)
        asked = self.shell.init(None, transactional_id, enable2_pc=True, keep_prepared_txn=keep)
        self.asked("init", transactional_id, asked)
        if keep and before is not None and before.is_two_phase and before.state is TransactionState.ONGOING:
            after = self.shell.machine.get(transactional_id)
            assert after is not None and after.producer == before.producer, "a prepared transaction was not kept"
            assert after.state is TransactionState.ONGOING and after.partitions == before.partitions

    @rule(data=st.data(), transactional_id=IDS, partitions=PARTITIONS, version=VERSIONS)
    def add(self, data: Any, transactional_id: str, partitions: Any, version: int) -> None:
        producer = self.pick(data, transactional_id)
        asked = self.shell.add(producer, *partitions, version=version, transactional_id=transactional_id)
        self.asked("add", transactional_id, asked)

    @rule(data=st.data(), transactional_id=IDS, commit=st.booleans(), version=VERSIONS)
    def end(self, data: Any, transactional_id: str, commit: bool, version: int) -> None:
        producer = self.pick(data, transactional_id)
        asked = self.shell.end(producer, commit, version, transactional_id)
        # Ends of version 1 keep the epoch, so one epoch may have many results.
        self.asked("end with bump" if version else "end of version 1", transactional_id, asked, commit, producer)

    @rule(level=st.sampled_from([0, 1, 2]))
    def finalize_level(self, level: int) -> None:
        self.shell.level = level

    @rule(transactional_id=IDS)
    def age(self, transactional_id: str) -> None:
        """Bring a producer close to its last epoch, as many steps would."""
        transaction = self.shell.machine.get(transactional_id)
        if transaction is None or transaction.state not in AT_REST or self.shell.append_error or self.shell.is_cut_off:
            return
        if transaction.producer_epoch < EXHAUSTED_EPOCH - 1:
            producer = ProducerStamp(transaction.producer_id, EXHAUSTED_EPOCH - 1)
            aged = transaction.given_to(producer, transaction.timeout_ms, self.shell.now.wall_ms)
            self.shell._append(aged.record(self.shell.level))
            self.shell.replicate()
            self.had[transactional_id].append(producer)

    @rule(hang=st.booleans())
    def partitions_hang(self, hang: bool) -> None:
        self.shell.markers_hang = hang

    @rule()
    def take_markers(self) -> None:
        self.shell.take_markers()

    @rule()
    def cut_off(self) -> None:
        self.shell.is_cut_off = True

    @rule()
    def replicate(self) -> None:
        self.shell.replicate()
        self.listen()

    @rule(fails=st.booleans())
    def writes_fail(self, fails: bool) -> None:
        self.shell.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE if fails else None

    @rule(there=st.booleans())
    def producer_ids(self, there: bool) -> None:
        self.shell.has_producer_ids = there

    @rule(duration_ms=st.sampled_from([1_000, 30_000, 90_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.shell.pass_ms(duration_ms)
        self.listen()

    @rule(lost=st.integers(0, 3))
    def fail_over(self, lost: int) -> None:
        self.shell.fail_over(lost)
        self.listen()

    @invariant()
    def one_open_transaction_each(self) -> None:
        if not hasattr(self, "shell"):
            return
        for transaction in self.shell.machine.transactions:
            assert transaction.state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
            assert transaction.state not in AT_REST or not transaction.partitions

    def teardown(self) -> None:
        """After all faults end, everything decided is complete, and every request is answered."""
        if not hasattr(self, "shell"):
            return
        shell = self.shell
        shell.append_error, shell.has_producer_ids, shell.markers_hang = None, True, False
        shell.replicate()
        shell.take_markers()
        shell.pass_ms(200_000)
        self.listen()
        assert not self.waiting, "somebody was never answered"
        assert all(each.state not in PREPARED for each in shell.machine.transactions)
        open_for_ever = [each for each in shell.machine.transactions if each.state not in AT_REST]
        assert all(each.is_two_phase for each in open_for_ever), "open for ever"
        for each in open_for_ever:
            assert shell.init(transactional_id=each.transactional_id).error is ErrorCode.CONCURRENT_TRANSACTIONS
        for transactional_id in self.had:
            producer = shell.init(transactional_id=transactional_id).producer
            assert shell.add(producer, A, transactional_id=transactional_id).error is ErrorCode.NONE
            assert shell.end(producer, True, 2, transactional_id).error is ErrorCode.NONE


TestTransactions = pytest.mark.feature("TX-01", "TX-02", "TX-03", "TX-06", "TX-08", "TX-15")(Transactions.TestCase)
TestTransactions.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
