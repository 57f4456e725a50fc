"""Producer ids: this broker's current block of 1000, and the next from the controller (MB-21, KIP-730).

An id is never handed out twice: a block belongs to one broker epoch, and what is left of it dies with the process.
"""

from __future__ import annotations

import trio

from broker.controller_channel import ControllerChannel
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

ALLOCATE_TIMEOUT_MS = 10_000


class ProducerIds:
    """Gives one id after the other."""

    def __init__(self, controller: ControllerChannel, broker_id: int) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._next_id = 0
        self._end_id = 0
        self._fetching = trio.Lock()

    @property
    def at_hand(self) -> bool:
        """Whether `take` has one."""
        return self._next_id < self._end_id

    def take(self) -> int:
        """A producer id nobody else has; KafkaError(COORDINATOR_LOAD_IN_PROGRESS) if none is at hand."""
        if not self.at_hand:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the next producer ids are on their way")
        producer_id = self._next_id
        self._next_id += 1
        return producer_id

    async def fetch(self, broker_epoch: int) -> None:
        """See to it that one is at hand; KafkaError(COORDINATOR_LOAD_IN_PROGRESS) if the controller has none now."""
        while not self.at_hand:
            async with self._fetching:
                if not self.at_hand:
                    await self._fetch_block(broker_epoch)

    async def _fetch_block(self, broker_epoch: int) -> None:
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=broker_epoch)
        try:
            response: AllocateProducerIdsResponse = await self._controller.call(
                request, timeout_ms=ALLOCATE_TIMEOUT_MS
            )
        except KafkaError as error:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
        if response.error_code != ErrorCode.NONE:
            # Retriable for the client, as Kafka answers: the next block is on its way.
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error_code(response.error_code).name)
        self._next_id = response.producer_id_start
        self._end_id = response.producer_id_start + response.producer_id_len
