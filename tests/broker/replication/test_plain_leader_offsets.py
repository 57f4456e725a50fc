"""Offsets and epochs that a follower asks its leader for, beside a plain leader: a table of what it knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.replication.follower import BoundsWanted, EpochWanted
from barnabas.broker.replication.leader_epochs import ask_epochs
from barnabas.broker.replication.leader_offsets import EARLIEST, LATEST, ask_offsets, ask_tiers
from barnabas.broker.replication.tier_start import TierBounds, TierWanted
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.examples import examples

NODE, TIMEOUT_MS = 7, 1_234
EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD = -4, -6
KINDS = (LATEST, EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD)
PLACES = [("orders", 0), ("orders", 3), ("stock", 0)]


class Followed(NamedTuple):
    topic: str
    index: int


class Answer(NamedTuple):
    """The answer about one partition; -1 as an offset: there is none."""

    error: int
    offset: int
    epoch: int

    @property
    def counts(self) -> bool:
        return self.error == 0 and self.offset >= 0


ANSWER = st.builds(Answer, st.sampled_from([0, 0, 0, 6]), st.integers(-1, 3), st.integers(-1, 2))


@dataclass
class Leader:
    """It leaves out the partitions that it does not know."""

    answers: dict[tuple[tuple[str, int], int], Answer]
    asked: list[tuple[tuple[str, int], int, int]] = field(default_factory=list)
    """(partition, timestamp or epoch, current leader epoch)"""

    async def call(self, request: Any, *, timeout_ms: float) -> Any:
        assert (request.replica_id, timeout_ms) == (NODE, TIMEOUT_MS)
        if isinstance(request, ListOffsetsRequest):
            return self.list_offsets(request)
        return self.epoch_ends(request)

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        assert request.timeout_ms == TIMEOUT_MS and request.topics
        assert len({topic.name for topic in request.topics}) == len(request.topics)
        response = ListOffsetsResponse()
        for topic in request.topics:
            answers = ListOffsetsTopicResponse(name=topic.name)
            response.topics.append(answers)
            for asked in topic.partitions:
                place = (topic.name, asked.partition_index)
                self.asked.append((place, asked.timestamp, asked.current_leader_epoch))
                known = self.answers.get((place, asked.timestamp))
                if known is not None:
                    answers.partitions.append(
                        ListOffsetsPartitionResponse(
                            partition_index=place[1],
                            error_code=known.error,
                            offset=known.offset,
                            leader_epoch=known.epoch,
                        )
                    )
        return response

    def epoch_ends(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        response = OffsetForLeaderEpochResponse()
        for topic in request.topics:
            answers = OffsetForLeaderTopicResult(topic=topic.topic)
            response.topics.append(answers)
            for asked in topic.partitions:
                place = (topic.topic, asked.partition)
                self.asked.append((place, asked.leader_epoch, asked.current_leader_epoch))
                known = self.answers.get((place, LATEST))
                if known is not None:
                    answers.partitions.append(
                        EpochEndOffset(
                            partition=place[1],
                            error_code=known.error,
                            leader_epoch=known.epoch,
                            end_offset=known.offset,
                        )
                    )
        return response


@st.composite
def leaders(draw: st.DrawFn) -> Leader:
    known = {(place, kind): draw(st.none() | ANSWER) for place in PLACES for kind in KINDS}
    return Leader({key: answer for key, answer in known.items() if answer is not None})


SOME = st.lists(st.sampled_from(PLACES), unique=True)
EPOCHS = st.fixed_dictionaries({place: st.integers(0, 9) for place in PLACES})


@pytest.mark.feature("RE-16")
@settings(max_examples=examples(60))
@given(leaders(), SOME, EPOCHS, st.sampled_from(KINDS))
def test_offsets(leader: Leader, places: list[tuple[str, int]], epochs: dict[tuple[str, int], int], kind: int) -> None:
    wanted = [(Followed(*place), BoundsWanted(epochs[place])) for place in places]
    found = trio.run(ask_offsets, leader, NODE, wanted, kind, TIMEOUT_MS)
    assert sorted(leader.asked) == sorted((place, kind, epochs[place]) for place in places)
    answers = {place: leader.answers.get((place, kind)) for place in places}
    assert found == {place: (it.offset, it.epoch) for place, it in answers.items() if it is not None and it.counts}


@pytest.mark.feature("TS-08")
@settings(max_examples=examples(150))
@given(leaders(), SOME, EPOCHS, st.data())
def test_where_tiers_begin(
    leader: Leader, places: list[tuple[str, int]], epochs: dict[tuple[str, int], int], data: st.DataObject
) -> None:
    """A follower begins behind what is copied, if it may and the leader knows that, or where the leader's disk begins;
    that is the same as long as the whole log is on its disk."""
    behind = {place: data.draw(st.booleans()) for place in places}
    wanted = {place: (Followed(*place), TierWanted(epochs[place], behind[place])) for place in places}
    found = trio.run(ask_tiers, leader, NODE, wanted, TIMEOUT_MS)
    expected = {}
    for place in places:
        start, local, pending = (
            answer if (answer := leader.answers.get((place, kind))) is not None and answer.counts else None
            for kind in KINDS[1:]
        )
        begin = pending if behind[place] else local
        is_all_local = start is not None and local is not None and local.offset == start.offset
        if begin is None and is_all_local:
            begin = local
        if start is not None and begin is not None:
            expected[place] = TierBounds(start.offset, begin.offset, begin.epoch)
    assert found == expected
    copied = [place for place in places if behind[place]]
    asked = [(place, kind, epochs[place]) for kind in KINDS[1:3] for place in places]
    asked += [(place, EARLIEST_PENDING_UPLOAD, epochs[place]) for place in copied]
    assert sorted(leader.asked) == sorted(asked)


@pytest.mark.feature("RE-12")
@settings(max_examples=examples(60))
@given(leaders(), SOME, EPOCHS)
def test_epochs(leader: Leader, places: list[tuple[str, int]], epochs: dict[tuple[str, int], int]) -> None:
    wanted = [(Followed(*place), EpochWanted(11, epochs[place])) for place in places]
    found = trio.run(ask_epochs, leader, NODE, wanted, TIMEOUT_MS)
    assert sorted(leader.asked) == sorted((place, epochs[place], 11) for place in places)
    answers = {place: leader.answers.get((place, LATEST)) for place in places}
    assert found == {
        place: (it.epoch, it.offset) for place, it in answers.items() if it is not None and it.error == 0
    }
