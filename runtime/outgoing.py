"""Outgoing bytes of one connection: sent at once if the socket takes them, else queued in order.

Knows nothing of requests. It never waits by itself: its owner runs one `drain` while bytes are queued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from barnabas.runtime.world import Bytes, Chunk, Connection, ConnectionLost, FileRegion

JOIN_BYTES = 64 * 1024
"""Up to this size it is cheaper to join chunks than to give the system a list of them."""

READ_BYTES = 8 * 1024
"""The same limit if regions of files are among them. The peer saves most: it wakes once, and not for a head, a body and
a tail."""

VIEWS_AT_ONCE = 256


class Outgoing:
    """The unsent bytes of one connection."""

    __slots__ = ("_connection", "_queue", "draining", "unsent_bytes")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._queue: deque[Chunk] = deque()
        self.unsent_bytes = 0
        self.draining = False
        """A task is in `drain`; it also sends what is added meanwhile."""

    def send(self, chunks: Sequence[Chunk], size_bytes: int) -> None:
        """Send `chunks`, `size_bytes` in all, after the queued ones. Bytes that do not fit stay queued.

        Raises ConnectionLost; then no more can be sent.
        """
        if self._queue:
            self._queue.extend(chunks)
            self.unsent_bytes += size_bytes
            return
        if size_bytes <= JOIN_BYTES:
            try:
                joined: bytes | None = b"".join(chunks)  # type: ignore[arg-type]  # a FileRegion ends in the TypeError
            except TypeError:
                joined = _read_and_joined(chunks) if size_bytes <= READ_BYTES else None
            if joined is not None:
                sent = self._connection.send_now((joined,))
                if sent < size_bytes:
                    self._queue.append(memoryview(joined)[sent:])
                    self.unsent_bytes = size_bytes - sent
                return
        self._queue.extend(chunks)
        self.unsent_bytes = size_bytes
        self._send_queued()

    async def drain(self, taken: Callable[[], None] = lambda: None) -> None:
        """Send until the queue is empty. Calls `taken` whenever the peer took some. Raises ConnectionLost."""
        self.draining = True
        try:
            while self._queue:
                await self._connection.wait_writable()
                before = self.unsent_bytes
                self._send_queued()
                if self.unsent_bytes < before:
                    taken()
        finally:
            self.draining = False

    @property
    def memory_bytes(self) -> int:
        """Unsent bytes that are in memory: regions of files are not."""
        return sum([len(chunk) for chunk in self._queue if not isinstance(chunk, FileRegion)])

    def clear(self) -> None:
        """Drop the queue: the connection is gone."""
        self._queue.clear()
        self.unsent_bytes = 0

    def _send_queued(self) -> None:
        queue = self._queue
        while queue:
            head = queue[0]
            if isinstance(head, FileRegion):
                wanted, sent = self._send_region(head)
            else:
                views = self._leading_views()
                wanted = sum(map(len, views))
                sent = self._connection.send_now(views) if wanted else 0
                self._take(sent, len(views))
            self.unsent_bytes -= sent
            if sent < wanted:
                return

    def _send_region(self, region: FileRegion) -> tuple[int, int]:
        """(wanted, sent) bytes of the region at the head."""
        try:
            sent = self._connection.send_file_now(region.file, region.offset, region.count)
        except (OSError, EOFError) as error:
            # The size of the frame is sent already, so the connection has to be closed.
            raise ConnectionLost(f"cannot read {region.file.path}: {error}") from error
        self._queue.popleft()
        if sent < region.count:
            self._queue.appendleft(FileRegion(region.file, region.offset + sent, region.count - sent))
        return region.count, sent

    def _leading_views(self) -> list[Bytes]:
        views: list[Bytes] = []
        for chunk in self._queue:
            if isinstance(chunk, FileRegion) or len(views) == VIEWS_AT_ONCE:
                break
            views.append(chunk)
        return views

    def _take(self, sent: int, views: int) -> None:
        """Drop `sent` bytes, and empty chunks, from the first `views` chunks."""
        queue = self._queue
        for _ in range(views):
            head = queue[0]
            size = len(head)
            if size > sent:
                if sent:
                    assert not isinstance(head, FileRegion)
                    queue[0] = memoryview(head)[sent:]
                return
            sent -= size
            queue.popleft()


def _read_and_joined(chunks: Sequence[Chunk]) -> bytes:
    """The chunks in one piece. Raises ConnectionLost."""
    pieces: list[Bytes] = []
    for chunk in chunks:
        pieces.append(_read(chunk) if isinstance(chunk, FileRegion) else chunk)
    return b"".join(pieces)


def _read(region: FileRegion) -> bytes:
    try:
        data = region.file.pread(region.count, region.offset)
    except OSError as error:
        raise ConnectionLost(f"cannot read {region.file.path}: {error}") from error
    if len(data) < region.count:
        raise ConnectionLost(f"cannot read {region.file.path}: it ends before byte {region.offset + region.count}")
    return data
