"""AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), DescribeTransactions (65) and ListTransactions (66).

What they may do is the machine's business (`broker/transactions/machine.py`); here requests are taken apart, sent to
the shards of their transactional ids, and answered in the words of their version.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.apis.gathered import Gathered
from broker.coordinator.outcome import Operation, ProducerStamp, Reply
from broker.internal_topics import GROUP_TOPIC
from broker.patterns import Pattern, PatternError
from broker.transactions.machine import TransactionFilter, TransactionMachine
from broker.transactions.transaction import (
    BUMPS_EPOCH,
    TopicPartition,
    Transaction,
    TransactionState,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import describe_transactions as describing
from protocol.messages import list_transactions as listing
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from runtime.dispatch import Call

if TYPE_CHECKING:
    from broker.services import BrokerServices

FROM_BROKERS_VERSION = 4
"""From this version on AddPartitionsToTxn comes from brokers, for producers that bump the epoch with each end."""
BUMPS_EPOCH_VERSION = 5
"""Of EndTxn."""
KNOWS_FENCED_FROM_VERSION = 2
"""Older clients know only INVALID_PRODUCER_EPOCH for it (KIP-588)."""


def _run(
    broker: BrokerServices, transactional_id: str, reply: Reply, command: Callable[[TransactionMachine], Operation]
) -> None:
    """Run `command` of the transactional id's machine. `reply` is refused if its coordinator is not here."""
    if not transactional_id:
        reply.refuse(ErrorCode.INVALID_REQUEST)
        return
    try:
        shard = broker.transactions.shard(transactional_id)
    except KafkaError as error:
        reply.refuse(error.code)
        return
    shard.run(command(shard.machine), reply)


def _in_words_of(version: int, code: ErrorCode) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and version < KNOWS_FENCED_FROM_VERSION:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


# -- 24


def add_partitions_to_txn(broker: BrokerServices, call: Call) -> None:
    _add_all(broker, call.message, call.version, call.answer)


def add_partitions_here(
    broker: BrokerServices, request: AddPartitionsToTxnRequest, answer: Callable[[AddPartitionsToTxnResponse], None]
) -> None:
    """As if another broker asked. `answer` is called once, now or later."""
    _add_all(broker, request, FROM_BROKERS_VERSION, answer)


def _add_all(
    broker: BrokerServices,
    request: AddPartitionsToTxnRequest,
    version: int,
    answer: Callable[[AddPartitionsToTxnResponse], None],
) -> None:
    from_brokers = version >= FROM_BROKERS_VERSION
    asked = request.transactions if from_brokers else [_of_a_client(request)]

    def finish(results: list[AddPartitionsToTxnResult]) -> None:
        if from_brokers:
            answer(AddPartitionsToTxnResponse(results_by_transaction=results))
        else:
            answer(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results))

    gathered = Gathered(len(asked), finish)
    for place, transaction in enumerate(asked):
        _add_partitions(broker, version, transaction, gathered, place)


def _of_a_client(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _add_partitions(
    broker: BrokerServices,
    version: int,
    transaction: AddPartitionsToTxnTransaction,
    gathered: Gathered[AddPartitionsToTxnResult],
    place: int,
) -> None:
    transactional_id = transaction.transactional_id
    partitions = list(dict.fromkeys((topic.name, index) for topic in transaction.topics for index in topic.partitions))
    unknown = [each for each in partitions if broker.metadata.partition(*each) is None]
    if unknown:
        codes = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
        codes.update(dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        gathered.put(place, _result(transactional_id, codes))
        return

    def all_of(code: ErrorCode) -> AddPartitionsToTxnResult:
        return _result(transactional_id, dict.fromkeys(partitions, _in_words_of(version, code)))

    def all_but(missing: frozenset[TopicPartition]) -> AddPartitionsToTxnResult:
        codes = {
            each: ErrorCode.TRANSACTION_ABORTABLE if each in missing else ErrorCode.NONE for each in partitions
        }
        return _result(transactional_id, codes)

    reply = gathered.reply(place, all_of)
    producer = ProducerStamp(transaction.producer_id, transaction.producer_epoch)

    def command(machine: TransactionMachine) -> Operation:
        if transaction.verify_only:
            return partial(machine.verify_partitions, transactional_id, producer, partitions, (reply, all_but))
        transaction_version = BUMPS_EPOCH if version >= FROM_BROKERS_VERSION else 0
        answer = (reply, all_of)
        return partial(machine.add_partitions, transactional_id, producer, partitions, transaction_version, answer)

    _run(broker, transactional_id, reply, command)


def _result(transactional_id: str, codes: dict[TopicPartition, ErrorCode]) -> AddPartitionsToTxnResult:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), code in codes.items():
        result = AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        topics.setdefault(topic, []).append(result)
    return AddPartitionsToTxnResult(
        transactional_id=transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(name=name, results_by_partition=results) for name, results in topics.items()
        ],
    )


# -- 25


def add_offsets_to_txn(broker: BrokerServices, call: Call) -> None:
    """The partition that keeps the group's offsets joins the transaction."""
    request: AddOffsetsToTxnRequest = call.message

    def response(code: ErrorCode) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=_in_words_of(call.version, code))

    reply = Reply(call.answer, lambda code: call.answer(response(code)))
    index = broker.groups.partition_of(request.group_id)
    if index is None:
        broker.auto_topics.create_internal(GROUP_TOPIC)
        reply.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    producer = ProducerStamp(request.producer_id, request.producer_epoch)
    partitions = [(GROUP_TOPIC, index)]
    answer = (reply, response)
    _run(
        broker,
        request.transactional_id,
        reply,
        lambda machine: partial(
            machine.add_partitions, request.transactional_id, producer, partitions, 0, answer
        ),
    )


# -- 26


def end_txn(broker: BrokerServices, call: Call) -> None:
    request: EndTxnRequest = call.message
    transaction_version = BUMPS_EPOCH if call.version >= BUMPS_EPOCH_VERSION else 0
    reply = Reply(call.answer, lambda code: call.answer(EndTxnResponse(error_code=_in_words_of(call.version, code))))
    _run(
        broker,
        request.transactional_id,
        reply,
        lambda machine: partial(machine.end_transaction, request, transaction_version, reply),
    )


# -- 65


def describe_transactions(broker: BrokerServices, call: Call) -> None:
    request: describing.DescribeTransactionsRequest = call.message

    def finish(states: list[describing.TransactionState]) -> None:
        call.answer(describing.DescribeTransactionsResponse(transaction_states=states))

    gathered = Gathered(len(request.transactional_ids), finish)
    for place, transactional_id in enumerate(request.transactional_ids):
        reply = gathered.reply(place, partial(_not_described, transactional_id))
        _run(broker, transactional_id, reply, partial(_describe, transactional_id, reply))


def _describe(transactional_id: str, reply: Reply, machine: TransactionMachine) -> Operation:
    return partial(machine.describe, transactional_id, reply)


def _not_described(transactional_id: str, code: ErrorCode) -> describing.TransactionState:
    return describing.TransactionState(transactional_id=transactional_id, error_code=code)


# -- 66

_LABELS = {state.label: state for state in TransactionState}


def list_transactions(broker: BrokerServices, call: Call) -> None:
    """Those of all partitions that are led here."""
    request: listing.ListTransactionsRequest = call.message
    try:
        wanted = _filter(request)
    except PatternError:
        call.answer(listing.ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION))
        return

    if broker.transactions.may_be_deposed:
        call.answer(listing.ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return

    def finish(parts: list[list[Transaction] | ErrorCode]) -> None:
        call.answer(_listed(parts, [name for name in request.state_filters if name not in _LABELS]))

    shards = broker.transactions.shards
    gathered: Gathered[list[Transaction] | ErrorCode] = Gathered(len(shards), finish)
    for place, shard in enumerate(shards):
        reply = gathered.reply(place, lambda code: code)
        shard.run(partial(shard.machine.list_transactions, wanted, reply), reply)


def _filter(request: listing.ListTransactionsRequest) -> TransactionFilter:
    """Raises PatternError."""
    states = [_LABELS[name] for name in request.state_filters if name in _LABELS]
    pattern = request.transactional_id_pattern
    return TransactionFilter(
        # Names that nobody knows let nothing pass.
        states=frozenset(states) if request.state_filters else None,
        producer_ids=frozenset(request.producer_id_filters),
        longer_than_ms=request.duration_filter,
        id_matches=Pattern(pattern).matches if pattern else lambda _: True,
    )


def _listed(
    parts: list[list[Transaction] | ErrorCode], unknown_state_filters: list[str]
) -> listing.ListTransactionsResponse:
    response = listing.ListTransactionsResponse(unknown_state_filters=unknown_state_filters)
    for part in parts:
        if not isinstance(part, ErrorCode):
            response.transaction_states += [
                listing.TransactionState(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.state.label,
                )
                for each in part
            ]
        elif part is not ErrorCode.NOT_COORDINATOR:
            # Half a list looks like a whole one. (What another broker took over meanwhile is asked of that one.)
            return listing.ListTransactionsResponse(error_code=part)
    return response
