"""Shell: the kind of the transaction coordinator, for the generic coordinator; the writer of markers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import trio

from barnabas.broker.broker_channels import BrokerChannels
from barnabas.broker.coordinator.coordinator import CoordinatedKind
from barnabas.broker.coordinator.shard import Shard
from barnabas.broker.coordinator.shard_timers import ShardTimers
from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.own_channel import OwnChannel, Serve
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.replication.partition import Partition
from barnabas.broker.timing_wheel import TimingWheel
from barnabas.broker.transactions.machine import TransactionContext, TransactionMachine
from barnabas.broker.transactions.markers import MarkerChannel, MarkerWriter, ShardMarkers
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import transaction_log
from barnabas.runtime.background import Background
from barnabas.runtime.world import World

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransactionCoordinatorPorts:
    world: World
    background: Background
    wheel: TimingWheel
    metadata: MetadataCache
    settings: CurrentSettings
    producer_ids: ProducerIds
    broker_epoch: Callable[[], int]
    channels: BrokerChannels


def marker_writer(ports: TransactionCoordinatorPorts, nursery: trio.Nursery, serve: Serve) -> MarkerWriter:
    """Writer of the markers of all transactions that this broker coordinates. `serve` writes those for partitions of
    this broker."""

    def request_timeout_ms() -> int:
        return ports.settings().request_timeout_ms

    def channel_to(broker_id: int) -> MarkerChannel | None:
        if broker_id == ports.settings().node_id:
            return OwnChannel(serve)
        node = ports.channels.node(broker_id)
        return None if node is None else ports.channels.open(node, nursery, "transactions")

    def image() -> MetadataImage:
        return ports.metadata.image

    return MarkerWriter(ports.world, ports.background, ports.wheel, image, channel_to, request_timeout_ms)


def transaction_kind(
    ports: TransactionCoordinatorPorts, markers: MarkerWriter
) -> CoordinatedKind[TransactionMachine]:
    """The transactional ids whose partition of `__transaction_state` a broker leads."""

    def image() -> MetadataImage:
        return ports.metadata.image

    def next_producer_id() -> int:
        if not ports.producer_ids.at_hand:
            ports.background.spawn(_fetch_producer_ids, ports)
        return ports.producer_ids.take()

    def make_machine(partition: Partition, timers: ShardTimers) -> TransactionMachine:
        def shard() -> Shard[TransactionMachine] | None:
            found: Shard[TransactionMachine] | None = timers.shard
            return found

        return TransactionMachine(
            TransactionContext(
                timers=timers,
                settings=ports.settings,
                image=image,
                markers=ShardMarkers(markers, shard),
                next_producer_id=next_producer_id,
            )
        )

    return CoordinatedKind(transaction_log, make_machine)


async def _fetch_producer_ids(ports: TransactionCoordinatorPorts) -> None:
    """The request that found no producer id was asked to retry."""
    try:
        await ports.producer_ids.fetch(ports.broker_epoch())
    except KafkaError as error:
        log.info("no producer ids available: %s", error)
