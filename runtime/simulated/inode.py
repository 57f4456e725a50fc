"""The contents of one simulated file, twice: as the page cache shows it, and as it would come back after a
power cut."""

from __future__ import annotations

from runtime.simulated.chance import Stream

PAGE_BYTES = 4096
SECTOR_BYTES = 512


class Inode:
    """One file. It knows no path, no directory and no process."""

    __slots__ = ("cached", "cut_to", "dirty", "durable", "linked", "modified_ms")

    def __init__(self, modified_ms: int) -> None:
        self.cached = bytearray()
        self.durable = bytearray()
        self.dirty: dict[int, None] = {}
        """Numbers of pages written since the last sync."""
        self.cut_to: int | None = None
        """The smallest size the file was truncated to since the last sync, if that cut durable bytes."""
        self.modified_ms = modified_ms
        self.linked = True
        """Some directory names it; what is not linked takes no space."""

    def write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        size = len(self.cached)
        end = offset + len(data)
        if offset > size:
            self.cached.extend(bytes(offset - size))
            first_page = size // PAGE_BYTES
        else:
            first_page = offset // PAGE_BYTES
        self.cached[offset:end] = data
        for page in range(first_page, (end - 1) // PAGE_BYTES + 1):
            self.dirty[page] = None

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros."""
        old_size = len(self.cached)
        if size >= old_size:
            if size > old_size:
                self.write(b"\0", size - 1)
            return
        del self.cached[size:]
        if size < len(self.durable):
            self.cut_to = size if self.cut_to is None else min(self.cut_to, size)
        self.dirty = {page: None for page in self.dirty if page * PAGE_BYTES < size}

    def sync(self) -> None:
        """Make the cached image durable."""
        if self.cut_to is not None:
            del self.durable[self.cut_to :]
            self.cut_to = None
        size = len(self.cached)
        if len(self.durable) < size:
            self.durable.extend(bytes(size - len(self.durable)))
        for page in self.dirty:
            start = page * PAGE_BYTES
            end = min(start + PAGE_BYTES, size)
            self.durable[start:end] = self.cached[start:end]
        self.dirty.clear()

    def lose_dirty(self) -> None:
        """A sync failed: the pages count as clean from now on, yet they never became durable."""
        self.dirty.clear()

    def power_cut(self, chance: Stream) -> None:
        """Keep of what was not synced only what chance lets reach the disk, page by page."""
        image = bytearray(self.durable)
        high = len(self.cached)
        pages = sorted(self.dirty)
        if self.cut_to is not None:
            if chance.random() < 0.5:
                # The truncation never became durable, so nothing that was written past it did.
                pages = [page for page in pages if (page + 1) * PAGE_BYTES <= self.cut_to]
                high = len(image)
            else:
                del image[self.cut_to :]
        low = min(len(image), high)
        size = (high, high, low, chance.randint(low, high))[chance.randrange(4)]
        image.extend(bytes(max(0, size - len(image))))
        for page in pages:
            start = page * PAGE_BYTES
            end = min(start + PAGE_BYTES, size)
            fate = chance.randrange(3)
            if start >= size or fate == 0:
                continue
            if fate == 1:  # torn: each sector on its own
                for sector in range(start, end, SECTOR_BYTES):
                    if chance.random() < 0.5:
                        stop = min(sector + SECTOR_BYTES, end)
                        image[sector:stop] = self.cached[sector:stop]
            else:
                image[start:end] = self.cached[start:end]
        self.cached = image
        self.durable = bytearray(image)
        self.dirty.clear()
        self.cut_to = None
