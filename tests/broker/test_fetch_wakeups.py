"""Waiting fetches are checked at once, or once for many changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.fetch_session import INITIAL_EPOCH, PartitionKey, session_key
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.fetch_wakeups import STAYS_CROWDED, FetchWakeups
from barnabas.broker.purgatory import DelayedOperation, Purgatory
from barnabas.broker.timing_wheel import TimingWheel
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData

pytestmark = pytest.mark.feature("RP-09")

FLIGHTS = bytes(15) + b"\x01"


class Waiting(DelayedOperation):
    """A fetch that notes that it was looked at."""

    def __init__(self, seen: list[int], number: int, *, breaks: bool = False) -> None:
        super().__init__()
        self.breaks = False
        self._seen = seen
        self._number = number
        self._will_break = breaks

    def try_complete(self) -> bool:
        if self.breaks:
            raise ValueError("a mistake of ours")
        self._seen.append(self._number)
        self.breaks = self._will_break
        return False

    def on_complete(self) -> None: ...


class Scene:
    def __init__(self) -> None:
        self.sessions = FetchSessions(random.Random(3))
        self.fetches: Purgatory[PartitionKey] = Purgatory(TimingWheel(0))
        self.left: list[Callable[[], None]] = []
        self.news = FetchWakeups(self.sessions, self.fetches, self.left.append)
        self.seen: list[int] = []

    def fetcher(self, *, from_follower: bool = True) -> int:
        """A session with two partitions; gives its id."""
        wanted = [FetchPartition(partition=index) for index in (0, 1)]
        request = FetchRequest(session_epoch=INITIAL_EPOCH, topics=[FetchTopic(topic_id=FLIGHTS, partitions=wanted)])
        context = self.sessions.open(request, 17, from_follower=from_follower, now_ms=0)
        context.finish([(FLIGHTS, PartitionData(partition_index=index)) for index in (0, 1)], 0)
        return context.session_id

    def wait(self, session_id: int, *, breaks: bool = False) -> Waiting:
        operation = Waiting(self.seen, session_id, breaks=breaks)
        self.fetches.watch(operation, [session_key(session_id)], 500)
        self.seen.clear()
        return operation

    def changed(self, index: int) -> None:
        self.news.changed(partition(index))

    def turn_ends(self) -> None:
        left, self.left[:] = list(self.left), []
        for work in left:
            work()


def partition(index: int) -> Any:
    return SimpleNamespace(topic_id=FLIGHTS, topic="flights", index=index)


def test_a_single_change_wakes_fetches_at_once() -> None:
    scene = Scene()
    one, other = scene.fetcher(), scene.fetcher()
    scene.wait(one)
    scene.wait(other)
    scene.changed(0)
    assert scene.seen == [one, other]
    scene.changed(1)
    assert scene.seen == [one, other] * 2
    assert not scene.left


def test_changes_of_a_crowded_partition_wake_fetches_together() -> None:
    scene = Scene()
    one, other = scene.fetcher(), scene.fetcher()
    scene.wait(one)
    scene.changed(0)
    assert scene.seen == [], "the other one has not reported the last yet: there is more to come"
    scene.wait(other)
    scene.changed(1)
    scene.changed(0)
    assert scene.seen == []
    scene.turn_ends()
    assert scene.seen == [one, other]
    assert not scene.left
    scene.changed(1)
    scene.turn_ends()
    assert scene.seen == [one, other] * 2, "nothing is lost after a look"


def test_it_is_at_once_again_when_they_come_alone_for_a_while() -> None:
    scene = Scene()
    one, other = scene.fetcher(), scene.fetcher()
    scene.wait(one)
    scene.changed(0)
    scene.turn_ends()
    scene.wait(other)
    for _ in range(STAYS_CROWDED - 1):
        scene.changed(0)
        assert scene.left
        scene.turn_ends()
    scene.seen.clear()
    scene.changed(0)
    assert scene.seen == [one, other]
    assert not scene.left


def test_a_new_high_watermark_wakes_consumers_only() -> None:
    scene = Scene()
    follower, consumer = scene.fetcher(), scene.fetcher(from_follower=False)
    scene.wait(follower)
    scene.wait(consumer)
    scene.news.committed(partition(0))
    assert scene.seen == [consumer]
    context = scene.sessions.open(FetchRequest(session_id=follower, session_epoch=1), 17, from_follower=True, now_ms=0)
    assert (FLIGHTS, 0) in [(topic, it.partition) for topic, it in context.to_read], "the next response has it"
    scene.changed(0)
    assert scene.seen == [consumer, follower, consumer]


def test_a_consumer_that_is_busy_is_no_crowd() -> None:
    scene = Scene()
    follower, _ = scene.fetcher(), scene.fetcher(from_follower=False)
    scene.wait(follower)
    scene.changed(0)
    assert scene.seen == [follower]
    assert not scene.left


def test_a_fetch_without_a_session_is_looked_at_too() -> None:
    scene = Scene()
    scene.fetches.watch(Waiting(scene.seen, 7), [("flights", 0)], 500)
    scene.fetches.watch(Waiting(scene.seen, 8), [(FLIGHTS, 1)], 500)
    scene.seen.clear()
    scene.changed(0)
    assert scene.seen == [7]
    scene.changed(1)
    assert scene.seen == [7, 8]


def test_a_mistake_in_one_fetch_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    one, other = scene.fetcher(), scene.fetcher()
    scene.wait(one, breaks=True)
    scene.wait(other)
    scene.changed(0)
    assert scene.seen == [other]
    assert "a waiting fetch failed" in caplog.text
