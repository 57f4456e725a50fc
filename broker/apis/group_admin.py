"""ListGroups (16), DescribeGroups (15), ConsumerGroupDescribe (69), DeleteGroups (42): groups as tools see them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.apis.gathered import Gathered
from broker.apis.group_calls import GROUP_OPERATIONS, run_on_group
from broker.coordinator.outcome import Operation, Reply
from broker.coordinator.shard import ShardState
from broker.groups.machine import GroupMachine
from protocol.errors import ErrorCode
from protocol.messages import consumer_group_describe as consumer
from protocol.messages import describe_groups as classic
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from runtime.dispatch import Call

if TYPE_CHECKING:
    from broker.services import BrokerServices


def list_groups(broker: BrokerServices, call: Call) -> None:
    request: ListGroupsRequest = call.message
    shards = broker.groups.shards
    if broker.groups.may_be_deposed:
        call.answer(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    if any(shard.state is not ShardState.ACTIVE for shard in shards):
        # What can be told now would not be all.
        call.answer(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return

    def answer(parts: list[list[ListedGroup] | ErrorCode]) -> None:
        response = ListGroupsResponse()
        for part in parts:
            if isinstance(part, list):
                response.groups += part
            elif part is not ErrorCode.NOT_COORDINATOR:
                response = ListGroupsResponse(error_code=part)
                break
        call.answer(response)

    gathered: Gathered[list[ListedGroup] | ErrorCode] = Gathered(len(shards), answer)
    for place, shard in enumerate(shards):
        reply = gathered.reply(place, lambda code: code)
        shard.run(partial(shard.machine.listed, request, reply), reply)


def describe_groups(broker: BrokerServices, call: Call) -> None:
    request: classic.DescribeGroupsRequest = call.message

    def answer(groups: list[classic.DescribedGroup]) -> None:
        if request.include_authorized_operations:
            _authorize(groups)
        call.answer(classic.DescribeGroupsResponse(groups=groups))

    gathered = Gathered(len(request.groups), answer)
    for place, group_id in enumerate(request.groups):
        reply = gathered.reply(place, partial(_classic_error, group_id))
        run_on_group(broker, group_id, reply, partial(_describe_classic, group_id, call.version, reply))


def _describe_classic(group_id: str, version: int, reply: Reply, machine: GroupMachine) -> Operation:
    return partial(machine.describe_classic, group_id, version, reply)


def _classic_error(group_id: str, code: ErrorCode) -> classic.DescribedGroup:
    return classic.DescribedGroup(group_id=group_id, error_code=code)


def consumer_group_describe(broker: BrokerServices, call: Call) -> None:
    request: consumer.ConsumerGroupDescribeRequest = call.message

    def answer(groups: list[consumer.DescribedGroup]) -> None:
        if request.include_authorized_operations:
            _authorize(groups)
        call.answer(consumer.ConsumerGroupDescribeResponse(groups=groups))

    gathered = Gathered(len(request.group_ids), answer)
    for place, group_id in enumerate(request.group_ids):
        reply = gathered.reply(place, partial(_consumer_error, group_id))
        if group_id:
            run_on_group(broker, group_id, reply, partial(_describe_consumer, group_id, reply))
        else:
            reply.refuse(ErrorCode.INVALID_GROUP_ID)


def _describe_consumer(group_id: str, reply: Reply, machine: GroupMachine) -> Operation:
    return partial(machine.describe_consumer, group_id, reply)


def _consumer_error(group_id: str, code: ErrorCode) -> consumer.DescribedGroup:
    return consumer.DescribedGroup(group_id=group_id, error_code=code)


def _authorize(groups: Sequence[classic.DescribedGroup | consumer.DescribedGroup]) -> None:
    for group in groups:
        if group.error_code == ErrorCode.NONE:
            group.authorized_operations = GROUP_OPERATIONS


def delete_groups(broker: BrokerServices, call: Call) -> None:
    request: DeleteGroupsRequest = call.message
    group_ids = list(dict.fromkeys(request.groups_names))

    def answer(results: list[DeletableGroupResult]) -> None:
        call.answer(DeleteGroupsResponse(results=results))

    gathered = Gathered(len(group_ids), answer)
    for place, group_id in enumerate(group_ids):
        reply = gathered.reply(place, partial(_delete_error, group_id))
        run_on_group(broker, group_id, reply, partial(_delete, group_id, reply))


def _delete(group_id: str, reply: Reply, machine: GroupMachine) -> Operation:
    return partial(machine.delete, group_id, reply)


def _delete_error(group_id: str, code: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=code)
