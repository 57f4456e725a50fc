"""Tells the controller in which log directory replicas lie, where its metadata says otherwise (KIP-858)."""

from __future__ import annotations

import logging

import trio

from broker.controller_channel import ControllerChannel
from broker.lifecycle import BrokerLifecycle
from broker.log_store import LogStore
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)

log = logging.getLogger(__name__)

ASSIGN_TIMEOUT_MS = 10_000
RETRY_PAUSE_MS = 500
MOST_PER_REQUEST = 2_000


class DirectoryAssignments:
    """One task; sleeps until something is misplaced."""

    def __init__(self, store: LogStore, controller: ControllerChannel, lifecycle: BrokerLifecycle) -> None:
        self._store = store
        self._controller = controller
        self._lifecycle = lifecycle
        self._bell = trio.Event()

    def look(self) -> None:
        """Partitions were opened: some may lie elsewhere than the metadata says."""
        if self._store.misplaced:
            self._bell.set()

    async def run(self) -> None:
        while True:
            await self._bell.wait()
            self._bell = trio.Event()
            await self._lifecycle.registered.wait()
            asked = dict(list(self._store.misplaced.items())[:MOST_PER_REQUEST])
            if asked and not await self._tell(asked):
                await trio.sleep(RETRY_PAUSE_MS / 1000)
            self.look()

    async def _tell(self, asked: dict[tuple[bytes, int], bytes]) -> bool:
        directories: dict[bytes, RequestDirectoryData] = {}
        topics: dict[tuple[bytes, bytes], RequestTopicData] = {}
        for (topic_id, index), directory_id in asked.items():
            directory = directories.setdefault(directory_id, RequestDirectoryData(id=directory_id))
            topic = topics.get((directory_id, topic_id))
            if topic is None:
                topic = topics[directory_id, topic_id] = RequestTopicData(topic_id=topic_id)
                directory.topics.append(topic)
            topic.partitions.append(RequestPartitionData(partition_index=index))
        request = AssignReplicasToDirsRequest(
            broker_id=self._lifecycle.registration.broker_id,
            broker_epoch=self._lifecycle.broker_epoch,
            directories=list(directories.values()),
        )
        try:
            response: AssignReplicasToDirsResponse = await self._controller.call(
                request, timeout_ms=ASSIGN_TIMEOUT_MS
            )
        except KafkaError as error:
            log.info("log directories could not be told: %s", error)
            return False
        if response.error_code != ErrorCode.NONE:
            log.warning("log directories were refused: %s", error_code(response.error_code).name)
            return False
        for key, directory_id in asked.items():
            # An error of a single partition means that it is gone or moved: the metadata log will tell.
            if self._store.misplaced.get(key) == directory_id:
                del self._store.misplaced[key]
        return True
