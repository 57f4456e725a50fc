"""Shell: the share coordinator of a broker: the generic coordinator with the state machine of share partitions."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from barnabas.broker.coordinator.coordinator import CoordinatedTopic, Coordinator
from barnabas.broker.coordinator.shard_timers import ShardTimers
from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.internal_topics import SHARE_TOPIC
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.replication.partition import Partition
from barnabas.broker.shares.state_machine import ShareStateContext, ShareStateMachine
from barnabas.broker.timing_wheel import TimingWheel
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import share_log
from barnabas.runtime.background import Background
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.world import World

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShareCoordinatorPorts:
    world: World
    background: Background
    wheel: TimingWheel
    metadata: MetadataCache
    settings: CurrentSettings
    decisions: Decisions


def share_coordinator(ports: ShareCoordinatorPorts) -> Coordinator[ShareStateMachine]:
    """Coordinator of the share partitions whose partition of `__share_group_state` this broker leads."""

    def make_machine(partition: Partition, timers: ShardTimers) -> ShareStateMachine:
        def delete_before(offset: int) -> None:
            try:
                partition.delete_records(offset)
            except KafkaError as error:
                log.info("the records of %s before %d are not deleted yet: %s", partition.name, offset, error)

        return ShareStateMachine(
            ShareStateContext(timers, ports.settings, lambda: ports.metadata.image, delete_before)
        )

    topic = CoordinatedTopic(
        SHARE_TOPIC,
        share_log,
        commit_timeout_ms=lambda: ports.settings().share_coordinator_write_timeout_ms,
        compression=lambda: ports.settings().share_coordinator_state_topic_compression_codec,
    )
    return Coordinator(
        topic,
        ports.world,
        ports.background,
        ports.wheel,
        lambda: ports.metadata.image,
        make_machine,
        decisions=ports.decisions,
    )
