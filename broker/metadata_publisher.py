"""Shell: publishes each step of the metadata to the parts of this broker, in order.

Clients see a step at once. A step with new partitions waits until their logs are created, in a worker thread, and later
steps wait behind it, so that no part acts on steps out of order. Requests for such a partition are held meanwhile
(`when_here` in `broker.dispatch`). A step that needs no log is published at once if none is waiting. One that changes
many partitions is published in several steps of the event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import trio

from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import MetadataImage, TopicImage
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.steps import Steps
from barnabas.storage.log_dir_work import NewLog

_OVER = object()


class MetadataPublisher:
    """`put` in the order of the log; `run` is a task."""

    def __init__(
        self,
        prepare: Callable[[MetadataDelta], Stepwise[list[NewLog]]],
        make_logs: Callable[[list[NewLog]], Awaitable[None]],
        announce: Callable[[MetadataDelta], None],
        publish: Callable[[MetadataDelta], Steps],
    ) -> None:
        """`announce` is called for each step at once; `prepare` just before the logs that it finds are created and
        the step is published. `publish` yields where other tasks may run.
        """
        self._announce = announce
        self._prepare = prepare
        self._make_logs = make_logs
        self._publish = publish
        self.waiting: deque[MetadataDelta] = deque()
        """Steps in order; the logs of the first one are being created."""
        self._preparing: Stepwise[list[NewLog]] | None = None
        """The rest of the preparation of the first one, if it has begun and takes long."""
        self._wanted: list[NewLog] = []
        self._publishing: Steps | None = None
        """The rest of the publication of the first one, if it has begun."""
        self._afterwards: list[Callable[[], None]] = []
        self._bell = trio.Event()

    @property
    def behind(self) -> int | None:
        """The offset of the last published step while others wait; None if none waits."""
        return self.waiting[0].before.offset if self.waiting else None

    def is_bringing(self, topic: str | bytes) -> bool:
        """True if a waiting step brings this topic (by name or id), or more partitions of it."""
        if not self.waiting:
            return False
        coming = _find(self.waiting[-1].after, topic)
        known = _find(self.waiting[0].before, topic)
        return coming is not None and (known is None or len(coming.partitions) > len(known.partitions))

    def afterwards(self, callback: Callable[[], None]) -> None:
        """Call back when the first waiting step is published. The callback must not raise."""
        assert self.waiting
        self._afterwards.append(callback)

    def put(self, delta: MetadataDelta) -> None:
        """Announce a step, and publish it now or in its turn."""
        self._announce(delta)
        if not self.waiting:
            self._begin_to_prepare(delta)
            if self._preparing is None and not self._wanted:
                self._publishing = self._publish(delta)
                if next(self._publishing, _OVER) is _OVER:
                    self._publishing = None
                    return
            self._bell.set()
        self.waiting.append(delta)

    def _begin_to_prepare(self, delta: MetadataDelta) -> None:
        """Take the first step, which is the only one for most."""
        self._preparing, self._wanted = self._prepare(delta), []
        try:
            next(self._preparing)
        except StopIteration as end:
            self._preparing, self._wanted = None, end.value

    async def _end_to_prepare(self, preparing: Stepwise[list[NewLog]]) -> None:
        while True:
            await trio.lowlevel.checkpoint()
            try:
                next(preparing)
            except StopIteration as end:
                self._preparing, self._wanted = None, end.value
                return

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._bell.wait()
            self._bell = trio.Event()
            while self.waiting:
                if self._preparing is not None:
                    await self._end_to_prepare(self._preparing)
                if self._wanted:
                    await self._make_logs(self._wanted)
                publishing, self._publishing = self._publishing or self._publish(self.waiting[0]), None
                for _ in publishing:
                    await trio.lowlevel.checkpoint()
                self.waiting.popleft()
                if self.waiting:
                    self._begin_to_prepare(self.waiting[0])
                callbacks, self._afterwards = self._afterwards, []
                for callback in callbacks:
                    callback()


def _find(image: MetadataImage, topic: str | bytes) -> TopicImage | None:
    topics = image.topics
    return topics.by_id.get(topic) if isinstance(topic, bytes) else topics.by_name.get(topic)
