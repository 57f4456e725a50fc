"""AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), DescribeTransactions (65) and ListTransactions (66).

What they may do is the machine's business (`broker/transactions/machine.py`); here requests are taken apart, sent to
the shards of their transactional ids, and answered in the words of their version.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.apis.gathered import Gathered
from broker.apis.looks import Looks
from broker.coordinator.coordinator import work_of_key
from broker.coordinator.outcome import NOBODY, Operation, ProducerStamp, Reply
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
from runtime.meter import ANSWER_TOO_LARGE, Meter
from runtime.server import Steps

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


def add_partitions_to_txn(broker: BrokerServices, call: Call) -> Steps:
    yield from _add_all(broker, call.message, call.version, call.answer)


def add_partitions_here(
    broker: BrokerServices, request: AddPartitionsToTxnRequest, answer: Callable[[AddPartitionsToTxnResponse], None]
) -> Steps:
    """As if another broker asked. `answer` is called once, now or later."""
    yield from _add_all(broker, request, FROM_BROKERS_VERSION, answer)


def _add_all(
    broker: BrokerServices,
    request: AddPartitionsToTxnRequest,
    version: int,
    answer: Callable[[AddPartitionsToTxnResponse], None],
) -> Steps:
    from_brokers = version >= FROM_BROKERS_VERSION
    asked = request.transactions if from_brokers else [_of_a_client(request)]

    def finish(results: list[AddPartitionsToTxnResult]) -> None:
        if from_brokers:
            answer(AddPartitionsToTxnResponse(results_by_transaction=results))
        else:
            answer(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results))

    gathered = Gathered(len(asked), finish)
    meter = Meter()
    for place, transaction in enumerate(asked):
        _add_partitions(broker, version, transaction, gathered, place)
        partitions = sum(len(topic.partitions) for topic in transaction.topics)
        if meter.step_ends(2 + len(transaction.topics) + partitions + work_of_key(transaction.transactional_id)):
            yield None


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
    try:
        index = broker.groups.partition_of(request.group_id)
    except KafkaError as error:
        reply.refuse(error.code)
        return
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


def describe_transactions(broker: BrokerServices, call: Call) -> Steps:
    request: describing.DescribeTransactionsRequest = call.message
    # An id that is named twice is described once: an answer is much longer than its question.
    transactional_ids = list(dict.fromkeys(request.transactional_ids))
    meter = Meter(call)
    looks = Looks(call, lambda place, code: _not_described(transactional_ids[place], code))
    for transactional_id in transactional_ids:
        if not transactional_id:
            looks.refuse(ErrorCode.INVALID_REQUEST)
        elif meter.is_full:
            looks.refuse(ANSWER_TOO_LARGE)
        else:
            try:
                shard = broker.transactions.shard(transactional_id)
                looks.look(shard, partial(shard.machine.describe, transactional_id, NOBODY))
            except KafkaError as error:
                looks.refuse(error.code)
        partitions = sum(1 + len(topic.partitions) for topic in looks.parts[-1].topics)
        meter.answer_grows(1 + partitions, len(transactional_id))
        if meter.step_ends(1 + partitions + work_of_key(transactional_id)):
            yield None

    def finish(states: Sequence[describing.TransactionState]) -> None:
        call.answer(describing.DescribeTransactionsResponse(transaction_states=list(states)))

    looks.settle(finish)


def _not_described(transactional_id: str, code: ErrorCode) -> describing.TransactionState:
    return describing.TransactionState(transactional_id=transactional_id, error_code=code)


# -- 66

MATCHED_AT_ONCE = 500
"""Ids that are matched with a pattern by one piece of work."""

_LABELS = {state.label: state for state in TransactionState}


def list_transactions(broker: BrokerServices, call: Call) -> Steps:
    """Those of all partitions that are led here."""
    request: listing.ListTransactionsRequest = call.message
    if broker.transactions.may_be_deposed:
        call.answer(listing.ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    # Names that nobody knows let nothing pass.
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
    looks: Looks[list[listing.TransactionState] | ErrorCode] = Looks(call, lambda _, code: code)
    for shard in broker.transactions.shards:
        listed = []
        try:
            shard.check_active()
        except KafkaError as error:
            looks.refuse(error.code)
            continue
        for transaction in shard.machine.matching(wanted, shard.now()):
            if transaction is not None:
                listed.append(_listed(transaction))
                meter.answer_grows(1, len(transaction.transactional_id))
            if meter.step_ends():
                yield None
        if pattern is not None:
            listed = yield from _of_pattern(pattern, listed)
        looks.rests_on(shard)
        looks.put(listed)

    def finish(parts: Sequence[list[listing.TransactionState] | ErrorCode]) -> None:
        call.answer(_list_response(parts, [name for name in request.state_filters if name not in _LABELS]))

    looks.settle(finish)


def _listed(transaction: Transaction) -> listing.TransactionState:
    return listing.TransactionState(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.label,
    )


def _of_pattern(
    pattern: Pattern, listed: Sequence[listing.TransactionState]
) -> Generator[Any, Any, list[listing.TransactionState]]:
    """Those whose ids match. Ids and patterns may be so long that it takes seconds."""
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
            # Half a list looks like a whole one. (What another broker took over meanwhile is asked of that one.)
            return listing.ListTransactionsResponse(error_code=part)
    return response
