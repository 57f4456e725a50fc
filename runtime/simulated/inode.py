"""The contents of one simulated file, twice: in the page cache, and as they would be after a power cut."""

from __future__ import annotations

from collections.abc import Container

from barnabas.runtime.simulated.chance import Stream

PAGE_BYTES = 4096
SECTOR_BYTES = 512


class Inode:
    """One file. It knows no path, no directory and no process."""

    __slots__ = ("cached", "cut_to", "dirty", "durable", "linked", "modified_ms", "written")

    def __init__(self, modified_ms: int) -> None:
        self.cached = bytearray()
        self.durable = bytearray()
        self.dirty: dict[int, None] = {}
        """Numbers of pages written since the last sync."""
        self.cut_to: int | None = None
        """The smallest size the file was truncated to since the last sync, if that cut durable bytes."""
        self.written: list[tuple[int, int]] = []
        """(offset, size) of each write since the last sync."""
        self.modified_ms = modified_ms
        self.linked = True
        """A directory has it; an unlinked file takes no space."""

    def write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        size = len(self.cached)
        end = offset + len(data)
        if offset > size:
            self.cached.extend(bytes(offset - size))
            first_page = size // PAGE_BYTES
        else:
            first_page = offset // PAGE_BYTES
        self.cached[offset:end] = data
        self.written.append((offset, end - offset))
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
        self.written.clear()

    def lose_dirty(self) -> None:
        """A sync failed: the pages count as clean from now on, yet they never became durable."""
        self.dirty.clear()

    def power_cut(self, chance: Stream, *, garbage: bool = False, spared: Container[int] = ()) -> None:
        """Keep a random part of the unsynced pages, and lose the others. With `garbage`, some of that part is damaged:
        a disk may write anything when its power goes, but only where it was writing. Single bits of `spared` bytes
        never change.
        """
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
        if garbage:
            self._garble(image, len(self.durable), chance, spared)
        self.cached = image
        self.durable = bytearray(image)
        self.dirty.clear()
        self.written.clear()
        self.cut_to = None

    def _garble(self, image: bytearray, durable_bytes: int, chance: Stream, spared: Container[int]) -> None:
        """Put one write in the place of another, or flip bits; never in durable bytes."""
        new = [
            (offset, size) for offset, size in self.written if durable_bytes <= offset and offset + size <= len(image)
        ]
        if not new:
            return
        if len(new) > 1 and chance.random() < 0.7:
            (source, size), (target, _) = chance.sample(new, 2)
            image[target : target + size] = self.cached[source : source + size]
        else:
            offset, size = chance.choice(new)
            for _ in range(chance.randint(1, 3)):
                position, bit = offset + chance.randrange(size), 1 << chance.randrange(8)
                if position not in spared:
                    image[position] ^= bit
