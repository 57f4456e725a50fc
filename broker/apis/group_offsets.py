"""OffsetCommit (8), TxnOffsetCommit (28), OffsetDelete (47): changes of committed offsets of groups.

Handlers check that topics and partitions exist; the group's state machine decides everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.apis.coordinator_reads import CoordinatorReads
from barnabas.broker.apis.group_calls import GroupShards, may_read_group
from barnabas.broker.apis.request_pieces import copy_with, pieces_of
from barnabas.broker.apis.rights import may_on_topics
from barnabas.broker.coordinator.outcome import NOBODY, Now, Outcome, ProducerStamp
from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.internal_topics import GROUP_TOPIC
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import Meter
from barnabas.runtime.server import Steps
from barnabas.storage.producers import Verification

if TYPE_CHECKING:
    from barnabas.broker.groups.machine import GroupMachine
    from barnabas.broker.transactions.verification import TransactionVerifier

TOPIC_IDS_FROM_VERSION = 10
"""OffsetCommit and OffsetFetch version (KIP-848)."""


ADDS_PARTITION_FROM_VERSION = 5
"""TxnOffsetCommit version. Clients of earlier versions send AddOffsetsToTxn first (KIP-890)."""

ABORTABLE_FROM_VERSION = 4
"""TxnOffsetCommit version: clients know TRANSACTION_ABORTABLE."""

LOADING_IS_KNOWN_FROM_VERSION = 2
"""TxnOffsetCommit version. For earlier producers COORDINATOR_LOAD_IN_PROGRESS is fatal (KAFKA-7296)."""


@dataclass(frozen=True, slots=True)
class GroupOffsetPorts:
    groups: GroupShards
    metadata: MetadataCache


@dataclass(frozen=True, slots=True)
class TransactionalOffsetPorts:
    """The ports of TxnOffsetCommit."""

    offsets: GroupOffsetPorts
    verifier: TransactionVerifier
    settings: CurrentSettings


# -- OffsetCommit and TxnOffsetCommit


def offset_commit(ports: GroupOffsetPorts, call: Call) -> Steps:
    request: OffsetCommitRequest = call.message

    def commit(machine: GroupMachine, topics: list[OffsetCommitRequestTopic], now: Now) -> Outcome:
        return machine.offsets.commit(copy_with(request, topics=topics), call.version, NOBODY, now)

    def finish(parts: Sequence[list[OffsetCommitResponseTopic]]) -> None:
        call.answer(OffsetCommitResponse(topics=list(chain.from_iterable(parts))))

    committing = _Committing(commit, _commit_error, finish)
    if not may_read_group(call):
        pieces = yield from _unchecked(call)
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    else:
        by_id = call.version >= TOPIC_IDS_FROM_VERSION
        pieces = yield from _split(ports.metadata, call, _commit_error, by_id=by_id)
        code = ErrorCode.NONE
    yield from _carry_out(ports.groups, call, pieces, committing, code=code)


def _commit_error(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], code: ErrorCode
) -> OffsetCommitResponseTopic:
    answers = [OffsetCommitResponsePartition(partition_index=it.partition_index, error_code=code) for it in partitions]
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)


def txn_offset_commit(ports: TransactionalOffsetPorts, call: Call) -> Steps:
    request: TxnOffsetCommitRequest = call.message
    code, verification = _txn_commit_refusal(call), None
    if code is not ErrorCode.NONE:
        pieces = yield from _unchecked(call)
        yield from _commit_in_transaction(ports.offsets.groups, call, pieces, code=code)
        return
    pieces = yield from _split(ports.offsets.metadata, call, _txn_commit_error)
    if any(piece.topics for piece in pieces):
        try:
            if not request.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            verification = _begin_verification(ports, request, call.version)
        except KafkaError as error:
            code = error.code
    if verification is None:
        yield from _commit_in_transaction(ports.offsets.groups, call, pieces, code=code)
    else:
        call.spawn(_verify_and_commit, ports, call, pieces, verification)


def _txn_commit_refusal(call: Call) -> ErrorCode:
    """The error if the client may use neither the transactional id nor the group; NONE if it may use both."""
    request: TxnOffsetCommitRequest = call.message
    if not call.may(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE if may_read_group(call) else ErrorCode.GROUP_AUTHORIZATION_FAILED


def _begin_verification(
    ports: TransactionalOffsetPorts, request: TxnOffsetCommitRequest, version: int
) -> Verification | None:
    """The verification that the transaction coordinator has to confirm; None if none is needed. Raises KafkaError."""
    adds = version >= ADDS_PARTITION_FROM_VERSION
    if not (adds or ports.settings().transaction_partition_verification_enable):
        return None
    producer = ProducerStamp(request.producer_id, request.producer_epoch)
    return ports.offsets.groups.shard(request.group_id).begin_verification(producer, supports_epoch_bump=adds)


async def _verify_and_commit(
    ports: TransactionalOffsetPorts, call: Call, pieces: Sequence[_Piece], verification: Verification
) -> None:
    request: TxnOffsetCommitRequest = call.message
    partition = (GROUP_TOPIC, ports.offsets.groups.partition_of(request.group_id) or 0)
    verdict = await ports.verifier.verify(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [partition],
        add=call.version >= ADDS_PARTITION_FROM_VERSION,
    )
    code = verdict[partition]
    if code is ErrorCode.NETWORK_EXCEPTION:
        # Producers of every version retry this error with the same broker.
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    elif code is ErrorCode.TRANSACTION_ABORTABLE and call.version < ABORTABLE_FROM_VERSION:
        code = ErrorCode.INVALID_TXN_STATE
    await call.take_steps(_commit_in_transaction(ports.offsets.groups, call, pieces, verification, code))


def _commit_in_transaction(
    groups: GroupShards,
    call: Call,
    pieces: Sequence[_Piece],
    verification: Verification | None = None,
    code: ErrorCode = ErrorCode.NONE,
) -> Steps:
    """With an error in `code` all partitions are refused with it and nothing is committed. `verification` goes with
    the first piece, which begins the transaction on this partition."""
    request: TxnOffsetCommitRequest = call.message
    warrants = [verification]

    def commit(machine: GroupMachine, topics: list[TxnOffsetCommitRequestTopic], now: Now) -> Outcome:
        outcome = machine.offsets.commit_in_transaction(copy_with(request, topics=topics), call.version, NOBODY, now)
        if outcome.records and warrants:
            outcome.verification = warrants.pop()
        return outcome

    def error(
        topic: TxnOffsetCommitRequestTopic, partitions: list[TxnOffsetCommitRequestPartition], why: ErrorCode
    ) -> TxnOffsetCommitResponseTopic:
        if why is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and call.version < LOADING_IS_KNOWN_FROM_VERSION:
            why = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _txn_commit_error(topic, partitions, why)

    def finish(parts: Sequence[list[TxnOffsetCommitResponseTopic]]) -> None:
        call.answer(TxnOffsetCommitResponse(topics=list(chain.from_iterable(parts))))

    yield from _carry_out(groups, call, pieces, _Committing(commit, error, finish), code=code)


def _txn_commit_error(
    topic: TxnOffsetCommitRequestTopic, partitions: list[TxnOffsetCommitRequestPartition], code: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    answers = [
        TxnOffsetCommitResponsePartition(partition_index=it.partition_index, error_code=code) for it in partitions
    ]
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers)


# -- OffsetDelete


def offset_delete(ports: GroupOffsetPorts, call: Call) -> Steps:
    request: OffsetDeleteRequest = call.message
    if not call.may(AclOperation.DELETE, AclResourceType.GROUP, request.group_id):
        call.answer(OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    if not request.group_id:
        call.answer(OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        return
    pieces = yield from _split(ports.metadata, call, _delete_error)
    reads: CoordinatorReads[list[OffsetDeleteResponseTopic] | ErrorCode] = CoordinatorReads(call, lambda _, code: code)
    # The group is checked even if none of the partitions exists.
    for place, piece in enumerate(pieces or [_Piece([], [])]):
        if place > 0:
            yield None
        asked = copy_with(request, topics=piece.topics)
        try:
            shard = ports.groups.shard(request.group_id)
            reads.depends_on(shard)
            deleted = shard.carry_out_now(partial(shard.machine.offsets.delete, asked, NOBODY))
            reads.put(_merged(piece.refused, deleted.topics))
        except KafkaError as error:
            reads.refuse(error.code)

    def finish(parts: Sequence[list[OffsetDeleteResponseTopic] | ErrorCode]) -> None:
        response = OffsetDeleteResponse()
        for part in parts:
            if not isinstance(part, list):
                response = OffsetDeleteResponse(error_code=part)
                break
            response.topics += part
        call.answer(response)

    reads.settle(finish)


def _delete_error(
    topic: OffsetDeleteRequestTopic, partitions: list[OffsetDeleteRequestPartition], code: ErrorCode
) -> OffsetDeleteResponseTopic:
    answers = [OffsetDeleteResponsePartition(partition_index=it.partition_index, error_code=code) for it in partitions]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=answers)


# -- shared by all


class _Piece(NamedTuple):
    """Some partitions of a request: as many as one command takes."""

    topics: list[Any]
    """Topics with the partitions that exist."""
    refused: list[Any]
    """Response topics for the others."""


class _Committing(NamedTuple):
    """Functions that commit the partitions of a request and make its response."""

    commit: Callable[[GroupMachine, list[Any], Now], Outcome]
    error: Callable[[Any, Any, ErrorCode], Any]
    """The response topic for some refused partitions of a topic."""
    finish: Callable[[Sequence[list[Any]]], None]
    """Takes the response topics of all pieces."""


def _split(
    metadata: MetadataCache, call: Call, error: Callable[[Any, Any, ErrorCode], Any], *, by_id: bool = False
) -> Generator[Any, Any, list[_Piece]]:
    """The partitions of a request in pieces."""
    pieces: list[_Piece] = []
    meter = Meter(call)
    may_read = may_on_topics(call, AclOperation.READ)
    for topics in pieces_of(call.message.topics):
        refused: list[Any] = []
        if by_id:
            for topic in topics:
                topic.name = metadata.topic_name(topic.topic_id) or ""
            refused = [error(it, it.partitions, ErrorCode.UNKNOWN_TOPIC_ID) for it in topics if not it.name]
        named = [topic for topic in topics if topic.name] if by_id else topics
        allowed = []
        for topic in named:
            if may_read(topic.name):
                allowed.append(topic)
            else:
                refused.append(error(topic, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        known = _known(metadata, allowed, error, refused)
        if by_id or isinstance(call.message, OffsetCommitRequest):
            for topic in known:
                topic.topic_id = metadata.image.topics.by_name[topic.name].id
        pieces.append(_Piece(known, refused))
        partitions = sum(len(topic.partitions) for topic in topics)
        meter.answer_grows(len(topics) + partitions)
        if meter.step_ends((len(topics) + partitions) // 4):
            yield None
    return pieces


def _unchecked(call: Call) -> Generator[Any, Any, list[_Piece]]:
    """The partitions of a request that is refused as a whole, in pieces."""
    pieces: list[_Piece] = []
    meter = Meter(call)
    for topics in pieces_of(call.message.topics):
        pieces.append(_Piece(topics, []))
        meter.answer_grows(len(topics) + sum(len(topic.partitions) for topic in topics))
        if meter.step_ends(len(topics)):
            yield None
    return pieces


def _carry_out(
    groups: GroupShards,
    call: Call,
    pieces: Sequence[_Piece],
    committing: _Committing,
    *,
    code: ErrorCode = ErrorCode.NONE,
) -> Steps:
    """Run one command for each piece; with an error in `code` all are refused."""

    def refused(place: int, why: ErrorCode) -> list[Any]:
        topics = [committing.error(it, it.partitions, why) for it in pieces[place].topics]
        return _merged(pieces[place].refused, topics)

    reads = CoordinatorReads(call, refused)
    for place, piece in enumerate(pieces):
        if place > 0:
            yield None
        if not piece.topics:
            reads.put(piece.refused)
        elif code is not ErrorCode.NONE:
            reads.refuse(code)
        else:
            try:
                shard = groups.shard(call.message.group_id)
                reads.depends_on(shard)
                answer = shard.carry_out_now(partial(committing.commit, shard.machine, piece.topics))
                reads.put(_merged(piece.refused, answer.topics))
            except KafkaError as error:
                reads.refuse(error.code)
    reads.settle(committing.finish)


def _known(
    metadata: MetadataCache, topics: list[Any], refusal: Callable[[Any, Any, ErrorCode], Any], refused: list[Any]
) -> list[Any]:
    """The topics reduced to partitions that exist. The others are added to `refused`."""
    known = []
    for topic in topics:
        image = metadata.image.topics.by_name.get(topic.name)
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
