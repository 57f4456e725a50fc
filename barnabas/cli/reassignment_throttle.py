"""The throttle of a reassignment (KIP-73): the configs of brokers and topics that limit it, set and removed again.

The configs are those that kafka-reassign-partitions.sh sets.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from barnabas.cli.replica_plan import Plan

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, ConfigResource

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REMOVAL_SECONDS = 30.0
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


def throttled_replicas(before: Plan, wanted: Plan) -> dict[str, dict[str, str]]:
    """Configs of topics: present replicas send to new ones at the rate of leaders, new ones fetch at that of followers.
    """
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for each, replicas in sorted(wanted.items()):
        new = [broker for broker in replicas if broker not in before[each]]
        if new:
            leaders.setdefault(each.topic, []).extend(f"{each.partition}:{broker}" for broker in before[each])
            followers.setdefault(each.topic, []).extend(f"{each.partition}:{broker}" for broker in new)
    return {
        topic: {LEADER_REPLICAS: ",".join(leaders[topic]), FOLLOWER_REPLICAS: ",".join(followers[topic])}
        for topic in leaders
    }


async def set_throttle(admin: Admin, before: Plan, wanted: Plan, bytes_per_second: int) -> None:
    """Limit the reassignment from `before` to `wanted`, which has not begun."""
    from barnabas.client.admin import ConfigResource, ResourceType

    brokers = {broker for plan in (before, wanted) for replicas in plan.values() for broker in replicas}
    changes: dict[ConfigResource, dict[str, str | None]] = {}
    for broker in sorted(brokers):
        changes[ConfigResource(ResourceType.BROKER, str(broker))] = dict.fromkeys(RATES, str(bytes_per_second))
    for topic, configs in throttled_replicas(before, wanted).items():
        changes[ConfigResource(ResourceType.TOPIC, topic)] = dict(configs)
    await admin.incremental_alter_configs(changes)


@asynccontextmanager
async def throttled(admin: Admin, before: Plan, wanted: Plan, bytes_per_second: int | None) -> AsyncIterator[None]:
    """Limits a reassignment that begins and ends inside; None: no limit. The limit is removed even after a cancel."""
    import trio

    if bytes_per_second is None:
        yield
        return
    await set_throttle(admin, before, wanted, bytes_per_second)
    try:
        yield
    finally:
        with trio.move_on_after(REMOVAL_SECONDS, shield=True):
            await remove_throttle(admin, dict.fromkeys(each.topic for each in wanted))


async def remove_throttle(admin: Admin, topics: Iterable[str]) -> None:
    """Remove the limits of all brokers in service and of these topics."""
    from barnabas.client.admin import ConfigResource, ResourceType

    changes: dict[ConfigResource, dict[str, str | None]] = {
        ConfigResource(ResourceType.BROKER, str(node.node_id)): dict.fromkeys(RATES)
        for node in (await admin.describe_cluster()).nodes
    }
    for topic in topics:
        changes[ConfigResource(ResourceType.TOPIC, topic)] = dict.fromkeys((LEADER_REPLICAS, FOLLOWER_REPLICAS))
    await admin.incremental_alter_configs(changes)
