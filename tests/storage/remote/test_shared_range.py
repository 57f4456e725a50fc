"""Offsets that a remote segment shares with a log, beside a comparison of every offset."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.remote.shared_range import shared_end
from tests.examples import examples
from tests.storage.remote.remote_rig import segment

LONGEST = 12


def entries(epochs: list[int], start: int, end: int) -> dict[int, int]:
    """Epoch to its first offset in [start, end)."""
    found: dict[int, int] = {}
    for offset in range(start, end):
        found.setdefault(epochs[offset], offset)
    return found


def history(draw: st.DrawFn, before: list[int]) -> list[int]:
    """The epoch of each offset, which goes on from `before`."""
    found = list(before)
    for step in draw(st.lists(st.sampled_from([0, 0, 0, 1, 2]), min_size=1, max_size=LONGEST - len(before))):
        found.append((found[-1] if found else 0) + step)
    return found


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two logs that have parted, or one is longer."""
    common = history(draw, [])[: draw(st.integers(0, LONGEST - 1))]
    return history(draw, common), history(draw, common)


@pytest.mark.feature("TS-06")
@settings(max_examples=examples(300))
@given(st.data(), two_logs())
def test_a_segment_is_shared_up_to_the_first_offset_of_another_epoch(
    data: st.DataObject, logs: tuple[list[int], list[int]]
) -> None:
    copied, own = logs
    start = data.draw(st.integers(0, len(copied) - 1))
    end = data.draw(st.integers(start + 1, len(copied)))
    same = [at for at in range(start, min(end, len(own))) if copied[at] == own[at]]
    if not same:
        return
    offset = data.draw(st.sampled_from(same))
    log_start = data.draw(st.integers(0, offset))
    epochs = LeaderEpochs(sorted(entries(own, log_start, len(own)).items()))
    if data.draw(st.booleans()):
        epochs.assign(own[-1] + 1, len(own))  # of a leader that has written nothing
    parted = [at for at in range(offset, end) if at >= len(own) or copied[at] != own[at]]
    remote = segment(1, start, end - 1, entries(copied, start, end))
    assert shared_end(remote, offset, epochs, len(own)) == (parted[0] if parted else end)
