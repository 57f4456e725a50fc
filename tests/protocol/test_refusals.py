"""The refusal of a whole request has its error in every place that the answer has for one."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.refusals import refusal_of
from barnabas.protocol.schema import Struct, decode, encode, parse_versions

REFUSED = ErrorCode.UNKNOWN_SERVER_ERROR


def filled(kind: type[Struct], version: int) -> Any:
    """A struct with one item in each of the arrays that this version carries."""
    made = kind()
    for spec in kind.FIELDS:
        element = spec.type.element
        if version not in parse_versions(spec.versions):
            continue
        if element is not None and element.struct is not None:
            setattr(made, spec.name, [filled(element.struct, version)])
        elif element is not None:
            setattr(made, spec.name, ["one"] if element.name == "string" else [7] if element.name != "uuid" else [])
        elif spec.type.name == "string":
            setattr(made, spec.name, spec.name)
    return made


@pytest.mark.parametrize("key", list(API_SPECS), ids=lambda key: key.name)
def test_every_api_has_a_refusal_in_every_version(key: ApiKey) -> None:
    spec = API_SPECS[key]
    for version in range(spec.min_version, spec.max_version + 1):
        request = filled(spec.request_type(), version)
        refusal = refusal_of(request, version, REFUSED, "no")
        again = decode(spec.response_type(), encode(refusal, version), version)
        assert f"error_code={REFUSED.value}" in repr(again)


def test_items_keep_the_names_of_the_request() -> None:
    produce = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=3)])])
    (topic,) = refusal_of(produce, 9, REFUSED).responses  # type: ignore[attr-defined]
    (partition,) = topic.partition_responses
    assert (topic.name, partition.index, partition.base_offset, partition.error_code) == ("t", 3, -1, REFUSED)

    fetch = FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=4)])])
    (topic,) = refusal_of(fetch, 4, REFUSED).responses  # type: ignore[attr-defined]
    assert (topic.topic, topic.partitions[0].partition_index) == ("t", 4)

    groups = refusal_of(DescribeGroupsRequest(groups=["g", "h"]), 5, REFUSED).groups  # type: ignore[attr-defined]
    assert [(group.group_id, group.error_code) for group in groups] == [("g", REFUSED), ("h", REFUSED)]

    asked = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[1, 2])])
    (group,) = refusal_of(OffsetFetchRequest(groups=[asked]), 8, REFUSED).groups  # type: ignore[attr-defined]
    indexes = [(it.partition_index, it.committed_offset) for it in group.topics[0].partitions]
    assert (group.group_id, group.topics[0].name, indexes) == ("g", "t", [(1, -1), (2, -1)])


def test_topics_are_answered_without_the_directories_around_them() -> None:
    topic = AlterReplicaLogDirTopic(name="t", partitions=[3, 4])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/data", topics=[topic])])
    (answer,) = refusal_of(request, 2, REFUSED).results  # type: ignore[attr-defined]
    codes = [(each.partition_index, each.error_code) for each in answer.partitions]
    assert (answer.topic_name, codes) == ("t", [(3, REFUSED), (4, REFUSED)])


@pytest.mark.parametrize("kind", [BeginQuorumEpochRequest, EndQuorumEpochRequest])
def test_endpoints_of_a_leader_are_no_topics(kind: type[Any]) -> None:
    refusal: Any = refusal_of(filled(kind, 1), 1, REFUSED)
    assert [each.topic_name for each in refusal.topics] == ["topic_name"]


def test_a_request_that_names_nothing_is_refused_in_as_many_words() -> None:
    refusal = refusal_of(DeleteTopicsRequest(), 5, ErrorCode.NOT_CONTROLLER)
    assert refusal.responses == []  # type: ignore[attr-defined]
