"""The requests of one `LeaderFetcher`, with a channel and partitions of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.replication.fetcher import (
    EARLIEST,
    FIRST_RETRY_MS,
    LAST_RETRY_MS,
    THROTTLED_WAIT_MS,
    FetchSettings,
    LeaderFetcher,
)
from barnabas.broker.replication.follower import BoundsWanted, EpochWanted, FetchWanted
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.runtime.channel import ConnectionFailed
from tests.examples import examples

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


class Drawn:
    """A partition whose follower wants what was drawn last."""

    def __init__(self, index: int) -> None:
        self.topic, self.index, self.key = "t", index, (TOPIC_ID, index)
        self.wanted: Any = None
        self.retry_at_ms: int | None = None
        self.end = 0
        self.follower = self
        self.log = SimpleNamespace(log_end_offset=0)

    def next(self, now_ms: int) -> Any:
        """Implements the follower."""
        return self.wanted


@dataclass
class Throttling:
    """Holds all back that is not in sync, while it is on."""

    is_on: bool = False
    asked: list[tuple[tuple[str, int], int, bool]] = field(default_factory=list)
    replicas: Any = field(default_factory=lambda: SimpleNamespace(topics={"t": None}))

    def holds_back(self, key: tuple[str, int], now_ms: int, *, in_sync: bool) -> bool:
        self.asked.append((key, now_ms, in_sync))
        return self.is_on and not in_sync


@pytest.mark.feature("RE-02", "RE-06", "RE-20")
@settings(max_examples=examples(100))
@given(st.data())
def test_a_follower_is_asked_for_in_one_way(data: st.DataObject) -> None:
    """A fetch, the bounds, the epochs, or nothing until the end of a backoff."""
    draw = data.draw
    clock = SimpleNamespace(now_ms=1_000)
    fetcher = fetcher_of(Leader())
    fetcher._clock = cast(Any, SimpleNamespace(now_ms=lambda: clock.now_ms))
    throttle = fetcher.throttle = cast(Any, Throttling())
    partitions = [Drawn(index) for index in range(3)]
    expected: dict[Any, tuple[str, Any]] = {}
    for _ in range(draw(st.integers(1, 12))):
        moved = []
        for each in draw(st.lists(st.sampled_from(partitions), unique=True)):
            fetch = FetchWanted(1, draw(st.integers(0, 2)), 0, 0)
            each.wanted = draw(st.sampled_from([fetch, fetch, BoundsWanted(1), EpochWanted(1, 0), None]))
            each.retry_at_ms = draw(st.sampled_from([None, clock.now_ms + 1, clock.now_ms + 50]))
            if draw(st.integers(0, 4)):
                fetcher.add(cast(Any, each))
                fetcher.high_watermarks[each.key] = draw(st.sampled_from([0, 1]))
                moved.append(each)
            else:
                fetcher.remove(cast(Any, each))
                expected.pop(each.key, None)
        throttle.is_on = draw(st.booleans())
        clock.now_ms += draw(st.sampled_from([0, 1, 49, THROTTLED_WAIT_MS]))
        due = {key for key, (how, until_ms) in expected.items() if how == "later" and until_ms <= clock.now_ms}
        for each in partitions:
            if each in moved or each.key in due:
                expected.pop(each.key, None)
                in_sync = fetcher.high_watermarks[each.key] <= 0
                if isinstance(each.wanted, FetchWanted):
                    held = throttle.is_on and not in_sync
                    wait = ("later", clock.now_ms + THROTTLED_WAIT_MS)
                    expected[each.key] = wait if held else ("fetch", each.wanted)
                elif each.wanted is not None:
                    expected[each.key] = ("first", each.wanted)
                elif each.retry_at_ms is not None:
                    expected[each.key] = ("later", each.retry_at_ms)
        fetcher._gather()
        found: dict[Any, tuple[str, Any]] = {}
        asked: list[tuple[str, dict[Any, Any]]] = [
            ("fetch", dict(fetcher._session.wanted)),
            ("first", {**fetcher._asking_bounds, **fetcher._asking_epochs}),
            ("later", dict(fetcher._backing_off)),
        ]
        for how, wanted in asked:
            assert not found.keys() & wanted.keys(), "in one way only"
            found |= {key: (how, value) for key, value in wanted.items()}
        assert found == expected
        assert fetcher._asks_first == any(how == "first" for how, _ in expected.values())
        assert fetcher._next_retry_ms() == min((at for how, at in expected.values() if how == "later"), default=None)


class Failing(Leader):
    """Fails each fetch, and counts its connections."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
        self.times: list[float] = []
        self.closed = 0

    async def converse(self, request: FetchRequest, answered: Callable[[Any], Any], *, timeout_ms: float) -> None:
        self.times.append(trio.current_time())
        self.fetches.append(request)
        raise self.error

    def close(self) -> None:
        self.closed += 1


@pytest.mark.feature("RE-02", "RE-14")
@pytest.mark.parametrize("error", [ConnectionFailed("gone"), ZeroDivisionError("a mistake")])
async def test_after_a_failure_the_connection_is_closed_and_the_next_one_waits(
    error: Exception, autojump_clock: trio.testing.MockClock
) -> None:
    leader = Failing(error)
    fetcher = fetcher_of(leader)
    fetcher._clock = cast(Any, SimpleNamespace(now_ms=lambda: int(trio.current_time() * 1000)))
    partition = Drawn(0)
    partition.wanted = FetchWanted(1, 5, 0, 0)
    fetcher.add(cast(Any, partition))
    with trio.move_on_after(10):
        await fetcher.run()
    waits_ms = [round((later - earlier) * 1000) for earlier, later in pairwise(leader.times)]
    growing = [min(FIRST_RETRY_MS << place, LAST_RETRY_MS) for place in range(len(waits_ms))]
    assert waits_ms[1:] == growing[1:] and LAST_RETRY_MS in waits_ms
    assert leader.closed == len(leader.times)
    assert all(request.session_epoch == 0 and request.topics for request in leader.fetches), "in full each time"


@pytest.mark.feature("RE-20")
def test_fetched_bytes_count_for_the_throttle() -> None:
    """Those of partitions that are still followed."""
    fetcher = fetcher_of(Leader())
    passed: list[tuple[tuple[str, int], int, int]] = []
    quota = SimpleNamespace(
        holds_back=lambda *_, **__: False,
        passed=lambda *counted: passed.append(counted),
        replicas=SimpleNamespace(topics={"t": None}),
    )
    fetcher.throttle = cast(Any, quota)
    fetched: list[int] = []
    for index in range(3):
        partition = Drawn(index)
        partition.wanted = FetchWanted(1, 0, 0, 0)
        partition.fetched = lambda wanted, data: fetched.append(data.partition_index)  # type: ignore[attr-defined]
        fetcher.add(cast(Any, partition))
    fetcher._gather()
    fetcher.remove(fetcher._partitions[TOPIC_ID, 2])
    answers = [PartitionData(partition_index=index, records=bytes(index * 10), high_watermark=7) for index in range(4)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=answers)])
    fetcher._apply(response)
    assert fetched == [0, 1]
    assert passed == [(("t", 1), 10, 1_000)]
    assert fetcher.high_watermarks == {(TOPIC_ID, 0): 7, (TOPIC_ID, 1): 7}


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
