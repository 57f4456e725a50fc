"""StreamsGroupHeartbeat (88): members of streams groups, and the internal topics that they need (KIP-1071)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from barnabas.broker.apis.group_calls import GroupShards, client_of, may_read_group
from barnabas.broker.apis.rights import may_on_topics, parted
from barnabas.broker.coordinator.outcome import Reply
from barnabas.broker.groups.streams.configured_topology import NAMES_SHOWN, Status
from barnabas.broker.groups.streams.heartbeat import HeartbeatResult
from barnabas.broker.metadata_cache import INTERNAL_TOPICS
from barnabas.broker.streams_topics import StreamsTopics
from barnabas.kraft.controller.topics import invalid_topic_name
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
)
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import Meter
from barnabas.runtime.server import Steps


@dataclass(frozen=True, slots=True)
class StreamsGroupPorts:
    groups: GroupShards
    is_enabled: Callable[[], bool]
    """Returns True if streams groups are enabled."""
    topics: StreamsTopics


def streams_group_heartbeat(ports: StreamsGroupPorts, call: Call) -> Steps:
    request: StreamsGroupHeartbeatRequest = call.message

    def refuse(code: ErrorCode, message: str | None = None) -> None:
        call.answer(StreamsGroupHeartbeatResponse(error_code=code, error_message=message))

    if not ports.is_enabled():
        return refuse(ErrorCode.UNSUPPORTED_VERSION)
    if not may_read_group(call):
        return refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        if request.topology is not None:
            yield from _check_topics(call, request.topology)
        shard = ports.groups.shard(request.group_id)
        prepared = yield from shard.machine.streams.preparations.prepare(request)
    except KafkaError as error:
        return refuse(error.code, error.message)

    def answer(result: HeartbeatResult) -> None:
        if result.missing:
            call.spawn(call.take_steps, _create_missing(ports, call, result))
        else:
            call.answer(result.response)

    reply = Reply(answer, refuse)
    shard.run(partial(shard.machine.streams.heartbeat, request, prepared, client_of(call), reply), reply)


def _check_topics(call: Call, topology: Topology) -> Generator[Any, Any, None]:
    """Raises KafkaError: STREAMS_INVALID_TOPOLOGY, TOPIC_AUTHORIZATION_FAILED."""
    meter = Meter()
    names: dict[str, None] = {}
    for name in _names(topology):
        names[name] = None
        if meter.step_ends():
            yield None
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        message = f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    invalid = []
    for name in names:
        if invalid_topic_name(name) is not None:
            invalid.append(name)
        if meter.step_ends():
            yield None
    if invalid:
        message = f"Topic names {','.join(invalid[:NAMES_SHOWN])} are not valid topic names."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    _, refused = yield from parted(names, may_on_topics(call, AclOperation.DESCRIBE), meter)
    if refused:
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _names(topology: Topology) -> Iterator[str]:
    for subtopology in topology.subtopologies:
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for info in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            yield info.name


def _create_missing(ports: StreamsGroupPorts, call: Call, result: HeartbeatResult) -> Steps:
    """Begin to create the missing topics if the client may; answer with the errors of earlier attempts."""
    names = [it.name for it in result.missing]
    refused: list[str] = []
    if not call.may_on_cluster(AclOperation.CREATE, audited=False):
        _, refused = yield from parted(names, may_on_topics(call, AclOperation.CREATE), Meter())
    if refused:
        _add_detail(result.response, f"Unauthorized to CREATE on topics {', '.join(refused)}.")
    else:
        # A member gets an error of this attempt with a later heartbeat.
        ports.topics.create(result.missing, call.request, 2 * result.response.heartbeat_interval_ms)
        failed = ports.topics.errors(names)
        if failed:
            _add_detail(result.response, f"Creation failed: {_shortened(failed)}.")
    call.answer(result.response)


def _add_detail(response: StreamsGroupHeartbeatResponse, text: str) -> None:
    """Add to the status that reports missing internal topics."""
    for status in response.status or ():
        if status.status_code == Status.MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; {text}"
            return


def _shortened(failed: dict[str, str]) -> str:
    shown = ", ".join(f"{name} ({message})" for name, message in list(failed.items())[:NAMES_SHOWN])
    rest = len(failed) - NAMES_SHOWN
    return shown + (f" and {rest} more" if rest > 0 else "")

