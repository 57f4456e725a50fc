"""The producers of a log beside plain ones: each answer is computed from all that was appended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import MAX_INT32, BatchHeader, read_header
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.storage.producer_snapshot_format import decode_snapshot, encode_snapshot
from barnabas.storage.producers import (
    LAST_EPOCH,
    CompletedTransaction,
    ProducerStateConfig,
    ProducerStates,
    Verification,
)
from tests.examples import examples
from tests.storage.rig import NOW_MS, producer_batch

E = ErrorCode
EXPIRATION_MS = 1_000
PRODUCERS = (7, 8)


class Data(NamedTuple):
    """An appended batch."""

    offset: int
    epoch: int
    sequence: int
    count: int
    transactional: bool
    at_ms: int

    @property
    def last_sequence(self) -> int:
        return -1 if self.sequence < 0 else (self.sequence + self.count - 1) & MAX_INT32


class Marker(NamedTuple):
    """An appended marker."""

    offset: int
    epoch: int
    coordinator_epoch: int
    committed: bool
    at_ms: int


@dataclass
class PlainProducer:
    """All events of one producer."""

    events: list[Data | Marker] = field(default_factory=list)

    @property
    def epoch(self) -> int:
        return self.events[-1].epoch

    @property
    def batches(self) -> list[Data]:
        """The last five of the current epoch."""
        changed = [place for place, each in enumerate(self.events) if each.epoch != self.epoch]
        since = changed[-1] + 1 if changed else 0
        return [each for each in self.events[since:] if isinstance(each, Data)][-5:]

    @property
    def began(self) -> int:
        """First offset of the open transaction; -1 without one."""
        first = -1
        for each in self.events:
            if isinstance(each, Marker):
                first = -1
            elif each.transactional and first < 0:
                first = each.offset
        return first

    @property
    def coordinator_epoch(self) -> int:
        return next((each.coordinator_epoch for each in reversed(self.events) if isinstance(each, Marker)), -1)


class Producers:
    """Both."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.config = ProducerStateConfig(EXPIRATION_MS, draw(st.booleans()))
        self.real = ProducerStates(self.config)
        self.plain: dict[int, PlainProducer] = {}
        self.asked: dict[int, Verification] = {}
        self.ended: dict[int, int] = {}
        """First offset of transactions that are over, but not replicated, to that of the marker."""
        self.now_ms = NOW_MS
        self.end = 0

    # -- batches

    def a_batch(self) -> tuple[BatchHeader, Data]:
        number = self.draw(st.sampled_from(PRODUCERS))
        known = self.plain.get(number)
        epoch = max(0, (known.epoch if known is not None else 1) + self.draw(st.sampled_from([0, 0, 0, 0, 1, -1])))
        following = (known.batches[-1].last_sequence + 1) & MAX_INT32 if known is not None and known.batches else 0
        places = [following, following, following, following + 1, 0, -1, MAX_INT32]
        places += [each.sequence for each in (known.batches if known is not None else ())]
        sequence = self.draw(st.sampled_from(places)) & MAX_INT32 if self.draw(st.integers(0, 9)) else -1
        count, transactional = self.draw(st.integers(1, 3)), self.draw(st.booleans())
        header = read_header(producer_batch(number, epoch, sequence, count, transactional))
        return header, Data(self.end, epoch, sequence, count, transactional, self.now_ms)

    def append(self) -> None:
        header, data = self.a_batch()
        number = header.producer_id
        verification = self.draw(st.sampled_from([self.asked.get(number), self.asked.get(number), None]))
        expected = self.judged(number, data, verification)
        try:
            found: Any = self.real.check(header, None, verification)
        except KafkaError as error:
            found = error.code
        if isinstance(expected, Data):
            assert found is not None and (found.first_offset, found.first_sequence) == (
                expected.offset,
                expected.sequence,
            )
            assert found.last_offset == expected.offset + expected.count - 1
            return
        assert found == expected
        if expected is None:
            self.real.apply(header, self.end, self.now_ms)
            self.plain.setdefault(number, PlainProducer()).events.append(data)
            if data.transactional:
                self.asked.pop(number, None)
            self.end += data.count

    def judged(self, number: int, data: Data, verification: Verification | None) -> ErrorCode | Data | None:
        """The error of a batch, the batch that it repeats, or None."""
        known = self.plain.get(number)
        if known is None:
            return self.begins(number, data, verification) if data.transactional else None
        if data.epoch < known.epoch:
            return E.INVALID_PRODUCER_EPOCH
        same, batches = data.epoch == known.epoch, known.batches
        last = batches[-1].last_sequence if batches else -1
        follows = not same or data.sequence == (last + 1) & MAX_INT32
        if not follows and data.sequence >= 0:
            again = [it for it in batches if (it.sequence, it.last_sequence) == (data.sequence, data.last_sequence)]
            if again:
                return again[0]
        if data.transactional and not (known.began >= 0 and same):
            error = self.begins(number, data, verification)
            if error is not None:
                return error
        if data.sequence >= 0 and (not follows or (not same and data.sequence > 0)):
            return E.OUT_OF_ORDER_SEQUENCE_NUMBER
        return E.INVALID_TXN_STATE if known.began >= 0 and not data.transactional else None

    def begins(self, number: int, data: Data, verification: Verification | None) -> ErrorCode | None:
        asked = self.asked.get(number)
        if self.config.requires_verification and (asked is None or verification is not asked):
            return E.INVALID_TXN_STATE
        if asked is None or data.sequence < 0:
            return None
        known = self.plain.get(number)
        is_first = known is None or not known.batches
        wrong = asked.supports_epoch_bump and data.sequence > 0 and is_first
        return E.OUT_OF_ORDER_SEQUENCE_NUMBER if wrong or data.sequence > asked.lowest_sequence else None

    def verify(self) -> None:
        header, data = self.a_batch()
        number, known = header.producer_id, self.plain.get(header.producer_id)
        before = self.asked.get(number)
        lowest = None if before is None else (before.epoch, before.lowest_sequence)
        bumps = self.draw(st.booleans())
        try:
            found = self.real.begin_verification(
                number, data.epoch, data.sequence, self.now_ms, supports_epoch_bump=bumps
            )
        except KafkaError as error:
            assert error.code is E.INVALID_PRODUCER_EPOCH and known is not None and data.epoch < known.epoch
            return
        assert known is None or data.epoch >= known.epoch
        if known is not None and known.began >= 0 and data.epoch == known.epoch:
            assert found is None
            return
        assert found is not None and (before is None or found is before)
        if lowest is None or data.epoch > lowest[0]:
            expected = (data.epoch, data.sequence)
        else:
            expected = (lowest[0], min(lowest[1], data.sequence) if data.epoch == lowest[0] else lowest[1])
        assert (found.epoch, found.lowest_sequence) == expected
        self.asked[number] = found

    # -- markers

    def end_transaction(self) -> None:
        number = self.draw(st.sampled_from(PRODUCERS))
        known = self.plain.get(number)
        epoch = max(0, (known.epoch if known is not None else 1) + self.draw(st.sampled_from([0, 0, 1, 1, -1])))
        committed, version = self.draw(st.booleans()), self.draw(st.sampled_from([0, 2]))
        coordinator_epoch = self.draw(st.integers(0, 2))
        marker = EndTxn(committed, coordinator_epoch)
        header = read_header(build_end_txn_batch(marker, number, epoch, self.now_ms))
        code = None
        if known is not None:
            open_here = version == 2 and epoch == known.epoch and known.began >= 0 and epoch != LAST_EPOCH
            if epoch < known.epoch or open_here:
                code = E.INVALID_PRODUCER_EPOCH
            elif coordinator_epoch < known.coordinator_epoch:
                code = E.TRANSACTION_COORDINATOR_FENCED
        try:
            self.real.check_marker(header, marker, version)
            assert code is None
        except KafkaError as error:
            assert error.code == code
            return
        first = -1 if known is None else known.began
        completed = self.real.apply_marker(header, marker, self.end, version)
        assert completed == (None if first < 0 else CompletedTransaction(number, first, self.end, not committed))
        asked = self.asked.get(number)
        if asked is not None and not (version == 2 and asked.supports_epoch_bump and asked.epoch >= epoch):
            del self.asked[number]
        event = Marker(self.end, epoch, coordinator_epoch, committed, self.now_ms)
        self.plain.setdefault(number, PlainProducer()).events.append(event)
        if completed is not None:
            self.ended[first] = self.end
            stable = min((it.began for it in self.plain.values() if it.began >= 0), default=self.end + 1)
            assert self.real.last_stable_offset_after(completed) == stable
        self.end += 1

    def replicate(self) -> None:
        offset = self.draw(st.integers(0, self.end))
        self.real.replicated_to(offset)
        self.ended = {first: last for first, last in self.ended.items() if last >= offset}

    # -- time and snapshots

    def time(self) -> None:
        self.now_ms += self.draw(st.sampled_from([1, EXPIRATION_MS - 1, EXPIRATION_MS]))
        gone = self.expired()
        assert self.real.remove_expired(self.now_ms) == len(gone)
        self.plain = {number: it for number, it in self.plain.items() if number not in gone}
        self.asked = {number: it for number, it in self.asked.items() if self.now_ms - it.since_ms < EXPIRATION_MS}

    def expired(self) -> set[int]:
        return {
            number
            for number, it in self.plain.items()
            if it.began < 0 and self.now_ms - it.events[-1].at_ms >= EXPIRATION_MS
        }

    def restart(self) -> None:
        """A snapshot has the last batch of each producer, and no transaction that is over."""
        snapshot = encode_snapshot(self.real.entries.values())
        self.now_ms += self.draw(st.sampled_from([0, EXPIRATION_MS]))
        self.plain = {number: it for number, it in self.plain.items() if number not in self.expired()}
        self.real = ProducerStates(self.config)
        self.real.load(decode_snapshot(snapshot), self.end, self.now_ms)
        self.asked, self.ended = {}, {}
        for it in self.plain.values():
            kept = it.batches[-1:]
            dropped = [each for each in it.batches if each not in kept]
            it.events = [each for each in it.events if each not in dropped or each.offset == it.began]
            for place, each in enumerate(it.events):
                if isinstance(each, Data) and each in dropped:
                    # It still says where the transaction began, under a sequence that nobody repeats.
                    it.events[place] = each._replace(sequence=-1)

    def check(self) -> None:
        assert self.real.entries.keys() == self.plain.keys()
        for number, it in self.plain.items():
            entry = self.real.entries[number]
            assert (entry.epoch, entry.coordinator_epoch) == (it.epoch, it.coordinator_epoch)
            assert entry.transaction_first_offset == it.began
            assert entry.last_timestamp == it.events[-1].at_ms
            assert entry.last_sequence == (it.batches[-1].last_sequence if it.batches else -1)
            assert [each.first_offset for each in entry.batches][-1:] == [each.offset for each in it.batches][-1:]
        firsts = [it.began for it in self.plain.values() if it.began >= 0]
        assert self.real.first_unstable_offset == min([*firsts, *self.ended], default=-1)
        assert self.real.verifications == self.asked


STEPS = [*["append"] * 8, "verify", "verify", "end_transaction", "end_transaction", "replicate", "time", "restart"]


@pytest.mark.feature("PR-12", "TX-05", "TX-08")
@settings(max_examples=examples(150))
@given(st.data())
def test_producers_are_judged_by_all_that_was_appended(data: st.DataObject) -> None:
    producers = Producers(data.draw)
    steps = [step for step in STEPS if step != "restart"] if data.draw(st.booleans()) else STEPS
    for _ in range(data.draw(st.integers(2, 30))):
        getattr(producers, data.draw(st.sampled_from(steps)))()
        producers.check()
