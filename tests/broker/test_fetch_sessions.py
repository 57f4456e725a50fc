"""Incremental fetch sessions (KIP-227): who is remembered, what counts as news, who gives way."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.fetch_context import FetchContext, at_once, by_topic
from barnabas.broker.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, LAST_EPOCH, WANTED_IN_A_STEP, Answer, next_epoch
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tests.examples import examples

pytestmark = pytest.mark.feature("RP-09")

LOGS = bytes(15) + b"\x01"
CLICKS = bytes(15) + b"\x02"
NONE = ErrorCode.NONE


def request(
    session: tuple[int, int],
    wanted: dict[tuple[bytes, int], int] | None = None,
    forgotten: tuple[tuple[bytes, int], ...] = (),
) -> FetchRequest:
    """A request for `{(topic, partition): offset}`."""
    return FetchRequest(
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchTopic(
                topic_id=topic,
                topic=topic.hex(),
                partitions=[FetchPartition(partition=partition, fetch_offset=offset)],
            )
            for (topic, partition), offset in (wanted or {}).items()
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic_id=topic, topic=topic.hex(), partitions=[partition])
            for topic, partition in forgotten
        ],
    )


def answers(context: FetchContext, **news: object) -> list[Answer]:
    """An answer for everything wanted: high watermark 100 and nothing new, but for the fields in `news`."""
    fields = {"high_watermark": 100, "log_start_offset": 0} | news
    return [
        (topic, PartitionData(partition_index=wanted.partition, **fields)) for topic, wanted in context.wanted
    ]


def asked(context: FetchContext) -> list[tuple[object, int, int]]:
    return [(topic, wanted.partition, wanted.fetch_offset) for topic, wanted in context.wanted]


class Broker:
    def __init__(self, **limits: int) -> None:
        self.sessions = FetchSessions(random.Random(7), **limits)
        self.now_ms = 0

    def open(self, fetch: FetchRequest, *, from_follower: bool = False, version: int = 17) -> FetchContext:
        return self.sessions.open(fetch, version, from_follower=from_follower, now_ms=self.now_ms)

    def start(self, partitions: int = 1, *, from_follower: bool = False) -> int:
        """A full request that wants a session; gives its id."""
        wanted = {(LOGS, partition): 0 for partition in range(partitions)}
        context = self.open(request((0, INITIAL_EPOCH), wanted), from_follower=from_follower)
        assert len(context.finish(answers(context), self.now_ms)) == partitions, "a full answer has them all"
        return context.session_id


def test_a_session_says_only_what_is_new_on_either_side() -> None:
    broker = Broker()
    session_id = broker.start(2)
    assert session_id > 0

    quiet = broker.open(request((session_id, 1)))
    assert asked(quiet) == [(LOGS, 0, 0), (LOGS, 1, 0)], "both are remembered"
    assert quiet.finish(answers(quiet), 0) == []

    moved = broker.open(request((session_id, 2), {(LOGS, 1): 40}))
    assert asked(moved) == [(LOGS, 0, 0), (LOGS, 1, 40)]
    read = answers(moved)
    read[1][1].high_watermark = 101
    assert [moved.has_news(answer) for answer in read] == [False, True]
    assert moved.finish(read, 0) == [read[1]]


def to_read(context: FetchContext) -> list[tuple[object, int]]:
    return [(topic, wanted.partition) for topic, wanted in context.to_read]


def test_a_session_looks_only_where_something_happened() -> None:
    """However many partitions a follower has, a fetch costs what changed in them."""
    broker = Broker()
    sessions = broker.sessions
    session_id = broker.start(3, from_follower=True)

    first = broker.open(request((session_id, 1)))
    assert to_read(first) == [(LOGS, 0), (LOGS, 1), (LOGS, 2)], "nothing is known to be settled yet"
    first.finish(answers(first), 0)

    quiet = broker.open(request((session_id, 2)))
    assert to_read(quiet) == []
    assert [each.id for each in sessions.changed(LOGS, "logs", 1)] == [session_id]
    assert to_read(quiet) == [(LOGS, 1)], "also while the request waits"
    read = [(LOGS, PartitionData(partition_index=1, high_watermark=100, log_start_offset=0, records=b"r"))]
    assert quiet.finish(read, 0) == read

    same_again = broker.open(request((session_id, 3)))
    assert to_read(same_again) == [(LOGS, 1)], "what was sent is not known to have arrived"
    nothing_new = [(LOGS, PartitionData(partition_index=1, high_watermark=100, log_start_offset=0))]
    same_again.finish(nothing_new, 0, left_open={(LOGS, 1): None})
    left_open = broker.open(request((session_id, 4)))
    assert to_read(left_open) == [(LOGS, 1)], "the reader was not done with it"
    left_open.finish(nothing_new, 0)

    asked_again = broker.open(request((session_id, 5), {(LOGS, 2): 8}, forgotten=((LOGS, 0),)))
    assert to_read(asked_again) == [(LOGS, 2)]
    assert sessions.changed(LOGS, "logs", 0) == [], "no session has it"
    assert sessions.changed(CLICKS, "clicks", 0) == []


def test_a_waiting_fetch_checks_only_what_moved_since_its_last_check() -> None:
    broker = Broker()
    session_id = broker.start(3)
    waiting = broker.open(request((session_id, 1)))
    assert list(waiting.take_moved()) == [], "what the request itself has to read is read when it comes"
    for partition in (1, 2, 1):
        broker.sessions.changed(LOGS, "logs", partition)
    assert [(topic, it.partition) for topic, it in waiting.take_moved()] == [(LOGS, 1), (LOGS, 2)]
    assert list(waiting.take_moved()) == []
    assert to_read(waiting) == [(LOGS, 0), (LOGS, 1), (LOGS, 2)], "all the same when it is answered"
    # The same client asks again: the news is for the request that it waits for now.
    later = broker.open(request((session_id, 2)))
    broker.sessions.changed(LOGS, "logs", 0)
    assert list(waiting.take_moved()) == []
    assert [(topic, it.partition) for topic, it in later.take_moved()] == [(LOGS, 0)]


def test_a_closed_session_gets_no_changes() -> None:
    broker = Broker()
    session_id = broker.start(2)
    broker.open(request((session_id, FINAL_EPOCH)))
    assert broker.sessions.changed(LOGS, "logs", 1) == []


def test_added_forgotten_and_replaced_partitions() -> None:
    broker = Broker()
    session_id = broker.start(2)
    context = broker.open(request((session_id, 1), {(CLICKS, 0): 5}, forgotten=((LOGS, 0),)))
    assert asked(context) == [(LOGS, 1, 0), (CLICKS, 0, 5)]
    sent = context.finish(answers(context), 0)
    assert [topic for topic, _ in sent] == [CLICKS], "the new topic is in the response"

    # The topic was deleted and made again: its new id comes, the old one goes.
    again = bytes(15) + b"\x03"
    context = broker.open(request((session_id, 2), {(again, 0): 0}, forgotten=((CLICKS, 0),)))
    assert asked(context) == [(LOGS, 1, 0), (again, 0, 0)]


def test_forgetting_everything_ends_the_session() -> None:
    broker = Broker()
    session_id = broker.start(1)
    context = broker.open(request((session_id, 1), forgotten=((LOGS, 0),)))
    assert (asked(context), context.session_id, len(broker.sessions)) == ([], 0, 0)


@pytest.mark.parametrize(
    "news",
    [
        {"records": b"r"},
        {"high_watermark": 101},
        {"log_start_offset": 1},
        {"error_code": 6},
        {"preferred_read_replica": 2},
        {"diverging_epoch": EpochEndOffset(epoch=3, end_offset=7)},
    ],
    ids=lambda news: next(iter(news)),
)
def test_changes_that_are_sent(news: dict[str, object]) -> None:
    broker = Broker()
    session_id = broker.start(1)
    context = broker.open(request((session_id, 1)))
    assert len(context.finish(answers(context, **news), 0)) == 1


def test_after_an_error_the_partition_is_sent_again() -> None:
    broker = Broker()
    session_id = broker.start(1)
    context = broker.open(request((session_id, 1)))
    assert len(context.finish(answers(context, error_code=6, high_watermark=-1), 0)) == 1
    context = broker.open(request((session_id, 2)))
    assert len(context.finish(answers(context), 0)) == 1, "same watermark as before the error"
    context = broker.open(request((session_id, 3)))
    assert len(context.finish(answers(context), 0)) == 0


@pytest.mark.parametrize(
    "news",
    [{"preferred_read_replica": 2}, {"error_code": 6}, {"diverging_epoch": EpochEndOffset(epoch=3, end_offset=7)}],
    ids=lambda news: next(iter(news)),
)
def test_a_partition_that_was_answered_without_records_is_looked_at_again(news: dict[str, object]) -> None:
    """A consumer that cannot reach the replica it was pointed at asks the leader again, without naming the partition:
    nothing changes in it meanwhile."""
    broker = Broker()
    session_id = broker.start(1)
    context = broker.open(request((session_id, 1)))
    context.finish(answers(context, **news), 0)
    assert to_read(broker.open(request((session_id, 2)))) == [(LOGS, 0)]


@pytest.mark.parametrize(
    ("offset", "leader_epoch", "is_sent"),
    [(20, 4, True), (39, 4, True), (40, 4, True), (41, 5, True), (41, 4, False)],
    ids=["cut", "cut by one", "the same again", "in another epoch", "goes on"],
)
def test_a_fetcher_that_does_not_continue_gets_the_same_again(offset: int, leader_epoch: int, is_sent: bool) -> None:
    """An answer that came may not have been taken in: it made a follower cut its log, or came after a new epoch did."""
    broker = Broker()

    def ask(epoch: int, offset: int, leader_epoch: int) -> list[Answer]:
        fetch = request((session_id, epoch), {(LOGS, 0): offset})
        fetch.topics[0].partitions[0].current_leader_epoch = leader_epoch
        context = broker.open(fetch, from_follower=True)
        news = {"diverging_epoch": EpochEndOffset(epoch=3, end_offset=20)} if epoch == 1 else {}
        return list(context.finish(answers(context, **news), 0))

    session_id = broker.start(1, from_follower=True)
    assert len(ask(1, 40, 4)) == 1
    assert [data.high_watermark for _, data in ask(2, offset, leader_epoch)] == ([100] if is_sent else [])
    assert broker.open(request((session_id, 3))).finish([], 0) == [], "once"


def test_a_change_after_the_read_is_sent_with_the_next_response() -> None:
    """The partitions of a large session are read in steps, and others have their turns between them."""
    broker = Broker()
    session_id = broker.start(2)
    first = broker.open(request((session_id, 1)))
    first.finish(answers(first), 0)
    waiting = broker.open(request((session_id, 2)))
    broker.sessions.changed(LOGS, "logs", 1)
    waiting.take_moved()
    read = [(LOGS, PartitionData(partition_index=1, high_watermark=101, log_start_offset=0))]
    broker.sessions.changed(LOGS, "logs", 1)
    assert waiting.finish(read, 0) == read
    assert to_read(broker.open(request((session_id, 3)))) == [(LOGS, 1)]


def test_a_session_that_is_closed_between_the_steps_of_a_request() -> None:
    broker = Broker()
    many = {(LOGS, partition): 0 for partition in range(3 * WANTED_IN_A_STEP)}
    session_id = broker.start(1)
    opening = broker.sessions.opening(request((session_id, 1), many), 17, from_follower=False, now_ms=0)
    next(opening)
    broker.open(request((session_id, FINAL_EPOCH)))
    assert at_once(opening).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert broker.sessions.changed(LOGS, "logs", 0) == [], "no session has it"


@pytest.mark.feature("RP-05", "RP-09")
def test_a_partition_that_had_data_goes_to_the_end() -> None:
    broker = Broker()
    session_id = broker.start(3)
    context = broker.open(request((session_id, 1)))
    read = answers(context)
    read[0][1].records = b"r"
    context.finish(read, 0)
    assert [partition for _, partition, _ in asked(broker.open(request((session_id, 2))))] == [1, 2, 0]


def test_unknown_sessions_and_wrong_epochs_fall_back_to_a_full_fetch() -> None:
    broker = Broker()
    assert broker.open(request((99, 1))).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session_id = broker.start(1)
    for epoch in (2, 7, LAST_EPOCH):
        refused = broker.open(request((session_id, epoch)))
        assert (refused.error, refused.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    full = broker.open(request((session_id, INITIAL_EPOCH), {(LOGS, 0): 0}))
    assert full.error == NONE
    assert len(broker.sessions) == 0, "a full request closes the session it names"
    full.finish(answers(full), 0)
    assert (len(broker.sessions), full.session_id != session_id) == (1, True)


def test_a_repeated_request_makes_the_waiting_one_void() -> None:
    broker = Broker()
    session_id = broker.start(1)
    waiting = broker.open(request((session_id, 1)))
    assert broker.open(request((session_id, 1))).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    broker.open(request((session_id, 2)))
    assert waiting.finish(answers(waiting, records=b"r"), 0) == ()
    assert waiting.error == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_keeps_to_ids_or_to_names() -> None:
    broker = Broker()
    by_name = broker.open(request((0, INITIAL_EPOCH), {(LOGS, 0): 0}), version=12)
    assert asked(by_name) == [(LOGS.hex(), 0, 0)]
    by_name.finish(answers(by_name), 0)
    refused = broker.open(request((by_name.session_id, 1)), version=13)
    assert refused.error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert broker.open(request((by_name.session_id, 1)), version=12).error == NONE


def test_the_final_epoch_and_old_versions_want_no_session() -> None:
    broker = Broker()
    session_id = broker.start(1)
    last = broker.open(request((session_id, FINAL_EPOCH), {(LOGS, 0): 0}))
    assert len(last.finish(answers(last), 0)) == 1
    assert (last.session_id, len(broker.sessions)) == (0, 0)


def test_epochs_wrap_to_one() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, LAST_EPOCH - 1, LAST_EPOCH)] == [1, 2, LAST_EPOCH, 1]


def test_neighbours_of_one_topic_share_a_group_and_the_order_stays() -> None:
    read = [(topic, PartitionData(partition_index=index)) for index, topic in enumerate([LOGS, LOGS, CLICKS, LOGS])]
    groups = [(topic, [data.partition_index for data in group]) for topic, group in by_topic(read)]
    assert groups == [(LOGS, [0, 1]), (CLICKS, [2]), (LOGS, [3])]


class TestWhoGivesWay:
    def test_no_young_session_is_evicted_for_a_consumer(self) -> None:
        broker = Broker(max_sessions=2)
        broker.start(1)
        broker.start(1)
        assert broker.start(50) == 0
        assert broker.sessions.evictions == 0

    def test_the_smallest_consumer_gives_way_to_a_follower(self) -> None:
        broker = Broker(max_sessions=2)
        big, small = broker.start(5), broker.start(2)
        assert broker.start(1, from_follower=True) > 0
        assert broker.open(request((small, 1))).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert broker.open(request((big, 1))).error == NONE

    def test_a_young_session_of_a_follower_is_not_evicted(self) -> None:
        broker = Broker(max_sessions=1)
        broker.start(1, from_follower=True)
        assert broker.start(9, from_follower=True) == 0

    def test_the_idle_one_goes_first(self) -> None:
        broker = Broker(max_sessions=2, eviction_ms=100)
        follower = broker.start(9, from_follower=True)
        broker.now_ms = 60
        busy = broker.start(1)
        broker.now_ms = 101
        assert broker.start(1) > 0
        assert broker.open(request((follower, 1))).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert broker.open(request((busy, 1))).error == NONE

    def test_an_old_small_one_gives_way_to_a_bigger_one_only(self) -> None:
        broker = Broker(max_sessions=1, eviction_ms=100)
        old = broker.start(3)
        for epoch in (1, 2):
            broker.now_ms += 60
            broker.open(request((old, epoch)))
        assert broker.start(2) == 0
        assert broker.start(4) > 0

    def test_an_old_follower_stays_when_a_bigger_consumer_comes(self) -> None:
        broker = Broker(max_sessions=1, eviction_ms=100)
        old = broker.start(3, from_follower=True)
        for epoch in (1, 2):
            broker.now_ms += 60
            broker.open(request((old, epoch)), from_follower=True)
        assert broker.start(50) == 0
        assert broker.start(4, from_follower=True) > 0


PARTITIONS = st.sampled_from([(topic, partition) for topic in (LOGS, CLICKS) for partition in range(2)])


@given(
    st.lists(
        st.tuples(
            st.dictionaries(PARTITIONS, st.integers(0, 3), max_size=3),
            st.lists(PARTITIONS, max_size=2, unique=True),
            st.dictionaries(PARTITIONS, st.integers(0, 3), max_size=2),
            st.sampled_from(["answered", "answered", "answered", "dropped", "lost", "restart"]),
        ),
        max_size=25,
    )
)
@settings(max_examples=examples(150), deadline=None)
def test_a_fetcher_always_knows_what_a_full_fetch_would_return(
    rounds: list[
        tuple[dict[tuple[bytes, int], int], list[tuple[bytes, int]], dict[tuple[bytes, int], int], str]
    ],
) -> None:
    """Watermarks move, partitions come and go, responses get lost, or are dropped because the fetcher starts over: the
    fetcher's picture is the leader's."""
    broker = Broker()
    leader: dict[tuple[bytes, int], int] = dict.fromkeys(
        [(topic, partition) for topic in (LOGS, CLICKS) for partition in range(2)], 0
    )
    wanted: dict[tuple[bytes, int], int] = {(LOGS, 0): 0}
    picture: dict[tuple[bytes, int], int] = {}
    dropped: dict[tuple[bytes, int], int] = {}
    session = (0, INITIAL_EPOCH)
    for added, forgotten, moves, fate in rounds:
        leader.update(moves)
        added = added | dropped
        gone = [key for key in forgotten if key in wanted and key not in added]
        for key in gone:
            del wanted[key]
            picture.pop(key, None)
        wanted.update(added)
        full = session[1] == INITIAL_EPOCH
        fetch = request(session, wanted if full else added, () if full else tuple(gone))
        if fate == "restart":
            broker = Broker()
        context = broker.open(fetch)
        if context.error != NONE:
            session = (0, INITIAL_EPOCH)
            continue
        assert {(topic, part): offset for topic, part, offset in asked(context)} == wanted
        read = [
            (
                topic,
                PartitionData(partition_index=part.partition, high_watermark=leader[topic, part.partition]),
            )
            for topic, part in context.wanted
            if isinstance(topic, bytes)
        ]
        sent = context.finish(read, 0)
        dropped = {}
        if fate == "lost":
            session = (session[0], INITIAL_EPOCH)
            continue
        for topic, data in sent:
            assert isinstance(topic, bytes)
            key = (topic, data.partition_index)
            if fate == "dropped":
                dropped[key] = wanted[key]
            else:
                picture[key] = data.high_watermark
        assert fate == "dropped" or picture == {key: leader[key] for key in wanted}
        session = (
            (0, INITIAL_EPOCH) if context.session_id == 0 else (context.session_id, next_epoch(session[1]))
        )


# The memory of all sessions together


def test_consumers_get_no_session_when_the_partitions_of_all_sessions_fill_the_memory() -> None:
    broker = Broker(max_partitions=10)
    assert broker.start(6)
    assert not broker.start(5), "it names all its partitions again next time"
    assert broker.start(4)
    assert broker.sessions.cached_partitions == 10


def test_a_session_that_grows_beyond_the_memory_is_closed() -> None:
    broker = Broker(max_partitions=10)
    growing, other = broker.start(6), broker.start(3)
    grown = broker.open(request((growing, 1), {(LOGS, partition): 0 for partition in range(4, 8)}))
    assert grown.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert broker.sessions.cached_partitions == 3
    kept = broker.open(request((other, 1), {(LOGS, partition): 0 for partition in range(10)}, ((LOGS, 0),)))
    assert kept.error == ErrorCode.NONE
    assert broker.sessions.cached_partitions == 9


def test_a_follower_pushes_out_consumers_and_has_a_limit_too() -> None:
    broker = Broker(max_partitions=10)
    for _ in range(3):
        assert broker.start(3)
    assert broker.start(8, from_follower=True)
    assert (len(broker.sessions), broker.sessions.evictions) == (1, 3)
    assert broker.start(12, from_follower=True)
    assert broker.sessions.cached_partitions == 20
    assert not broker.start(1, from_follower=True)
