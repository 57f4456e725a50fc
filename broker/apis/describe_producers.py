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

if TYPE_CHECKING:
    from broker.services import BrokerServices


def describe_producers(broker: BrokerServices, call: Call) -> None:
    request: DescribeProducersRequest = call.message
    response = DescribeProducersResponse()
    for topic in request.topics:
        answers = TopicResponse(name=topic.name)
        response.topics.append(answers)
        for index in topic.partition_indexes:
            answer = PartitionResponse(partition_index=index)
            answers.partitions.append(answer)
            try:
                answer.active_producers = _producers(find_partition(broker, topic.name, index))
            except KafkaError as error:
                answer.error_code = error.code
                answer.error_message = error.message
    call.answer(response)


def _producers(partition: Partition) -> list[ProducerState]:
    producers = partition.log.producers
    if producers is None:
        return []
    return [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.transaction_first_offset,
        )
        for _, entry in sorted(producers.entries.items())
    ]
