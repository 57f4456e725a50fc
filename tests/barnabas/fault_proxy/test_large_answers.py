"""A Metadata response of 20,000 partitions passes in steps, and nothing overtakes it."""

from __future__ import annotations

from uuid import UUID

from barnabas.fault_proxy.dialogue import sized
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import response_prefix
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.schema import encode
from tests.barnabas.fault_proxy.client_wire import PROXY, ClientWire, read_answer

VERSION = 12
TOPICS, PARTITIONS = 2_000, 10


def metadata() -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3])
        for index in range(PARTITIONS)
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="broker", port=9092)],
        topics=[
            MetadataResponseTopic(name=f"topic-{number}", topic_id=UUID(int=number + 1).bytes, partitions=partitions)
            for number in range(TOPICS)
        ],
    )


def frame_of(response: MetadataResponse, number: int) -> bytes:
    return sized(response_prefix(number, flexible=True) + encode(response, VERSION))


def test_a_large_answer_passes_in_steps() -> None:
    wire = ClientWire()
    wire.ask(MetadataRequest(), VERSION)
    steps = 0
    for _ in wire.dialogue.answers.receive(frame_of(metadata(), 1), wire.now):
        steps += 1
        assert wire.to_client() == b"", "nothing of it leaves before the last step"
    # Each has a bounded number of elements, as in a broker (tests/protocol).
    assert steps > 100
    _, answer = read_answer(wire.to_client(), ApiKey.METADATA, VERSION)
    assert (answer.brokers[0].host, answer.brokers[0].port) == PROXY
    assert [len(each.partitions) for each in answer.topics] == [PARTITIONS] * TOPICS
    assert wire.common.topics.name_of(UUID(int=TOPICS).bytes) == f"topic-{TOPICS - 1}"


def test_an_answer_of_the_proxy_waits_for_the_large_one_before_it() -> None:
    wire = ClientWire("Heartbeat error=NOT_COORDINATOR")
    wire.ask(MetadataRequest(), VERSION)
    steps = wire.dialogue.answers.receive(frame_of(metadata(), 1), wire.now)
    for _ in range(3):
        next(steps)
    wire.ask(HeartbeatRequest(group_id="g"), 4)
    assert wire.to_client() == b""
    for _ in steps:
        pass
    both = wire.to_client()
    first = 4 + int.from_bytes(both[:4], "big")
    assert read_answer(both[:first], ApiKey.METADATA, VERSION)[0] == 1
    assert read_answer(both[first:], ApiKey.HEARTBEAT, 4)[0] == 2


def test_a_small_answer_passes_at_once() -> None:
    wire = ClientWire()
    wire.ask(MetadataRequest(), VERSION)
    small = MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="broker", port=9092)])
    assert list(wire.dialogue.answers.receive(frame_of(small, 1), wire.now)) == []
    assert wire.to_client()
