"""ListGroups (16), DescribeGroups (15), ConsumerGroupDescribe (69), DeleteGroups (42): groups as tools see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.apis.group_calls import GROUP_OPERATIONS, run_on_group
from broker.coordinator.outcome import Now, Outcome, Reply
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

Command = Callable[[Reply, Now], Outcome]
"""Of a machine, about one group."""


def list_groups(broker: BrokerServices, call: Call) -> None:
    request: ListGroupsRequest = call.message
    shards = broker.groups.shards
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

    gathered = _Gathered(len(shards), answer)
    for place, shard in enumerate(shards):
        put = partial(gathered.put, place)
        reply = Reply(put, put)
        shard.run(partial(shard.machine.listed, request, reply), reply)


def describe_groups(broker: BrokerServices, call: Call) -> None:
    request: classic.DescribeGroupsRequest = call.message

    def answer(groups: list[classic.DescribedGroup]) -> None:
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
        call.answer(classic.DescribeGroupsResponse(groups=groups))

    gathered = _Gathered(len(request.groups), answer)
    for place, group_id in enumerate(request.groups):
        question = _Question(group_id, gathered, place, _classic_error)
        question.ask(broker, lambda machine, asked: partial(machine.describe_classic, asked.group_id, call.version))


def _classic_error(group_id: str, code: ErrorCode) -> classic.DescribedGroup:
    return classic.DescribedGroup(group_id=group_id, error_code=code)


def consumer_group_describe(broker: BrokerServices, call: Call) -> None:
    request: consumer.ConsumerGroupDescribeRequest = call.message

    def answer(groups: list[consumer.DescribedGroup]) -> None:
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
        call.answer(consumer.ConsumerGroupDescribeResponse(groups=groups))

    gathered = _Gathered(len(request.group_ids), answer)
    for place, group_id in enumerate(request.group_ids):
        question = _Question(group_id, gathered, place, _consumer_error)
        if group_id:
            question.ask(broker, lambda machine, asked: partial(machine.describe_consumer, asked.group_id))
        else:
            question.refuse(ErrorCode.INVALID_GROUP_ID)


def _consumer_error(group_id: str, code: ErrorCode) -> consumer.DescribedGroup:
    return consumer.DescribedGroup(group_id=group_id, error_code=code)


def delete_groups(broker: BrokerServices, call: Call) -> None:
    request: DeleteGroupsRequest = call.message
    group_ids = list(dict.fromkeys(request.groups_names))
    gathered = _Gathered(len(group_ids), lambda results: call.answer(DeleteGroupsResponse(results=results)))
    for place, group_id in enumerate(group_ids):
        question = _Question(group_id, gathered, place, _delete_error)
        question.ask(broker, lambda machine, asked: partial(machine.delete, asked.group_id))


def _delete_error(group_id: str, code: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=code)


class _Gathered:
    """Answers that come one by one, in the order of the questions once all are there."""

    def __init__(self, count: int, done: Callable[[list[Any]], None]) -> None:
        self._answers: list[Any] = [None] * count
        self._missing = count
        self._done = done
        if count == 0:
            done([])

    def put(self, place: int, answer: Any) -> None:
        self._answers[place] = answer
        self._missing -= 1
        if self._missing == 0:
            self._done(self._answers)


@dataclass(frozen=True, slots=True)
class _Question:
    """What is asked of one group among several."""

    group_id: str
    gathered: _Gathered
    place: int
    error: Callable[[str, ErrorCode], Any]

    def ask(self, broker: BrokerServices, command: Callable[[GroupMachine, _Question], Command]) -> None:
        reply = Reply(self.answer, self.refuse)
        run_on_group(broker, self.group_id, reply, lambda machine: partial(command(machine, self), reply))

    def answer(self, answer: Any) -> None:
        self.gathered.put(self.place, answer)

    def refuse(self, code: ErrorCode) -> None:
        self.answer(self.error(self.group_id, code))
