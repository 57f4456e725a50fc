"""Topics of a job: look up, create, and find start and end offsets, before Spark moves anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.metadata import TopicView
from barnabas.client.offset_lookup import EARLIEST, LATEST, Isolation
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.response_errors import is_retriable
from barnabas.protocol.errors import ErrorCode, error_code
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.primitives import uuid_to_string

CREATE_TIMEOUT_MS = 30_000
TOPIC_RESOURCE = 2
RETENTION = "retention.ms"
CLEANUP = "cleanup.policy"


class Bounds(NamedTuple):
    """Offsets of one partition, without `end`."""

    start: int
    end: int


class TopicIdentity(NamedTuple):
    """An existing topic. The name alone may mean another topic tomorrow."""

    cluster_id: str
    topic: str
    topic_id: str
    partitions: tuple[int, ...]


def find(cluster: BlockingCluster, topic: str) -> TopicIdentity:
    """PipelineError if the topic does not exist."""
    found = _look(cluster, topic)
    if found is None:
        raise PipelineError(f"there is no topic {topic} at {cluster.bootstrap}; see `barnabas topics list`")
    return found


def find_or_create(
    cluster: BlockingCluster, topic: str, partitions: int | None, *, otherwise: int = -1, keep: bool = False
) -> tuple[TopicIdentity, bool]:
    """(the topic, whether it was created). A new topic has `partitions`, or `otherwise` (-1: the brokers' default);
    `keep` disables its time retention. PipelineError if it cannot be created, or has other than `partitions`."""
    found = _look(cluster, topic)
    if found is not None:
        if partitions not in (None, len(found.partitions)):
            raise PipelineError(
                f"--partitions {partitions}: topic {topic} already exists and has {len(found.partitions)}; leave out"
                " --partitions, or give another topic"
            )
        return found, False
    _create(cluster, topic, otherwise if partitions is None else partitions, keep)
    return _wait_until_led(cluster, topic), True


def bounds(cluster: BlockingCluster, identity: TopicIdentity) -> dict[int, Bounds]:
    """From the log start offset to the last stable offset, for all partitions."""
    keys = [(identity.topic, partition) for partition in identity.partitions]
    starts = cluster.list_offsets(dict.fromkeys(keys, EARLIEST))
    ends = cluster.list_offsets(dict.fromkeys(keys, LATEST), Isolation.READ_COMMITTED)
    return {key[1]: Bounds(starts[key].offset, max(starts[key].offset, ends[key].offset)) for key in keys}


def offsets_at(
    cluster: BlockingCluster, identity: TopicIdentity, timestamp_ms: int, known: Mapping[int, Bounds]
) -> dict[int, int]:
    """The first offset at or after a timestamp in each partition; its end if there is none."""
    found = cluster.list_offsets({(identity.topic, partition): timestamp_ms for partition in identity.partitions})
    return {
        partition: each.end if (offset := found[identity.topic, partition].offset) < 0 else min(offset, each.end)
        for partition, each in known.items()
    }


def require_same(cluster: BlockingCluster, identity: TopicIdentity) -> None:
    """PipelineError if the topic was deleted or recreated since `identity` was looked up."""
    if find(cluster, identity.topic).topic_id != identity.topic_id:
        raise PipelineError(f"topic {identity.topic} was deleted and recreated while the job read it")


def retention_ms(cluster: BlockingCluster, topic: str) -> int | None:
    """The topic's time retention; None if records are not deleted by age."""
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[RETENTION, CLEANUP]
    )
    response = cluster.call(None, DescribeConfigsRequest(resources=[resource]))
    found = {config.name: config.value for result in response.results for config in result.configs}
    value = found.get(RETENTION)
    if value is None or int(value) < 0 or "delete" not in (found.get(CLEANUP) or ""):
        return None
    return int(value)


def _look(cluster: BlockingCluster, topic: str) -> TopicIdentity | None:
    view = cluster.metadata([topic])
    found: TopicView | None = view.topics.get(topic)
    if found is None or found.error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        return None
    if found.error is ErrorCode.INVALID_TOPIC_EXCEPTION:
        raise PipelineError(f"a topic name must be at most 249 letters, digits, '.', '_' and '-'; got {topic!r}")
    if found.error is not ErrorCode.NONE and not is_retriable(found.error):
        raise PipelineError(f"topic {topic}: {found.error.name}")
    return TopicIdentity(view.cluster_id or "", topic, uuid_to_string(found.topic_id), tuple(sorted(found.partitions)))


def _create(cluster: BlockingCluster, topic: str, partitions: int, keep: bool) -> None:
    configs = [CreatableTopicConfig(name=RETENTION, value="-1")] if keep else []
    wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=-1, configs=configs)
    response = cluster.call(None, CreateTopicsRequest(topics=[wanted], timeout_ms=CREATE_TIMEOUT_MS))
    for made in response.topics:
        code = error_code(made.error_code)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise PipelineError(f"topic {topic} cannot be created: {made.error_message or code.name}")


def _wait_until_led(cluster: BlockingCluster, topic: str) -> TopicIdentity:
    """Wait until the topic is known and its partitions have leaders."""
    found = None
    while found is None or not found.partitions:
        found = _look(cluster, topic)
        if found is None:
            cluster.list_offsets({(topic, 0): LATEST})  # retries, and fails if there is none
    bounds(cluster, found)
    return found
