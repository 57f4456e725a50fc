"""From a request that names a group to the machine of the partition which is responsible for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.coordinator.outcome import Operation, Reply
from broker.groups.group import Client
from broker.groups.machine import GroupMachine
from kraft.metadata.features import GROUP_VERSION
from protocol.errors import KafkaError
from runtime.dispatch import Call

if TYPE_CHECKING:
    from broker.services import BrokerServices

GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""Every AclOperation that groups know, as a bit field: what everybody may do where nothing is forbidden (KIP-430)."""


def run_on_group(
    broker: BrokerServices, group_id: str, reply: Reply, command: Callable[[GroupMachine], Operation]
) -> None:
    """Run `command` of the group's machine. `reply` is refused if the group's coordinator is not here."""
    try:
        shard = broker.groups.shard(group_id)
    except KafkaError as error:
        reply.refuse(error.code)
        return
    shard.run(command(shard.machine), reply)


def consumer_protocol_is_enabled(broker: BrokerServices) -> bool:
    """Both the cluster and this broker's file say so."""
    if "consumer" not in broker.settings.group_coordinator_rebalance_protocols:
        return False
    return broker.metadata.image.features.level(GROUP_VERSION) >= 1


def client_of(call: Call) -> Client:
    """Who asks, as groups tell it."""
    return Client(call.request.client_id or "", f"/{call.request.peer_host}")
