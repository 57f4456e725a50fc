"""Remote segments beside the histories of all leaders, offset by offset.

The leader of each epoch begins with a prefix of an earlier log, writes, and copies some ranges of its log. Records of
the same offset and epoch are the same, in whatever log they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.runtime.at_once import at_once
from barnabas.settings.topic import TopicConfig
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.remote.compacted_copy import CompactedCopy, decode_copy
from barnabas.storage.remote.lineage import belongs_to, epochs_between, first_readable, last_copied, proven_end
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.recleaning import LogState, Row, RowPart, epochs_of, groups_of, readable_row
from barnabas.storage.remote.segment import RemoteSegment, SegmentUpdate
from tests.examples import examples
from tests.storage.remote.remote_rig import FINISHED, KEY, copied, segment, segment_id

LONGEST = 14
Log = list[int]
"""The leader epoch of each offset."""


def epochs_in(log: Log, start: int, end: int) -> dict[int, int]:
    """Epoch to its first offset in [start, end)."""
    found: dict[int, int] = {}
    for offset in range(start, end):
        found.setdefault(log[offset], offset)
    return found


@st.composite
def histories(draw: st.DrawFn) -> list[Log]:
    """The logs of all leaders, of which the last one leads now."""
    logs: list[Log] = [[]]
    for epoch in range(draw(st.integers(1, 4))):
        before = draw(st.sampled_from(logs))
        kept = before[: draw(st.integers(max(0, len(before) - 4), len(before)))]
        logs.append(kept + [epoch] * draw(st.integers(0 if kept else 1, LONGEST - len(kept))))
    return logs[1:]


@dataclass
class Copy:
    number: int
    log: Log
    start: int
    end: int
    """Exclusive."""

    @property
    def segment(self) -> RemoteSegment:
        return segment(self.number, self.start, self.end - 1, epochs_in(self.log, self.start, self.end))


def some_copies(draw: Any, logs: list[Log]) -> list[Copy]:
    found = []
    for number in range(draw(st.integers(0, 6))):
        log = draw(st.sampled_from([each for each in logs if each]))
        start = draw(st.integers(0, len(log) - 1))
        found.append(Copy(number, log, start, draw(st.integers(start + 1, len(log)))))
    return found


@pytest.mark.feature("TS-02", "TS-06", "TS-07")
@settings(max_examples=examples(200))
@given(st.data(), histories())
def test_a_log_is_remote_as_far_as_its_leaders_have_copied_it(data: st.DataObject, logs: list[Log]) -> None:
    draw, own = data.draw, logs[-1]
    copies = some_copies(draw, logs)
    known = copied(*(each.segment for each in copies))
    start = draw(st.integers(0, len(own) - 1))
    entries = sorted(epochs_in(own, start, len(own)).items())
    epochs = LeaderEpochs(entries)
    if draw(st.booleans()):
        epochs.assign(len(logs), len(own))  # of a leader that has written nothing
    end = len(own)
    has = {(offset, each.log[offset]) for each in copies for offset in range(each.start, each.end)}

    for each in copies:
        if each.end > start:
            is_own = each.end <= end and each.log[each.end - 1] == own[each.end - 1]
            assert belongs_to(each.segment, entries, end) == is_own, each
    assert not copies or not belongs_to(copies[0].segment, [], end)

    newest = [epoch for epoch, _ in reversed(entries) if any(epoch == its for _, its in has)]
    expected = -1
    if newest:
        last = max(offset for offset, epoch in has if epoch == newest[0])
        expected = min(last, max(offset for offset in range(end) if own[offset] == newest[0]))
    assert last_copied(epochs, end, known) == expected

    offset = draw(st.integers(start, end))
    proven = offset
    while proven < end and (proven, own[proven]) in has:
        proven += 1
    assert proven_end(epochs, end, known, offset) == proven
    some = proven_end(epochs, end, known, offset, 1)
    assert offset <= some <= proven and (some > offset) == (proven > offset)
    if start:
        assert proven_end(epochs, end, known, start - 1) == start - 1, "before the log's first epoch nothing is known"

    oldest = [epoch for epoch, _ in entries if any(epoch == its for _, its in has)]
    readable = min((at for at, epoch in has if oldest and epoch == oldest[0]), default=None)
    assert first_readable(entries, known) == readable

    first = draw(st.integers(start, end))
    after = draw(st.integers(first, end))
    between = tuple(sorted(epochs_in(own, first, after).items()))
    assert epochs_between(entries, first, after) == between or first == after


@pytest.mark.feature("TS-05", "CR-04")
@settings(max_examples=examples(150))
@given(st.data(), histories())
def test_a_copy_is_clean_as_far_as_the_log_is_that_of_its_leader(data: st.DataObject, logs: list[Log]) -> None:
    own = logs[-1]
    start = data.draw(st.integers(0, len(own) - 1))
    epochs = LeaderEpochs(sorted(epochs_in(own, start, len(own)).items()))
    made_in = data.draw(st.integers(0, own[-1] + 1))
    cleaned_to = data.draw(st.integers(0, LONGEST + 2))
    later = [offset for offset in range(start, len(own)) if own[offset] > made_in]
    copy = CompactedCopy(made_in, cleaned_to)
    assert copy.valid_to(epochs, len(own)) == min(cleaned_to, later[0] if later else len(own))
    encoded = copy.encode()
    assert decode_copy(encoded) == copy
    for other in (None, b"", encoded[:-1], encoded + b"\0", b"\x02" + encoded[1:]):
        assert decode_copy(other) is None


@pytest.mark.feature("TS-05", "CR-04")
@settings(max_examples=examples(200))
@given(st.data(), histories())
def test_a_row_begins_at_the_log_start_and_has_no_gap(data: st.DataObject, logs: list[Log]) -> None:
    """The copies lie behind each other; some are of logs that did not survive, and some are missing."""
    draw, own = data.draw, logs[-1]
    known, chain, offset = PartitionSegments(KEY), list[tuple[Copy, int]](), 0
    while offset < len(own):
        end = draw(st.integers(offset + 1, len(own)))
        log = draw(st.sampled_from([own, own, *(each for each in logs if len(each) >= end)]))
        copy, cleaned_to = Copy(len(chain), log, offset, end), draw(st.integers(0, LONGEST))
        begun = replace(copy.segment, custom_metadata=CompactedCopy(own[-1], cleaned_to).encode(), size_bytes=end)
        known.apply(begun)
        if draw(st.integers(0, 5)):
            known.apply(SegmentUpdate(KEY, begun.segment_id, 0, FINISHED, 1, begun.custom_metadata))
            chain.append((copy, cleaned_to))
        else:
            chain.append((copy, -1))  # it is still being copied
        offset = end
    start = draw(st.integers(0, len(own) - 1))
    log_end = draw(st.sampled_from([len(own), len(own) + 1]))
    log = own + [own[-1]] * (log_end - len(own))
    epochs = LeaderEpochs(sorted(epochs_in(log, start, log_end).items()))
    row = at_once(readable_row(known, LogState(epochs, start, log_end)))

    before_foreign = list[tuple[Copy, int]]()
    for copy, cleaned_to in (each for each in chain if each[0].end > start):
        if cleaned_to < 0 or copy.log[copy.end - 1] != own[copy.end - 1]:
            break
        before_foreign.append((copy, cleaned_to))
    if any(copy.log is not own for copy, _ in chain):
        # Epochs are gone through in order: a foreign copy of an earlier epoch ends the row even before its own offset.
        before_foreign = before_foreign[: len(row.parts)]
    expected = [copy for copy, _ in before_foreign]
    clean = min([log_end, *(cleaned_to for _, cleaned_to in before_foreign)])
    assert [(part.segment.segment_id, part.end_offset) for part in row.parts] == [
        (segment_id(copy.number), copy.end) for copy in expected
    ]
    assert row.cleaned_to == (clean if expected else 0)
    assert row.end_offset == (expected[-1].end if expected else 0)
    dirty = [copy.end for copy in expected if copy.end > clean]
    assert [part.end_offset for part in row.dirty_parts] == dirty
    ratio = sum(dirty) / sum(copy.end for copy in expected) if expected else 0.0
    assert row.dirty_ratio == ratio
    limit = draw(st.sampled_from([0.0, ratio, 0.5]))
    config = TopicConfig(min_cleanable_dirty_ratio=limit)
    assert row.is_worth_it(config) == (bool(dirty) and ratio > limit)


@pytest.mark.feature("TS-05", "CR-04")
@settings(max_examples=examples(200))
@given(st.data())
def test_groups_are_as_large_as_a_segment_may_be(data: st.DataObject) -> None:
    """Segments that overlap are never apart."""
    draw = data.draw
    far = (1 << 31) - 1
    parts, start = list[RowPart](), 0
    for number in range(draw(st.integers(0, 6))):
        first = max(0, start - draw(st.sampled_from([0, 0, 0, 1])))
        end = start + draw(st.sampled_from([1, 5, far - 5, far - 1]))
        epoch = draw(st.integers(0, 3))
        made = segment(number, first, end, {epoch: first, epoch + 2: end}, size_bytes=draw(st.integers(1, 5)))
        parts.append(RowPart(made, end + 1))
        start = end + 1
    limit = draw(st.integers(1, 9))
    groups = groups_of(parts, limit)
    assert [part for group in groups for part in group] == parts and all(groups)

    def fits(group: list[RowPart]) -> bool:
        size = sum(part.segment.size_bytes for part in group)
        return size <= limit and group[-1].segment.end_offset - group[0].segment.start_offset <= far

    for place, group in enumerate(groups):
        overlaps = [one.segment.end_offset >= two.segment.start_offset for one, two in pairwise(group)]
        for count in range(1, len(group)):
            assert overlaps[count - 1] or fits([*group[: count + 1]]), "why was it added?"
        if place:
            before = [*groups[place - 1], group[0]]
            assert before[-2].segment.end_offset < group[0].segment.start_offset
            assert not fits(before), "it had room"
        starts: dict[int, int] = {}
        for part in group:
            for epoch, offset in part.segment.leader_epochs:
                starts.setdefault(epoch, offset)
        assert dict(epochs_of(group)) == starts and list(epochs_of(group)) == sorted(starts.items())
    assert Row().end_offset == 0
