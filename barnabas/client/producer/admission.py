"""Admission of partitions to sending: each needs a producer id first, and in a transaction a registration."""

from __future__ import annotations

import logging
from typing import Protocol

import trio

from barnabas.client.cluster import Cluster, NoBrokerAvailable
from barnabas.client.producer.memory_records_builder import ProducerId
from barnabas.client.producer.partition_queue import PartitionQueue
from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.runtime.channel import ChannelError

log = logging.getLogger(__name__)

MAX_EPOCH = 2**15 - 1


class Admission(Protocol):
    """Implemented by `Transactions`, and by `ProducerIds` without transactions."""

    @property
    def transactional_id(self) -> str | None: ...

    @property
    def produce_at_most(self) -> int | None:
        """Highest version of Produce with the wanted semantics; None for any."""

    @property
    def error(self) -> KafkaError | None:
        """The reason why nothing more may be sent; None if it may."""

    async def admit(self, queue: PartitionQueue) -> None:
        """Assign a producer id to the queue, or abort its batches; also returns if neither is possible yet."""

    def failed(self, batch: ProducerBatch) -> None:
        """A batch has failed."""


class ProducerIds:
    """Producer ids of an idempotent producer without transactions: the first id is shared by all partitions.

    A partition whose sequence broke goes on in its own epoch (KIP-360): brokers keep epochs by partition.
    """

    transactional_id = None
    produce_at_most = None
    error = None

    def __init__(self, cluster: Cluster, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._request_timeout_ms = request_timeout_ms
        self._first: ProducerId | None = None
        self._obtaining = trio.Lock()
        self._backoff = cluster.backoff()

    async def admit(self, queue: PartitionQueue) -> None:
        last = queue.last_producer
        if last is not None and not queue.id_lost and last.epoch < MAX_EPOCH:
            queue.assign(ProducerId(last.producer_id, last.epoch + 1))
            return
        async with self._obtaining:
            if last is None and self._first is not None:
                queue.assign(self._first)
                return
            obtained = await self._obtain(queue)
            if obtained is not None:
                self._backoff.reset()
                self._first = self._first or obtained
                queue.assign(obtained)

    def failed(self, batch: ProducerBatch) -> None:
        """Other batches are not affected."""

    async def _obtain(self, queue: PartitionQueue) -> ProducerId | None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        try:
            response = await self._cluster.call_any(request, self._request_timeout_ms)
        except (NoBrokerAvailable, ChannelError) as error:
            log.debug("getting a producer id failed: %s", error)
        except KafkaError as error:
            queue.abort(error)
            return None
        else:
            code = error_code(response.error_code)
            if code is ErrorCode.NONE:
                return ProducerId(response.producer_id, response.producer_epoch)
            if not code.retriable:
                queue.abort(KafkaError(code, "InitProducerId was refused"))
                return None
        await trio.sleep(self._backoff.next_ms() / 1000)
        return None
