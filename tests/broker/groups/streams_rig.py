"""A streams group on the machine bench: members with names, topologies in few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.broker.coordinator.outcome import Now, Outcome, Reply
from barnabas.broker.groups.group import Client
from barnabas.broker.groups.streams.heartbeat import HeartbeatResult
from barnabas.broker.groups.streams.streams_group import StreamsGroup
from barnabas.broker.groups.streams.streams_groups import refusal
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_topics import CreatableTopic
from barnabas.protocol.messages.streams_group_describe import DescribedGroup
from barnabas.protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from barnabas.runtime.at_once import at_once
from tests.broker.groups.machine_bench import Bench

CLIENT = Client("story", "/10.0.0.1")
Names = Iterable[str]
Roles = tuple[dict[str, list[int]], dict[str, list[int]]]
"""Active and standby tasks."""


def subtopology(
    name: str,
    sources: Names = (),
    *,
    changelogs: Names = (),
    sinks: Names = (),
    repartitions: Mapping[str, int] | None = None,
    copartitioned: Iterable[tuple[list[int], list[int]]] = (),
) -> Subtopology:
    """`repartitions`: repartition source topics with their numbers of partitions, 0 if these follow from others."""
    return Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        state_changelog_topics=[TopicInfo(name=it) for it in changelogs],
        repartition_sink_topics=list(sinks),
        repartition_source_topics=[TopicInfo(name=it, partitions=n) for it, n in (repartitions or {}).items()],
        copartition_groups=[
            CopartitionGroup(source_topics=external, repartition_source_topics=internal)
            for external, internal in copartitioned
        ],
    )


def topology(*subtopologies: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=list(subtopologies))


COUNTING = topology(subtopology("0", ["words"]))


class Streams:
    """The members of one group, as clients: they acknowledge and retry as they like."""

    def __init__(self, **settings: str) -> None:
        no_delay = dict.fromkeys(
            ("group__streams__assignment__interval__ms", "group__streams__initial__rebalance__delay__ms"), "0"
        )
        self.bench = Bench(**{**no_delay, **settings})
        self.bench.run(self.bench.machine.loaded)
        self.missing: tuple[CreatableTopic, ...] = ()
        """Topics that the last heartbeat wants to be created."""

    # -- heartbeats

    def send(self, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
        streams = self.bench.machine.streams

        def beat(reply: Reply, now: Now) -> Outcome:
            try:
                prepared = at_once(streams.preparations.prepare(request))
            except KafkaError as error:
                return Outcome(answers=[(reply, refusal(error))])
            return streams.heartbeat(request, prepared, CLIENT, reply, now)

        result: HeartbeatResult = self.bench.ask(beat)
        self.missing = result.missing
        return result.response

    def join(
        self, member_id: str, sent: Topology = COUNTING, *, group_id: str = "app", **fields: Any
    ) -> StreamsGroupHeartbeatResponse:
        """Raises KafkaError."""
        return raised(self.send(self.joining(member_id, sent, group_id=group_id, **fields)))

    def joining(
        self, member_id: str, sent: Topology = COUNTING, *, group_id: str = "app", **fields: Any
    ) -> StreamsGroupHeartbeatRequest:
        fields = {"process_id": f"process of {member_id}", "rebalance_timeout_ms": 60_000, **fields}
        nothing: dict[str, list[TaskIds]] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        return StreamsGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=0, topology=sent, **nothing, **fields
        )

    def beat(
        self, member_id: str, epoch: int, owned: Roles | None = None, *, group_id: str = "app", **fields: Any
    ) -> StreamsGroupHeartbeatResponse:
        """Raises KafkaError."""
        if owned is not None:
            active, standby = owned
            fields |= {"active_tasks": task_ids(active), "standby_tasks": task_ids(standby), "warmup_tasks": []}
        request = StreamsGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=epoch, **fields)
        return raised(self.send(request))

    def leave(self, member_id: str, **fields: Any) -> StreamsGroupHeartbeatResponse:
        return self.beat(member_id, -1, **fields)

    # -- what there is

    @property
    def group(self) -> StreamsGroup:
        group = self.bench.machine.groups.get("app")
        assert isinstance(group, StreamsGroup)
        return group

    def describe(self, group_id: str = "app") -> DescribedGroup:
        group, parts = self.bench.machine.describe_streams(group_id)
        for part in parts:
            if isinstance(part, type(group)):
                raise AssertionError
            listed = group.topology.subtopologies if hasattr(part, "source_topics") else group.members
            listed.append(part)
        return group

    def create_missing(self) -> None:
        """The controller creates the topics that the last heartbeat has asked for."""
        for topic in self.missing:
            self.bench.create_topic(topic.name, topic.num_partitions)


def raised(response: StreamsGroupHeartbeatResponse) -> StreamsGroupHeartbeatResponse:
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code), response.error_message or "")
    return response


def task_ids(tasks: Mapping[str, Iterable[int]]) -> list[TaskIds]:
    return [TaskIds(subtopology_id=it, partitions=list(partitions)) for it, partitions in tasks.items()]


def tasks(response: StreamsGroupHeartbeatResponse) -> Roles | None:
    """Active and standby tasks of an answer; None if it has none."""
    if response.active_tasks is None or response.standby_tasks is None:
        return None
    assert response.warmup_tasks == []
    return _listed(response.active_tasks), _listed(response.standby_tasks)


def _listed(ids: list[TaskIds]) -> dict[str, list[int]]:
    return {it.subtopology_id: it.partitions for it in ids}


def endpoint(host: str, port: int = 8080) -> Endpoint:
    return Endpoint(host=host, port=port)


def tags(**values: str) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in values.items()]


def statuses(response: StreamsGroupHeartbeatResponse) -> list[int]:
    return [it.status_code for it in response.status or ()]
