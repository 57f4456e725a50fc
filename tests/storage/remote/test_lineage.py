"""Remote segments beside the leader epochs of a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.remote.lineage import belongs_to, epochs_between, first_readable, last_copied, proven_end
from tests.storage.remote.kafkas import epochs_in, lines
from tests.storage.remote.remote_rig import DELETING, copied, moved, segment

pytestmark = pytest.mark.feature("TS-07")


def test_a_segment_belongs_to_a_log_as_kafka_judges() -> None:
    judged = {"true": 0, "false": 0}
    for line in lines("within"):
        end, own, log_end, epochs, answer = line.split(" ")
        own_epochs = epochs_in(own)
        found = belongs_to(
            segment(1, min(own_epochs.values()), int(end), own_epochs),
            sorted(epochs_in(epochs).items()),
            int(log_end),
        )
        assert str(found).lower() == answer, line
        judged[answer] += 1
    assert min(judged.values()) > 200


def test_a_segment_has_the_epochs_of_its_offsets() -> None:
    epochs = [(2, 0), (5, 40), (6, 100)]
    assert epochs_between(epochs, 0, 40) == ((2, 0),)
    assert epochs_between(epochs, 10, 41) == ((2, 10), (5, 40))
    assert epochs_between(epochs, 40, 200) == ((5, 40), (6, 100))
    assert epochs_between(epochs, 150, 200) == ((6, 150),)
    assert epochs_between([(6, 100)], 50, 99) == ()


def test_the_last_copied_offset_is_one_of_the_log() -> None:
    """Epoch 1 ended at offset 80 in the log of the leader: what a deposed leader copied behind it does not count."""
    segments = copied(segment(1, 0, 49, {0: 0}), segment(2, 50, 99, {1: 50}))
    assert last_copied(LeaderEpochs([(0, 0), (1, 50)]), 300, segments) == 99
    assert last_copied(LeaderEpochs([(0, 0), (1, 50), (2, 80)]), 300, segments) == 79
    assert last_copied(LeaderEpochs([(0, 0), (2, 50)]), 300, segments) == 49
    assert last_copied(LeaderEpochs([(2, 0)]), 300, segments) == -1


def test_records_are_proven_remote_up_to_the_first_hole() -> None:
    epochs = LeaderEpochs([(0, 0), (1, 50), (2, 80)])
    segments = copied(
        segment(1, 0, 49, {0: 0}),
        segment(2, 50, 99, {1: 50}),
        segment(3, 80, 119, {2: 80}),
        segment(4, 120, 129, {2: 120}),
    )
    assert proven_end(epochs, 300, segments, 0) == 130
    assert proven_end(epochs, 100, segments, 0) == 100
    assert proven_end(epochs, 300, segments, 130) == 130
    assert segments.apply(moved(2, DELETING))
    assert proven_end(epochs, 300, segments, 0) == 50
    assert last_copied(epochs, 300, segments) == 129
    assert proven_end(LeaderEpochs(), 300, segments, 0) == 0


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=8), st.integers(0, 40))
def test_all_before_the_proven_end_is_readable_and_the_next_offset_is_not(
    ranges: list[tuple[int, int]], start: int
) -> None:
    segments = copied(*(segment(number, first, first + count - 1) for number, (first, count) in enumerate(ranges)))
    end = proven_end(LeaderEpochs([(0, 0)]), 60, segments, start)
    assert all(segments.segment_for(0, offset) is not None for offset in range(start, end))
    assert segments.segment_for(0, end) is None


def test_the_first_readable_offset_is_one_of_the_oldest_epoch_with_segments() -> None:
    segments = copied(segment(1, 0, 49, {0: 0}), segment(2, 50, 99, {1: 50}))
    assert first_readable([(0, 0), (1, 50)], segments) == 0
    assert first_readable([(1, 60)], segments) == 50
    assert first_readable([(4, 60)], segments) is None
