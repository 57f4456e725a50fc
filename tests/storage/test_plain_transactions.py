"""What compaction knows of transactions beside a plain history of them, with batches that earlier cleanings removed."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.batch import BatchHeader, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.protocol.records.record import Record, decode_records
from barnabas.storage.compaction import Transactions
from barnabas.storage.transaction_index import AbortedTransaction
from tests.examples import examples
from tests.storage.rig import NOW_MS

PRODUCERS = (1, 2, 3)


class Batch(NamedTuple):
    """A batch of a log, and the number of its transaction; -1 for none."""

    header: BatchHeader
    records: list[Record]
    transaction: int
    is_marker: bool


class Transaction(NamedTuple):
    producer: int
    first: int
    marker: int
    aborted: bool


def a_history(draw: st.DrawFn) -> tuple[list[Batch], list[Transaction]]:
    batches, done = list[Batch](), dict[int, Transaction]()
    open_ones: dict[int, tuple[int, int]] = {}
    offset = number = 0
    for _ in range(draw(st.integers(1, 18))):
        producer = draw(st.sampled_from(PRODUCERS))
        how = draw(st.sampled_from(["plain", "data", "data", "commit", "abort"]))
        transaction, is_marker = -1, how in ("commit", "abort")
        if is_marker:
            data = bytearray(build_end_txn_batch(EndTxn(how == "commit", 0), producer, 0, NOW_MS))
            data[0:8] = offset.to_bytes(8, "big")
            if producer in open_ones:
                transaction, first = open_ones.pop(producer)
                done[transaction] = Transaction(producer, first, offset, how == "abort")
        else:
            records = [Record(0, NOW_MS, b"k", b"v")] * draw(st.integers(1, 2))
            data = bytearray(
                build_batch(
                    records,
                    base_offset=offset,
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=offset,
                    transactional=how == "data",
                )
            )
            if how == "data":
                if producer not in open_ones:
                    open_ones[producer], number = (number, offset), number + 1
                transaction = open_ones[producer][0]
        header = read_header(data)
        batches.append(Batch(header, decode_records(data), transaction, is_marker))
        offset = header.next_offset
    # Nothing is cleaned from the first open transaction on.
    stable = min((first for _, first in open_ones.values()), default=offset)
    return [each for each in batches if each.header.base_offset < stable], list(done.values())


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Batch], list[Transaction]]:
    return a_history(draw)


@pytest.mark.feature("CR-13", "TX-09")
@settings(max_examples=examples(200))
@given(st.data(), histories())
def test_a_marker_is_over_when_no_batch_of_its_transaction_is_left(
    data: st.DataObject, history: tuple[list[Batch], list[Transaction]]
) -> None:
    batches, done = history
    draw = data.draw
    first_offset = draw(st.integers(0, batches[-1].header.base_offset)) if batches else 0
    left = [
        each
        for each in batches
        if each.header.base_offset >= first_offset and (each.is_marker or draw(st.integers(0, 2)))
    ]
    seen_from = draw(st.sampled_from([0, first_offset]))
    aborted = [AbortedTransaction(it.producer, it.first, it.marker, it.marker + 1) for it in done if it.aborted]
    here = [each for each in aborted if each.last_offset >= first_offset]
    transactions = Transactions(draw(st.permutations(here)), seen_from)
    by_marker = {each.marker: each for each in done}
    seen: set[int] = set()
    kept: list[AbortedTransaction] = []
    for each in left:
        if not each.is_marker:
            its = next((it for it in done if it.first <= each.header.base_offset < it.marker and is_of(it, each)), None)
            assert transactions.is_aborted(each.header) == (its is not None and its.aborted)
            if each.transaction >= 0:
                seen.add(each.transaction)
            continue
        it = by_marker.get(each.header.base_offset)
        is_left = each.transaction in seen
        if it is not None and it.aborted:
            is_left = is_left or it.first < seen_from
            if is_left:
                kept.append(AbortedTransaction(it.producer, it.first, it.marker, it.marker + 1))
        assert transactions.is_over(each.header, each.records) == (not is_left)
        assert transactions.is_over(each.header, [])
    assert transactions.kept == kept


def is_of(transaction: Transaction, batch: Batch) -> bool:
    return batch.transaction >= 0 and batch.header.producer_id == transaction.producer
