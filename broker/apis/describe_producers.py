"""DescribeProducers (61): who writes to a partition and how far they are, as any of its replicas knows it
(KIP-664).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.apis.lookup import find_partition
from broker.replication.partition import Partition
from protocol.errors import KafkaError
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from runtime.dispatch import Call
from runtime.meter import ANSWER_TOO_LARGE, Meter
from runtime.server import Steps

if TYPE_CHECKING:
    from broker.services import BrokerServices


def describe_producers(broker: BrokerServices, call: Call) -> Steps:
    request: DescribeProducersRequest = call.message
    response = DescribeProducersResponse()
    meter = Meter(call)
    # A partition that is named twice is described once: an answer is much longer than its question.
    seen: set[tuple[str, int]] = set()
    for topic in request.topics:
        answers = TopicResponse(name=topic.name)
        response.topics.append(answers)
        meter.answer_grows(1, len(topic.name))
        for index in topic.partition_indexes:
            if (topic.name, index) not in seen:
                seen.add((topic.name, index))
                answer = PartitionResponse(partition_index=index)
                answers.partitions.append(answer)
                try:
                    yield from _describe(meter, find_partition(broker, topic.name, index), answer)
                except KafkaError as error:
                    answer.error_code = error.code
                    answer.error_message = error.message
                meter.answer_grows(1, len(answer.error_message or ""))
            if meter.step_ends():
                yield None
        if meter.step_ends():
            yield None
    call.answer(response)


def _describe(meter: Meter, partition: Partition, answer: PartitionResponse) -> Steps:
    """Raises KafkaError if the answer has no room for all producers of the partition."""
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
