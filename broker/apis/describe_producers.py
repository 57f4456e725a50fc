"""DescribeProducers (61): the producer state of a partition, from any of its replicas (KIP-664)."""

from __future__ import annotations

from barnabas.broker.apis.metadata import topic_name_is_legal
from barnabas.broker.apis.partition_lookup import PartitionLookup
from barnabas.broker.apis.rights import May, may_on_topics
from barnabas.broker.replication.partition import Partition
from barnabas.kraft.authorizer.refusals import refusal_on
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import ANSWER_TOO_LARGE, Meter
from barnabas.runtime.server import Steps


def describe_producers(lookup: PartitionLookup, call: Call) -> Steps:
    request: DescribeProducersRequest = call.message
    response = DescribeProducersResponse()
    meter = Meter(call)
    # A partition named twice is described once: the response is much longer than the request.
    seen: set[tuple[str, int]] = set()
    may_read = may_on_topics(call, AclOperation.READ)
    for topic in request.topics:
        answers = TopicResponse(name=topic.name)
        response.topics.append(answers)
        meter.answer_grows(1, len(topic.name))
        refusal = _refusal(topic.name, may_read)
        for index in topic.partition_indexes:
            if (topic.name, index) not in seen:
                seen.add((topic.name, index))
                answer = PartitionResponse(partition_index=index)
                answers.partitions.append(answer)
                try:
                    if refusal is not None:
                        raise refusal
                    yield from _describe(meter, lookup.find(topic.name, index), answer)
                except KafkaError as error:
                    answer.error_code = error.code
                    answer.error_message = error.message
                meter.answer_grows(1, len(answer.error_message or ""))
            if meter.step_ends():
                yield None
        if meter.step_ends():
            yield None
    call.answer(response)


def _refusal(topic: str, may_read: May) -> KafkaError | None:
    if not topic_name_is_legal(topic):
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic!r} is not a legal topic name")
    return None if may_read(topic) else refusal_on(AclResourceType.TOPIC)


def _describe(meter: Meter, partition: Partition, answer: PartitionResponse) -> Steps:
    """Raises KafkaError if the response has no room for all producers of the partition."""
    producers = partition.log.producers
    if producers is None:
        return
    described = []
    for _, entry in sorted(producers.entries.items()):
        if meter.is_full:
            raise KafkaError(ANSWER_TOO_LARGE, "the answer would be too large; ask for fewer partitions at a time")
        described.append(
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.transaction_first_offset,
            )
        )
        meter.answer_grows()
        if meter.step_ends():
            yield None
    answer.active_producers = described
