"""The promises of storage catch each way to break them, and let its legal neighbour pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.protocol.records.record import Record
from simulation.findings import Findings
from simulation.ghosts import Batch
from simulation.invariants.places import PartitionKey
from simulation.invariants.storage import StoragePromises, aborted

from .fake_logs import Disks, FakeLog, FakeSegment

pytestmark = pytest.mark.feature("FI-08", "FI-11", "ST-04", "ST-06", "ST-07", "ST-08", "ST-10")

KEY = PartitionKey("topic", 0)


class Disk:
    """One broker's disk with one log, whose power a test cuts."""

    def __init__(self) -> None:
        self.findings = Findings(lambda: 0.0)
        self.disks = Disks()
        self.promises = StoragePromises(self.findings, self.disks.content)
        self.log = self.disks.log("log").append(1, "a").append(1, "b").append(1, "c")

    def power_cut(self, flushed: int, left: int) -> FakeLog:
        """The log had flushed so much, and comes back with so much."""
        self.log.recovery_point = flushed
        self.promises.power_goes(KEY, 1, self.log)
        return self.log.cut(left)

    def starts(self) -> str:
        self.promises.opened(KEY, 1, self.log)
        return "; ".join(self.findings.broken)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.mark.parametrize(
    ("left", "wrong"), [(3, ""), (2, ""), (1, "had flushed up to 2, and ends at 1"), (0, "ends at 0")]
)
def test_flushed_batches_survive(disk: Disk, left: int, wrong: str) -> None:
    disk.power_cut(flushed=2, left=left)
    broken = disk.starts()
    assert (wrong in broken) if wrong else not broken


def test_flushed_batches_survive_unchanged(disk: Disk) -> None:
    disk.power_cut(flushed=2, left=1).append(1, "z")
    assert "had flushed something else than [1, 2)" in disk.starts()


def test_unflushed_batches_may_change(disk: Disk) -> None:
    disk.power_cut(flushed=1, left=1).append(1, "z")
    assert disk.starts() == ""


def test_a_new_disk_excuses_everything(disk: Disk) -> None:
    disk.power_cut(flushed=2, left=0)
    disk.promises.disk_lost(1)
    assert disk.starts() == ""


@dataclass
class Index:
    listed: list[tuple[int, int]] = field(default_factory=list)
    is_open: bool = True

    @property
    def entries(self) -> int:
        return len(self.listed)

    def entry(self, slot: int) -> tuple[int, int]:
        return self.listed[slot]


@dataclass
class Indexed(FakeSegment):
    offset_index: Index = field(default_factory=Index)
    time_index: Index = field(default_factory=Index)


@pytest.mark.parametrize(
    ("offsets", "times", "wrong"),
    [
        ([(2, 1)], [(70, 0), (90, 1)], ""),
        ([(2, 0)], [], "offset index says 2 at 0, there it is 0"),
        ([(3, 1)], [], "offset index says 3 at"),
        ([], [(80, 2)], "time index says 80 up to 2, there it is 90"),
        ([], [(90, 3)], "time index says 90 up to 3, there it is None"),
    ],
)
def test_indexes_match_the_log(
    disk: Disk, offsets: list[tuple[int, int]], times: list[tuple[int, int]], wrong: str
) -> None:
    """Positions are given as numbers of batches."""
    segment = Indexed("indexed")
    positions = []
    for offset, timestamp in enumerate((70, 90, 80)):
        positions.append(segment.size_bytes)
        segment.content += build_batch([Record(0, timestamp, None, b"x")], base_offset=offset)
    log = disk.disks.log("indexed")
    log.segment = segment
    segment.offset_index = Index([(offset, positions[number]) for offset, number in offsets])
    segment.time_index = Index(times)
    if not wrong:
        segment.offset_index = Index([(1, positions[1])])
    disk.promises.check_indexes(KEY, 1, [segment])
    broken = "; ".join(disk.findings.broken)
    assert (wrong in broken) if wrong else not broken


def history() -> Iterator[Batch]:
    """Producer 7 commits, then aborts from 4 on; 8 aborts nothing that it wrote here."""
    data = [Record(0, 1, None, b"x")]

    def data_batch(epoch: int, base_offset: int) -> bytes:
        return build_batch(
            data,
            base_offset=base_offset,
            transactional=True,
            producer_id=7,
            producer_epoch=epoch,
            base_sequence=0,
        )

    def end(producer_id: int, epoch: int, *, committed: bool) -> bytes:
        return build_end_txn_batch(EndTxn(committed, 0), producer_id, epoch, 1)

    parts = [
        data_batch(0, 0),
        end(7, 1, committed=True),
        end(8, 1, committed=False),
        build_batch(data, base_offset=3),
        data_batch(1, 4),
        data_batch(1, 5),
        end(7, 2, committed=False),
    ]
    for offset, part in enumerate(parts):
        yield Batch(offset, offset + 1, 0, part)


@dataclass(frozen=True)
class Aborted:
    producer_id: int
    first_offset: int


def test_the_transaction_index_matches_the_markers(disk: Disk) -> None:
    assert list(aborted(history())) == [(7, 4)]
    disk.promises.check_aborted(KEY, 1, history(), [Aborted(7, 4)])
    assert disk.findings.broken == []
    disk.promises.check_aborted(KEY, 1, history(), [])
    assert "lists (producer, offset) [] as aborted, by its markers it is [(7, 4)]" in disk.findings.broken[0]
