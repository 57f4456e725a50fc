"""Shell: carries ISR proposals to the controller, all that wait in one request, one request at a time.

Knows nothing of why an ISR changes; and not which controller is active: `alter_partition` does.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from broker.replication.partition import Partition
from broker.replication.replica import CommittedIsr, IsrChangeWanted
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)

log = logging.getLogger(__name__)

FIRST_RETRY_MS = 50
LAST_RETRY_MS = 1_000

AlterPartition = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]
"""Ask the active controller. May raise KafkaError; trying again is done here."""


class IsrChanges:
    """What waits to be told to the controller."""

    def __init__(
        self, node_id: int, broker_epoch: Callable[[], int], alter_partition: AlterPartition
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._alter_partition = alter_partition
        self._waiting: dict[tuple[bytes, int], tuple[Partition, IsrChangeWanted]] = {}
        self._bell = trio.Event()

    def propose(self, partition: Partition, proposal: IsrChangeWanted) -> None:
        """Send this soon. A newer proposal for the same partition takes the place of an older one."""
        self._waiting[partition.key] = (partition, proposal)
        self._bell.set()

    async def run(self) -> None:
        """Send until cancelled."""
        retry_ms = FIRST_RETRY_MS
        while True:
            await self._bell.wait()
            self._bell = trio.Event()
            asked = self._take()
            if not asked:
                continue
            try:
                failure = await self._ask(dict(asked))
            except Exception as error:
                # A mistake of ours; the proposals stand, and so does the broker.
                log.exception("asking for %d ISR changes failed", len(asked))
                failure = repr(error)
            if failure is None:
                if not any(self._waiting.get(key) == item for key, item in asked.items()):
                    retry_ms = FIRST_RETRY_MS
                    continue
            else:
                log.info("the controller did not change %d ISRs: %s", len(asked), failure)
                for key, item in asked.items():
                    self._waiting.setdefault(key, item)
                self._bell.set()
            # What came back is not sent again at once.
            await trio.sleep(retry_ms / 1000)
            retry_ms = min(2 * retry_ms, LAST_RETRY_MS)

    def _take(self) -> dict[tuple[bytes, int], tuple[Partition, IsrChangeWanted]]:
        """What still matters: the metadata log may have overtaken some."""
        waiting, self._waiting = self._waiting, {}
        return {
            key: (partition, proposal)
            for key, (partition, proposal) in waiting.items()
            if partition.replica.pending_isr_change == proposal
        }

    async def _ask(self, asked: dict[tuple[bytes, int], tuple[Partition, IsrChangeWanted]]) -> str | None:
        """One exchange; gives why it failed as a whole."""
        request = AlterPartitionRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        topics: dict[bytes, RequestTopicData] = {}
        for (topic_id, index), (_, proposal) in asked.items():
            if topic_id not in topics:
                topics[topic_id] = RequestTopicData(topic_id=topic_id)
                request.topics.append(topics[topic_id])
            topics[topic_id].partitions.append(
                RequestPartitionData(
                    partition_index=index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=broker_id, broker_epoch=epoch)
                        for broker_id, epoch in proposal.isr
                    ],
                    leader_recovery_state=proposal.leader_recovery_state,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        try:
            response = await self._alter_partition(request)
        except KafkaError as error:
            return str(error)
        if response.error_code != 0:
            return error_code(response.error_code).name
        for topic in response.topics:
            for data in topic.partitions:
                item = asked.pop((topic.topic_id, data.partition_index), None)
                if item is None:
                    continue
                partition, proposal = item
                code = error_code(data.error_code)
                if code == ErrorCode.NONE:
                    committed = CommittedIsr(data.leader_epoch, data.partition_epoch, tuple(data.isr))
                    partition.isr_change_answered(proposal, committed)
                else:
                    partition.isr_change_answered(proposal, code)
        return "the answer lacks some" if asked else None
