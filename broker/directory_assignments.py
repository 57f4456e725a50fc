"""Reports to the controller in which log directory replicas are, if its metadata differs (KIP-858)."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from barnabas.broker.controller_channel import ControllerChannel
from barnabas.broker.lifecycle import BrokerLifecycle
from barnabas.broker.log_store import LogStore
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)

log = logging.getLogger(__name__)

ASSIGN_TIMEOUT_MS = 10_000
RETRY_BACKOFF_MS = 500
MAX_PER_REQUEST = 500
"""A request is made and encoded in one step, in some milliseconds."""


class DirectoryAssignments:
    """One task; sleeps until the metadata differs."""

    def __init__(self, store: LogStore, controller: ControllerChannel, lifecycle: BrokerLifecycle) -> None:
        self._store = store
        self._controller = controller
        self._lifecycle = lifecycle
        self._bell = trio.Event()
        self._accepted: dict[tuple[bytes, int], Callable[[], None]] = {}

    def assign(
        self, key: tuple[bytes, int], directory_id: bytes, accepted: Callable[[], None] | None = None
    ) -> None:
        """Report that the replica of partition `key` is, or is about to be, in this directory. `accepted` is called
        when the controller has recorded it, unless another directory is reported before."""
        self._store.misplaced[key] = directory_id
        self._accepted.pop(key, None)
        if accepted is not None:
            self._accepted[key] = accepted
        self.look()

    def look(self) -> None:
        """To be called when partitions were opened: some may be in another directory than the metadata says."""
        if self._store.misplaced:
            self._bell.set()

    async def run(self) -> None:
        while True:
            await self._bell.wait()
            self._bell = trio.Event()
            await self._lifecycle.registered.wait()
            asked = dict(list(self._store.misplaced.items())[:MAX_PER_REQUEST])
            if asked and not await self._report(asked):
                await trio.sleep(RETRY_BACKOFF_MS / 1000)
            self.look()

    async def _report(self, asked: dict[tuple[bytes, int], bytes]) -> bool:
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
            log.info("log directories could not be reported: %s", error)
            return False
        if response.error_code != ErrorCode.NONE:
            log.warning("the controller refused log directories: %s", error_code(response.error_code).name)
            return False
        refused = {
            (topic.topic_id, each.partition_index)
            for answer in response.directories
            for topic in answer.topics
            for each in topic.partitions
            if each.error_code != ErrorCode.NONE
        }
        for key, directory_id in asked.items():
            # An error for a single partition means that it was deleted or moved: the metadata log will say so.
            if self._store.misplaced.get(key) == directory_id:
                del self._store.misplaced[key]
                accepted = self._accepted.pop(key, None)
                if accepted is not None and key not in refused:
                    accepted()
        return True
