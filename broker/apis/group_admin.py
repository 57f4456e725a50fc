"""ListGroups (16), DeleteGroups (42)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from barnabas.broker.apis.coordinator_reads import CoordinatorReads
from barnabas.broker.apis.group_calls import GroupShards
from barnabas.broker.apis.rights import May, may_on_groups, parted
from barnabas.broker.apis.share_group_offsets import delete_states_of_group
from barnabas.broker.coordinator.coordinator import work_of_key
from barnabas.broker.coordinator.outcome import NOBODY
from barnabas.broker.coordinator.shard import ShardState
from barnabas.broker.groups.group import GroupType
from barnabas.broker.shares.state import ShareStateStore
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import STEP_ITEMS, Meter
from barnabas.runtime.server import Steps


def list_groups(groups: GroupShards, call: Call) -> Steps:
    request: ListGroupsRequest = call.message
    shards = groups.shards
    if groups.may_be_deposed:
        call.answer(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    if any(shard.state is not ShardState.ACTIVE for shard in shards):
        # The list would be incomplete.
        call.answer(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return
    meter = Meter(call)
    may_describe = _may_list(call)
    reads: CoordinatorReads[list[ListedGroup] | ErrorCode] = CoordinatorReads(call, lambda _, code: code)
    for shard in shards:
        found = []
        for listed in shard.machine.listed(request):
            if listed is not None and may_describe(listed.group_id):
                found.append(listed)
                meter.answer_grows()
            if meter.step_ends():
                yield None
        reads.depends_on(shard)
        reads.put(found)

    def finish(parts: Sequence[list[ListedGroup] | ErrorCode]) -> None:
        call.answer(_listed(parts))

    reads.settle(finish)


def _may_list(call: Call) -> May:
    """True for a group that the client gets to see. All of them, if it may describe the cluster."""
    if call.may_on_cluster(AclOperation.DESCRIBE, audited=False):
        return lambda _: True
    return may_on_groups(call, AclOperation.DESCRIBE, audited=False)


def _listed(parts: Sequence[list[ListedGroup] | ErrorCode]) -> ListGroupsResponse:
    response = ListGroupsResponse()
    for part in parts:
        if isinstance(part, list):
            response.groups += part
        elif part is not ErrorCode.NOT_COORDINATOR:
            return ListGroupsResponse(error_code=part)
    return response


def delete_groups(groups: GroupShards, share_states: Callable[[], ShareStateStore], call: Call) -> Steps:
    """Deletes the states of share groups first, which takes a while."""
    request: DeleteGroupsRequest = call.message
    meter = Meter(call)
    may_delete = may_on_groups(call, AclOperation.DELETE)
    group_ids, refused = yield from parted(dict.fromkeys(request.groups_names), may_delete, meter)
    share_groups = []
    for group_id in group_ids:
        if _is_share_group(groups, group_id):
            share_groups.append(group_id)
        if meter.step_ends(1 + work_of_key(group_id)):
            yield None
    if share_groups:
        call.spawn(_delete_states_first, groups, share_states(), call, (group_ids, refused, share_groups))
    else:
        yield from _delete_all(groups, call, group_ids, refused, {})


def _is_share_group(groups: GroupShards, group_id: str) -> bool:
    try:
        group = groups.shard(group_id).machine.offsets.group(group_id)
    except KafkaError:
        # The deletion reports it.
        return False
    return group is not None and group.type is GroupType.SHARE


async def _delete_states_first(
    groups: GroupShards, store: ShareStateStore, call: Call, ids: tuple[list[str], list[str], list[str]]
) -> None:
    group_ids, refused, share_groups = ids
    failed: dict[str, ErrorCode] = {}
    for group_id in share_groups:
        try:
            await delete_states_of_group(groups, store, group_id)
        except KafkaError as error:
            failed[group_id] = error.code
    await call.take_steps(_delete_all(groups, call, group_ids, refused, failed))


def _delete_all(
    groups: GroupShards, call: Call, group_ids: list[str], refused: list[str], failed: Mapping[str, ErrorCode]
) -> Steps:
    """Deletes the offsets of a group first, a bounded number with each batch; the last batch deletes the group. The
    groups in `failed` get their errors."""
    meter = Meter(call)

    def error(place: int, code: ErrorCode) -> DeletableGroupResult:
        return DeletableGroupResult(group_id=group_ids[place], error_code=code)

    reads: CoordinatorReads[DeletableGroupResult] = CoordinatorReads(call, error)
    for group_id in group_ids:
        try:
            if group_id in failed:
                raise KafkaError(failed[group_id])
            shard = groups.shard(group_id)
            while (deleted := shard.carry_out_now(partial(shard.machine.delete, group_id, NOBODY))) is None:
                yield None
            reads.depends_on(shard)
            reads.put(deleted)
            meter.step_ends(STEP_ITEMS - 1)
        except KafkaError as refusal:
            reads.refuse(refusal.code)
        meter.answer_grows(1, len(group_id))
        if meter.step_ends(1 + work_of_key(group_id)):
            yield None

    group_ids += refused
    for group_id in refused:
        reads.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        meter.answer_grows(1, len(group_id))
        if meter.step_ends():
            yield None

    def finish(results: Sequence[DeletableGroupResult]) -> None:
        call.answer(DeleteGroupsResponse(results=list(results)))

    reads.settle(finish)
