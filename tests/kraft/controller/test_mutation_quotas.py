"""Partitions that requests create and delete are counted against a quota of mutations, topic by topic."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kraft.controller.state import Asked
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.schema import Message
from tests.kraft.controller.conftest import Cluster, finish

pytestmark = pytest.mark.feature("QU-08")

NONE, EXCEEDED = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED


class Tokens:
    """A quota that allows so many more partitions."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.spent: list[int] = []

    def spend(self, partitions: int) -> None:
        if partitions > self.left:
            raise KafkaError(EXCEEDED, "too many")
        self.left -= partitions
        self.spent.append(partitions)


def send(cluster: Cluster, request: Message, tokens: Tokens) -> Any:
    asked = Asked(mutations=tokens)  # type: ignore[arg-type]
    version = request.VERSIONS.highest
    result = finish(cluster.controller.decide(request, version, len(cluster.log), cluster.now_ms, asked))
    cluster.append(result)
    return result.response


def created(*counts: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=f"t{place}", num_partitions=count, replication_factor=1)
            for place, count in enumerate(counts)
        ]
    )


def test_each_new_topic_spends_its_partitions(cluster: Cluster) -> None:
    tokens = Tokens(6)
    response = send(cluster, created(3, 4, 2), tokens)
    assert [it.error_code for it in response.topics] == [NONE, EXCEEDED, NONE]
    assert tokens.spent == [3, 2]
    assert sorted(cluster.image.topics.by_name) == ["t0", "t2"], "what fits is created"


def test_more_partitions_spend_what_is_added(cluster: Cluster) -> None:
    cluster.send(created(3, 1))
    tokens = Tokens(4)
    wanted = {"t0": 6, "t1": 3}
    topics = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in wanted.items()]
    response = send(cluster, CreatePartitionsRequest(topics=topics), tokens)
    assert [it.error_code for it in response.results] == [NONE, EXCEEDED]
    assert tokens.spent == [3]
    assert [len(cluster.image.topics.by_name[name].partitions) for name in ("t0", "t1")] == [6, 1]


def test_a_deleted_topic_spends_its_partitions(cluster: Cluster) -> None:
    cluster.send(created(3, 4, 2))
    tokens = Tokens(5)
    topics = [DeleteTopicState(name=f"t{place}") for place in range(3)]
    response = send(cluster, DeleteTopicsRequest(topics=topics), tokens)
    assert {it.name: it.error_code for it in response.responses} == {"t0": NONE, "t1": EXCEEDED, "t2": NONE}
    assert tokens.spent == [3, 2]
    assert sorted(cluster.image.topics.by_name) == ["t1"]


def test_a_refusal_for_another_reason_spends_nothing(cluster: Cluster) -> None:
    cluster.send(created(3))
    tokens = Tokens(100)
    send(cluster, created(3), tokens)
    send(cluster, DeleteTopicsRequest(topics=[DeleteTopicState(name="unknown")]), tokens)
    topics = [CreatePartitionsTopic(name="t0", count=2, assignments=None)]
    send(cluster, CreatePartitionsRequest(topics=topics), tokens)
    assert tokens.spent == []
