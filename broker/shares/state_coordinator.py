"""Shell: the kind of the share coordinator, for the generic coordinator."""

from __future__ import annotations

import logging

from barnabas.broker.coordinator.coordinator import CoordinatedKind
from barnabas.broker.coordinator.shard_timers import ShardTimers
from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.replication.partition import Partition
from barnabas.broker.shares.state_machine import ShareStateContext, ShareStateMachine
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import share_log

log = logging.getLogger(__name__)


def share_state_kind(metadata: MetadataCache, settings: CurrentSettings) -> CoordinatedKind[ShareStateMachine]:
    """The share partitions whose partition of `__share_group_state` a broker leads."""

    def make_machine(partition: Partition, timers: ShardTimers) -> ShareStateMachine:
        def delete_before(offset: int) -> None:
            try:
                partition.delete_records(offset)
            except KafkaError as error:
                log.info("the records of %s before %d are not deleted yet: %s", partition.name, offset, error)

        return ShareStateMachine(ShareStateContext(timers, settings, lambda: metadata.image, delete_before))

    return CoordinatedKind(share_log, make_machine)
