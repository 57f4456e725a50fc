"""InitializeShareGroupState (83) to ReadShareGroupStateSummary (87): the state of share partitions at their share
coordinator, for the leaders of the partitions and for group coordinators (KIP-932).

Each share partition has its own error and never fails the others. The response is sent when all of its parts are
replicated. A request without a group, or with a topic without partitions, gets an empty response, as from Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Any, Protocol

from barnabas.broker.apis.request_pieces import copy_with
from barnabas.broker.coordinator.outcome import Operation, Reply
from barnabas.broker.coordinator.shard import Shard
from barnabas.broker.shares.state import (
    UNINITIALIZED_OFFSET,
    UNKNOWN_COUNT,
    SharePartitionKey,
    ShareState,
    ShareStateChange,
    ShareStateSummary,
)
from barnabas.broker.shares.state_machine import ShareStateMachine
from barnabas.broker.shares.stored_state import from_messages
from barnabas.broker.traffic import ShareStateWrites
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from barnabas.protocol.schema import Message
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import Meter
from barnabas.runtime.server import Steps

BATCHES_AT_ONCE = 1_000
"""Batches of one share partition that one step writes."""
MOST_BATCHES = 10_000
"""Batches in one write: a leader has no more records in flight (group.share.partition.max.record.locks)."""
PARTITION_ITEMS = 8
"""Items of work (see `Meter`) that one share partition takes."""

Answer = Callable[[Message], None]
_Command = Callable[[ShareStateMachine, SharePartitionKey, Any, Reply], Operation]


class ShareStateShards(Protocol):
    """The part of the share coordinator that the handlers use. `Coordinator[ShareStateMachine]` fits."""

    def shard(self, key: str) -> Shard[ShareStateMachine]: ...


@dataclass(frozen=True, slots=True)
class _Api:
    """One of the five requests."""

    messages: Any
    """The module of its messages: all five name the structs of a partition `PartitionData` and `PartitionResult`."""
    topic_result: type[Any]
    response: type[Any]
    command: _Command
    fill: Callable[[Any, Any], None]
    """Writes the answer of the machine into a `PartitionResult`."""


@dataclass(frozen=True, slots=True)
class ShareStatePorts:
    shards: ShareStateShards
    writes: ShareStateWrites


def share_group_state(ports: ShareStatePorts, call: Call) -> Steps:
    yield from serve_share_state(ports, call.message, call.answer)


def serve_share_state(ports: ShareStatePorts, request: Any, answer: Answer) -> Steps:
    """`answer` is called once, now or later."""
    api = _APIS[type(request)]
    if not request.group_id or not request.topics or not all(topic.partitions for topic in request.topics):
        answer(api.response())
        return
    if isinstance(request, write_share_group_state.WriteShareGroupStateRequest):
        answer = partial(_answer_timed, ports.writes, ports.writes.stopwatch(), answer)
    yield from _ShareStates(ports.shards, api, request, answer).start()


def _answer_timed(writes: ShareStateWrites, began: float, answer: Answer, response: Any) -> None:
    """Answer, and count what was written since `began`."""
    writes.count += sum(not it.error_code for topic in response.results for it in topic.partitions)
    writes.spread.took(writes.stopwatch() - began)
    answer(response)


class _ShareStates:
    """One request until its response."""

    __slots__ = ("_answer", "_api", "_request", "_response", "_shards", "_waiting")

    def __init__(self, shards: ShareStateShards, api: _Api, request: Any, answer: Answer) -> None:
        self._shards = shards
        self._api = api
        self._request = request
        self._answer = answer
        self._response = api.response()
        self._waiting = 1
        """Share partitions whose result is not known, plus one for `start` itself."""

    def start(self) -> Steps:
        meter = Meter()
        for topic in self._request.topics:
            results = self._api.topic_result(topic_id=topic.topic_id)
            self._response.results.append(results)
            # A partition named twice is served once, by its last entry.
            for index, data in {data.partition: data for data in topic.partitions}.items():
                result = self._api.messages.PartitionResult(partition=index)
                results.partitions.append(result)
                key = SharePartitionKey(self._request.group_id, topic.topic_id, index)
                if len(getattr(data, "state_batches", ())) > BATCHES_AT_ONCE:
                    yield from self._write(key, data, result)
                else:
                    self._run(key, data, result)
                if meter.step_ends(PARTITION_ITEMS):
                    yield None
        self._one_done()

    def _write(self, key: SharePartitionKey, data: write_share_group_state.PartitionData, result: Any) -> Steps:
        """Carry out a large write as several. The last one has the numbers, so a leader whose write was done in part
        repeats it."""
        batches = sorted(data.state_batches, key=attrgetter("first_offset"))
        is_disjoint = all(before.last_offset < after.first_offset for before, after in pairwise(batches))
        yield None
        if len(batches) > MOST_BATCHES or not is_disjoint:
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = f"a write must have at most {MOST_BATCHES} batches, and more than {BATCHES_AT_ONCE}"
            result.error_message += " must not overlap"
            return
        for start in range(0, len(batches), BATCHES_AT_ONCE):
            some = copy_with(data, state_batches=batches[start : start + BATCHES_AT_ONCE])
            if start + BATCHES_AT_ONCE < len(batches):
                some.start_offset, some.delivery_complete_count = UNINITIALIZED_OFFSET, UNKNOWN_COUNT
            self._run(key, some, result)
            yield None

    def _run(self, key: SharePartitionKey, data: Any, result: Any) -> None:
        self._waiting += 1
        reply = Reply(answer=partial(self._answered, result), refuse=partial(self._refused, result))
        try:
            shard = self._shards.shard(key.coordinator_key)
        except KafkaError as error:
            reply.refuse(error.code)
            return
        shard.run(self._api.command(shard.machine, key, data, reply), reply)

    def _answered(self, result: Any, answer: Any) -> None:
        self._api.fill(result, answer)
        self._one_done()

    def _refused(self, result: Any, code: ErrorCode) -> None:
        result.error_code = code
        self._one_done()

    def _one_done(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            self._answer(self._response)


def _read(machine: ShareStateMachine, key: SharePartitionKey, data: Any, reply: Reply) -> Operation:
    return partial(machine.read, key, data.leader_epoch, reply)


def _write(machine: ShareStateMachine, key: SharePartitionKey, data: Any, reply: Reply) -> Operation:
    change = ShareStateChange(
        data.state_epoch,
        data.leader_epoch,
        data.start_offset,
        data.delivery_complete_count,
        tuple(from_messages(data.state_batches)),
    )
    return partial(machine.write, key, change, reply)


def _initialize(machine: ShareStateMachine, key: SharePartitionKey, data: Any, reply: Reply) -> Operation:
    return partial(machine.initialize, key, data.state_epoch, data.start_offset, reply)


def _delete(machine: ShareStateMachine, key: SharePartitionKey, _data: Any, reply: Reply) -> Operation:
    return partial(machine.delete, key, reply)


def _summary(machine: ShareStateMachine, key: SharePartitionKey, _data: Any, reply: Reply) -> Operation:
    return partial(machine.summary, key, reply)


def _fill_state(result: Any, state: ShareState) -> None:
    result.state_epoch = state.state_epoch
    result.start_offset = state.start_offset
    result.state_batches = [
        read_share_group_state.StateBatch(
            first_offset=it.first_offset,
            last_offset=it.last_offset,
            delivery_state=it.state,
            delivery_count=it.delivery_count,
        )
        for it in state.batches
    ]


def _fill_summary(result: Any, summary: ShareStateSummary) -> None:
    result.state_epoch = summary.state_epoch
    result.leader_epoch = summary.leader_epoch
    result.start_offset = summary.start_offset
    result.delivery_complete_count = summary.delivery_complete_count


def _fill_nothing(_result: Any, _answer: None) -> None:
    pass


_APIS: dict[type[Message], _Api] = {
    initialize_share_group_state.InitializeShareGroupStateRequest: _Api(
        initialize_share_group_state,
        initialize_share_group_state.InitializeStateResult,
        initialize_share_group_state.InitializeShareGroupStateResponse,
        _initialize,
        _fill_nothing,
    ),
    read_share_group_state.ReadShareGroupStateRequest: _Api(
        read_share_group_state,
        read_share_group_state.ReadStateResult,
        read_share_group_state.ReadShareGroupStateResponse,
        _read,
        _fill_state,
    ),
    write_share_group_state.WriteShareGroupStateRequest: _Api(
        write_share_group_state,
        write_share_group_state.WriteStateResult,
        write_share_group_state.WriteShareGroupStateResponse,
        _write,
        _fill_nothing,
    ),
    delete_share_group_state.DeleteShareGroupStateRequest: _Api(
        delete_share_group_state,
        delete_share_group_state.DeleteStateResult,
        delete_share_group_state.DeleteShareGroupStateResponse,
        _delete,
        _fill_nothing,
    ),
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest: _Api(
        read_share_group_state_summary,
        read_share_group_state_summary.ReadStateSummaryResult,
        read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
        _summary,
        _fill_summary,
    ),
}
