"""The requests of one `LeaderFetcher`, with a channel and partitions of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from barnabas.broker.replication.fetcher import EARLIEST, FetchSettings, LeaderFetcher
from barnabas.broker.replication.follower import BoundsWanted, FetchWanted
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

TOPIC_ID = bytes(15) + b"\x07"
SETTINGS = FetchSettings(2, fetch_wait_max_ms=500, fetch_min_bytes=7, fetch_max_bytes=1_000)


class Followed:
    """A partition whose follower makes the given requests, one after the other, and then backs off."""

    def __init__(self, index: int, wanted: Iterator[Any], retry_at_ms: int | None = None) -> None:
        self.topic, self.index, self.key = "t", index, (TOPIC_ID, index)
        self.follower = SimpleNamespace(next=lambda now_ms: next(wanted, None), retry_at_ms=retry_at_ms)
        self.bounds: list[tuple[int, int] | None] = []

    def bounds_answered(self, asked: BoundsWanted, bounds: tuple[int, int] | None) -> None:
        self.bounds.append(bounds)


class Leader:
    """Keeps the fetches that it gets, and answers ListOffsets: partition 1 with an error, the others with 3 to 10."""

    def __init__(self, before_answer: Callable[[], None] = lambda: None) -> None:
        self.before_answer = before_answer
        self.fetches: list[FetchRequest] = []
        self.fetched = trio.Event()

    async def call(self, request: ListOffsetsRequest, *, timeout_ms: float) -> ListOffsetsResponse:
        response = ListOffsetsResponse()
        for topic in request.topics:
            answers = ListOffsetsTopicResponse(name=topic.name)
            response.topics.append(answers)
            for asked in topic.partitions:
                answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
                answer.offset = 3 if asked.timestamp == EARLIEST else 10
                if asked.partition_index == 1:
                    answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                answers.partitions.append(answer)
        self.before_answer()
        return response

    async def converse(self, request: FetchRequest, answered: Callable[[Any], Any], *, timeout_ms: float) -> None:
        self.fetches.append(request)
        self.fetched.set()
        await trio.sleep_forever()

    def close(self) -> None:
        pass


def fetcher_of(leader: Leader, now_ms: int = 1_000) -> LeaderFetcher:
    world = SimpleNamespace(monotonic=SimpleNamespace(now_ms=lambda: now_ms))
    return LeaderFetcher(1, cast(Any, world), SETTINGS, lambda: 102, lambda broker_id: leader)


async def first_fetch(*partitions: Followed) -> FetchRequest:
    leader = Leader()
    fetcher = fetcher_of(leader)
    for partition in partitions:
        fetcher.add(cast(Any, partition))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher.run)
        with trio.fail_after(5):
            await leader.fetched.wait()
        nursery.cancel_scope.cancel()
    return leader.fetches[0]


@pytest.mark.feature("RE-02")
async def test_a_fetch_carries_the_settings_and_the_registration_of_the_broker() -> None:
    request = await first_fetch(Followed(0, iter([FetchWanted(1, 5, 0, 0)])))
    assert (request.min_bytes, request.max_wait_ms) == (7, 500)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 102)
    assert request.topics[0].partitions[0].partition_max_bytes == 1_000


@pytest.mark.feature("RE-02")
@pytest.mark.parametrize(("retry_at_ms", "wait_ms"), [(1_040, 40), (9_000, 500)])
async def test_a_leader_does_not_delay_its_response_beyond_the_backoff_of_a_partition(
    retry_at_ms: int, wait_ms: int
) -> None:
    backing_off = Followed(1, iter([]), retry_at_ms)
    request = await first_fetch(Followed(0, iter([FetchWanted(1, 5, 0, 0)])), backing_off)
    assert request.max_wait_ms == wait_ms
    assert [it.partition for it in request.topics[0].partitions] == [0]


@pytest.mark.feature("RE-06")
async def test_bounds_of_a_leader_reach_the_partitions_that_still_follow_it() -> None:
    """One is answered, one with an error, and one stops following while the request is under way."""
    answered, refused, gone = (Followed(index, iter([BoundsWanted(1)])) for index in range(3))
    leader = Leader(before_answer=lambda: fetcher.remove(cast(Any, gone)))
    fetcher = fetcher_of(leader)
    for partition in (answered, refused, gone):
        fetcher.add(cast(Any, partition))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher.run)
        with trio.fail_after(5):
            while not refused.bounds:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert (answered.bounds, refused.bounds, gone.bounds) == ([(3, 10)], [None], [])


@pytest.mark.feature("RE-02", "OP-08")
@pytest.mark.parametrize(("count", "fetches"), [(3, 2), (5_000, 1)])
async def test_a_new_partition_restarts_a_waiting_fetch_of_few_and_waits_for_the_response_to_one_of_many(
    count: int, fetches: int, autojump_clock: object
) -> None:
    """A fetch that begins again names all partitions. Thousands of them, created one after the other, must not do that
    for each."""
    leader = Leader()
    fetcher = fetcher_of(leader)
    for index in range(count):
        fetcher.add(cast(Any, Followed(index, iter([FetchWanted(1, 0, 0, 0)] * 2))))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher.run)
        await leader.fetched.wait()
        fetcher.add(cast(Any, Followed(count, iter([FetchWanted(1, 0, 0, 0)] * 2))))
        await trio.sleep(SETTINGS.fetch_wait_max_ms / 1000)
        nursery.cancel_scope.cancel()
    assert len(leader.fetches) == fetches
