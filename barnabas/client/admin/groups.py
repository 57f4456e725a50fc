"""Groups of all types: listed, described, emptied and deleted. Their offsets are in `group_offsets.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from barnabas.client.admin.calls import Calls, Part, Question
from barnabas.client.admin.group_values import (
    CONSUMER_PROTOCOL,
    ClassicGroupDescription,
    ConsumerGroupDescription,
    GroupListing,
    GroupState,
    GroupType,
    ShareGroupDescription,
    classic_group,
    consumers_of_classic,
    modern_group,
    share_group,
)
from barnabas.client.admin.results import Results, changed, refusal
from barnabas.client.admin.routes import Coordinators, ask_all_brokers, group_coordinators, names_in
from barnabas.client.admin.streams_values import StreamsGroupDescription, streams_group
from barnabas.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from barnabas.protocol.messages import consumer_group_describe as modern
from barnabas.protocol.messages import describe_groups as classic
from barnabas.protocol.messages import leave_group as leaving
from barnabas.protocol.messages import share_group_describe as sharing
from barnabas.protocol.messages import streams_group_describe as streaming
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

REASON = "removed by an administrator"
NOT_MODERN = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
"""Errors of ConsumerGroupDescribe for classic groups; a broker without the API has only those."""


@dataclass(frozen=True, slots=True)
class MemberToRemove:
    """A static member by its `group_instance_id`, or any member by its member id."""

    group_instance_id: str | None = None
    member_id: str = ""

    def __str__(self) -> str:
        return self.group_instance_id or self.member_id


class Groups(Part):
    """Methods for groups."""

    async def list_groups(
        self,
        *,
        states: Iterable[GroupState | str] = (),
        types: Iterable[GroupType | str] = (),
        protocol_types: Iterable[str] | None = None,
    ) -> list[GroupListing]:
        """Groups of all brokers, by id; only those of the given states, types or protocols, if any ("" is the protocol
        of groups without members). UnsupportedVersionException if an old broker has no states or types. If one broker
        does not answer, that is the error: the list would be incomplete.
        """
        states_filter = [str(state) for state in names_in(states)]
        types_filter = [str(kind) for kind in names_in(types)]

        def ask(_: list[int], __: int) -> ListGroupsRequest:
            return ListGroupsRequest(states_filter=states_filter, types_filter=types_filter)

        def read(
            response: ListGroupsResponse, keys: list[int]
        ) -> Iterator[tuple[int, list[GroupListing] | KafkaError]]:
            for broker in keys:
                yield (
                    broker,
                    refusal(response.error_code, None, f"the groups of broker {broker}")
                    or [
                        GroupListing(
                            it.group_id,
                            it.protocol_type,
                            GroupState(it.group_state),
                            # Brokers that report no type have classic groups only.
                            GroupType(it.group_type or "classic"),
                            broker,
                        )
                        for it in response.groups
                    ],
                )

        answers = await ask_all_brokers(self._calls, Question("the groups of broker", ask, read))
        wanted = None if protocol_types is None else names_in(protocol_types)
        # A group that moved meanwhile may be listed twice.
        found = {
            it.group_id: it for answer in answers.values() for it in answer if wanted is None or it.protocol in wanted
        }
        return sorted(found.values(), key=lambda it: it.group_id)

    async def list_consumer_groups(
        self, *, states: Iterable[GroupState | str] = (), types: Iterable[GroupType | str] = ()
    ) -> list[GroupListing]:
        """Groups of consumers, classic or KIP-848, and groups that have only offsets."""
        listed = await self.list_groups(states=states, types=types, protocol_types=(CONSUMER_PROTOCOL, ""))
        return [it for it in listed if it.type in (GroupType.CLASSIC, GroupType.CONSUMER, GroupType.UNKNOWN)]

    async def describe_consumer_groups(
        self, group_ids: Iterable[str] | str, *, include_authorized_operations: bool = False
    ) -> Results[str, ConsumerGroupDescription]:
        """Groups of consumers, of either protocol, with members and assignments, by id. GroupIdNotFoundException;
        InconsistentGroupProtocolException for a group of another protocol.
        """
        ids = names_in(group_ids)
        calls = self._calls.together()
        route = group_coordinators(calls, str)

        def ask(some: list[str], _: int) -> modern.ConsumerGroupDescribeRequest:
            return modern.ConsumerGroupDescribeRequest(
                group_ids=some, include_authorized_operations=include_authorized_operations
            )

        def read(
            response: modern.ConsumerGroupDescribeResponse, _: object
        ) -> Iterator[tuple[str, ConsumerGroupDescription | KafkaError]]:
            for it in response.groups:
                error = refusal(it.error_code, it.error_message, f"group {it.group_id}")
                yield it.group_id, error or modern_group(it, route.found.get(it.group_id))

        described = await calls.ask(ids, route, Question("group", ask, read))
        others = [group_id for group_id, error in described.errors.items() if error.code in NOT_MODERN]
        classics = await _describe_classic(calls, others, include_authorized_operations)
        outcomes: dict[str, ConsumerGroupDescription | KafkaError] = {**described.succeeded, **described.errors}
        outcomes |= {group_id: _as_consumers(group) for group_id, group in classics.succeeded.items()}
        return Results({group_id: (outcomes | classics.errors)[group_id] for group_id in ids})

    async def describe_classic_groups(
        self, group_ids: Iterable[str] | str, *, include_authorized_operations: bool = False
    ) -> Results[str, ClassicGroupDescription]:
        """Classic groups of any protocol, by id. GroupIdNotFoundException."""
        return await _describe_classic(self._calls, names_in(group_ids), include_authorized_operations)

    async def describe_share_groups(
        self, group_ids: Iterable[str] | str, *, include_authorized_operations: bool = False
    ) -> Results[str, ShareGroupDescription]:
        """Share groups (KIP-932), by id. GroupIdNotFoundException; UnsupportedVersionException if the cluster has no
        share groups.
        """
        route = group_coordinators(self._calls, str)

        def ask(some: list[str], _: int) -> sharing.ShareGroupDescribeRequest:
            return sharing.ShareGroupDescribeRequest(
                group_ids=some, include_authorized_operations=include_authorized_operations
            )

        def read(
            response: sharing.ShareGroupDescribeResponse, _: object
        ) -> Iterator[tuple[str, ShareGroupDescription | KafkaError]]:
            for it in response.groups:
                error = refusal(it.error_code, it.error_message, f"group {it.group_id}")
                yield it.group_id, error or share_group(it, route.found.get(it.group_id))

        return await self._calls.ask(names_in(group_ids), route, Question("group", ask, read))

    async def describe_streams_groups(
        self, group_ids: Iterable[str] | str, *, include_authorized_operations: bool = False
    ) -> Results[str, StreamsGroupDescription]:
        """Streams groups (KIP-1071) with their topologies and tasks, by id. GroupIdNotFoundException;
        UnsupportedVersionException if the cluster has no streams groups.
        """
        route = group_coordinators(self._calls, str)

        def ask(some: list[str], _: int) -> streaming.StreamsGroupDescribeRequest:
            return streaming.StreamsGroupDescribeRequest(
                group_ids=some, include_authorized_operations=include_authorized_operations
            )

        def read(
            response: streaming.StreamsGroupDescribeResponse, _: object
        ) -> Iterator[tuple[str, StreamsGroupDescription | KafkaError]]:
            for it in response.groups:
                error = refusal(it.error_code, it.error_message, f"group {it.group_id}")
                yield it.group_id, error or streams_group(it, route.found.get(it.group_id))

        return await self._calls.ask(names_in(group_ids), route, Question("group", ask, read))

    async def delete_groups(self, group_ids: Iterable[str] | str, *, raise_errors: bool = True) -> Results[str, None]:
        """Delete groups of any type that have no members, with their offsets. GroupNotEmptyException,
        GroupIdNotFoundException (possibly because of a first attempt whose response was lost).
        """

        def ask(some: list[str], _: int) -> DeleteGroupsRequest:
            return DeleteGroupsRequest(groups_names=some)

        def read(response: DeleteGroupsResponse, _: object) -> Iterator[tuple[str, KafkaError | None]]:
            for it in response.results:
                yield it.group_id, refusal(it.error_code, None, f"group {it.group_id}")

        question = Question[str, None]("group", ask, read)
        results = await self._calls.ask(names_in(group_ids), group_coordinators(self._calls, str), question)
        return changed(results, raise_errors)

    delete_consumer_groups = delete_groups
    delete_share_groups = delete_groups

    async def remove_members_from_consumer_group(
        self,
        group_id: str,
        members: Iterable[MemberToRemove | str] | None = None,
        *,
        reason: str = REASON,
        raise_errors: bool = True,
    ) -> Results[MemberToRemove, None]:
        """Remove members from a classic group: static ones by instance id (as a string), others by member id, or all. A
        member that is alive joins again. UnknownMemberIdException, FencedInstanceIdException.
        """
        calls = self._calls.together()
        if members is None:
            group = (await _describe_classic(calls, [group_id], False))[group_id]
            wanted = [MemberToRemove(it.group_instance_id, it.member_id) for it in group.members]
        else:
            wanted = [it if isinstance(it, MemberToRemove) else MemberToRemove(it) for it in _members(members)]

        def ask(some: list[MemberToRemove], _: int) -> leaving.LeaveGroupRequest:
            identities = [
                leaving.MemberIdentity(
                    # A static member is identified by its instance: its member id may have changed since.
                    member_id="" if it.group_instance_id else it.member_id,
                    group_instance_id=it.group_instance_id,
                    reason=reason,
                )
                for it in some
            ]
            return leaving.LeaveGroupRequest(group_id=group_id, members=identities)

        def read(
            response: leaving.LeaveGroupResponse, keys: list[MemberToRemove]
        ) -> Iterator[tuple[MemberToRemove, KafkaError | None]]:
            if error := refusal(response.error_code, None, f"group {group_id}"):
                yield from ((key, error) for key in keys)
                return
            codes = {it.group_instance_id or it.member_id: it.error_code for it in response.members}
            for key in keys:
                if str(key) in codes:
                    yield key, refusal(codes[str(key)], None, f"member {key} of group {group_id}")

        route: Coordinators[MemberToRemove] = group_coordinators(calls, lambda _: group_id)
        question = Question[MemberToRemove, None]("member", ask, read)
        return changed(await calls.ask(wanted, route, question), raise_errors)


async def _describe_classic(
    calls: Calls, group_ids: list[str], operations: bool
) -> Results[str, ClassicGroupDescription]:
    route = group_coordinators(calls, str)

    def ask(some: list[str], _: int) -> classic.DescribeGroupsRequest:
        return classic.DescribeGroupsRequest(groups=some, include_authorized_operations=operations)

    def read(
        response: classic.DescribeGroupsResponse, _: object
    ) -> Iterator[tuple[str, ClassicGroupDescription | KafkaError]]:
        for it in response.groups:
            error = refusal(it.error_code, it.error_message, f"group {it.group_id}")
            if error is None and it.group_state == GroupState.DEAD:
                # Brokers before 4.0 report a missing group like this.
                error = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {it.group_id}")
            yield it.group_id, error or classic_group(it, route.found.get(it.group_id))

    return await calls.ask(group_ids, route, Question("group", ask, read))


def _members(members: Iterable[MemberToRemove | str] | str) -> Iterable[MemberToRemove | str]:
    return [members] if isinstance(members, str) else members


def _as_consumers(group: ClassicGroupDescription) -> ConsumerGroupDescription | KafkaError:
    if group.protocol not in (CONSUMER_PROTOCOL, ""):
        return KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group.group_id} must have protocol consumer; got {group.protocol}",
        )
    try:
        return consumers_of_classic(group)
    except MalformedMessage as error:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"group {group.group_id}: {error}")
