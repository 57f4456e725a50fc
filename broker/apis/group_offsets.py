"""OffsetCommit (8), OffsetFetch (9), TxnOffsetCommit (28), OffsetDelete (47): how far groups have come.

Which topics and partitions there are is looked at here; what the group says to it, its coordinator's core decides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.apis.group_calls import run_on_group
from broker.coordinator.outcome import Now, Outcome, ProducerStamp, Reply
from broker.groups.machine import GroupMachine
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.primitives import ZERO_UUID
from runtime.dispatch import Call
from storage.producers import Verification

if TYPE_CHECKING:
    from broker.services import BrokerServices

TOPIC_IDS_FROM_VERSION = 10
"""Of OffsetCommit and OffsetFetch (KIP-848)."""

GROUP_ERRORS_FROM_VERSION = 2
"""Of OffsetFetch. Before it each partition has to tell."""

MANY_GROUPS_FROM_VERSION = 8
"""Of OffsetFetch (KIP-709)."""

ADDS_PARTITION_FROM_VERSION = 5
"""Of TxnOffsetCommit. Before it AddOffsetsToTxn has told the transaction's coordinator (KIP-890)."""

ABORTABLE_FROM_VERSION = 4
"""Of TxnOffsetCommit: TRANSACTION_ABORTABLE is known."""

LOADING_IS_KNOWN_FROM_VERSION = 2
"""Of TxnOffsetCommit. Producers before it take COORDINATOR_LOAD_IN_PROGRESS as fatal (KAFKA-7296)."""


# -- OffsetCommit and TxnOffsetCommit


def offset_commit(broker: BrokerServices, call: Call) -> None:
    request: OffsetCommitRequest = call.message
    refused: list[OffsetCommitResponseTopic] = []
    if call.version >= TOPIC_IDS_FROM_VERSION:
        for topic in request.topics:
            topic.name = broker.metadata.topic_name(topic.topic_id) or ""
        refused += [
            _commit_error(it, it.partitions, ErrorCode.UNKNOWN_TOPIC_ID) for it in request.topics if not it.name
        ]
        request.topics = [topic for topic in request.topics if topic.name]
    request.topics = _known(broker, request.topics, _commit_error, refused)
    for topic in request.topics:
        topic.topic_id = broker.metadata.image.topics.by_name[topic.name].id

    def answer(response: OffsetCommitResponse) -> None:
        call.answer(OffsetCommitResponse(topics=_merged(refused, response.topics)))

    def refuse(code: ErrorCode) -> None:
        answer(OffsetCommitResponse(topics=[_commit_error(it, it.partitions, code) for it in request.topics]))

    if not request.topics:
        answer(OffsetCommitResponse())
        return
    reply = Reply(answer, refuse)
    run_on_group(
        broker,
        request.group_id,
        reply,
        lambda machine: partial(machine.offsets.commit, request, call.version, reply),
    )


def _commit_error(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], code: ErrorCode
) -> OffsetCommitResponseTopic:
    answers = [OffsetCommitResponsePartition(partition_index=it.partition_index, error_code=code) for it in partitions]
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)


def txn_offset_commit(broker: BrokerServices, call: Call) -> None:
    request: TxnOffsetCommitRequest = call.message
    refused: list[TxnOffsetCommitResponseTopic] = []
    request.topics = _known(broker, request.topics, _txn_commit_error, refused)

    def answer(response: TxnOffsetCommitResponse) -> None:
        call.answer(TxnOffsetCommitResponse(topics=_merged(refused, response.topics)))

    def refuse(code: ErrorCode) -> None:
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and call.version < LOADING_IS_KNOWN_FROM_VERSION:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        topics = [_txn_commit_error(it, it.partitions, code) for it in request.topics]
        answer(TxnOffsetCommitResponse(topics=topics))

    if not request.topics:
        answer(TxnOffsetCommitResponse())
        return
    reply = Reply(answer, refuse)
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        verification = _begin_verification(broker, request, call.version)
    except KafkaError as error:
        refuse(error.code)
        return
    if verification is None:
        _commit_in_transaction(broker, call, None, reply)
    else:
        call.spawn(_verify_and_commit, broker, call, verification, reply)


def _begin_verification(broker: BrokerServices, request: TxnOffsetCommitRequest, version: int) -> Verification | None:
    """What is to be confirmed by the transaction's coordinator; None if nothing is. Raises KafkaError."""
    adds = version >= ADDS_PARTITION_FROM_VERSION
    if not (adds or broker.settings.transaction_partition_verification_enable):
        return None
    producer = ProducerStamp(request.producer_id, request.producer_epoch)
    return broker.groups.shard(request.group_id).begin_verification(producer, supports_epoch_bump=adds)


async def _verify_and_commit(broker: BrokerServices, call: Call, verification: Verification, reply: Reply) -> None:
    request: TxnOffsetCommitRequest = call.message
    partition = (broker.groups.topic.name, broker.groups.partition_of(request.group_id) or 0)
    verdict = await broker.verifier.verify(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [partition],
        add=call.version >= ADDS_PARTITION_FROM_VERSION,
    )
    code = verdict[partition]
    if code is ErrorCode.NETWORK_EXCEPTION:
        # What producers of every version take as: the same again, to the same broker.
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    elif code is ErrorCode.TRANSACTION_ABORTABLE and call.version < ABORTABLE_FROM_VERSION:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.NONE:
        _commit_in_transaction(broker, call, verification, reply)
    else:
        reply.refuse(code)


def _commit_in_transaction(broker: BrokerServices, call: Call, verification: Verification | None, reply: Reply) -> None:
    request: TxnOffsetCommitRequest = call.message

    def commit(machine: GroupMachine, now: Now) -> Outcome:
        outcome = machine.offsets.commit_in_transaction(request, call.version, reply, now)
        outcome.verification = verification
        return outcome

    run_on_group(broker, request.group_id, reply, lambda machine: partial(commit, machine))


def _txn_commit_error(
    topic: TxnOffsetCommitRequestTopic, partitions: list[TxnOffsetCommitRequestPartition], code: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    answers = [
        TxnOffsetCommitResponsePartition(partition_index=it.partition_index, error_code=code) for it in partitions
    ]
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers)


# -- OffsetFetch


def offset_fetch(broker: BrokerServices, call: Call) -> None:
    request: OffsetFetchRequest = call.message
    if call.version >= MANY_GROUPS_FROM_VERSION:
        groups = request.groups
    else:
        groups = [_only_group(request)]
    answers: list[OffsetFetchResponseGroup | None] = [None] * len(groups)

    def answered(place: int, group: OffsetFetchResponseGroup) -> None:
        answers[place] = group
        done = [it for it in answers if it is not None]
        if len(done) == len(answers):
            call.answer(_fetch_response(done, call.version))

    if not groups:
        call.answer(OffsetFetchResponse())
    for place, group in enumerate(groups):
        _fetch_group(broker, call, group, partial(answered, place))


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """What clients before version 8 ask, in the words of version 8."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _fetch_response(groups: list[OffsetFetchResponseGroup], version: int) -> OffsetFetchResponse:
    if version >= MANY_GROUPS_FROM_VERSION:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    response = OffsetFetchResponse(error_code=group.error_code)
    for topic in group.topics:
        partitions = [
            OffsetFetchResponsePartition(
                partition_index=it.partition_index,
                committed_offset=it.committed_offset,
                committed_leader_epoch=it.committed_leader_epoch,
                metadata=it.metadata,
                error_code=it.error_code,
            )
            for it in topic.partitions
        ]
        response.topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return response


def _fetch_group(
    broker: BrokerServices,
    call: Call,
    group: OffsetFetchRequestGroup,
    answered: Callable[[OffsetFetchResponseGroup], None],
) -> None:
    unknown: list[OffsetFetchRequestTopics] = []
    by_id = call.version >= TOPIC_IDS_FROM_VERSION
    if by_id and group.topics is not None:
        for topic in group.topics:
            topic.name = broker.metadata.topic_name(topic.topic_id) or ""
        unknown = [topic for topic in group.topics if not topic.name]
        group.topics = [topic for topic in group.topics if topic.name]

    def answer(response: OffsetFetchResponseGroup) -> None:
        if by_id:
            response.topics = [topic for topic in response.topics if _has_id(broker, topic)]
        response.topics += [_fetch_error(topic, ErrorCode.UNKNOWN_TOPIC_ID) for topic in unknown]
        answered(response)

    def refuse(code: ErrorCode) -> None:
        if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            # Clients know that one only of FindCoordinator; on this one they look for the coordinator again.
            code = ErrorCode.NOT_COORDINATOR
        if call.version >= GROUP_ERRORS_FROM_VERSION:
            answered(OffsetFetchResponseGroup(group_id=group.group_id, error_code=code))
            return
        topics = [_fetch_error(topic, code) for topic in group.topics or []]
        answered(OffsetFetchResponseGroup(group_id=group.group_id, topics=topics))

    reply = Reply(answer, refuse)
    run_on_group(
        broker,
        group.group_id,
        reply,
        lambda machine: partial(machine.offsets.fetch, group, call.message.require_stable, reply),
    )


def _has_id(broker: BrokerServices, topic: OffsetFetchResponseTopics) -> bool:
    """Gives the topic its id, if it has one: who asks by ids cannot be told of others."""
    if topic.topic_id == ZERO_UUID:
        image = broker.metadata.image.topics.by_name.get(topic.name)
        topic.topic_id = ZERO_UUID if image is None else image.id
    return topic.topic_id != ZERO_UUID


def _fetch_error(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=code)
            for index in topic.partition_indexes
        ],
    )


# -- OffsetDelete


def offset_delete(broker: BrokerServices, call: Call) -> None:
    request: OffsetDeleteRequest = call.message
    refused: list[OffsetDeleteResponseTopic] = []
    request.topics = _known(broker, request.topics, _delete_error, refused)

    def answer(response: OffsetDeleteResponse) -> None:
        call.answer(OffsetDeleteResponse(topics=_merged(refused, response.topics)))

    def refuse(code: ErrorCode) -> None:
        call.answer(OffsetDeleteResponse(error_code=code))

    if not request.group_id:
        refuse(ErrorCode.INVALID_GROUP_ID)
        return
    reply = Reply(answer, refuse)
    run_on_group(broker, request.group_id, reply, lambda machine: partial(machine.offsets.delete, request, reply))


def _delete_error(
    topic: OffsetDeleteRequestTopic, partitions: list[OffsetDeleteRequestPartition], code: ErrorCode
) -> OffsetDeleteResponseTopic:
    answers = [OffsetDeleteResponsePartition(partition_index=it.partition_index, error_code=code) for it in partitions]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=answers)


# -- what they share


def _known(
    broker: BrokerServices, topics: list[Any], refusal: Callable[[Any, Any, ErrorCode], Any], refused: list[Any]
) -> list[Any]:
    """The topics with those partitions of them that exist. The others go to `refused`."""
    known = []
    for topic in topics:
        image = broker.metadata.image.topics.by_name.get(topic.name)
        indexes = {} if image is None else image.partitions
        gone = [it for it in topic.partitions if it.partition_index not in indexes]
        if gone:
            refused.append(refusal(topic, gone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [it for it in topic.partitions if it.partition_index in indexes]
        if topic.partitions:
            known.append(topic)
    return known


def _merged(refused: list[Any], answered: list[Any]) -> list[Any]:
    """One entry for each topic."""
    by_name = {topic.name: topic for topic in refused if topic.name}
    merged = list(refused)
    for topic in answered:
        before = by_name.get(topic.name)
        if before is None:
            merged.append(topic)
        else:
            before.partitions += topic.partitions
    return merged
