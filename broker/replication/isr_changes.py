"""Shell: sends ISR proposals to the controller, all waiting ones in one AlterPartition, one request at a time.

Knows neither why an ISR changes nor which controller is active (`alter_partition` does).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from itertools import islice

import trio

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica import CommittedIsr, IsrChangeWanted
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)

log = logging.getLogger(__name__)

MOST_ASKED = 250
"""Proposals in one request: it is made and encoded in one step, in about 5 ms."""
ANSWERED_IN_A_STEP = 100
FIRST_RETRY_MS = 50
LAST_RETRY_MS = 1_000

AlterPartition = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]
"""Sends the request to the active controller. May raise KafkaError; retries are done here."""


class IsrChanges:
    """Proposals that wait to be sent to the controller."""

    def __init__(
        self, node_id: int, broker_epoch: Callable[[], int], alter_partition: AlterPartition
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._alter_partition = alter_partition
        self._waiting: dict[tuple[bytes, int], tuple[Partition, IsrChangeWanted]] = {}
        self._bell = trio.Event()

    def propose(self, partition: Partition, proposal: IsrChangeWanted) -> None:
        """Send this soon. A newer proposal for the same partition replaces an older one."""
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
                # A bug must end neither the proposals nor the broker.
                log.exception("%d ISR changes could not be sent", len(asked))
                failure = repr(error)
            if failure is None:
                if not any(self._waiting.get(key) == item for key, item in asked.items()):
                    retry_ms = FIRST_RETRY_MS
                    continue
            else:
                log.info("%d ISR changes failed: %s", len(asked), failure)
                for key, item in asked.items():
                    self._waiting.setdefault(key, item)
                self._bell.set()
            # Failed proposals are not sent again at once.
            await trio.sleep(retry_ms / 1000)
            retry_ms = min(2 * retry_ms, LAST_RETRY_MS)

    def _take(self) -> dict[tuple[bytes, int], tuple[Partition, IsrChangeWanted]]:
        """The proposals that are still pending, as many as fit a request: the metadata log may have overtaken some."""
        waiting = dict(islice(self._waiting.items(), MOST_ASKED))
        for key in waiting:
            del self._waiting[key]
        if self._waiting:
            self._bell.set()
        return {
            key: (partition, proposal)
            for key, (partition, proposal) in waiting.items()
            if partition.replica.pending_isr_change == proposal
        }

    async def _ask(self, asked: dict[tuple[bytes, int], tuple[Partition, IsrChangeWanted]]) -> str | None:
        """One request; returns the reason if it failed as a whole."""
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
                if len(asked) % ANSWERED_IN_A_STEP == 0:
                    await trio.lowlevel.checkpoint()
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
        return "the response lacks some partitions" if asked else None
