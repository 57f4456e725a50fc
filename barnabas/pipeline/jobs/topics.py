"""What jobs ask of a cluster before Spark moves anything: is the topic there, where it begins and ends, make it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.metadata import TopicView
from barnabas.client.offset_lookup import EARLIEST, LATEST, Isolation
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.response_errors import is_retriable
from protocol.errors import ErrorCode, error_code
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.primitives import uuid_to_string

CREATE_TIMEOUT_MS = 30_000
TOPIC_RESOURCE = 2
RETENTION = "retention.ms"
CLEANUP = "cleanup.policy"


class Bounds(NamedTuple):
    """Of one partition: offsets from `start` up to `end`, which is not in it."""

    start: int
    end: int


class TopicIdentity(NamedTuple):
    """A topic that is there: a name alone may mean another one tomorrow."""

    cluster_id: str
    topic: str
    topic_id: str
    partitions: tuple[int, ...]


def find(cluster: BlockingCluster, topic: str) -> TopicIdentity:
    """PipelineError if there is no such topic."""
    found = _look(cluster, topic)
    if found is None:
        raise PipelineError(f"there is no topic {topic} at {cluster.bootstrap}; `barnabas topics list` shows what is")
    return found


def find_or_make(
    cluster: BlockingCluster, topic: str, partitions: int | None, *, otherwise: int = -1, keep: bool = False
) -> tuple[TopicIdentity, bool]:
    """The topic, and whether it was made now: with `partitions`, or with `otherwise` so many; -1 is as brokers like.
    To `keep` is to delete no record for its age. PipelineError if it cannot be made, or is there with another count
    than `partitions`."""
    found = _look(cluster, topic)
    if found is not None:
        if partitions not in (None, len(found.partitions)):
            raise PipelineError(
                f"--partitions {partitions}: the topic {topic} is there and has {len(found.partitions)}; leave it out,"
                " or take another topic"
            )
        return found, False
    _make(cluster, topic, otherwise if partitions is None else partitions, keep)
    return _led(cluster, topic), True


def bounds(cluster: BlockingCluster, identity: TopicIdentity) -> dict[int, Bounds]:
    """Of all partitions: from the log's start to the end of what is committed."""
    keys = [(identity.topic, partition) for partition in identity.partitions]
    starts = cluster.list_offsets(dict.fromkeys(keys, EARLIEST))
    ends = cluster.list_offsets(dict.fromkeys(keys, LATEST), Isolation.READ_COMMITTED)
    return {key[1]: Bounds(starts[key].offset, max(starts[key].offset, ends[key].offset)) for key in keys}


def offsets_at(
    cluster: BlockingCluster, identity: TopicIdentity, timestamp_ms: int, known: Mapping[int, Bounds]
) -> dict[int, int]:
    """In each partition the first offset whose record is not older; its end if there is none."""
    found = cluster.list_offsets({(identity.topic, partition): timestamp_ms for partition in identity.partitions})
    return {
        partition: each.end if (offset := found[identity.topic, partition].offset) < 0 else min(offset, each.end)
        for partition, each in known.items()
    }


def require_same(cluster: BlockingCluster, identity: TopicIdentity) -> None:
    """PipelineError if the topic is gone, or was made anew, since `identity` was looked up."""
    if find(cluster, identity.topic).topic_id != identity.topic_id:
        raise PipelineError(f"topic {identity.topic} was deleted and recreated while the job read it")


def retention_ms(cluster: BlockingCluster, topic: str) -> int | None:
    """How old records become before they are deleted; None: nothing is deleted for its age."""
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
        raise PipelineError(f"{topic!r} is no name of a topic: at most 249 letters, digits, '.', '_' and '-'")
    if found.error is not ErrorCode.NONE and not is_retriable(found.error):
        raise PipelineError(f"topic {topic}: {found.error.name}")
    return TopicIdentity(view.cluster_id or "", topic, uuid_to_string(found.topic_id), tuple(sorted(found.partitions)))


def _make(cluster: BlockingCluster, topic: str, partitions: int, keep: bool) -> None:
    configs = [CreatableTopicConfig(name=RETENTION, value="-1")] if keep else []
    wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=-1, configs=configs)
    response = cluster.call(None, CreateTopicsRequest(topics=[wanted], timeout_ms=CREATE_TIMEOUT_MS))
    for made in response.topics:
        code = error_code(made.error_code)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            told = made.error_message or code.name
            raise PipelineError(f"the topic {topic} cannot be made: {told}")


def _led(cluster: BlockingCluster, topic: str) -> TopicIdentity:
    """Once every broker that is asked knows it: its ends can be listed when somebody leads."""
    found = None
    while found is None or not found.partitions:
        found = _look(cluster, topic)
        if found is None:
            cluster.list_offsets({(topic, 0): LATEST})  # waits with patience, and says when there is none
    bounds(cluster, found)
    return found
