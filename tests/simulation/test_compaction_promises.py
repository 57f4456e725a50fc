"""Records that a cleaner may remove from a committed log, and those that it must keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from barnabas.broker.internal_topics import GROUP_TOPIC
from barnabas.kraft.metadata.image import EMPTY_IMAGE
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.protocol.records.record import Record
from barnabas.runtime.simulated.inode import Inode
from barnabas.runtime.simulated.process import NodeKilled
from barnabas.storage.cleaner import CleanerSettings, LogCleaning, extent_of
from barnabas.storage.cleaning import Event
from simulation.findings import Findings
from simulation.ghosts import Batch, GhostLog
from simulation.invariants.compaction import is_rest, missing
from simulation.invariants.partitions import PartitionPromises
from simulation.invariants.places import PartitionKey
from tests.storage.cleaning_rig import close_segments, compacted, put
from tests.storage.rig import DIRECTORY, NOW_MS, Rig

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
def test_the_rest_of_a_batch_after_cleaning(left: Batch, fits: bool) -> None:
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
def test_only_committed_transactions_supersede_older_records(committed: bool) -> None:
    in_transaction = batch([record(3, b"a", b"newest")], 3, 3, producer_id=9, transactional=True)
    marker = Batch(4, 5, EPOCH, bytes(build_end_txn_batch(EndTxn(committed, 0), 9, 0, 1_000)))
    log = [WHOLE, in_transaction, marker]
    assert [each.offset for each in missing(log, [batch([ONLY], 0, 2)])] == [3 if committed else 2]


class Cleaned:
    """A log that is being cleaned: its two closed segments become one. A judge looks at its disk meanwhile."""

    def __init__(self) -> None:
        self.findings = Findings(lambda: 0.0)
        self.rig = Rig()
        self.log = self.rig.open(compacted())
        self.instead: dict[str, bytearray | None] = {}
        """By path: what the judge is shown."""
        promises = self._promises = PartitionPromises(self.findings, self.content, lambda: EMPTY_IMAGE, lambda _: 1)
        promises.opened(KEY, 1, self.log)
        for value in ("1", "2"):
            put(self.log, ("a", value), ("b", value))
            close_segments(self.log)
        put(self.log, ("c", "active"))
        promises.high_watermark_moved(KEY, 1, self.log)

    def content(self, node_id: int, path: str) -> bytearray | None:
        entry = self.rig.store.find(path)
        found = entry.cached if isinstance(entry, Inode) else None
        return self.instead.get(path, found)

    def slices(self) -> Iterator[str]:
        """The path of the first segment, as the node knows it, after each slice."""
        self.log.cleaning.move(Event.BEGIN)
        for piece in LogCleaning(self.log, extent_of(self.log, NOW_MS), CleanerSettings(), NOW_MS).slices():
            piece()
            yield self.log.segments[0].log_path

    def judged(self) -> str:
        self._promises.check_replicas_equal(KEY, [1])
        return "; ".join(self.findings.broken)


KEY = PartitionKey(GROUP_TOPIC, 0)
FIRST = f"{DIRECTORY}/00000000000000000000.log"


@pytest.mark.feature("CR-07")
def test_a_copy_is_found_before_its_node_knows_its_name() -> None:
    cleaned, seen = Cleaned(), set()
    for path in cleaned.slices():
        assert cleaned.judged() == ""
        seen.add((path, cleaned.content(1, path) is None))
    assert (f"{FIRST}.cleaned", True) in seen
    assert len(cleaned.log.segments) == 2
    assert cleaned.judged() == ""


@pytest.mark.feature("CR-07")
def test_a_copy_is_found_wherever_a_node_died_on_the_way() -> None:
    operations, seen = 0, set()
    while not cleaned_until(operations, seen):
        operations += 1
    assert {"00000000000000000000.log.cleaned", "00000000000000000000.log.swap"} <= seen
    assert operations > 20


def cleaned_until(operation: int, seen: set[str]) -> bool:
    """Whether the cleaning was over before it came so far; notes the names of files that were seen."""
    cleaned = Cleaned()
    process = cleaned.rig.process
    process.dies_at_change = process.changes + operation + 1
    try:
        for _ in cleaned.slices():
            pass
    except NodeKilled:
        assert cleaned.judged() == "", operation
        cleaned.rig.start()
        seen.update(cleaned.rig.names())
        return False
    return True


@pytest.mark.feature("CR-07")
@pytest.mark.parametrize(
    "shown", [pytest.param(None, id="no file"), pytest.param(bytearray(WHOLE.data), id="another one")]
)
def test_a_damaged_copy_is_not_accepted(shown: bytearray | None) -> None:
    cleaned = Cleaned()
    for path in cleaned.slices():
        if cleaned.content(1, path) is None:
            break
    assert cleaned.judged() == ""
    cleaned.instead[FIRST] = shown
    assert "1 lacks Record(offset=2" in cleaned.judged()
