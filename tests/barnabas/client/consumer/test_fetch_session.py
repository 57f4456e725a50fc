"""A client's fetch session, held against the broker's: both sides always mean the same partitions."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.fetch_context import FetchContext, by_topic
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.client.consumer.fetch_session import LAST_VERSION_WITH_NAMES, FetchSession, Wanted
from barnabas.client.metadata import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.protocol.primitives import ZERO_UUID
from tests.examples import examples

VERSION = 18
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
IDS = {"a": b"A" * 16, "b": b"B" * 16}


def want(offset: int = 0, topic: str = "a", epoch: int = 1) -> Wanted:
    return Wanted(IDS[topic], offset, epoch, 1000)


class Broker:
    """Answers as one does, with the records of every partition that it is asked to read."""

    def __init__(self) -> None:
        self.sessions = FetchSessions(Random(1))

    def answer(self, session: FetchSession, wanted: dict[TopicPartition, Wanted]) -> FetchResponse:
        """To the next request of `session`."""
        request, at_most = session.request(wanted)
        version = VERSION if at_most is None else at_most
        context = self.sessions.open(request, version, from_follower=False, now_ms=0)
        if context.error is not ErrorCode.NONE:
            return FetchResponse(error_code=context.error)
        self.saw = seen(context)
        answers = [
            (key, PartitionData(partition_index=part.partition, high_watermark=9, records=b"data"))
            for key, part in context.to_read
        ]
        topics = [
            FetchableTopicResponse(
                topic=key if isinstance(key, str) else "",
                topic_id=key if isinstance(key, bytes) else ZERO_UUID,
                partitions=parts,
            )
            for key, parts in by_topic(context.finish(answers, 0))
        ]
        return FetchResponse(session_id=context.session_id, responses=topics)


def seen(context: FetchContext) -> dict[tuple[bytes | str, int], tuple[int, int]]:
    return {(key, part.partition): (part.fetch_offset, part.current_leader_epoch) for key, part in context.wanted}


@pytest.mark.feature("CG-22")
def test_unchanged_partitions_are_left_out() -> None:
    session, broker = FetchSession(), Broker()
    answers = session.answered(broker.answer(session, {A0: want(), A1: want(), B0: want(topic="b")}))
    assert list(answers.partitions) == [A0, A1, B0]
    assert session.is_open

    request, _ = session.request({A0: want(5), A1: want(), B0: want(topic="b")})
    [topic] = request.topics
    assert [(part.partition, part.fetch_offset) for part in topic.partitions] == [(0, 5)]
    assert request.forgotten_topics_data == []
    assert request.session_epoch == 1


def test_a_partition_no_longer_wanted_is_forgotten() -> None:
    session, broker = FetchSession(), Broker()
    session.answered(broker.answer(session, {A0: want(), B0: want(topic="b")}))
    session.answered(broker.answer(session, {B0: want(topic="b")}))
    assert broker.saw == {(IDS["b"], 0): (0, 1)}


def test_a_session_that_the_broker_lost_starts_again() -> None:
    session, broker = FetchSession(), Broker()
    session.answered(broker.answer(session, {A0: want()}))
    broker.sessions = FetchSessions(Random(2))
    answers = session.answered(broker.answer(session, {A0: want(3)}))
    assert answers.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert list(session.answered(broker.answer(session, {A0: want(3)})).partitions) == [A0]
    assert broker.saw == {(IDS["a"], 0): (3, 1)}


def test_a_topic_created_again_is_another_topic() -> None:
    session, broker = FetchSession(), Broker()
    session.answered(broker.answer(session, {A0: want()}))
    session.answered(broker.answer(session, {A0: want()._replace(topic_id=b"N" * 16)}))
    assert broker.saw == {(b"N" * 16, 0): (0, 1)}


def test_without_ids_topics_are_called_by_their_names() -> None:
    session, broker = FetchSession(), Broker()
    nameless = Wanted(ZERO_UUID, 0, 1, 1000)
    _, at_most = session.request({A0: nameless})
    assert at_most == LAST_VERSION_WITH_NAMES
    session.failed()
    answers = session.answered(broker.answer(session, {A0: nameless, B0: want(topic="b")}))
    assert list(answers.partitions) == [A0, B0]


def test_a_broker_without_room_for_sessions_gets_full_requests() -> None:
    session, broker = FetchSession(), Broker()
    broker.sessions = FetchSessions(Random(1), max_sessions=0)
    for _ in range(3):
        assert list(session.answered(broker.answer(session, {A0: want(), A1: want()})).partitions) == [A0, A1]
        assert not session.is_open


def test_partitions_missing_in_a_full_response_are_reported() -> None:
    session = FetchSession()
    session.request({A0: want(), A1: want()})
    part = PartitionData(partition_index=0)
    response = FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic_id=IDS["a"], partitions=[part])])
    answers = session.answered(response)
    assert (list(answers.partitions), answers.silent) == ([A0], [A1])
    request, _ = session.request({A0: want(), A1: want()})
    assert (request.session_id, request.session_epoch) == (7, 0), "it may have kept a session that lacks one"


def test_answers_that_nobody_asked_for_are_not_taken() -> None:
    session = FetchSession()
    session.request({A0: want()})
    parts = [PartitionData(partition_index=index) for index in (0, 5)]
    strangers = [FetchableTopicResponse(topic_id=b"?" * 16, partitions=[PartitionData()])]
    topics = [FetchableTopicResponse(topic_id=IDS["a"], partitions=parts), *strangers]
    assert list(session.answered(FetchResponse(session_id=7, responses=topics)).partitions) == [A0]


def test_the_end_of_a_session_is_said_once() -> None:
    session, broker = FetchSession(), Broker()
    assert session.end() is None
    session.answered(broker.answer(session, {A0: want()}))
    request = session.end()
    assert request is not None
    assert request.session_epoch == -1
    broker.sessions.open(request, VERSION, from_follower=False, now_ms=0)
    assert len(broker.sessions) == 0
    assert session.end() is None


def test_epochs_wrap_to_one() -> None:
    session, broker = FetchSession(), Broker()
    session.answered(broker.answer(session, {A0: want()}))
    session._epoch = 2**31 - 1
    session.request({A0: want()})
    [ours] = broker.sessions._sessions
    session.answered(FetchResponse(session_id=ours))
    assert session.request({A0: want()})[0].session_epoch == 1


PARTITIONS = [A0, A1, B0, TopicPartition("b", 1), TopicPartition("c", 0)]
wanted_maps = st.dictionaries(
    st.sampled_from(PARTITIONS),
    st.builds(
        Wanted, st.sampled_from([b"1" * 16, b"2" * 16, ZERO_UUID]), st.integers(0, 3), st.integers(0, 1), st.just(9)
    ),
    min_size=1,
)
faults = st.sampled_from(["none", "none", "none", "request lost", "answer lost", "evicted"])


def id_of(topic: str, life: bytes) -> bytes:
    return life if life == ZERO_UUID else topic.encode() + life[1:]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(wanted_maps, faults), max_size=12))
def test_both_sides_mean_the_same(steps: list[tuple[dict[TopicPartition, Wanted], str]]) -> None:
    session, broker = FetchSession(), Broker()
    for wanted, fault in steps:
        # A topic has one id at a time, and no two topics ever have the same.
        lives = {partition.topic: each.topic_id for partition, each in wanted.items()}
        wanted = {p: each._replace(topic_id=id_of(p.topic, lives[p.topic])) for p, each in wanted.items()}
        if fault == "evicted":
            broker.sessions = FetchSessions(Random(3))
        if fault == "request lost":
            session.request(wanted)
            session.failed()
            continue
        response = broker.answer(session, wanted)
        if fault == "answer lost":
            session.failed()
            continue
        answers = session.answered(response)
        if answers.code is not ErrorCode.NONE:
            assert answers.code in {
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            }
            answers = session.answered(broker.answer(session, wanted))
        assert answers.code is ErrorCode.NONE
        by_name = any(isinstance(key, str) for key, _ in broker.saw)
        assert broker.saw == {
            (p.topic if by_name else each.topic_id, p.partition): (each.offset, each.leader_epoch)
            for p, each in wanted.items()
        }
        assert set(answers.partitions) <= set(wanted)
