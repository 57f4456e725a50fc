"""Divergence of two logs: the leader epochs, compared with a naive list of the epoch of every offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.checkpoints import (
    MalformedCheckpoint,
    format_epochs,
    format_offsets,
    parse_epochs,
    parse_offsets,
    read_offsets,
    write_durably,
    write_offsets,
)
from barnabas.storage.leader_epochs import LeaderEpochs
from tests.storage.rig import NOW_MS, Rig, numbered

growth = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=20)


def grown(steps: list[tuple[int, int]]) -> tuple[LeaderEpochs, list[int]]:
    """Each step is (increase of the epoch, number of records); the list has the epoch of each record."""
    epochs, twin, epoch = LeaderEpochs(), [], 0
    for more, count in steps:
        epoch += more
        epochs.assign(epoch, len(twin))
        twin += [epoch] * count
    return epochs, twin


def end_of(twin: list[int], start: int, epoch: int) -> tuple[int, int]:
    known = sorted(set(twin[start:]))
    if not known or epoch > known[-1]:
        return -1, -1
    at_most = [one for one in known if one <= epoch]
    if not at_most:
        return epoch, start
    return at_most[-1], start + sum(1 for one in twin[start:] if one <= epoch)


@given(growth, st.integers(0, 40), st.integers(0, 60), st.integers(0, 60))
def test_against_an_epoch_for_every_offset(steps: list[tuple[int, int]], epoch: int, start: int, end: int) -> None:
    epochs, twin = grown(steps)
    end = min(end, len(twin))
    start = min(start, end)
    epochs.truncate_from_end(end)
    del twin[end:]
    if twin[start:]:
        epochs.truncate_from_start(start)
        assert epochs.end_offset_for(epoch, len(twin)) == end_of(twin, start, epoch)
    for offset in range(start, end):
        assert epochs.epoch_for_offset(offset) == twin[offset]
    assert parse_epochs(format_epochs(epochs.entries()), "x") == epochs.entries()


@pytest.mark.feature("RE-06", "ST-11")
@pytest.mark.parametrize("epoch, start", [(0, 0), (2, 7)])
def test_a_gap_before_the_first_batch_is_of_epoch_0_if_the_batch_is(epoch: int, start: int) -> None:
    """A power cut took the epochs of a compacted log. Its leader copied the same remote segments again and again, as no
    epoch of its own covered their first offset."""
    rig = Rig()
    log = rig.open()
    log.append_as_follower(bytearray(numbered(7, leader_epoch=epoch)), NOW_MS, 3, [(epoch, 0)])
    assert log.epochs.entries() == [(epoch, 0)]
    log.close()
    # What a recovery finds in the batches alone.
    write_durably(rig.disk, f"{log.directory}/leader-epoch-checkpoint", format_epochs([(epoch, 7)]))
    rig.start()
    assert rig.open(clean_shutdown=True, recovery_point=8).epochs.entries() == [(epoch, start)]


def test_the_double_failure_of_kip_101() -> None:
    """Two followers wrote different records in turn as leaders; the epochs show where they diverge."""
    a = LeaderEpochs([(1, 0), (3, 10)])
    b = LeaderEpochs([(1, 0), (2, 10)])
    assert a.end_offset_for(b.latest_epoch, 14) == (1, 10), "cut at 10, though both logs are longer"
    b.truncate_from_end(10)
    assert b.entries() == [(1, 0)]


def test_an_assigned_epoch_removes_contradicting_ones() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 10), (4, 20)])
    assert epochs.assign(5, 15)
    assert epochs.entries() == [(1, 0), (2, 10), (5, 15)]
    assert not epochs.assign(5, 30), "it began before"
    assert epochs.assign(5, 12)
    assert epochs.entries() == [(1, 0), (2, 10), (5, 12)]
    assert epochs.assign(6, 12), "nothing was written in 5"
    assert epochs.entries() == [(1, 0), (2, 10), (6, 12)]
    with pytest.raises(ValueError, match="epoch -1"):
        epochs.assign(-1, 0)


def test_questions_to_an_empty_history() -> None:
    epochs = LeaderEpochs()
    assert epochs.latest_epoch == -1
    assert epochs.end_offset_for(-1, 7) == (-1, -1)
    assert epochs.end_offset_for(3, 7) == (-1, -1)
    assert epochs.epoch_for_offset(0) == -1


@pytest.mark.feature("ST-11", "ST-20")
def test_checkpoints_are_kafkas_text() -> None:
    assert format_epochs([(0, 0), (3, 42)]) == b"0\n2\n0 0\n3 42\n"
    assert format_offsets({("b", 1): 7, ("a", 0): 5}) == b"0\n2\na 0 5\nb 1 7\n"
    assert parse_offsets(b"0\n1\norders  3   12\n", "x") == {("orders", 3): 12}
    assert parse_offsets(b"", "x") == parse_offsets(b"0\n", "x") == {}


@pytest.mark.feature("ST-11")
@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"1\n0\n", "cp: version 1, expected 0"),
        (b"x\n0\n", "cp line 1: not a number: 'x'"),
        (b"0\n2\na 0 5\n", "cp: 1 entries; the header says 2"),
        (b"0\n1\na 0\n", "cp line 3: expected 3 fields: 'a 0'"),
        (b"0\n1\na 0 x\n", "cp line 3: not a number: 'x'"),
        (b"\xff\xfe", "cp: not text"),
    ],
)
def test_a_malformed_checkpoint_is_reported_in_one_line(data: bytes, problem: str) -> None:
    with pytest.raises(MalformedCheckpoint) as raised:
        parse_offsets(data, "cp")
    assert str(raised.value).startswith(problem)


@pytest.mark.feature("ST-11")
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_checkpoint_is_old_or_new_whenever_the_crash_comes(power_cut: bool) -> None:
    for crash_at in range(1, 12):
        for seed in range(10):
            rig = Rig(seed=seed)
            write_offsets(rig.disk, "/logs/cp", {("a", 0): 1})
            rig.process.dies_at_change = rig.process.changes + crash_at
            rig.process.dies_by_power_cut = power_cut
            try:
                write_offsets(rig.disk, "/logs/cp", {("a", 0): 2, ("b", 0): 3})
                written = True
            except BaseException as error:
                assert type(error).__name__ == "NodeKilled"
                written = False
            rig.power_cut() if power_cut else rig.kill()
            found = read_offsets(rig.disk, "/logs/cp")
            assert found == {("a", 0): 2, ("b", 0): 3} or (not written and found == {("a", 0): 1})


def test_a_leftover_of_an_interrupted_write_is_overwritten() -> None:
    rig = Rig()
    rig.disk.open("/logs/cp.tmp", create=True).pwrite(b"x" * 1000, 0)
    write_durably(rig.disk, "/logs/cp", b"short")
    assert rig.disk.read_bytes("/logs/cp") == b"short"
