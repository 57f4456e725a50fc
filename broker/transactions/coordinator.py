"""Shell: the transaction coordinator of a broker: the generic coordinator with the state machine of transactions."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from broker.apis.markers import write_markers
from broker.coordinator.coordinator import CoordinatedTopic, Coordinator
from broker.coordinator.shard import Shard
from broker.coordinator.shard_timers import ShardTimers
from broker.internal_topics import TRANSACTION_TOPIC
from broker.own_channel import OwnChannel
from broker.replication.partition import Partition
from broker.transactions.machine import TransactionContext, TransactionMachine
from broker.transactions.markers import MarkerChannel, MarkerWriter, ShardMarkers
from kraft.metadata.image import MetadataImage
from protocol.errors import KafkaError
from protocol.messages import transaction_log
from runtime.channel import Channel

if TYPE_CHECKING:
    from broker.services import BrokerServices

log = logging.getLogger(__name__)


def marker_writer(broker: BrokerServices) -> MarkerWriter:
    """Writer of the markers of all transactions that this broker coordinates."""

    def request_timeout_ms() -> int:
        return broker.settings.request_timeout_ms

    def channel_to(broker_id: int) -> MarkerChannel | None:
        if broker_id == broker.settings.node_id:
            return OwnChannel(partial(write_markers, broker))
        node = broker.metadata.node(broker_id, broker.settings.inter_broker_listener_name)
        if node is None:
            return None
        client_id = f"broker-{broker.settings.node_id}-transactions-{broker_id}"
        return Channel(broker.world, broker.nursery, node.host, node.port, client_id=client_id)

    def image() -> MetadataImage:
        return broker.metadata.image

    return MarkerWriter(broker.world, broker.background, broker.wheel, image, channel_to, request_timeout_ms)


def transaction_coordinator(broker: BrokerServices) -> Coordinator[TransactionMachine]:
    """Coordinator of the transactional ids whose partition this broker leads."""

    def image() -> MetadataImage:
        return broker.metadata.image

    def request_timeout_ms() -> int:
        return broker.settings.request_timeout_ms

    def next_producer_id() -> int:
        if not broker.producer_ids.at_hand:
            broker.background.spawn(_fetch_producer_ids, broker)
        return broker.producer_ids.take()

    def make_machine(partition: Partition, timers: ShardTimers) -> TransactionMachine:
        def shard() -> Shard[TransactionMachine] | None:
            found: Shard[TransactionMachine] | None = timers.shard
            return found

        return TransactionMachine(
            TransactionContext(
                timers=timers,
                settings=lambda: broker.settings,
                image=image,
                markers=ShardMarkers(broker.markers, shard),
                next_producer_id=next_producer_id,
            )
        )

    topic = CoordinatedTopic(TRANSACTION_TOPIC, transaction_log, commit_timeout_ms=request_timeout_ms)
    return Coordinator(
        topic, broker.world, broker.background, broker.wheel, image, make_machine, decisions=broker.decisions
    )


async def _fetch_producer_ids(broker: BrokerServices) -> None:
    """The request that found no producer id was asked to retry."""
    try:
        await broker.producer_ids.fetch(broker.lifecycle.broker_epoch)
    except KafkaError as error:
        log.info("no producer ids available: %s", error)
