"""AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), DescribeTransactions (65) and ListTransactions (66).

The state machine decides (`broker/transactions/machine.py`). Handlers split requests, send the parts to the shards of
their transactional ids, and answer with the error codes of the request's version.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from barnabas.broker.apis.coordinator_reads import CoordinatorReads
from barnabas.broker.apis.group_calls import may_read_group
from barnabas.broker.apis.response_parts import ResponseParts
from barnabas.broker.apis.rights import May, may_on_topics, may_on_transactions
from barnabas.broker.coordinator.coordinator import work_of_key
from barnabas.broker.coordinator.outcome import NOBODY, Operation, ProducerStamp, Reply
from barnabas.broker.coordinator.shard import Shard
from barnabas.broker.internal_topics import GROUP_TOPIC
from barnabas.broker.metadata_cache import INTERNAL_TOPICS, MetadataCache
from barnabas.broker.patterns import Pattern, PatternError
from barnabas.broker.transactions.machine import TransactionFilter, TransactionMachine
from barnabas.broker.transactions.transaction import (
    BUMPS_EPOCH,
    TopicPartition,
    Transaction,
    TransactionState,
)
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import describe_transactions as describing
from barnabas.protocol.messages import list_transactions as listing
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import ANSWER_TOO_LARGE, Meter
from barnabas.runtime.server import Steps

FROM_BROKERS_VERSION = 4
"""From this version on AddPartitionsToTxn comes from brokers, for producers that bump the epoch with each end."""
BUMPS_EPOCH_VERSION = 5
"""EndTxn version."""
KNOWS_FENCED_FROM_VERSION = 2
"""Older clients know only INVALID_PRODUCER_EPOCH for it (KIP-588)."""


class TransactionShards(Protocol):
    """The part of the transaction coordinator that request handlers use. `Coordinator[TransactionMachine]` fits."""

    @property
    def shards(self) -> Sequence[Shard[TransactionMachine]]: ...

    @property
    def may_be_deposed(self) -> bool: ...

    def shard(self, key: str) -> Shard[TransactionMachine]: ...


@dataclass(frozen=True, slots=True)
class AddPartitionsPorts:
    transactions: TransactionShards
    metadata: MetadataCache


@dataclass(frozen=True, slots=True)
class AddOffsetsPorts:
    transactions: TransactionShards
    group_partition: Callable[[str], int | None]
    """The partition of the group's offsets; None until their topic exists. Raises KafkaError."""
    create_internal: Callable[[str], None]
    """Begins to create an internal topic."""


def _run(
    transactions: TransactionShards,
    transactional_id: str,
    reply: Reply,
    command: Callable[[TransactionMachine], Operation],
) -> None:
    """Run `command` on the state machine of the transactional id. `reply` is refused if its coordinator is not here."""
    if not transactional_id:
        reply.refuse(ErrorCode.INVALID_REQUEST)
        return
    try:
        shard = transactions.shard(transactional_id)
    except KafkaError as error:
        reply.refuse(error.code)
        return
    shard.run(command(shard.machine), reply)


def _error_for(version: int, code: ErrorCode) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and version < KNOWS_FENCED_FROM_VERSION:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


# -- 24


def add_partitions_to_txn(ports: AddPartitionsPorts, call: Call) -> Steps:
    if call.version >= FROM_BROKERS_VERSION:
        if not call.may_on_cluster(AclOperation.CLUSTER_ACTION):
            call.answer(AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
            return
        yield from _add_all(ports, call.message, call.version, call.answer)
        return
    is_allowed = _may_write_in(call, call.message.v3_and_below_transactional_id)
    rights = ProducerRights(is_allowed, may_on_topics(call, AclOperation.WRITE))
    yield from _add_all(ports, call.message, call.version, call.answer, rights)


def _may_write_in(call: Call, transactional_id: str) -> bool:
    """The client may produce with this transactional id."""
    return call.may(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id)


class ProducerRights(NamedTuple):
    """Rights of a producer that adds partitions to its transaction."""

    may_use_transaction: bool
    may_write: May

    def may_add(self, topic: str) -> bool:
        """Only coordinators write to internal topics."""
        return topic not in INTERNAL_TOPICS and self.may_write(topic)


def add_partitions_here(
    ports: AddPartitionsPorts,
    request: AddPartitionsToTxnRequest,
    answer: Callable[[AddPartitionsToTxnResponse], None],
) -> Steps:
    """Handles a request of this broker to itself like one of another broker. `answer` is called once, now or later."""
    yield from _add_all(ports, request, FROM_BROKERS_VERSION, answer)


def _add_all(
    ports: AddPartitionsPorts,
    request: AddPartitionsToTxnRequest,
    version: int,
    answer: Callable[[AddPartitionsToTxnResponse], None],
    rights: ProducerRights | None = None,
) -> Steps:
    """`rights`: those of the client; None for a broker."""
    from_brokers = version >= FROM_BROKERS_VERSION
    asked = request.transactions if from_brokers else [_of_a_client(request)]

    def finish(results: list[AddPartitionsToTxnResult]) -> None:
        if from_brokers:
            answer(AddPartitionsToTxnResponse(results_by_transaction=results))
        else:
            answer(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results))

    parts = ResponseParts(len(asked), finish)
    meter = Meter()
    for place, transaction in enumerate(asked):
        addition = _Addition(ports, version, transaction, rights)
        yield from addition.check(meter)
        addition.run(parts, place)
        if meter.step_ends(2 + addition.count + work_of_key(transaction.transactional_id)):
            yield None


def _of_a_client(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


class _Addition:
    """The partitions of one transaction in a request. Its result is made beforehand, in steps, so that only error codes
    remain to be filled in when the coordinator answers."""

    def __init__(
        self,
        ports: AddPartitionsPorts,
        version: int,
        transaction: AddPartitionsToTxnTransaction,
        rights: ProducerRights | None,
    ) -> None:
        self._ports = ports
        self._rights = rights
        self._version = version
        self._transaction = transaction
        self._results: dict[TopicPartition, AddPartitionsToTxnPartitionResult] = {}
        self._result = AddPartitionsToTxnResult(transactional_id=transaction.transactional_id)
        self._refused: dict[TopicPartition, ErrorCode] = {}

    @property
    def count(self) -> int:
        return len(self._results)

    def check(self, meter: Meter) -> Steps:
        """Look up each partition once, and add it to the result."""
        metadata, rights = self._ports.metadata, self._rights
        may_add = rights.may_add if rights is not None and rights.may_use_transaction else None
        topics: dict[str, AddPartitionsToTxnTopicResult] = {}
        for topic in self._transaction.topics:
            for index in topic.partitions:
                key = (topic.name, index)
                if key not in self._results:
                    answers = topics.get(topic.name)
                    if answers is None:
                        answers = topics[topic.name] = AddPartitionsToTxnTopicResult(name=topic.name)
                        self._result.topic_results.append(answers)
                    result = self._results[key] = AddPartitionsToTxnPartitionResult(partition_index=index)
                    answers.results_by_partition.append(result)
                    if may_add is not None and not may_add(topic.name):
                        self._refused[key] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    elif metadata.partition(*key) is None:
                        self._refused[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if meter.step_ends():
                    yield None
            if meter.step_ends():
                yield None

    def run(self, parts: ResponseParts[AddPartitionsToTxnResult], place: int) -> None:
        """Let the coordinator add all partitions, or none if one of them is refused."""
        transaction = self._transaction
        transactional_id = transaction.transactional_id
        if self._rights is not None and not self._rights.may_use_transaction:
            parts.put(place, self._all_of(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
            return
        if self._refused:
            self._all_of(ErrorCode.OPERATION_NOT_ATTEMPTED)
            for key, code in self._refused.items():
                self._results[key].partition_error_code = code
            parts.put(place, self._result)
            return
        partitions = list(self._results)
        reply = parts.reply(place, self._all_of)
        producer = ProducerStamp(transaction.producer_id, transaction.producer_epoch)

        def command(machine: TransactionMachine) -> Operation:
            if transaction.verify_only:
                answer = (reply, self._all_but)
                return partial(machine.verify_partitions, transactional_id, producer, partitions, answer)
            transaction_version = BUMPS_EPOCH if self._version >= FROM_BROKERS_VERSION else 0
            return partial(
                machine.add_partitions,
                transactional_id,
                producer,
                partitions,
                transaction_version,
                (reply, self._all_of),
            )

        _run(self._ports.transactions, transactional_id, reply, command)

    def _all_of(self, code: ErrorCode) -> AddPartitionsToTxnResult:
        code = _error_for(self._version, code)
        for result in self._results.values():
            result.partition_error_code = code
        return self._result

    def _all_but(self, missing: frozenset[TopicPartition]) -> AddPartitionsToTxnResult:
        for key in missing:
            self._results[key].partition_error_code = ErrorCode.TRANSACTION_ABORTABLE
        return self._result


# -- 25


def add_offsets_to_txn(ports: AddOffsetsPorts, call: Call) -> None:
    """Adds the partition of the group's offsets to the transaction."""
    request: AddOffsetsToTxnRequest = call.message

    def response(code: ErrorCode) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=_error_for(call.version, code))

    reply = Reply(call.answer, lambda code: call.answer(response(code)))
    if not _may_write_in(call, request.transactional_id):
        reply.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    if not may_read_group(call):
        reply.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return
    try:
        index = ports.group_partition(request.group_id)
    except KafkaError as error:
        reply.refuse(error.code)
        return
    if index is None:
        ports.create_internal(GROUP_TOPIC)
        reply.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    producer = ProducerStamp(request.producer_id, request.producer_epoch)
    partitions = [(GROUP_TOPIC, index)]
    answer = (reply, response)
    _run(
        ports.transactions,
        request.transactional_id,
        reply,
        lambda machine: partial(machine.add_partitions, request.transactional_id, producer, partitions, 0, answer),
    )


# -- 26


def end_txn(transactions: TransactionShards, call: Call) -> None:
    request: EndTxnRequest = call.message
    transaction_version = BUMPS_EPOCH if call.version >= BUMPS_EPOCH_VERSION else 0
    reply = Reply(call.answer, lambda code: call.answer(EndTxnResponse(error_code=_error_for(call.version, code))))
    if not _may_write_in(call, request.transactional_id):
        reply.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    _run(
        transactions,
        request.transactional_id,
        reply,
        lambda machine: partial(machine.end_transaction, request, transaction_version, reply),
    )


# -- 65


def describe_transactions(transactions: TransactionShards, call: Call) -> Steps:
    request: describing.DescribeTransactionsRequest = call.message
    # An id named twice is described once: the response is much longer than the request.
    transactional_ids = list(dict.fromkeys(request.transactional_ids))
    meter = Meter(call)
    reads = CoordinatorReads(call, lambda place, code: _not_described(transactional_ids[place], code))
    may_describe = may_on_transactions(call, AclOperation.DESCRIBE)
    may_describe_topic = may_on_topics(call, AclOperation.DESCRIBE)
    for transactional_id in transactional_ids:
        if not may_describe(transactional_id):
            reads.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        elif not transactional_id:
            reads.refuse(ErrorCode.INVALID_REQUEST)
        elif meter.is_full:
            reads.refuse(ANSWER_TOO_LARGE)
        else:
            try:
                shard = transactions.shard(transactional_id)
                reads.read(shard, partial(shard.machine.describe, transactional_id, NOBODY))
            except KafkaError as error:
                reads.refuse(error.code)
        state = reads.parts[-1]
        state.topics = [topic for topic in state.topics if may_describe_topic(topic.topic)]
        partitions = sum(1 + len(topic.partitions) for topic in state.topics)
        meter.answer_grows(1 + partitions, len(transactional_id))
        if meter.step_ends(1 + partitions + work_of_key(transactional_id)):
            yield None

    def finish(states: Sequence[describing.TransactionState]) -> None:
        call.answer(describing.DescribeTransactionsResponse(transaction_states=list(states)))

    reads.settle(finish)


def _not_described(transactional_id: str, code: ErrorCode) -> describing.TransactionState:
    return describing.TransactionState(transactional_id=transactional_id, error_code=code)


# -- 66

MATCHED_AT_ONCE = 500
"""Ids that are matched with a pattern in one piece of work."""

_LABELS = {state.label: state for state in TransactionState}


def list_transactions(transactions: TransactionShards, call: Call) -> Steps:
    """Lists the transactions of all partitions that this broker leads."""
    request: listing.ListTransactionsRequest = call.message
    if transactions.may_be_deposed:
        call.answer(listing.ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    # An unknown name matches no transaction.
    states = frozenset(_LABELS[name] for name in request.state_filters if name in _LABELS)
    wanted = TransactionFilter(
        states=states if request.state_filters else None,
        producer_ids=frozenset(request.producer_id_filters),
        longer_than_ms=request.duration_filter,
    )
    pattern = None
    if request.transactional_id_pattern:
        try:
            pattern = yield partial(Pattern, request.transactional_id_pattern)
        except PatternError:
            call.answer(listing.ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION))
            return
    meter = Meter(call)
    reads: CoordinatorReads[list[listing.TransactionState] | ErrorCode] = CoordinatorReads(call, lambda _, code: code)
    may_describe = may_on_transactions(call, AclOperation.DESCRIBE)
    for shard in transactions.shards:
        listed = []
        try:
            shard.check_active()
        except KafkaError as error:
            reads.refuse(error.code)
            continue
        for transaction in shard.machine.matching(wanted, shard.now()):
            if transaction is not None and may_describe(transaction.transactional_id):
                listed.append(_listed(transaction))
                meter.answer_grows(1, len(transaction.transactional_id))
            if meter.step_ends():
                yield None
        if pattern is not None:
            listed = yield from _of_pattern(pattern, listed)
        reads.depends_on(shard)
        reads.put(listed)

    def finish(parts: Sequence[list[listing.TransactionState] | ErrorCode]) -> None:
        call.answer(_list_response(parts, [name for name in request.state_filters if name not in _LABELS]))

    reads.settle(finish)


def _listed(transaction: Transaction) -> listing.TransactionState:
    return listing.TransactionState(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.label,
    )


def _of_pattern(
    pattern: Pattern, listed: Sequence[listing.TransactionState]
) -> Generator[Any, Any, list[listing.TransactionState]]:
    """The transactions whose ids match. Long ids and patterns may take seconds, so a worker thread matches them."""
    matching: list[listing.TransactionState] = []
    for start in range(0, len(listed), MATCHED_AT_ONCE):
        some = listed[start : start + MATCHED_AT_ONCE]
        matching += yield lambda some=some: [it for it in some if pattern.matches(it.transactional_id)]
    return matching


def _list_response(
    parts: Sequence[list[listing.TransactionState] | ErrorCode], unknown_state_filters: list[str]
) -> listing.ListTransactionsResponse:
    response = listing.ListTransactionsResponse(unknown_state_filters=unknown_state_filters)
    for part in parts:
        if not isinstance(part, ErrorCode):
            response.transaction_states += part
        elif part is not ErrorCode.NOT_COORDINATOR:
            # An incomplete list looks like a complete one. (Clients ask the new coordinator for a shard that moved.)
            return listing.ListTransactionsResponse(error_code=part)
    return response
