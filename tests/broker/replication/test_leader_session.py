"""The follower's side of a fetch session, held against the leader's."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.broker.fetch_context import by_topic
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.replication import leader_session
from barnabas.broker.replication.follower import FetchWanted
from barnabas.broker.replication.leader_session import LeaderSession, PartitionKey
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.protocol.schema import decode, encode
from barnabas.runtime.at_once import Stepwise
from tests.examples import examples

pytestmark = pytest.mark.feature("RE-02", "RP-09")

A, B = (bytes(15) + b"\x01", 0), (bytes(15) + b"\x02", 3)


def at(offset: int) -> FetchWanted:
    return FetchWanted(1, offset, 0, 0)


def named(request: FetchRequest) -> list[tuple[PartitionKey, int]]:
    return [
        ((topic.topic_id, partition.partition), partition.fetch_offset)
        for topic in request.topics
        for partition in topic.partitions
    ]


def test_after_the_first_request_only_changes_are_said() -> None:
    session = LeaderSession()
    assert session.idle
    session.wants(A, at(5))
    session.wants(B, at(7))
    first = session.request(1024)
    assert (first.session_id, first.session_epoch, named(first)) == (0, 0, [(A, 5), (B, 7)])
    assert session.answered(FetchResponse(session_id=77))
    session.wants(A, at(5))
    session.wants(B, at(8))
    second = session.request(1024)
    assert (second.session_id, second.session_epoch, named(second)) == (77, 1, [(B, 8)])
    assert session.answered(FetchResponse(session_id=77))
    session.forget(A)
    third = session.request(1024)
    assert (third.session_epoch, named(third)) == (2, [])
    assert [(t.topic_id, t.partitions) for t in third.forgotten_topics_data] == [(A[0], [0])]


def test_a_partition_that_is_wanted_again_before_the_next_request_is_not_forgotten() -> None:
    """One request that names it and forgets it would leave it to the leader's order."""
    session = LeaderSession()
    session.wants(A, at(5))
    session.wants(B, at(7))
    session.request(1024)
    assert session.answered(FetchResponse(session_id=77))
    session.forget(A)
    session.wants(A, at(6))
    request = session.request(1024)
    assert named(request) == [(A, 6)]
    assert request.forgotten_topics_data == []
    assert session.answered(FetchResponse(session_id=77))
    session.forget(A)
    assert [(t.topic_id, t.partitions) for t in session.request(1024).forgotten_topics_data] == [(A[0], [0])]


@pytest.mark.parametrize("error", [70, 71, 106, 6])
def test_after_an_error_everything_is_said_again(error: int) -> None:
    session = LeaderSession()
    session.wants(A, at(5))
    session.request(1024)
    session.answered(FetchResponse(session_id=77))
    session.request(1024)
    assert not session.answered(FetchResponse(error_code=error))
    again = session.request(1024)
    assert (again.session_id, again.session_epoch, named(again)) == (77, 0, [(A, 5)])
    assert session.answered(FetchResponse(session_id=78))
    assert session.request(1024).session_epoch == 1


def test_without_a_session_every_request_is_full() -> None:
    session = LeaderSession()
    session.wants(A, at(5))
    for _ in range(3):
        request = session.request(1024)
        assert (request.session_epoch, named(request)) == (0, [(A, 5)])
        assert session.answered(FetchResponse(session_id=0))


KEYS = st.sampled_from([(bytes(15) + bytes([topic]), partition) for topic in (1, 2) for partition in (0, 1)])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["wants", "wants", "forget", "round", "round", "request lost", "answer lost", "restart"]),
            KEYS,
            st.integers(0, 3),
        ),
        min_size=8,
        max_size=50,
    )
)
@settings(max_examples=examples(200), deadline=None)
@example([("wants", A, 0), ("round", A, 0), ("forget", A, 0), ("wants", A, 1), ("round", A, 0)])
@example(
    [("wants", A, 0), ("wants", B, 0), ("round", A, 0), ("answer lost", A, 0), ("forget", A, 0)] + [("round", A, 0)] * 3
)
def test_the_leader_always_reads_what_the_follower_wants(steps: list[tuple[str, PartitionKey, int]]) -> None:
    """Also over the wire, and whatever is lost on the way."""
    session, sessions = LeaderSession(), FetchSessions(random.Random(1))
    known: dict[PartitionKey, FetchWanted] = {}
    touched: set[PartitionKey] = set()
    for step, key, offset in steps:
        if step == "wants":
            session.wants(key, at(offset))
            touched.add(key)
        elif step == "forget":
            session.forget(key)
        elif step == "restart":
            sessions = FetchSessions(random.Random(offset))
        elif not session.idle:
            request = decode(FetchRequest, encode(session.request(1024), 17), 17)
            known = {} if request.session_epoch == 0 else known
            names = {key for key, _ in named(request)}
            removed = {(topic.topic_id, place) for topic in request.forgotten_topics_data for place in topic.partitions}
            changed = {key for key, wanted in session.wanted.items() if known.get(key) != wanted}
            assert changed <= names <= changed | touched, "no more than what changed"
            assert removed == known.keys() - session.wanted.keys()
            known, touched = dict(session.wanted), set()
            assert session.idle == (not session.wanted)
            if step == "request lost":
                session.lost()
                continue
            context = sessions.open(request, 17, from_follower=True, now_ms=0)
            if context.error == 0:
                read = {(topic, wanted.partition): wanted.fetch_offset for topic, wanted in context.wanted}
                assert read == {key: wanted.fetch_offset for key, wanted in session.wanted.items()}
            answers = [(topic, PartitionData(partition_index=w.partition)) for topic, w in context.wanted]
            sent = context.finish(answers, 0)
            response = FetchResponse(error_code=context.error, session_id=context.session_id)
            for topic, partitions in by_topic(sent):
                assert isinstance(topic, bytes)
                response.responses.append(FetchableTopicResponse(topic_id=topic, partitions=partitions))
            if step == "answer lost":
                session.lost()
            else:
                session.answered(response)


def test_a_leader_that_keeps_no_session_any_longer_is_asked_for_everything_again() -> None:
    session = LeaderSession()
    session.wants(A, at(5))
    session.wants(B, at(7))
    session.request(1024)
    assert session.answered(FetchResponse(session_id=77))
    session.wants(A, at(6))
    session.request(1024)
    assert session.answered(FetchResponse(session_id=0)), "the records of the response count"
    full = session.request(1024)
    assert (full.session_id, full.session_epoch, named(full)) == (0, 0, [(A, 6), (B, 7)])


WORDS = st.sampled_from(["wants", "forget", "step", "step", "end"])


@given(st.lists(st.tuples(WORDS, KEYS, st.integers(0, 3)), max_size=60))
@settings(max_examples=examples(200), deadline=None)
def test_changes_while_a_request_is_made_are_in_it_or_in_the_next(
    steps: list[tuple[str, PartitionKey, int]],
) -> None:
    session = LeaderSession()
    known: dict[PartitionKey, int] = {}
    """The fetch offsets that the leader reads."""

    def arrives(request: FetchRequest) -> None:
        removed = {(topic.topic_id, place) for topic in request.forgotten_topics_data for place in topic.partitions}
        names = dict(named(request))
        assert not removed & names.keys()
        if request.session_epoch == 0:
            known.clear()
        known.update(names)
        for key in removed:
            del known[key]
        assert session.answered(FetchResponse(session_id=9))

    with patch.object(leader_session, "NAMED_IN_A_STEP", 1):
        making: Stepwise[FetchRequest] | None = None
        for step, key, offset in [*steps, ("end", A, 0), ("end", A, 0)]:
            if step == "wants":
                session.wants(key, at(offset))
            elif step == "forget":
                session.forget(key)
            else:
                making = making or session.request_steps(1024)
                try:
                    while True:
                        next(making)
                        if step == "step":
                            break
                except StopIteration as end:
                    making = None
                    arrives(end.value)
    assert known == {key: wanted.fetch_offset for key, wanted in session.wanted.items()}
