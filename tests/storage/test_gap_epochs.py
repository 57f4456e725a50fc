"""A follower that is killed soon after it copied a compacted log knows the epochs that no batch of the log has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.storage.checkpoints import MalformedCheckpoint
from barnabas.storage.directories import LogDirectories
from barnabas.storage.gap_epochs import GAP_EPOCHS_FILE, Gap, GapEpoch, hidden_epochs
from barnabas.storage.log import PartitionLog
from tests.storage.rig import NOW_MS, Rig, all_offsets, heads, numbered
from tests.storage.test_directories import make, start

pytestmark = pytest.mark.feature("RE-13", "CR-03")

KEY = ("orders", 0)
LEADERS = [(2, 3), (3, 5), (6, 9), (7, 9)]
"""The epochs of the leader behind offset 2: of 2 and 3 no record is left, of 6 none ever was."""
KNOWN = [(1, 0), *LEADERS[:2], (4, 7), (7, 9)]


def follow(log: PartitionLog, *batches: tuple[int, int], known: list[tuple[int, int]] | None = None) -> None:
    """Append batches of (base offset, epoch), as fetched from a leader that knows these epochs."""
    data = b"".join(numbered(offset, leader_epoch=epoch) for offset, epoch in batches)
    log.append_as_follower(bytearray(data), NOW_MS, leaders_epochs=known or [])


def copy(directories: LogDirectories) -> PartitionLog:
    """Batches of epochs 1, 4 and 7, with gaps between them."""
    log = make(directories, "orders")
    follow(log, (0, 1), (1, 1))
    follow(log, (7, 4), (12, 7), known=LEADERS)
    assert log.epochs.entries() == KNOWN
    return log


def has_file(rig: Rig, log: PartitionLog) -> bool:
    return rig.disk.exists(f"{log.directory}/{GAP_EPOCHS_FILE}")


def test_a_kill_costs_no_epoch() -> None:
    rig = Rig()
    copy(start(rig))
    for _ in range(3):
        rig.kill()
        log = start(rig).logs[KEY]
        assert (log.epochs.entries(), all_offsets(log)) == (KNOWN, [0, 1, 7, 12])
        assert has_file(rig, log)


def test_nor_does_a_kill_between_a_flush_and_the_next_checkpoint_of_recovery_points() -> None:
    rig = Rig()
    copy(start(rig)).flush()
    rig.kill()
    assert start(rig).logs[KEY].epochs.entries() == KNOWN


@pytest.mark.parametrize("ends", ["kill", "power_cut"])
def test_after_the_checkpoint_the_next_start_removes_the_file(ends: str) -> None:
    rig = Rig()
    directories = start(rig)
    log = copy(directories)
    log.flush()
    assert not directories.checkpoint_work()()
    assert has_file(rig, log)
    getattr(rig, ends)()
    log = start(rig).logs[KEY]
    assert log.epochs.entries() == KNOWN and not has_file(rig, log)


def test_a_power_cut_costs_what_is_behind_the_gap_and_its_epochs() -> None:
    rig = Rig()
    log = make(start(rig), "orders")
    follow(log, (0, 1), (1, 1))
    log.flush()
    follow(log, (7, 4), (12, 7), known=LEADERS)
    rig.power_cut()
    log = start(rig).logs[KEY]
    assert all_offsets(log) in ([], [0], [0, 1]) and log.epochs.entries() in ([], [(1, 0)])
    assert not has_file(rig, log)


def test_a_truncation_leaves_nothing_that_counts() -> None:
    rig = Rig()
    log = copy(start(rig))
    log.truncate_to(2)
    follow(log, (8, 9), known=[(8, 6), (9, 8)])
    rig.kill()
    assert start(rig).logs[KEY].epochs.entries() == [(1, 0), (8, 6), (9, 8)]


def test_a_damaged_file_costs_no_more_than_its_epochs() -> None:
    rig = Rig()
    log = copy(start(rig))
    file = rig.disk.open(f"{log.directory}/{GAP_EPOCHS_FILE}")
    file.pwrite(b"x", 0)
    file.close()
    rig.kill()
    log = start(rig).logs[KEY]
    assert log.epochs.entries() == [(1, 0), (4, 7), (7, 12)] and not has_file(rig, log)


def test_a_disk_that_fails_while_epochs_are_kept_puts_the_log_out_of_service() -> None:
    rig = Rig()
    log = make(start(rig), "orders")
    follow(log, (0, 1), (1, 1))
    rig.store.fail("write", prefix=f"{log.directory}/{GAP_EPOCHS_FILE}")
    with pytest.raises(KafkaError) as refused:
        follow(log, (7, 4), (12, 7), known=LEADERS)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is not None


def test_a_log_without_hidden_epochs_has_no_file() -> None:
    rig = Rig()
    log = make(start(rig), "orders")
    follow(log, (0, 1), (5, 1), known=[])
    follow(log, (6, 2), known=[(2, 6)])
    assert not has_file(rig, log)


@given(st.data())
def test_hidden_epochs_and_batches_give_all_epochs_again(data: st.DataObject) -> None:
    """Whatever compaction has left of a log."""
    epochs = sorted(data.draw(st.sets(st.integers(0, 9), min_size=1)))
    starts = sorted(data.draw(st.sets(st.integers(0, 30), min_size=len(epochs), max_size=len(epochs))))
    leader = list(zip(epochs, [0, *starts[1:]], strict=True))

    def epoch_at(offset: int) -> int:
        return max(epoch for epoch, begins in leader if begins <= offset)

    offsets = sorted(data.draw(st.sets(st.integers(0, 40), min_size=1)))
    rig = Rig()
    log = make(start(rig), "orders")
    for part in parts(offsets, data.draw(st.integers(1, 5))):
        follow(log, *((offset, epoch_at(offset)) for offset in part), known=leader)
    before = log.epochs.entries()
    assert before == [it for it in leader if it[0] <= epoch_at(offsets[-1])]
    rig.kill()
    assert start(rig).logs[KEY].epochs.entries() == before


def parts(offsets: list[int], size: int) -> Iterator[list[int]]:
    for first in range(0, len(offsets), size):
        yield offsets[first : first + size]


def test_an_entry_names_its_gap_and_the_batch_behind_it() -> None:
    batches = heads(numbered(2, leader_epoch=1) + numbered(7, leader_epoch=4) + numbered(8, leader_epoch=5))
    assert hidden_epochs(batches, 2, [(1, 0), *LEADERS]) == [
        GapEpoch(Gap(3, 7, 4), 2, 3),
        GapEpoch(Gap(3, 7, 4), 3, 5),
    ]


def test_the_file_is_read_as_it_was_written() -> None:
    from barnabas.storage.checkpoints import format_numbers, parse_numbers

    rows = [(3, 7, 4, 2, 3), (3, 7, 4, 3, 5)]
    assert [tuple(row) for row in parse_numbers(format_numbers(rows), "gap-epochs", 5)] == rows
    with pytest.raises(MalformedCheckpoint, match="expected 5 fields"):
        parse_numbers(b"0\n1\n1 2 3\n", "gap-epochs", 5)
