"""The feed: the newest state for every reader, bounded queues for slow ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.page.feed import MARKS_KEPT, MOST_READERS, QUEUE_LENGTH, STALLED_MS, Feed, Reader, TooMany


class Looker:
    def __init__(self, feed: Feed, topic: str = "demo", now_ms: int = 0) -> None:
        self.woken = 0
        self.reader: Reader = feed.join(topic, self._wake, now_ms)

    def _wake(self) -> None:
        self.woken += 1

    def take(self, now_ms: int = 0) -> list[tuple[str, Any]]:
        return [(kind, json.loads(data)) for kind, data in self.reader.take(now_ms)]


def mark(feed: Feed, text: str = "happened") -> None:
    feed.mark("fault", "broker 1", text, at_ms=5)


def test_a_slow_reader_skips_to_the_newest_state() -> None:
    feed = Feed()
    looker = Looker(feed)
    for number in range(1000):
        feed.cluster({"at_ms": number})
        feed.partitions({"at_ms": number, "topic": "demo"})
        feed.load({"acked": number})
    assert looker.take() == [
        ("cluster", {"at_ms": 999}),
        ("partitions", {"at_ms": 999, "topic": "demo"}),
        ("load", {"acked": 999}),
    ]
    assert looker.take() == [] and not looker.reader.has_news


def test_marks_arrive_once_in_order_and_their_queue_is_bounded() -> None:
    feed = Feed()
    looker = Looker(feed)
    for number in range(3):
        mark(feed, f"{number}")
    assert [event["number"] for _kind, event in looker.take()] == [1, 2, 3]
    for _ in range(10 * QUEUE_LENGTH):
        mark(feed)
    taken = looker.take()
    assert len(taken) == QUEUE_LENGTH
    assert taken[-1][1]["number"] == 3 + 10 * QUEUE_LENGTH


def test_a_late_reader_gets_the_last_marks() -> None:
    feed = Feed()
    for _ in range(MARKS_KEPT + 50):
        mark(feed)
    feed.tour({"step": 1, "finished": True})
    feed.tour({"step": 1, "finished": False})
    feed.tour({"step": 2, "finished": False})
    answer = Looker(feed).take()
    assert [event["number"] for kind, event in answer if kind == "mark"] == list(range(51, MARKS_KEPT + 51))
    assert [event["step"] for kind, event in answer if kind == "tour"] == [1, 2]
    assert len(feed.marks()) == MARKS_KEPT


def test_a_reader_gets_the_partitions_of_its_topic() -> None:
    feed = Feed()
    one, other, third = Looker(feed, "demo"), Looker(feed, "flights"), Looker(feed, "demo")
    assert feed.topics == ["demo", "flights"]
    feed.partitions({"topic": "flights"})
    assert other.take() == [("partitions", {"topic": "flights"})]
    assert one.take() == third.take() == [] and not one.woken


def test_readers_are_counted_and_bounded() -> None:
    feed = Feed()
    changes = []
    feed.on_readers = lambda: changes.append(feed.is_read)
    lookers = [Looker(feed) for _ in range(MOST_READERS)]
    with pytest.raises(TooMany):
        Looker(feed)
    for looker in lookers:
        feed.leave(looker.reader)
        feed.leave(looker.reader)
    assert not feed.is_read
    assert changes == [True] * (2 * MOST_READERS - 1) + [False]


def test_a_stalled_reader_is_disconnected() -> None:
    feed = Feed()
    stalled, awake = Looker(feed), Looker(feed)
    feed.cluster({})
    awake.take(STALLED_MS)
    feed.drop_stalled(STALLED_MS)
    assert feed.is_read and not stalled.reader.gone
    feed.drop_stalled(STALLED_MS + 1)
    assert stalled.reader.gone and not awake.reader.gone
    assert stalled.woken  # it shall notice
    feed.leave(awake.reader)
    assert not feed.is_read


def test_a_reader_without_a_choice_is_switched_to_an_existing_topic() -> None:
    feed = Feed()
    chosen = Looker(feed, "gone")
    reader = feed.join("demo", lambda: None, 0, chose=False)
    feed.offer(["flights", "orders"], "flights", lambda topic: {"topic": topic})
    assert (reader.topic, chosen.reader.topic) == ("flights", "gone")
    assert reader.take(0) == [("hello", '{"topic":"flights"}')]
    feed.offer(["flights", "orders"], "flights", lambda topic: {"topic": topic})
    assert reader.take(0) == [] and chosen.take() == []
