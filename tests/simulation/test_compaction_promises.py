"""What a cleaner may leave of a committed log, and what it may not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.cluster.simulation.ghosts import Batch, GhostLog
from barnabas.cluster.simulation.invariants.compaction import is_rest, missing
from protocol.records.builder import build_batch
from protocol.records.control import EndTxn, build_end_txn_batch
from protocol.records.record import Record

pytestmark = pytest.mark.feature("CR-02", "FI-11")

EPOCH = 3


def record(offset: int, key: bytes, value: bytes | None) -> Record:
    return Record(offset, 1_000 + offset, key, value, ())


def batch(
    records: Sequence[Record], first: int, last: int, *, producer_id: int = -1, transactional: bool = False
) -> Batch:
    data = build_batch(
        records,
        base_offset=first,
        last_offset=last,
        keep_offsets=True,
        leader_epoch=EPOCH,
        producer_id=producer_id,
        transactional=transactional,
    )
    return Batch(first, last + 1, EPOCH, data)


OLD, ONLY, NEW = record(0, b"a", b"old"), record(1, b"b", b"only"), record(2, b"a", b"new")
WHOLE = batch([OLD, ONLY, NEW], 0, 2)


@pytest.mark.parametrize(
    ("left", "fits"),
    [
        pytest.param(batch([ONLY, NEW], 0, 2), True, id="void ones are gone"),
        pytest.param(batch([], 0, 2), True, id="only its place is left"),
        pytest.param(batch([record(1, b"b", b"other")], 0, 2), False, id="another value"),
        pytest.param(batch([record(2, b"b", b"only")], 0, 2), False, id="another place"),
        pytest.param(batch([ONLY], 0, 1), False, id="another range"),
        pytest.param(batch([ONLY], 0, 2, producer_id=7), False, id="another producer"),
    ],
)
def test_what_is_left_of_a_batch(left: Batch, fits: bool) -> None:
    assert is_rest(left, WHOLE) == fits
    ghost = GhostLog()
    assert ghost.take(WHOLE) is None
    assert (ghost.take(left, is_rest) is None) == fits
    assert ghost.take(left) is not None, "where nothing is cleaned, nothing may be missing"


def test_the_last_record_of_each_key_holds() -> None:
    tombstone = batch([record(3, b"b", None)], 3, 3)
    assert list(missing([WHOLE], [batch([ONLY, NEW], 0, 2)])) == []
    assert list(missing([WHOLE], [batch([OLD, NEW], 0, 2)])) == [ONLY]
    assert list(missing([WHOLE, tombstone], [batch([NEW], 0, 2)])) == [], "a tombstone may be gone itself"


@pytest.mark.parametrize("committed", [True, False])
def test_of_a_transaction_only_what_was_committed_holds(committed: bool) -> None:
    in_transaction = batch([record(3, b"a", b"newest")], 3, 3, producer_id=9, transactional=True)
    marker = Batch(4, 5, EPOCH, bytes(build_end_txn_batch(EndTxn(committed, 0), 9, 0, 1_000)))
    log = [WHOLE, in_transaction, marker]
    assert [each.offset for each in missing(log, [batch([ONLY], 0, 2)])] == [3 if committed else 2]
