"""A follower of a thousand partitions takes them into its session by several requests."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any, cast

import pytest
import trio

from barnabas.broker.replication.fetcher import APPLIED_IN_A_STEP, MOST_ADDED
from barnabas.broker.replication.follower import FetchWanted
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.runtime.at_once import at_once
from tests.broker.replication.test_fetch_requests import TOPIC_ID, Followed, Leader, fetcher_of

pytestmark = pytest.mark.feature("RE-02", "RP-09", "OP-08")

COUNT = 1_000


class Answering(Leader):
    """Answers with no news, up to `most` times for each connection; in the session of this id, 0 for none."""

    def __init__(self, session_id: int, most: int = 10) -> None:
        super().__init__()
        self.session_id = session_id
        self.most = most

    async def converse(self, request: FetchRequest, answered: Callable[[Any], Any], *, timeout_ms: float) -> None:
        for _ in range(self.most):
            self.fetches.append(request)
            following = at_once(answered(FetchResponse(session_id=self.session_id)))
            if following is None:
                return
            request = following
        self.fetched.set()
        await trio.sleep_forever()


def partitions(count: int = COUNT) -> list[Any]:
    return [Followed(index, repeat(FetchWanted(1, 0, -1, 0))) for index in range(count)]


def named(request: FetchRequest) -> list[int]:
    return [partition.partition for topic in request.topics for partition in topic.partitions]


async def fetches(leader: Answering, followed: list[Any], *, held: bool = False) -> list[FetchRequest]:
    fetcher = fetcher_of(leader)
    if held:
        fetcher.hold()
    for partition in followed:
        fetcher.add(partition)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher.run)
        if held:
            await trio.testing.wait_all_tasks_blocked()
            assert leader.fetches == [], "its leader does not know of them yet"
            fetcher.release()
        await leader.fetched.wait()
        fetcher.stop()
    return leader.fetches


async def test_each_request_names_some_more_until_all_are_in_the_session() -> None:
    asked = await fetches(Answering(session_id=9), partitions())
    steps = COUNT // MOST_ADDED
    assert [len(named(each)) for each in asked] == [MOST_ADDED] * steps + [0] * (10 - steps)
    assert sorted(index for each in asked for index in named(each)) == list(range(COUNT))
    assert [each.session_epoch for each in asked] == list(range(10))
    waits = [each.max_wait_ms for each in asked]
    assert waits == [0] * (steps - 1) + [500] * (11 - steps), "the rest is not kept waiting"


async def test_a_leader_that_keeps_no_session_is_asked_for_all_of_them() -> None:
    asked = await fetches(Answering(session_id=0), partitions())
    assert len(named(asked[0])) == MOST_ADDED
    assert sorted(named(asked[-1])) == list(range(COUNT))


async def test_partitions_that_come_with_a_step_of_the_metadata_wait_for_its_end() -> None:
    asked = await fetches(Answering(session_id=9), partitions(3), held=True)
    assert sorted(named(asked[0])) == [0, 1, 2]


async def test_after_a_stop_no_answer_is_taken() -> None:
    fetcher = fetcher_of(Answering(session_id=9))
    followed = partitions(3)
    for partition in followed:
        fetcher.add(partition)
    fetcher.stop()
    with trio.fail_after(5):
        await fetcher.run()


def test_a_response_about_very_many_partitions_is_processed_in_steps() -> None:
    """Meanwhile some leave, one comes, and at last the broker stops: what comes too late is dropped."""
    fetcher = fetcher_of(Answering(session_id=9))
    followed = partitions()
    taken: list[int] = []
    for partition in followed:
        partition.fetched = lambda _asked, data: taken.append(data.partition_index)
        fetcher.add(partition)
    while fetcher._later:
        at_once(fetcher._gather())
        fetcher._session.request(1024)
        assert fetcher._session.answered(FetchResponse(session_id=9))
    data = [PartitionData(partition_index=index, records=b"") for index in range(COUNT)]
    response = FetchResponse(session_id=9, responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=data)])

    steps = fetcher._answered(response)
    for _ in range(10):
        before = len(taken)
        next(steps)
        assert len(taken) - before <= APPLIED_IN_A_STEP
    left = followed[COUNT // 2]
    fetcher.remove(left)
    newcomer = Followed(COUNT, repeat(FetchWanted(1, 0, -1, 0)))
    fetcher.add(cast(Any, newcomer))
    request = at_once(steps)
    assert taken == [index for index in range(COUNT) if index != left.index]
    assert request is not None
    assert named(request) == [COUNT], "the others want the same as before"
    assert [each for topic in request.forgotten_topics_data for each in topic.partitions] == [left.index]

    taken.clear()
    steps = fetcher._answered(response)
    next(steps)
    fetcher.stop()
    assert at_once(steps) is None or len(taken) < COUNT
    assert len(taken) <= APPLIED_IN_A_STEP
