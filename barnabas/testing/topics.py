"""Topics for tests, created over plain blocking sockets: on our clusters and on Apache Kafka alike."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.probe import NoAnswer, ask
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

WAIT_SECONDS = 30.0
_POLL_SECONDS = 0.02


def create_topic(
    ports: Sequence[int], name: str, partitions: int, replicas: int, configs: Mapping[str, str] | None = None
) -> None:
    """Create a topic, and wait until the brokers at `ports`, all of which run, know its leaders; -1 is the brokers'
    default.

    ClusterError if it is refused.
    """
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(WAIT_SECONDS * 1000))
    [result] = ask(ports[0], request, CreateTopicsResponse, WAIT_SECONDS).topics
    if result.error_code != ErrorCode.NONE:
        raise ClusterError(f"topic {name}: {ErrorCode(result.error_code).name}: {result.error_message}")
    deadline = time.monotonic() + WAIT_SECONDS
    while not all(is_led(port, name, result.num_partitions) for port in ports):
        if time.monotonic() > deadline:
            raise ClusterError(f"topic {name}: some broker knows no leader after {WAIT_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)


def is_led(port: int, name: str, partitions: int) -> bool:
    """Whether a broker knows a leader of each of the topic's partitions."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    try:
        [topic] = ask(port, request, MetadataResponse).topics
    except NoAnswer:
        return False
    led = [partition for partition in topic.partitions if partition.leader_id >= 0]
    return topic.error_code == ErrorCode.NONE and len(led) == len(topic.partitions) == partitions
