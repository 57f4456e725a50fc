"""Stories of one connection through the proxy's core: what the broker gets, what the client gets, and when."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.fault_proxy.dialogue import sized
from barnabas.fault_proxy.rules import LinkState
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.messages.share_fetch import ShareFetchRequest
from tests.barnabas.fault_proxy.client_wire import ClientWire, read_answer, read_request

BEAT, BEATEN = HeartbeatRequest(group_id="group"), HeartbeatResponse()
RECORDS = b"\0" * 61


def produce(*topics: str, acks: int = -1) -> ProduceRequest:
    data = [TopicProduceData(name=name, partition_data=[PartitionProduceData(records=RECORDS)]) for name in topics]
    return ProduceRequest(acks=acks, topic_data=data)


def produced(*topics: str) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(name=name, partition_responses=[PartitionProduceResponse(base_offset=7)])
            for name in topics
        ]
    )


def outcomes(data: bytes, version: int = 9) -> dict[str, tuple[int, int]]:
    """Error and offset by topic."""
    _, answer = read_answer(data, ApiKey.PRODUCE, version)
    return {
        topic.name: (partition.error_code, partition.base_offset)
        for topic in answer.responses
        for partition in topic.partition_responses
    }


def test_without_rules_bytes_pass_unchanged_in_both_directions() -> None:
    wire = ClientWire()
    assert read_request(wire.ask(produce("orders"), 9), ApiKey.PRODUCE, 9) == produce("orders")
    assert outcomes(wire.answer(produced("orders"), 9)) == {"orders": (0, 7)}


def test_an_api_that_is_not_known_passes_as_bytes() -> None:
    wire = ClientWire("Produce drop=request", "* client=app delay_ms=1000")
    frame = sized(struct.pack(">hhih", 999, 7, 1, 3) + b"appand what only newer clients know")
    wire.dialogue.requests.feed(frame, wire.now)
    assert wire.to_broker() == b""
    wire.now += 1
    assert wire.to_broker() == frame
    answer = sized(struct.pack(">i", 1) + b"anything")
    wire.dialogue.answers.feed(answer, wire.now)
    assert wire.to_client() == answer


@given(st.lists(st.integers(1, 40), min_size=1))
def test_frames_may_arrive_in_any_pieces(sizes: list[int]) -> None:
    wire = ClientWire()
    frames = [sized(struct.pack(">hhih", 999, 0, number, -1) + b"x" * number) for number in range(5)]
    rest, sent = b"".join(frames), b""
    for size in [*sizes, len(rest)]:
        wire.dialogue.requests.feed(rest[:size], wire.now)
        rest = rest[size:]
        sent += wire.to_broker()
    assert sent == b"".join(frames)


# ---- which requests


def test_a_rule_counts_the_requests_that_it_is_about() -> None:
    wire = ClientWire("Heartbeat client=app-* error=REBALANCE_IN_PROGRESS after=1 every=2 times=2")
    assert wire.ask(BEAT, 4, "other")
    passed = [bool(wire.ask(BEAT, 4, f"app-{number}")) for number in range(8)]
    assert passed == [True, False, True, False, True, True, True, True]
    [rule] = wire.rules
    assert (rule.matched, rule.struck) == (4, 2)  # it is used up then


def test_the_first_rule_that_strikes_decides() -> None:
    wire = ClientWire("Heartbeat error=REBALANCE_IN_PROGRESS times=1", "* error=NOT_COORDINATOR")
    codes = []
    for _ in range(2):
        wire.ask(BEAT, 4)
        codes.append(read_answer(wire.to_client(), ApiKey.HEARTBEAT, 4)[1].error_code)
    assert codes == [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]


def test_rules_that_do_nothing_say_why() -> None:
    wire = ClientWire("Fetch error=1", "Heartbeat error=16 after=5")
    wire.ask(BEAT, 4)
    assert wire.common.rules.never_struck() == [
        "rule 1 never matched a request: Fetch error=OFFSET_OUT_OF_RANGE",
        "rule 2 matched 1 request and struck none: Heartbeat error=NOT_COORDINATOR after=5",
    ]


# ---- what happens to them


def test_answers_keep_the_order_of_the_requests() -> None:
    wire = ClientWire("Produce error=NOT_LEADER_OR_FOLLOWER")
    assert wire.ask(BEAT, 4)
    assert wire.ask(produce("orders"), 9) == b""
    assert wire.to_client() == b""
    both = wire.answer(BEATEN, 4, correlation_id=1)
    first = 4 + int.from_bytes(both[:4], "big")
    assert read_answer(both[:first], ApiKey.HEARTBEAT, 4)[0] == 1
    assert outcomes(both[first:]) == {"orders": (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)}


def test_a_lost_request_takes_those_after_it_along_but_no_earlier_answer() -> None:
    wire = ClientWire("Produce drop=request")
    assert wire.ask(BEAT, 4)
    assert wire.ask(produce("orders"), 9) == b""
    assert wire.ask(BEAT, 4) == b""
    assert wire.answer(BEATEN, 4, correlation_id=1)
    assert not wire.is_reset


def test_a_lost_answer_was_preceded_by_its_effect() -> None:
    wire = ClientWire("Produce drop=response")
    assert wire.ask(produce("orders"), 9)
    assert wire.answer(produced("orders"), 9) == b""
    assert wire.ask(BEAT, 4), "one way is cut: the broker goes on"
    assert wire.answer(BEATEN, 4) == b""
    assert not wire.is_reset


@pytest.mark.parametrize("cut", ["request", "response", "mid-frame"])
def test_a_cut_resets_the_connection_where_it_says(cut: str) -> None:
    wire = ClientWire(f"Produce cut={cut}")
    sent = wire.ask(produce("orders"), 9)
    if cut == "request":
        assert (sent, wire.is_reset) == (b"", True)
        return
    assert sent and not wire.is_reset
    wire.dialogue.answers.feed(b"", wire.now)
    got = wire.answer(produced("orders"), 9)
    whole = 4 + int.from_bytes(got[:4], "big") if got else 0
    assert (cut == "mid-frame") == (0 < len(got) < whole)
    assert wire.is_reset


def test_an_answer_that_is_delayed_holds_back_those_after_it() -> None:
    wire = ClientWire("Produce response_delay_ms=500 times=1")
    wire.ask(produce("orders"), 9)
    assert wire.answer(produced("orders"), 9) == b""
    wire.ask(BEAT, 4)
    assert wire.answer(BEATEN, 4) == b""
    assert wire.later(0.4) == b""
    both = wire.later(0.2)
    first = 4 + int.from_bytes(both[:4], "big")
    assert outcomes(both[:first]) == {"orders": (0, 7)}
    assert read_answer(both[first:], ApiKey.HEARTBEAT, 4)[0] == 2


def test_an_error_may_come_after_the_effect() -> None:
    wire = ClientWire("Produce error=REQUEST_TIMED_OUT applied=true")
    assert wire.ask(produce("orders"), 9)
    assert outcomes(wire.answer(produced("orders"), 9)) == {"orders": (ErrorCode.REQUEST_TIMED_OUT, -1)}


def test_a_throttle_time_stands_in_the_answer() -> None:
    wire = ClientWire("Produce throttle_ms=1500", "Heartbeat error=16 throttle_ms=20")
    wire.ask(produce("orders"), 9)
    _, answer = read_answer(wire.answer(produced("orders"), 9), ApiKey.PRODUCE, 9)
    assert (answer.throttle_time_ms, answer.responses) == (1500, produced("orders").responses)
    wire.ask(BEAT, 4)
    assert read_answer(wire.to_client(), ApiKey.HEARTBEAT, 4)[1].throttle_time_ms == 20


# ---- parts of requests


def test_topics_that_are_not_meant_are_written() -> None:
    wire = ClientWire("Produce topic=orders error=NOT_LEADER_OR_FOLLOWER")
    sent = read_request(wire.ask(produce("orders", "others"), 9), ApiKey.PRODUCE, 9)
    [topic] = sent.topic_data
    assert (topic.name, bytes(topic.partition_data[0].records)) == ("others", RECORDS)
    assert outcomes(wire.answer(produced("others"), 9)) == {
        "others": (0, 7),
        "orders": (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
    }


def test_topics_are_known_by_their_ids_once_metadata_has_shown_them() -> None:
    wire = ClientWire("Produce topic=orders error=NOT_LEADER_OR_FOLLOWER")
    topic_id = bytes(range(16))
    wire.ask(MetadataRequest(), 13)
    wire.answer(MetadataResponse(topics=[MetadataResponseTopic(name="orders", topic_id=topic_id)]), 13)
    request = ProduceRequest(
        acks=1, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(index=4)])]
    )
    assert wire.ask(request, 13) == b""
    _, answer = read_answer(wire.to_client(), ApiKey.PRODUCE, 13)
    [topic] = answer.responses
    assert (topic.topic_id, topic.partition_responses[0].index) == (topic_id, 4)


def test_a_group_is_answered_once_for_both_of_its_topics() -> None:
    wire = ClientWire("OffsetFetch topic=orders error=UNKNOWN_TOPIC_OR_PARTITION")
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in ("orders", "others")]
    sent = wire.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)]), 8)
    [group] = read_request(sent, ApiKey.OFFSET_FETCH, 8).groups
    assert [each.name for each in group.topics] == ["others"]
    others = OffsetFetchResponseTopics(name="others", partitions=[OffsetFetchResponsePartitions(committed_offset=3)])
    real = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[others])])
    _, answer = read_answer(wire.answer(real, 8), ApiKey.OFFSET_FETCH, 8)
    [group] = answer.groups
    found = {each.name: (each.partitions[0].error_code, each.partitions[0].committed_offset) for each in group.topics}
    assert found == {"others": (0, 3), "orders": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)}


def test_lists_of_names_are_split_as_well() -> None:
    wire = ClientWire("DeleteTopics topic=orders error=TOPIC_DELETION_DISABLED")
    sent = wire.ask(DeleteTopicsRequest(topic_names=["orders", "others"]), 5)
    assert read_request(sent, ApiKey.DELETE_TOPICS, 5).topic_names == ["others"]
    real = DeleteTopicsResponse(responses=[DeletableTopicResult(name="others")])
    _, answer = read_answer(wire.answer(real, 5), ApiKey.DELETE_TOPICS, 5)
    assert {each.name: each.error_code for each in answer.responses} == {
        "others": 0,
        "orders": ErrorCode.TOPIC_DELETION_DISABLED,
    }


# ---- sessions


def fetch(epoch: int, *topics: str) -> FetchRequest:
    named = [FetchTopic(topic=name, partitions=[FetchPartition(partition=0)]) for name in topics]
    return FetchRequest(session_id=5 if epoch > 0 else 0, session_epoch=epoch, topics=named)


def test_a_fetch_session_ends_while_a_rule_is_about_its_topics() -> None:
    wire = ClientWire()
    assert wire.ask(fetch(3), 12)
    wire.answer(FetchResponse(), 12)
    rule = wire.common.rules.add(ClientWire("Fetch topic=orders error=NOT_LEADER_OR_FOLLOWER times=1").rules[0].fault)
    assert wire.ask(fetch(4), 12) == b""
    _, answer = read_answer(wire.to_client(), ApiKey.FETCH, 12)
    assert (answer.error_code, rule.matched) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    sent = read_request(wire.ask(fetch(0, "orders", "others"), 12), ApiKey.FETCH, 12)
    assert (sent.session_epoch, [each.topic for each in sent.topics]) == (-1, ["others"])
    _, answer = read_answer(wire.answer(FetchResponse(), 12), ApiKey.FETCH, 12)
    assert [each.topic for each in answer.responses] == ["orders"]
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert read_request(wire.ask(fetch(0, "orders"), 12), ApiKey.FETCH, 12).session_epoch == 0


def test_a_share_session_begins_again_so_that_a_rule_finds_its_topic() -> None:
    wire = ClientWire("ShareFetch topic=orders error=NOT_LEADER_OR_FOLLOWER")
    assert wire.ask(ShareFetchRequest(group_id="g", share_session_epoch=2), 1) == b""
    _, answer = read_answer(wire.to_client(), ApiKey.SHARE_FETCH, 1)
    assert answer.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert wire.ask(ShareFetchRequest(group_id="g", share_session_epoch=0), 1)


# ---- hostile and broken peers


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", sized(b"\0"), sized(struct.pack(">hhih", 0, 9, 1, 500))],
    ids=["http", "tls", "short", "long client id"],
)
def test_bytes_that_are_no_request_end_the_connection(data: bytes) -> None:
    wire = ClientWire()
    wire.dialogue.requests.feed(data, wire.now)
    assert wire.is_reset and wire.dialogue.reason
    assert wire.to_broker() == b""


def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    wire = ClientWire()
    wire.dialogue.answers.feed(sized(struct.pack(">i", 77)), wire.now)
    assert wire.is_reset and "77" in wire.dialogue.reason


def test_a_login_whose_tokens_have_no_heads_is_refused() -> None:
    wire = ClientWire()
    assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0) == b""
    assert wire.is_reset and "SaslHandshake" in wire.dialogue.reason


def test_many_requests_without_answers_end_the_connection() -> None:
    wire = ClientWire("Heartbeat cut=request after=1000000")
    for _ in range(10_001):
        wire.ask(BEAT, 4)
    assert wire.is_reset


def test_producers_without_answers_may_send_for_ever() -> None:
    wire = ClientWire()
    for _ in range(10_050):
        assert wire.ask(produce("orders", acks=0), 9)
    wire.ask(BEAT, 4)
    assert wire.answer(BEATEN, 4)


def test_a_cut_link_lets_one_way_pass() -> None:
    wire = ClientWire()
    wire.common.faults.set_link("broker:9092", "client", LinkState(cut=True))
    assert wire.ask(BEAT, 4)
    assert wire.answer(BEATEN, 4) == b""
    wire.common.faults.heal()
    assert wire.to_client()


def test_answers_that_wait_for_earlier_ones_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.fault_proxy.dialogue.MOST_READY_BYTES", 200_000)
    wire = ClientWire("OffsetFetch error=UNKNOWN_TOPIC_OR_PARTITION")
    assert wire.ask(BEAT, 4)
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=list(range(2_000)))]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    asked = 0
    while not wire.is_reset:
        wire.ask(request, 8)
        asked += 1
        assert asked < 20
    assert "wait for earlier ones" in wire.dialogue.reason


def test_a_rule_about_answers_is_not_about_requests_that_get_none() -> None:
    wire = ClientWire("Produce drop=response")
    assert wire.ask(produce("orders", acks=0), 9)
    assert wire.rules[0].matched == 0


def test_a_slow_link_does_not_cut_a_large_frame_into_crumbs() -> None:
    wire = ClientWire()
    wire.common.faults.set_link("broker:9092", "client", LinkState(bytes_per_second=100))
    wire.ask(BEAT, 4)
    wire.dialogue.answers.feed(sized(struct.pack(">i", 1) + bytes(1_000_000)), wire.now)
    assert 0 < wire.dialogue.answers.portions <= 2100


def test_a_request_with_very_many_elements_passes_undecoded() -> None:
    wire = ClientWire("OffsetFetch error=UNKNOWN_TOPIC_OR_PARTITION")
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=list(range(30_000)))]
    assert wire.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)]), 8)
    assert wire.rules[0].matched == 0
