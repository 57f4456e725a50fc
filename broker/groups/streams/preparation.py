"""Core: the steps before a heartbeat is decided: reading a topology, comparing it with the group's, and configuring it
beside the topics that exist. All of that may take long.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.broker.groups.group import GroupContext
from barnabas.broker.groups.streams.configured_topology import ConfiguredTopology, configure
from barnabas.broker.groups.streams.heartbeat import check_request, is_leaving
from barnabas.broker.groups.streams.streams_group import StreamsGroup
from barnabas.broker.groups.streams.topology import Topology, are_equal, received_topology
from barnabas.broker.groups.topic_hashes import TopicHashes
from barnabas.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from barnabas.runtime.at_once import Stepwise

PARTITIONS_OF_ONE_STEP = 500
"""Partitions of topics that one step hashes."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Input of a heartbeat; holds as long as the group has the same topology."""

    sent: Topology | None = None
    """Topology of the request."""
    is_same: bool = False
    """The topology of the request is that of the group."""
    configured: ConfiguredTopology | None = None
    """The topology of the group, or that of the request if the group has none. None if neither has one."""


class Preparations:
    """Preparations for the groups of one partition of `__consumer_offsets`."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._hashes = TopicHashes()

    def topic_changed(self, name: str) -> None:
        self._hashes.forget(name)

    def prepare(self, request: StreamsGroupHeartbeatRequest) -> Stepwise[Prepared]:
        """Must be followed by the heartbeat in the same step of the event loop. Raises KafkaError: INVALID_REQUEST,
        STREAMS_INVALID_TOPOLOGY."""
        check_request(request)
        if is_leaving(request):
            return Prepared()
        sent = None
        if request.topology is not None:
            sent = yield from received_topology(request.topology)
        while True:
            group = self._find(request.group_id)
            current = None if group is None else group.topology
            is_same = sent is not None and current is not None and (yield from are_equal(sent, current))
            used = current or sent
            configured = None
            if used is not None:
                configured = yield from self._configured(group, used)
            now = self._find(request.group_id)
            if (None if now is None else now.topology) is current:
                return Prepared(sent, is_same, configured)
            # Meanwhile another member has given the group its topology.

    def configured(self, group: StreamsGroup) -> Stepwise[ConfiguredTopology | None]:
        """The group's topology beside the topics of now; None if it has none. Raises KafkaError
        STREAMS_INVALID_TOPOLOGY."""
        return None if group.topology is None else (yield from self._configured(group, group.topology))

    def _configured(self, group: StreamsGroup | None, topology: Topology) -> Stepwise[ConfiguredTopology]:
        known = None if group is None else group.configured
        if known is not None and known.topology is not topology:
            known = None
        changes = 0 if group is None else group.topic_changes
        if known is not None and group is not None and group.configured_after == changes:
            return known
        metadata_hash = yield from self._metadata_hash(topology)
        if known is None or known.metadata_hash != metadata_hash:
            known = yield from configure(topology, metadata_hash, self._context.image().topics)
        if group is not None and group.topology is topology:
            if known is not group.configured:
                group.endpoints.forget_all()
            group.configured, group.configured_after = known, changes
        return known

    def _metadata_hash(self, topology: Topology) -> Stepwise[int]:
        """Hash of the topics of the topology that exist."""
        done = 0
        for name in topology.required:
            done += 1 + self._hashes.remember(name, self._context.image())
            if done >= PARTITIONS_OF_ONE_STEP:
                done = 0
                yield
        return self._hashes.of_group(topology.required, self._context.image())

    def _find(self, group_id: str) -> StreamsGroup | None:
        group = self._context.groups.get(group_id)
        return group if isinstance(group, StreamsGroup) else None
