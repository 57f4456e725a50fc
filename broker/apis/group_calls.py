"""From a request that names a group to the state machine of the partition that is responsible for the group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from barnabas.broker.apis.rights import may_on_topics
from barnabas.broker.coordinator.outcome import Operation, Reply
from barnabas.broker.coordinator.shard import Shard
from barnabas.broker.groups.group import Client, describes_all
from barnabas.kraft.metadata.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import KafkaError
from barnabas.runtime.dispatch import Call
from barnabas.settings.broker import BrokerSettings

if TYPE_CHECKING:
    from barnabas.broker.groups.machine import GroupMachine


class GroupShards(Protocol):
    """The part of the group coordinator that request handlers use. `Coordinator[GroupMachine]` fits."""

    @property
    def shards(self) -> Sequence[Shard[GroupMachine]]: ...

    @property
    def may_be_deposed(self) -> bool: ...

    def shard(self, key: str) -> Shard[GroupMachine]: ...

    def partition_of(self, key: str) -> int | None: ...


def may_read_group(call: Call) -> bool:
    """The client may be a member of the group that its request names."""
    return call.may(AclOperation.READ, AclResourceType.GROUP, call.message.group_id)


def run_on_group(
    groups: GroupShards, group_id: str, reply: Reply, command: Callable[[GroupMachine], Operation]
) -> None:
    """Run `command` on the group's state machine. `reply` is refused if the group's coordinator is not here."""
    try:
        shard = groups.shard(group_id)
    except KafkaError as error:
        reply.refuse(error.code)
        return
    shard.run(command(shard.machine), reply)


def consumer_protocol_is_enabled(settings: BrokerSettings, image: MetadataImage) -> bool:
    """Both this broker's file and the cluster's features allow groups of the consumer protocol (KIP-848)."""
    if "consumer" not in settings.group_coordinator_rebalance_protocols:
        return False
    return image.features.level(GROUP_VERSION) >= 1


def share_groups_are_enabled(image: MetadataImage) -> bool:
    """The cluster's features allow share groups (KIP-932)."""
    return image.features.level(SHARE_VERSION) >= 1


def streams_groups_are_enabled(settings: BrokerSettings, image: MetadataImage) -> bool:
    """Both this broker's file and the cluster's features allow streams groups (KIP-1071)."""
    if "streams" not in settings.group_coordinator_rebalance_protocols:
        return False
    return image.features.level(STREAMS_VERSION) >= 1


def client_of(call: Call) -> Client:
    """The client of a request, as group descriptions show it."""
    may_describe = may_on_topics(call, AclOperation.DESCRIBE, audited=False) if call.has_authorizer else describes_all
    return Client(call.request.client_id or "", f"/{call.request.peer_host}", may_describe)
