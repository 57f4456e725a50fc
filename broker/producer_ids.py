"""Producer ids: this broker's block of 1000 ids, and the next block from the controller (MB-21, KIP-730).

An id is never handed out twice: a block belongs to one broker epoch, and the rest of it is lost when the process ends.
"""

from __future__ import annotations

import trio

from barnabas.broker.controller_channel import ControllerChannel
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

ALLOCATE_TIMEOUT_MS = 10_000


class ProducerIds:
    """Hands out the ids of the current block in order."""

    def __init__(self, controller: ControllerChannel, broker_id: int) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._next_id = 0
        self._end_id = 0
        self._fetching = trio.Lock()

    @property
    def at_hand(self) -> bool:
        """True if `take` has an id."""
        return self._next_id < self._end_id

    def take(self) -> int:
        """An id that no other producer has. Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS) if none is at hand."""
        if not self.at_hand:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the next block of producer ids is being fetched")
        producer_id = self._next_id
        self._next_id += 1
        return producer_id

    async def fetch(self, broker_epoch: int) -> None:
        """Make sure that an id is at hand. Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS) if the controller gives
        none."""
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
            # As in Kafka, an error that clients retry.
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error_code(response.error_code).name)
        self._next_id = response.producer_id_start
        self._end_id = response.producer_id_start + response.producer_id_len
