"""Shell: writes records to partitions of `__remote_log_metadata`, each of them in the order in which they came.

One batch of a partition is under way at a time, and what comes meanwhile goes with the next. A batch without an answer
is written again, so a record may be in the log twice: the second one changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from barnabas.broker.topic_writer import TopicWriter
from barnabas.kraft.metadata.image import TopicImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from barnabas.runtime.background import Background
from barnabas.runtime.backoff import Backoff
from barnabas.runtime.world import World
from barnabas.settings.remote_metadata import REMOTE_METADATA_TOPIC

log = logging.getLogger(__name__)

MOST_IN_A_BATCH = 200
BATCH_BYTES = 64 * 1024
ATTEMPT_TIMEOUT_MS = 30_000
FIRST_RETRY_MS, LAST_RETRY_MS = 50, 1_000

_FINAL = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""Errors that the next attempt would get, too."""


@dataclass(frozen=True, slots=True)
class OutboxPorts:
    world: World
    background: Background
    writer: TopicWriter
    topic: Callable[[], TopicImage | None]
    """The topic as it is now; None if it does not exist."""


@dataclass(slots=True, eq=False)
class _Letter:
    value: bytes
    deadline_ms: int
    sent: trio.Event = field(default_factory=trio.Event)
    offset: int | None = None
    """None: not written, for `error`; it may be in the log nevertheless."""
    error: KafkaError | None = None

    def end(self, offset: int | None, error: KafkaError | None) -> None:
        self.offset, self.error = offset, error
        self.sent.set()


class MetadataOutbox:
    def __init__(self, ports: OutboxPorts) -> None:
        self._ports = ports
        self._waiting: dict[int, list[_Letter]] = {}
        """By partition, while a task writes them."""

    async def write(self, index: int, value: bytes, deadline_ms: int) -> int:
        """The offset of the record, once it is replicated. Raises KafkaError; the record may be in the log then."""
        letter = _Letter(value, deadline_ms)
        if index in self._waiting:
            self._waiting[index].append(letter)
        else:
            self._waiting[index] = [letter]
            self._ports.background.spawn(self._serve, index)
        await letter.sent.wait()
        if letter.offset is None:
            raise letter.error or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the record was not written")
        return letter.offset

    async def _serve(self, index: int) -> None:
        waiting = self._waiting[index]
        taken: list[_Letter] = []
        try:
            while waiting:
                taken = _take(waiting)
                await self._write(index, taken)
                taken = []
        finally:
            del self._waiting[index]
            for letter in [*taken, *waiting]:
                letter.end(None, None)

    async def _write(self, index: int, letters: list[_Letter]) -> None:
        """Write one batch, in as many attempts as its first deadline allows."""
        clock, backoff = self._ports.world.monotonic, Backoff(FIRST_RETRY_MS, LAST_RETRY_MS)
        deadline_ms = min(letter.deadline_ms for letter in letters)
        while True:
            try:
                offset = await self._attempt(index, letters, max(1, deadline_ms - clock.now_ms()))
            except KafkaError as error:
                wait_ms = backoff.next_ms()
                if error.code in _FINAL or clock.now_ms() + wait_ms > deadline_ms:
                    log.warning("%d records of %s-%d: %s", len(letters), REMOTE_METADATA_TOPIC, index, error)
                    for letter in letters:
                        letter.end(None, error)
                    return
                await trio.sleep(wait_ms / 1000)
                continue
            for place, letter in enumerate(letters):
                letter.end(offset + place, None)
            return

    async def _attempt(self, index: int, letters: list[_Letter], timeout_ms: int) -> int:
        topic = self._ports.topic()
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{REMOTE_METADATA_TOPIC} does not exist")
        now_ms = self._ports.world.wall_clock.now_ms()
        batch = build_batch([Record(0, now_ms, None, letter.value) for letter in letters])
        return await self._ports.writer.write(topic, index, batch, min(timeout_ms, ATTEMPT_TIMEOUT_MS))


def _take(waiting: list[_Letter]) -> list[_Letter]:
    """Take the records of the next batch."""
    size_bytes = count = 0
    while count < min(len(waiting), MOST_IN_A_BATCH) and (not count or size_bytes < BATCH_BYTES):
        size_bytes += len(waiting[count].value)
        count += 1
    taken, waiting[:count] = waiting[:count], []
    return taken
