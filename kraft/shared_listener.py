"""The listener of a replica of the metadata log that the two roles of a combined node share."""

from __future__ import annotations

from barnabas.kraft.commit_feed import CommittedBatch, MetadataListener
from barnabas.protocol.schema import Message
from barnabas.runtime.at_once import Stepwise


class SharedListener:
    """Passes each call on to both. The controller is first: a broker hands on to clients what it applied."""

    def __init__(self, controller: MetadataListener, broker: MetadataListener) -> None:
        self._listeners = (controller, broker)

    def handle_commit(self, batch: CommittedBatch) -> Stepwise[None]:
        for listener in self._listeners:
            yield from listener.handle_commit(batch)

    def handle_snapshot(self, records: list[Message], offset: int, epoch: int, timestamp_ms: int) -> Stepwise[None]:
        for listener in self._listeners:
            yield from listener.handle_snapshot(records, offset, epoch, timestamp_ms)

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        for listener in self._listeners:
            listener.handle_leader_change(leader_id, epoch)
