"""A share session from the member's side: epochs, acknowledgements and what becomes of them."""

from __future__ import annotations

import pytest

from barnabas.client.shares.acknowledgements import AcknowledgedRange, TopicIdPartition, ranges_of
from barnabas.client.shares.share_session import FetchTerms, ShareSession, Types
from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import share_acknowledge as acknowledging
from barnabas.protocol.messages import share_fetch as fetching

pytestmark = pytest.mark.feature("CL-03")

A = b"a" * 16
A0, A1 = TopicIdPartition(A, "a", 0), TopicIdPartition(A, "a", 1)
TERMS = FetchTerms(500, 1, 1_000_000, 500, 0)
GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
RETRY_MS = 1_000


class Script:
    def __init__(self) -> None:
        self.session = ShareSession("g", "me", RETRY_MS)
        self.now_ms = 0

    def fetches(self, *wanted: TopicIdPartition) -> fetching.ShareFetchRequest:
        return self.session.fetch(wanted, TERMS)

    def is_fetched(self, **errors: ErrorCode) -> None:
        """`a0=…`: the error of the acknowledgements in that partition."""
        topic = fetching.ShareFetchableTopicResponse(
            topic_id=A,
            partitions=[
                fetching.PartitionData(partition_index=int(name[1:]), acknowledge_error_code=code, records=b"")
                for name, code in errors.items()
            ],
        )
        self.session.fetched(fetching.ShareFetchResponse(responses=[topic]), self.now_ms)

    def is_acknowledged(self, **errors: ErrorCode) -> None:
        topic = acknowledging.ShareAcknowledgeTopicResponse(
            topic_id=A,
            partitions=[
                acknowledging.PartitionData(partition_index=int(name[1:]), error_code=code)
                for name, code in errors.items()
            ],
        )
        self.session.acknowledged(acknowledging.ShareAcknowledgeResponse(responses=[topic]), self.now_ms)

    def is_open_with(self, *wanted: TopicIdPartition) -> None:
        self.fetches(*wanted)
        self.is_fetched()

    def results(self) -> list[tuple[TopicIdPartition, Types, ErrorCode]]:
        results, self.session.results = self.session.results, []
        return [
            (each.place, each.types, ErrorCode.NONE if each.error is None else each.error.code) for each in results
        ]


def named(request: fetching.ShareFetchRequest) -> list[int]:
    return [each.partition_index for topic in request.topics for each in topic.partitions]


def forgotten(request: fetching.ShareFetchRequest) -> list[int]:
    return [each for topic in request.forgotten_topics_data for each in topic.partitions]


def test_the_first_request_names_all_and_later_ones_the_changes() -> None:
    it = Script()
    first = it.fetches(A0)
    assert (first.share_session_epoch, named(first)) == (0, [0])
    it.is_fetched()
    second = it.fetches(A0, A1)
    assert (second.share_session_epoch, named(second), forgotten(second)) == (1, [1], [])
    it.is_fetched()
    third = it.fetches(A1)
    assert (third.share_session_epoch, named(third), forgotten(third)) == (2, [], [0])


def test_acknowledgements_go_along_with_a_fetch() -> None:
    it = Script()
    it.is_open_with(A0)
    it.session.acknowledge(A0, {5: ACCEPT, 6: ACCEPT})
    it.session.acknowledge(A1, {1: ACCEPT})
    it.session.acknowledge(A0, {6: REJECT, 9: GAP})
    [topic] = it.fetches(A0).topics
    [partition] = topic.partitions
    batches = [(it.first_offset, it.last_offset, it.acknowledge_types) for it in partition.acknowledgement_batches]
    assert batches == [(5, 6, [ACCEPT, REJECT]), (9, 9, [GAP])]
    assert it.session.has_acknowledgements, "a partition that is not fetched has a request of its own"
    it.is_fetched(a0=ErrorCode.INVALID_RECORD_STATE)
    assert it.results() == [(A0, {5: ACCEPT, 6: REJECT, 9: GAP}, ErrorCode.INVALID_RECORD_STATE)]
    request = it.session.acknowledgements()
    assert (request.share_session_epoch, request.is_renew_ack) == (2, False)
    it.is_acknowledged(a1=ErrorCode.NONE)
    assert it.results() == [(A1, {1: ACCEPT}, ErrorCode.NONE)]


@pytest.mark.parametrize("code", [ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH])
def test_acquisitions_of_a_lost_session_cannot_be_acknowledged(code: ErrorCode) -> None:
    it = Script()
    it.is_open_with(A0)
    it.session.acknowledge(A0, {5: ACCEPT})
    it.fetches(A0)
    it.session.acknowledge(A0, {6: ACCEPT})
    it.session.fetched(fetching.ShareFetchResponse(error_code=code), 0)
    assert it.results() == [(A0, {5: ACCEPT, 6: ACCEPT}, code)]
    assert (it.session.generation, it.session.is_open) == (1, False)
    request = it.fetches(A0)
    assert (request.share_session_epoch, named(request)) == (0, [0])


def test_no_answer_ends_the_session() -> None:
    it = Script()
    it.is_open_with(A0)
    it.session.acknowledge(A0, {5: ACCEPT})
    it.session.acknowledgements()
    it.session.failed(KafkaError(ErrorCode.NETWORK_EXCEPTION))
    assert it.results() == [(A0, {5: ACCEPT}, ErrorCode.NETWORK_EXCEPTION)]
    assert it.fetches(A0).share_session_epoch == 0


def test_passing_errors_are_retried_for_a_while() -> None:
    it = Script()
    it.is_open_with(A0)
    it.session.acknowledge(A0, {5: ACCEPT, 6: ACCEPT})
    for it.now_ms in (0, RETRY_MS - 1):
        it.session.acknowledgements()
        it.session.acknowledge(A0, {6: RELEASE})
        it.is_acknowledged(a0=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert it.results() == []
        assert it.session.unfinished == {A0: {5: ACCEPT, 6: RELEASE}}, "the later decision counts"
    it.now_ms = RETRY_MS
    it.session.acknowledgements()
    it.is_acknowledged(a0=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert it.results() == [(A0, {5: ACCEPT, 6: RELEASE}, ErrorCode.COORDINATOR_NOT_AVAILABLE)]


def test_a_moved_leader_has_forgotten_the_locks() -> None:
    it = Script()
    it.is_open_with(A0)
    it.session.acknowledge(A0, {5: ACCEPT})
    it.fetches(A0)
    it.is_fetched(a0=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert it.results() == [(A0, {5: ACCEPT}, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert it.session.is_open


def test_a_response_without_a_result_is_an_error() -> None:
    it = Script()
    it.is_open_with(A0)
    for answer in (it.is_fetched, it.is_acknowledged):
        it.session.acknowledge(A0, {5: ACCEPT})
        if answer == it.is_fetched:
            it.fetches(A0)
        else:
            it.session.acknowledgements()
        answer(a7=ErrorCode.NONE)
        assert it.results() == [(A0, {5: ACCEPT}, ErrorCode.INVALID_RECORD_STATE)]


def test_renewals_are_marked_and_an_old_broker_gets_the_others() -> None:
    it = Script()
    it.is_open_with(A0)
    it.session.acknowledge(A0, {5: RENEW, 6: ACCEPT})
    assert it.session.renews
    assert it.session.acknowledgements().is_renew_ack
    it.session.cannot_renew(KafkaError(ErrorCode.UNSUPPORTED_VERSION))
    assert it.results() == [(A0, {5: RENEW}, ErrorCode.UNSUPPORTED_VERSION)]
    request = it.session.acknowledgements()
    assert (request.is_renew_ack, request.share_session_epoch) == (False, 1), "nothing was sent before"


def test_the_last_request_ends_the_session() -> None:
    it = Script()
    it.is_open_with(A0)
    it.session.acknowledge(A0, {5: ACCEPT})
    request = it.session.last()
    assert (request.share_session_epoch, len(request.topics)) == (-1, 1)


def test_ranges_of_one_type_are_short() -> None:
    types = dict.fromkeys(range(1000), ACCEPT) | {2_000: RELEASE, 2_001: REJECT}
    assert ranges_of(types) == [
        AcknowledgedRange(0, 999, [ACCEPT]),
        AcknowledgedRange(2_000, 2_001, [RELEASE, REJECT]),
    ]
