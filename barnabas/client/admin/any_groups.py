"""Groups whatever their type: classic, consumer (KIP-848), share (KIP-932) and streams (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from barnabas.client.admin.calls import Calls, Question
from barnabas.client.admin.group_values import (
    ClassicGroupDescription,
    ConsumerGroupDescription,
    ShareGroupDescription,
)
from barnabas.client.admin.groups import NOT_MODERN, REASON, Groups, MemberToRemove
from barnabas.client.admin.results import Results, changed, refusal
from barnabas.client.admin.routes import Coordinators, group_coordinators, names_in
from barnabas.client.admin.streams_values import StreamsGroupDescription
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

GroupDescription = (
    ConsumerGroupDescription | ClassicGroupDescription | ShareGroupDescription | StreamsGroupDescription
)
"""By type: `ConsumerGroupDescription` for classic and KIP-848 groups of consumers, `ClassicGroupDescription` for
classic groups of other protocols (Kafka Connect)."""
LEAVE_EPOCH = -1
"""Epoch of a heartbeat by which a member leaves."""

_Leave = ShareGroupHeartbeatRequest | StreamsGroupHeartbeatRequest


class AnyGroups(Groups):
    """Methods for groups of all types."""

    async def describe_groups(
        self, group_ids: Iterable[str] | str, *, include_authorized_operations: bool = False
    ) -> Results[str, GroupDescription]:
        """Groups of any type, by id. GroupIdNotFoundException."""
        ids = names_in(group_ids)
        consumers = await self.describe_consumer_groups(
            ids, include_authorized_operations=include_authorized_operations
        )
        outcomes: dict[str, GroupDescription | KafkaError] = dict(consumers.outcomes)
        others = [name for name, error in consumers.errors.items() if error.code in NOT_MODERN]
        strangers = [
            name for name, error in consumers.errors.items() if error.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        ]
        for names, describe in (
            (strangers, self.describe_classic_groups),
            (others, self.describe_share_groups),
            (others, self.describe_streams_groups),
        ):
            left = [name for name in names if isinstance(outcomes[name], KafkaError)]
            found = await describe(left, include_authorized_operations=include_authorized_operations)
            outcomes |= found.succeeded
            # A group of another type, and a cluster without this type: the first error stands.
            outcomes |= {name: error for name, error in found.errors.items() if error.code not in NOT_MODERN}
        return Results(outcomes)

    async def remove_members(
        self,
        group_id: str,
        members: Iterable[MemberToRemove | str] | MemberToRemove | str | None = None,
        *,
        reason: str = REASON,
        raise_errors: bool = True,
    ) -> Results[MemberToRemove, None]:
        """Remove members from a group of any type: by member id (as a string, too), static members by instance id, or
        all. A member that is alive joins again. UnknownMemberIdException, GroupIdNotFoundException.
        """
        group = (await self.describe_groups(group_id))[group_id]
        wanted = _all_of(group) if members is None else _named(group, members)
        if isinstance(group, ConsumerGroupDescription | ClassicGroupDescription):
            return await self.remove_members_from_consumer_group(
                group_id, wanted, reason=reason, raise_errors=raise_errors
            )
        kind = ShareGroupHeartbeatRequest if isinstance(group, ShareGroupDescription) else StreamsGroupHeartbeatRequest
        ids = {it.member_id for it in group.members}
        unknown: dict[MemberToRemove, KafkaError | None] = {
            it: KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {it} of group {group_id}")
            for it in wanted
            if it.member_id not in ids
        }
        left = await _leave(self._calls, group_id, [it for it in wanted if it not in unknown], kind)
        return changed(Results({it: (unknown | left.outcomes)[it] for it in wanted}), raise_errors)


async def _leave(
    calls: Calls, group_id: str, members: Sequence[MemberToRemove], kind: type[_Leave]
) -> Results[MemberToRemove, None]:
    """Heartbeats by which these members leave, as if they had sent them."""

    def ask(some: list[MemberToRemove], _: int) -> _Leave:
        return kind(group_id=group_id, member_id=some[0].member_id, member_epoch=LEAVE_EPOCH)

    def read(
        response: ShareGroupHeartbeatResponse | StreamsGroupHeartbeatResponse, keys: list[MemberToRemove]
    ) -> Iterator[tuple[MemberToRemove, KafkaError | None]]:
        what = f"member {keys[0]} of group {group_id}"
        yield keys[0], refusal(response.error_code, response.error_message, what)

    route: Coordinators[MemberToRemove] = group_coordinators(calls, lambda _: group_id)
    return await calls.ask(members, route, Question("member", ask, read, one_by_one=True))


def _all_of(group: GroupDescription) -> list[MemberToRemove]:
    if isinstance(group, ShareGroupDescription):
        return [MemberToRemove(member_id=it.member_id) for it in group.members]
    return [MemberToRemove(it.group_instance_id, it.member_id) for it in group.members]


def _named(
    group: GroupDescription, members: Iterable[MemberToRemove | str] | MemberToRemove | str
) -> list[MemberToRemove]:
    """Those of the group, with both of their ids; names that the group does not have count as member ids."""
    known = {name: it for it in _all_of(group) for name in (it.member_id, it.group_instance_id) if name}
    if isinstance(members, str | MemberToRemove):
        members = [members]
    return [
        known.get(it, MemberToRemove(member_id=it)) if isinstance(it, str) else known.get(str(it), it)
        for it in members
    ]
