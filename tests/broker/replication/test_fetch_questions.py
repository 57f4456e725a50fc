"""Questions that a fetcher asks a leader before it fetches, and states that it has read from remote segments."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.replication.follower import BoundsWanted, EpochWanted, FetchWanted
from barnabas.broker.replication.tier_start import RemoteState, StateWanted, TierBounds, TierWanted
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest
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
from barnabas.runtime.at_once import at_once
from tests.broker.replication.test_fetch_requests import TOPIC_ID, fetcher_of
from tests.examples import examples

BACKOFF_MS = 7
OFFSETS = {-1: 90, -2: 5, -4: 40, -6: 60}
"""By the timestamp of a request: what the leader answers."""
REFUSED = 1
"""The partition that it answers with an error."""


class Asking:
    """A partition whose follower wants one thing until it is answered, and then fetches."""

    def __init__(self, index: int, wanted: Any) -> None:
        self.topic, self.index, self.key = "t", index, (TOPIC_ID, index)
        self.wanted: Any = wanted
        self.answers: list[tuple[Any, Any]] = []
        self.backoffs: list[int] = []
        self.follower = self
        self.retry_at_ms: int | None = None

    def next(self, now_ms: int) -> Any:
        """Implements the follower, as the next one does."""
        return self.wanted

    def back_off(self, now_ms: int) -> None:
        self.wanted, self.retry_at_ms = None, now_ms + BACKOFF_MS

    def answered(self, asked: Any, answer: Any) -> None:
        self.answers.append((asked, answer))
        self.wanted = FetchWanted(1, 5, 0, 0)

    bounds_answered = epoch_answered = tier_answered = state_built = answered


class Leader:
    """Answers any question, and keeps the fetches that it gets."""

    def __init__(self, before_answer: Callable[[], None]) -> None:
        self.before_answer = before_answer
        self.timestamps: list[int] = []
        self.fetched = trio.Event()
        self.fetches: list[FetchRequest] = []

    async def call(self, request: Any, *, timeout_ms: float) -> Any:
        assert timeout_ms == 30_000 and request.replica_id == 2
        self.before_answer()
        if isinstance(request, ListOffsetsRequest):
            response = ListOffsetsResponse()
            for topic in request.topics:
                answers = ListOffsetsTopicResponse(name=topic.name)
                response.topics.append(answers)
                for asked in topic.partitions:
                    self.timestamps.append(asked.timestamp)
                    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index, leader_epoch=3)
                    answer.offset = OFFSETS[asked.timestamp]
                    answer.error_code = self.error_of(asked.partition_index)
                    answers.partitions.append(answer)
            return response
        assert isinstance(request, OffsetForLeaderEpochRequest)
        [wanted] = request.topics
        ends = [
            EpochEndOffset(error_code=self.error_of(it.partition), partition=it.partition, leader_epoch=2, end_offset=8)
            for it in wanted.partitions
        ]
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=ends)])

    @staticmethod
    def error_of(index: int) -> int:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if index == REFUSED else 0

    async def converse(self, request: FetchRequest, answered: Callable[[Any], Any], *, timeout_ms: float) -> None:
        self.fetches.append(request)
        self.fetched.set()
        await trio.sleep_forever()

    def close(self) -> None:
        pass


@pytest.mark.feature("RE-16", "TS-08")
@pytest.mark.parametrize(
    ("wanted", "answer", "timestamps"),
    [
        (BoundsWanted(1), (5, 90), {-1, -2}),
        (EpochWanted(1, 2), (2, 8), set()),
        (TierWanted(1, behind_copied=False), TierBounds(5, 40, 3), {-2, -4}),
        (TierWanted(1, behind_copied=True), TierBounds(5, 60, 3), {-2, -4, -6}),
    ],
)
async def test_an_answer_reaches_the_partitions_that_still_follow_and_then_they_fetch(
    wanted: Any, answer: Any, timestamps: set[int], autojump_clock: trio.testing.MockClock
) -> None:
    """One is answered, one with an error, one stops following meanwhile, and one has nothing to ask."""
    asking = [Asking(0, wanted), Asking(REFUSED, wanted), Asking(2, wanted), Asking(3, FetchWanted(1, 5, 0, 0))]
    leader = Leader(before_answer=lambda: fetcher.remove(cast(Any, asking[2])))
    fetcher = fetcher_of(cast(Any, leader))
    for partition in asking:
        fetcher.add(cast(Any, partition))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher.run)
        with trio.fail_after(5):
            await leader.fetched.wait()
        nursery.cancel_scope.cancel()
    assert [each.answers for each in asking] == [[(wanted, answer)], [(wanted, None)], [], []]
    assert set(leader.timestamps) == timestamps
    assert [it.partition for it in leader.fetches[0].topics[0].partitions] == [3, 0, 1], "questions come first"


STATES = [StateWanted(1, 0, offset, 0) for offset in (10, 20)]
BUILT = RemoteState(11, ((0, 0),), b"")


@pytest.mark.feature("TS-08")
@settings(max_examples=examples(100))
@given(st.data())
def test_a_state_is_read_once_and_reaches_the_partition_that_wants_it(data: st.DataObject) -> None:
    draw = data.draw
    fetcher = fetcher_of(cast(Any, SimpleNamespace()))
    asked: list[tuple[Asking, StateWanted, Callable[[RemoteState | None], None]]] = []
    fetcher.remote_states = cast(Any, SimpleNamespace(ask=lambda *question: asked.append(question)))
    partitions = [Asking(index, None) for index in range(2)]
    followed: set[int] = set()
    building: dict[int, StateWanted] = {}
    expected: list[list[tuple[Any, Any]]] = [[], []]
    for _ in range(draw(st.integers(1, 12))):
        index = draw(st.integers(0, 1))
        partition = partitions[index]
        what = draw(st.sampled_from(["want", "want", "answer", "answer", "remove"]))
        before = len(asked)
        if what == "want":
            # A value of its own each time, as the follower makes it.
            partition.wanted = draw(st.sampled_from(STATES))._replace()
            fetcher.add(cast(Any, partition))
            followed.add(index)
        elif what == "remove":
            fetcher.remove(cast(Any, partition))
            followed.discard(index)
            building.pop(index, None)
        elif asked:
            which, wanted, answered = asked.pop(draw(st.integers(0, len(asked) - 1)))
            before, state = len(asked), draw(st.sampled_from([None, BUILT]))
            if building.get(which.index) is wanted:
                del building[which.index]
            if which.index in followed:
                expected[which.index].append((wanted, state))
            answered(state)
        at_once(fetcher._gather())
        if what == "want" and building.get(index) != partition.wanted:
            building[index] = asked[-1][1]
            assert len(asked) == before + 1 and asked[-1][:2] == (partition, partition.wanted)
        else:
            assert len(asked) == before
        assert [each.answers for each in partitions] == expected
        assert {key[1]: wanted for key, wanted in fetcher._building.items()} == building
        fetching = {key[1] for key in fetcher._session.wanted}
        assert fetching == {each for each in followed if isinstance(partitions[each].wanted, FetchWanted)}


@pytest.mark.feature("TS-08")
def test_a_broker_without_tiered_storage_tries_again_later() -> None:
    fetcher = fetcher_of(cast(Any, SimpleNamespace()))
    partition = Asking(0, STATES[0])
    fetcher.add(cast(Any, partition))
    at_once(fetcher._gather())
    assert partition.retry_at_ms == 1_000 + BACKOFF_MS
    assert fetcher._backing_off == {partition.key: partition.retry_at_ms}
    assert not fetcher._building and not fetcher._session.wanted
