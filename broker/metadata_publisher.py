"""Shell: hands each step of the metadata to this broker's parts, one after the other.

Clients are told at once. The partitions of a step that brings new ones wait until their logs are made, away from the
event loop, and what comes after it waits, too, so that no part acts on half a step, or on steps out of order. Whoever
writes to such a partition meanwhile, or reads from it, is held (`when_here` in `broker.dispatch`). A step that needs no
log, with none before it that waits, is carried out at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import trio

from kraft.metadata.delta import MetadataDelta
from kraft.metadata.image import MetadataImage, TopicImage
from storage.log_dir_work import NewLog


class MetadataPublisher:
    """`put` in the order of the log; `run` is a task."""

    def __init__(
        self,
        prepare: Callable[[MetadataDelta], list[NewLog]],
        make_logs: Callable[[list[NewLog]], Awaitable[None]],
        tell: Callable[[MetadataDelta], None],
        publish: Callable[[MetadataDelta], None],
    ) -> None:
        """`tell` is called for each step at once, `prepare` just before what it gives is made and the step
        published.
        """
        self._tell = tell
        self._prepare = prepare
        self._make_logs = make_logs
        self._publish = publish
        self._waiting: deque[MetadataDelta] = deque()
        """The first one's logs are being made."""
        self._wanted: list[NewLog] = []
        self._afterwards: list[Callable[[], None]] = []
        self._bell = trio.Event()

    @property
    def behind(self) -> int | None:
        """The offset of the last step that was published, while others wait; None if none does."""
        return self._waiting[0].before.offset if self._waiting else None

    def is_bringing(self, topic: str | bytes) -> bool:
        """Whether a step that waits brings this topic (by name or id), or more partitions of it."""
        if not self._waiting:
            return False
        coming = _find(self._waiting[-1].after, topic)
        known = _find(self._waiting[0].before, topic)
        return coming is not None and (known is None or len(coming.partitions) > len(known.partitions))

    def afterwards(self, callback: Callable[[], None]) -> None:
        """Call back once the first of the steps that wait is published. The callback must not raise."""
        assert self._waiting
        self._afterwards.append(callback)

    def put(self, delta: MetadataDelta) -> None:
        """Tell of it, and publish it now, or as soon as its turn comes."""
        self._tell(delta)
        if not self._waiting:
            self._wanted = self._prepare(delta)
            if not self._wanted:
                self._publish(delta)
                return
            self._bell.set()
        self._waiting.append(delta)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._bell.wait()
            self._bell = trio.Event()
            while self._waiting:
                if self._wanted:
                    await self._make_logs(self._wanted)
                self._publish(self._waiting[0])
                self._waiting.popleft()
                if self._waiting:
                    self._wanted = self._prepare(self._waiting[0])
                callbacks, self._afterwards = self._afterwards, []
                for callback in callbacks:
                    callback()


def _find(image: MetadataImage, topic: str | bytes) -> TopicImage | None:
    topics = image.topics
    return topics.by_id.get(topic) if isinstance(topic, bytes) else topics.by_name.get(topic)
