"""Metadata of a cluster, response by response."""

from __future__ import annotations

import pytest

from barnabas.client.metadata import Leadership, Metadata, Node, PartitionInfo, TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from barnabas.protocol.primitives import ZERO_UUID
from tests.barnabas.client.plain_node import PORT, metadata

T0 = TopicPartition("t", 0)


def knowing(response: MetadataResponse) -> Metadata:
    known = Metadata()
    known.absorb(response)
    return known


@pytest.mark.feature("PR-01")
def test_an_answer_is_taken_over() -> None:
    known = knowing(metadata({1: "b1", 2: "b2"}, {"t": 2}, racks={2: "r2"}))
    assert known.nodes == {1: Node(1, "b1", PORT), 2: Node(2, "b2", PORT, "r2")}
    assert (known.cluster_id, known.controller_id) == ("plain", 1)
    assert known.leadership(T0) == Leadership(1, 3)
    assert known.topic_name(known.topic_id("t")) == "t"
    assert known.partitions("t") == [PartitionInfo("t", index, known.nodes[1], (1, 2), (1,), ()) for index in range(2)]
    assert known.partitions("other") == []
    assert known.leadership(TopicPartition("t", 7)) is None
    assert known.leadership(TopicPartition("other", 0)) is None
    assert known.topic_id("other") == ZERO_UUID


@pytest.mark.feature("PR-01")
def test_leaders_named_by_other_responses() -> None:
    known = knowing(metadata({1: "b1"}, {"t": 1}))
    assert not known.learn_leader(T0, 2, 4), "nobody knows where that is"
    assert known.learn_nodes([Node(2, "b2", PORT)]) == []
    assert known.learn_leader(T0, 2, 4)
    assert known.leadership(T0) == Leadership(2, 4)
    assert not known.learn_leader(T0, 1, 4)
    assert not known.learn_leader(T0, 1, 3)
    assert not known.learn_leader(TopicPartition("t", 9), 1, 5)
    assert not known.learn_leader(TopicPartition("other", 0), 1, 5)
    known.absorb(metadata({1: "b1", 2: "b2"}, {"t": 1}))
    assert known.leadership(T0) == Leadership(2, 4), "that broker lags behind"


def test_a_node_that_moved() -> None:
    known = knowing(metadata({1: "b1", 2: "b2"}, racks={1: "r1"}))
    assert known.learn_nodes([Node(1, "b1", PORT)]) == []
    assert known.nodes[1].rack == "r1", "an address may come without its rack"
    assert known.learn_nodes([Node(1, "b1", PORT, "r2"), Node(2, "elsewhere", PORT)]) == [2]
    assert known.nodes == {1: Node(1, "b1", PORT, "r2"), 2: Node(2, "elsewhere", PORT)}
    assert known.absorb(metadata({1: "b1", 3: "b3"})) == []
    assert list(known.nodes) == [1, 3]


def test_a_new_life_of_a_topic_is_believed_whatever_its_epochs() -> None:
    known = knowing(metadata({1: "b1"}, {"t": 3}))
    known.learn_leader(T0, 1, 9)
    again = metadata({1: "b1"}, {"t": 1})
    again.topics[0].topic_id = b"another id......"
    known.absorb(again)
    assert known.leadership(T0) == Leadership(1, 3)
    assert known.leadership(TopicPartition("t", 2)) is None
    assert known.topic_name(b"another id......") == "t"


def test_a_broker_that_does_not_know_a_topic_yet_takes_nothing_away() -> None:
    known = knowing(metadata({1: "b1"}, {"t": 1}))
    unknown = MetadataResponseTopic(name="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    answer = metadata({1: "b1"})
    answer.topics = [unknown]
    known.absorb(answer)
    assert known.leadership(T0) == Leadership(1, 3)
    assert known.topics["t"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_nobody_leads() -> None:
    answer = metadata({1: "b1"}, {"t": 1})
    answer.topics[0].partitions[0].leader_id = -1
    known = knowing(answer)
    assert known.leadership(T0) is None
    assert known.partitions("t")[0].leader is None


def test_topics_that_nobody_uses_are_forgotten() -> None:
    known = knowing(metadata({1: "b1"}, {"used": 1, "idle": 1}))
    known.want("wanted")
    assert known.forget_unused(1_000, 500) == []
    known.leadership(TopicPartition("used", 0))
    known.want("wanted")
    assert known.forget_unused(1_400, 500) == [], "not long enough"
    assert known.forget_unused(1_500, 500) == ["idle"]
    assert list(known.topics) == ["used", "wanted"]
    assert known.topic_name(b"idle".ljust(16, b"-")) is None
    known.partitions("used")
    assert known.forget_unused(9_000, 500) == ["wanted"]
