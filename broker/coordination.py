"""The coordinators of one broker: groups, transactions, share partitions, and the parts that they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from barnabas.broker.apis.find_coordinator import FindCoordinatorPorts
from barnabas.broker.apis.group_calls import (
    consumer_protocol_is_enabled,
    share_groups_are_enabled,
    streams_groups_are_enabled,
)
from barnabas.broker.apis.group_offsets import GroupOffsetPorts, TransactionalOffsetPorts
from barnabas.broker.apis.markers import MarkerPorts, write_markers
from barnabas.broker.apis.producer_ids import ProducerIdPorts
from barnabas.broker.apis.share_group_offsets import EndOffsets, ShareOffsetPorts
from barnabas.broker.apis.share_state import ShareStatePorts, serve_share_state
from barnabas.broker.apis.streams_groups import StreamsGroupPorts
from barnabas.broker.apis.transactions import AddOffsetsPorts, AddPartitionsPorts, add_partitions_here
from barnabas.broker.auto_topics import AutoTopics
from barnabas.broker.broker_channels import BrokerChannels
from barnabas.broker.controller_channel import ControllerChannel
from barnabas.broker.coordinator.coordinator import Coordinator
from barnabas.broker.coordinator_metrics import group_families, share_state_families, transaction_families
from barnabas.broker.dispatch import (
    GroupHandlerPorts,
    Handlers,
    TransactionHandlerPorts,
    group_handlers,
    share_group_handlers,
    share_state_handlers,
    streams_group_handlers,
    transaction_handlers,
)
from barnabas.broker.groups.coordinator import GroupCoordinatorPorts, group_coordinator
from barnabas.broker.groups.group_memory import GroupMemory
from barnabas.broker.internal_topics import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.metrics import Families
from barnabas.broker.own_channel import OwnChannel
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partitions import Partitions
from barnabas.broker.shares.state_client import ShareStateChannel, ShareStateClient, ShareStateClientPorts
from barnabas.broker.shares.state_coordinator import ShareCoordinatorPorts, share_coordinator
from barnabas.broker.streams_topics import StreamsTopics
from barnabas.broker.timing_wheel import TimingWheel
from barnabas.broker.traffic import GroupEvents, ShareStateWrites
from barnabas.broker.transactions.coordinator import TransactionCoordinatorPorts, marker_writer, transaction_coordinator
from barnabas.broker.transactions.verification import TransactionVerifier
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.runtime.background import Background
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.world import World
from barnabas.settings.broker import BrokerSettings


@dataclass(frozen=True, slots=True)
class CoordinationPorts:
    world: World
    nursery: trio.Nursery
    background: Background
    wheel: TimingWheel
    metadata: MetadataCache
    partitions: Partitions
    controller: ControllerChannel
    settings: Callable[[], BrokerSettings]
    decisions: Decisions
    broker_epoch: Callable[[], int]
    channels: BrokerChannels
    most_group_bytes: int
    """Memory that groups may hold."""


def _image_of(metadata: MetadataCache) -> MetadataImage:
    return metadata.image


class Coordination:
    def __init__(self, ports: CoordinationPorts) -> None:
        self._ports = ports
        world, settings = ports.world, ports.settings
        self.producer_ids = ProducerIds(ports.controller, settings().node_id)
        self.auto_topics = AutoTopics(ports.controller, ports.background, world.monotonic, settings)
        self._streams_topics = StreamsTopics(
            self.auto_topics, ports.background, world.monotonic, settings().request_timeout_ms
        )
        self._group_events = GroupEvents()
        self.shares = share_coordinator(
            ShareCoordinatorPorts(world, ports.background, ports.wheel, ports.metadata, settings, ports.decisions)
        )
        self._share_writes = ShareStateWrites(world.stopwatch)
        self._share_state_ports = ShareStatePorts(self.shares, self._share_writes)
        self.share_states = self._share_state_client()
        self.group_memory = GroupMemory(ports.most_group_bytes)
        group_ports = GroupCoordinatorPorts(
            world,
            ports.background,
            ports.wheel,
            ports.metadata,
            settings,
            ports.decisions,
            self._group_events,
            self.share_states,
            self.group_memory,
        )
        transaction_ports = TransactionCoordinatorPorts(
            world,
            ports.background,
            ports.wheel,
            ports.metadata,
            settings,
            ports.decisions,
            self.producer_ids,
            ports.broker_epoch,
            ports.channels,
        )
        self.groups = group_coordinator(group_ports)
        self._marker_ports = MarkerPorts(
            ports.partitions, self.groups.shard_at, ports.wheel, world.monotonic, world.wall_clock, settings
        )
        self.markers = marker_writer(transaction_ports, ports.nursery, partial(write_markers, self._marker_ports))
        self.transactions = transaction_coordinator(transaction_ports, self.markers)
        self._by_topic: dict[str, Coordinator[Any]] = {
            GROUP_TOPIC: self.groups,
            TRANSACTION_TOPIC: self.transactions,
            SHARE_TOPIC: self.shares,
        }
        self.all: list[Coordinator[Any]] = list(self._by_topic.values())
        """All that follow which partitions this broker leads."""
        self._add_partitions_ports = AddPartitionsPorts(self.transactions, ports.metadata)
        self.verifier = TransactionVerifier(
            world, ports.nursery, ports.channels, settings, partial(add_partitions_here, self._add_partitions_ports)
        )

    def handlers(self, end_offsets: EndOffsets) -> Handlers:
        """`end_offsets` returns the log ends of partitions, wherever their leaders are."""
        return (
            self._group_handlers()
            | self._transaction_handlers()
            | share_state_handlers(self._share_state_ports)
            | self._share_group_handlers(end_offsets)
            | self._streams_group_handlers()
        )

    def _share_group_handlers(self, end_offsets: EndOffsets) -> Handlers:
        image = partial(_image_of, self._ports.metadata)
        return share_group_handlers(
            ShareOffsetPorts(
                self.groups,
                self.share_states,
                image,
                end_offsets,
                lambda: share_groups_are_enabled(image()),
            )
        )

    def _streams_group_handlers(self) -> Handlers:
        settings, image = self._ports.settings, partial(_image_of, self._ports.metadata)
        return streams_group_handlers(
            StreamsGroupPorts(
                self.groups, lambda: streams_groups_are_enabled(settings(), image()), self._streams_topics
            )
        )

    def _group_handlers(self) -> Handlers:
        settings, metadata = self._ports.settings, self._ports.metadata
        offsets = GroupOffsetPorts(self.groups, metadata)
        return group_handlers(
            GroupHandlerPorts(
                self.groups,
                self.share_states,
                lambda: consumer_protocol_is_enabled(settings(), metadata.image),
                FindCoordinatorPorts(metadata, self.auto_topics.create_internal, self._may_have_lost),
                TransactionalOffsetPorts(offsets, self.verifier, settings),
            )
        )

    def _transaction_handlers(self) -> Handlers:
        create_internal = self.auto_topics.create_internal
        return transaction_handlers(
            TransactionHandlerPorts(
                self.transactions,
                ProducerIdPorts(self.transactions, self.producer_ids, self._ports.broker_epoch),
                self._add_partitions_ports,
                AddOffsetsPorts(self.transactions, self.groups.partition_of, create_internal),
                self._marker_ports,
            )
        )

    def _may_have_lost(self, topic: str, index: int) -> bool:
        return self._by_topic[topic].may_have_lost(index)

    def _share_state_client(self) -> ShareStateClient:
        ports = self._ports

        def channel_to(broker_id: int) -> ShareStateChannel | None:
            if broker_id == ports.settings().node_id:
                return OwnChannel(partial(serve_share_state, self._share_state_ports))
            node = ports.channels.node(broker_id)
            return None if node is None else ports.channels.open(node, ports.nursery, "share-states")

        return ShareStateClient(
            ShareStateClientPorts(
                ports.world,
                ports.background,
                lambda: ports.metadata.image,
                channel_to,
                self.auto_topics.create_internal,
                lambda: ports.settings().request_timeout_ms,
            )
        )

    def families(self) -> list[Families]:
        return [
            partial(group_families, self.groups, self._group_events),
            partial(share_state_families, self.shares, self._share_writes),
            partial(transaction_families, self.transactions, self.markers, self.verifier.counted),
        ]

    def metadata_changed(self, delta: MetadataDelta) -> None:
        for coordinator in self.all:
            coordinator.metadata_changed(delta)
        if delta.changed_brokers:
            self.markers.metadata_changed(delta)
            self.verifier.metadata_changed(delta)
            self.share_states.metadata_changed(delta)

    def leadership_changed(self, partition: Partition) -> None:
        for coordinator in self.all:
            coordinator.leadership_changed(partition)

    def stop(self) -> None:
        for coordinator in self.all:
            coordinator.stop()
