"""Shell: the group coordinator of a broker: the generic coordinator with the state machine of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.coordinator import CoordinatedTopic, Coordinator
from broker.coordinator.shard_timers import ShardTimers
from broker.groups.group import GroupContext, GroupDirectory
from broker.groups.machine import GroupMachine
from broker.internal_topics import GROUP_TOPIC
from broker.replication.partition import Partition
from protocol.messages import group_log

if TYPE_CHECKING:
    from broker.services import BrokerServices


def group_coordinator(broker: BrokerServices) -> Coordinator[GroupMachine]:
    """Coordinator of the groups whose partition of `__consumer_offsets` this broker leads."""

    def make_machine(_partition: Partition, timers: ShardTimers) -> GroupMachine:
        return GroupMachine(
            GroupContext(
                groups=GroupDirectory(),
                timers=timers,
                chance=broker.world.chance,
                settings=lambda: broker.settings,
                image=lambda: broker.metadata.image,
                events=broker.group_events,
            )
        )

    return Coordinator(
        CoordinatedTopic(
            GROUP_TOPIC,
            group_log,
            commit_timeout_ms=lambda: broker.settings.offsets_commit_timeout_ms,
            compression=lambda: broker.settings.offsets_topic_compression_codec,
        ),
        broker.world,
        broker.background,
        broker.wheel,
        lambda: broker.metadata.image,
        make_machine,
        decisions=broker.decisions,
    )
