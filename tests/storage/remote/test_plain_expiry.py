"""Remote segments that a leader deletes, beside the rules, one after the other, for all segments there are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.storage.remote.expiry import ExpiryFacts, expire
from barnabas.storage.remote.lineage import belongs_to
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import RemoteSegment, SegmentUpdate
from tests.examples import examples
from tests.storage.remote.remote_rig import DELETING, FINISHED, KEY, STARTED, segment

ABANDONED_AFTER_MS = 3
SMALL = st.integers(0, 6)


@st.composite
def copies(draw: st.DrawFn) -> PartitionSegments:
    """Segments of several leaders, some of them being copied or deleted."""
    known = PartitionSegments(KEY)
    known.is_complete = True
    follows = 0
    for number in range(draw(st.integers(0, 6))):
        start = draw(st.sampled_from([follows, follows, follows, draw(st.integers(0, 20))]))
        end = start + draw(st.integers(1, 6))
        first = draw(st.integers(0, 3))
        epochs = {first: start}
        if draw(st.booleans()):
            epochs[first + draw(st.integers(1, 2))] = draw(st.integers(start + 1, end))
        follows = end + 1
        begun = segment(number, start, end, epochs, size_bytes=draw(SMALL), time_ms=draw(st.integers(-1, 5)))
        known.apply(begun)
        for state in draw(st.sampled_from([[], [FINISHED], [FINISHED], [FINISHED], [FINISHED, DELETING], [DELETING]])):
            known.apply(SegmentUpdate(KEY, begun.segment_id, 0, state, 1))
    return known


@st.composite
def facts(draw: st.DrawFn) -> ExpiryFacts:
    starts = sorted(draw(st.sets(st.integers(0, 20), max_size=4)))
    numbers = sorted(draw(st.sets(st.integers(0, 4), min_size=len(starts), max_size=len(starts))))
    log_start = starts[0] if starts else draw(st.integers(0, 20))
    return ExpiryFacts(
        epochs=list(zip(numbers, starts, strict=True)),
        log_start_offset=log_start,
        log_end_offset=draw(st.integers(max([log_start, *starts]), 40)),
        only_local_bytes=draw(SMALL),
        retention_ms=draw(st.integers(-1, 6)),
        retention_bytes=draw(st.sampled_from([-1, 0, 3, 8, 20])),
        now_ms=draw(SMALL),
        being_copied=[number.to_bytes(16, "big") for number in draw(st.sets(st.integers(0, 5), max_size=2))],
    )


class Rules:
    """Which of all segments each rule deletes."""

    def __init__(self, known: PartitionSegments, it: ExpiryFacts) -> None:
        self.known, self.it = known, it
        self.log_start = it.log_start_offset
        self.deleted: list[bytes] = []
        self.looks: list[int] = []
        """The number of segments in each walk."""
        ordered = [each for epoch, _ in it.epochs for each in known.referenced(epoch)]
        self.readable = list({each.segment_id: each for each in ordered}.values())
        """From the front of the log."""
        self.from_the_front()
        self.front = [*self.deleted]
        self.given_up()
        self.covered()
        self.before_the_log()

    def add(self, each: RemoteSegment) -> None:
        if each.segment_id not in self.deleted:
            self.deleted.append(each.segment_id)

    def is_below(self, each: RemoteSegment) -> bool:
        return each.leader_epochs[-1][0] <= self.it.epochs[0][0] and each.end_offset < self.it.log_start_offset

    def is_member(self, each: RemoteSegment) -> bool:
        return belongs_to(each, self.it.epochs, self.it.log_end_offset)

    def is_old(self, each: RemoteSegment) -> bool:
        oldest_ms = self.it.now_ms - self.it.retention_ms
        return self.it.retention_ms >= 0 and oldest_ms >= 0 and each.max_timestamp_ms < oldest_ms

    def from_the_front(self) -> None:
        it = self.it
        counted = [each for each in self.readable if self.is_member(each) and not self.is_below(each)]
        surplus = it.only_local_bytes + sum(each.size_bytes for each in counted) - it.retention_bytes
        surplus = max(surplus, 0) if it.retention_bytes >= 0 else 0
        if 0 <= it.retention_bytes < it.only_local_bytes + self.known.finished_bytes:
            self.looks.append(len(self.readable))
        self.looks.append(0)
        for each in self.readable:
            self.looks[-1] += 1
            if self.is_below(each):
                self.add(each)
            elif self.is_member(each):
                if not self.is_old(each) and not 0 < each.size_bytes <= surplus:
                    return
                self.add(each)
                self.log_start = max(self.log_start, each.end_offset + 1)
                surplus = max(0, surplus - each.size_bytes)

    def given_up(self) -> None:
        for each in self.known.all():
            is_late = self.it.now_ms - each.event_timestamp_ms > ABANDONED_AFTER_MS
            is_abandoned = each.state is STARTED and is_late and each.segment_id not in self.it.being_copied
            if each.state is DELETING or is_abandoned:
                self.add(each)

    def covered(self) -> None:
        """Copies that another one covers."""
        for epoch, _ in self.it.epochs:
            for each in self.known.unreferenced(epoch):
                if each.state is FINISHED and (each.end_offset < self.log_start or self.is_old(each)):
                    self.add(each)

    def before_the_log(self) -> None:
        """All that leaders before its first epoch have copied."""
        if self.it.epochs:
            for epoch in range(self.it.epochs[0][0]):
                self.looks.append(len([*self.known.referenced(epoch), *self.known.unreferenced(epoch)]))
            for each in self.known.all():
                if each.leader_epochs[-1][0] < self.it.epochs[0][0] and each.state is not STARTED:
                    self.add(each)


@pytest.mark.feature("TS-07")
@settings(max_examples=examples(200))
@given(copies(), facts(), st.integers(1, 3))
def test_segments_are_deleted_by_the_rules_in_short_steps(known: PartitionSegments, it: ExpiryFacts, step: int) -> None:
    rules = Rules(known, it)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("barnabas.storage.remote.expiry.ABANDONED_AFTER_MS", ABANDONED_AFTER_MS)
        patch.setattr("barnabas.storage.remote.expiry.SEGMENTS_IN_A_STEP", step)
        steps, pauses = expire(known, it), 0
        while True:
            try:
                next(steps)
                pauses += 1
            except StopIteration as ended:
                expiry = ended.value
                break
    assert {*expiry.delete} == {*rules.deleted}
    assert [*expiry.delete][: len(rules.front)] == rules.front, "from the front of the log"
    assert expiry.log_start_offset == rules.log_start
    assert expiry.delete_bytes == sum(each.size_bytes for each in known.all() if each.segment_id in rules.deleted)
    assert pauses == 1 + sum(count // step for count in rules.looks), "a pause after so many, and one behind the front"
