"""Groups of consumers and share groups (KIP-932), described with the same fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, ConsumerGroupDescription, Results, ShareGroupDescription

_NO_SHARE_GROUP = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
"""Errors of ShareGroupDescribe for other groups, and of a cluster without share groups."""


async def describe_groups(admin: Admin, ids: Sequence[str]) -> Results[str, ConsumerGroupDescription]:
    """By id. A share group has type `share` and no static members."""
    from barnabas.client.admin import Results

    described = await admin.describe_consumer_groups(ids)
    missing = [name for name, error in described.errors.items() if error.code is ErrorCode.GROUP_ID_NOT_FOUND]
    shared = await admin.describe_share_groups(missing)
    found = {name: _with_fields_of_consumers(each) for name, each in shared.succeeded.items()}
    failed = {name: error for name, error in shared.errors.items() if error.code not in _NO_SHARE_GROUP}
    return Results(described.outcomes | failed | found)


async def is_share_group(admin: Admin, group: str) -> bool:
    """Raises `KafkaError`, but not if there is no such group."""
    error: KafkaError | None = (await admin.describe_share_groups(group)).error(group)
    if error is not None and error.code not in _NO_SHARE_GROUP:
        raise error
    return error is None


def _with_fields_of_consumers(group: ShareGroupDescription) -> ConsumerGroupDescription:
    from barnabas.client.admin import ConsumerGroupDescription, GroupType, MemberDescription

    members = tuple(
        MemberDescription(
            member_id=member.member_id,
            group_instance_id=None,
            client_id=member.client_id,
            host=member.host,
            assignment=member.assignment,
            member_epoch=member.member_epoch,
            rack_id=member.rack_id,
            subscribed_topic_names=member.subscribed_topic_names,
            is_classic=False,
        )
        for member in group.members
    )
    return ConsumerGroupDescription(
        group_id=group.group_id,
        type=GroupType.SHARE,
        state=group.state,
        protocol="share",
        partition_assignor=group.partition_assignor,
        members=members,
        coordinator=group.coordinator,
        group_epoch=group.group_epoch,
        target_assignment_epoch=group.target_assignment_epoch,
        authorized_operations=group.authorized_operations,
    )
