"""The indexes of a segment beside plain lists of their entries, whatever happens to their files.

Pages are so small that a few entries fill several. A disk may be full, a process may be killed or lose its power.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.storage import indexes, transaction_index
from barnabas.storage.folder import Folder
from barnabas.storage.indexes import CorruptIndex, EntryFile, OffsetIndex, TimeIndex
from barnabas.storage.transaction_index import AbortedIndex, AbortedTransaction
from tests.examples import examples
from tests.storage.power_cuts import copy_of
from tests.storage.rig import Rig

BASE, SMALL_PAGE_BYTES = 1000, 64
Draw = Callable[[st.SearchStrategy[Any]], Any]


class Pair:
    """An index, and the entries that it must have."""

    layout: struct.Struct
    preallocates = True
    """Kafka makes the file longer than it is, with zeros at its end."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.rig = Rig(seed=draw(st.integers(0, 9)))
        self.entries: list[tuple[int, ...]] = []
        """As in the file."""
        self.is_changed = True
        """Since the last sync."""
        self.is_torn = False
        self.real = self.new()
        self.begin()

    def new(self, rig: Rig | None = None) -> Any:
        raise NotImplementedError

    def begin(self) -> None:
        self.real.create()

    def drawn(self) -> tuple[int, ...] | None:
        """Append another entry."""
        raise NotImplementedError

    @property
    def data(self) -> bytes:
        return b"".join(self.layout.pack(*entry) for entry in self.entries)

    # -- what happens

    def append(self) -> None:
        for _ in range(self.draw(st.integers(1, 12))):
            if (entry := self.drawn()) is not None:
                self.entries.append(entry)

    def write(self) -> None:
        self.is_changed = self.is_changed or self.real.unwritten_bytes > 0
        self.real.write_out()
        self.is_torn = False

    def write_without_room(self) -> None:
        if not self.real.unwritten_bytes:
            return
        store = self.rig.store
        store.capacity_bytes = store.used_bytes + self.draw(st.integers(0, self.real.unwritten_bytes - 1))
        with suppress(OSError):
            self.real.write_out()
        if self.real.unwritten_bytes:
            self.is_torn = True
        else:
            # It took the place of what was left of another write.
            self.is_changed, self.is_torn = True, False
        store.capacity_bytes = 1 << 40

    def truncate(self) -> None:
        place = self.draw(st.integers(max(0, len(self.entries) - 6), len(self.entries)))
        offset = BASE + self.offset_at(place) if place < len(self.entries) else 1 << 30
        if place < len(self.entries):
            written = len(self.entries) - self.real.unwritten_bytes // self.layout.size
            if place < written or self.is_torn:
                self.is_changed, self.is_torn = True, False
            del self.entries[place:]
        self.real.truncate_to(offset)

    def offset_at(self, place: int) -> int:
        """Relative offset in an entry."""
        raise NotImplementedError

    def sync(self) -> None:
        """A power cut right after it loses nothing."""
        changed = self.is_changed or self.real.unwritten_bytes > 0
        files = self.real.files_to_sync()
        assert len(files) == changed
        for file in files:
            file.sync()
        self.rig.disk.sync_directory("/logs")
        self.is_changed = self.is_torn = False
        after = copy_of(self.rig, "after")
        after.store.power_cut()
        after.start()
        self.check_loaded(after)

    def check_loaded(self, rig: Rig) -> None:
        again = self.new(rig)
        again.load()
        assert [again.entry_bytes_at(slot) for slot in range(again.entries)] == [
            self.layout.pack(*entry) for entry in self.entries
        ]

    def close(self) -> None:
        self.real.close()
        assert not self.real.is_open

    def reopen(self) -> None:
        """A clean stop. The next run may find a file as Kafka preallocates it."""
        self.sync()
        grown = self.layout.size * self.draw(st.sampled_from([0, 2, 9])) if self.preallocates else 0
        if grown:
            self.rig.disk.open(self.real.path).truncate(len(self.data) + grown)
        self.rig.kill()
        self.real = self.new()
        self.real.load()
        self.is_changed = grown > 0

    def seal(self) -> None:
        self.is_changed = self.is_changed or self.real.unwritten_bytes > 0
        self.real.seal()
        self.is_torn = False
        if self.entries:
            region = self.real.region()
            assert region.file.pread(region.count, region.offset) == self.data

    # -- answers

    def check(self) -> None:
        real = self.real
        assert (real.entries, real.size_bytes) == (len(self.entries), len(self.data))
        size = self.layout.size
        assert b"".join(real.entry_bytes_at(slot) for slot in range(real.entries)) == self.data
        written = len(self.data) - real.unwritten_bytes
        exists = self.rig.disk.exists(real.path)
        assert exists or not written
        if exists:
            found = self.rig.disk.read_bytes(real.path)
            assert found[:written] == self.data[:written]
            assert self.is_torn or len(found) == written
        assert 0 <= real.unwritten_bytes <= len(self.data) and real.unwritten_bytes % size == 0
        self.check_answers()

    def check_answers(self) -> None:
        raise NotImplementedError


class Offsets(Pair):
    """Last offsets of batches, and their positions."""

    layout = struct.Struct(">ii")

    def new(self, rig: Rig | None = None) -> OffsetIndex:
        return OffsetIndex(Folder((rig or self.rig).disk, "/logs"), BASE, 1 << 20)

    def drawn(self) -> tuple[int, ...] | None:
        offset, position = self.entries[-1] if self.entries else (0, 0)
        entry = offset + self.draw(st.integers(1, 3)), position + self.draw(st.integers(1, 300))
        self.real.append(BASE + entry[0], entry[1])
        return entry

    def offset_at(self, place: int) -> int:
        return self.entries[place][0]

    def check_answers(self) -> None:
        offsets, positions = ([entry[column] for entry in self.entries] for column in (0, 1))
        assert self.real.last_offset == BASE + (offsets[-1] if offsets else 0)
        entries = [(BASE, 0), *((BASE + offset, position) for offset, position in self.entries)]
        wanted = self.draw(st.integers(-1, (offsets or [0])[-1] + 1))
        assert self.real.lookup(BASE + wanted) == entries[bisect_right(offsets, wanted)]
        wanted = self.draw(st.integers(0, (positions or [0])[-1] + 1))
        assert self.real.lookup_position(wanted) == entries[bisect_right(positions, wanted)]


class Times(Pair):
    """Timestamps, and the offsets up to which none is larger."""

    layout = struct.Struct(">qi")

    def new(self, rig: Rig | None = None) -> TimeIndex:
        return TimeIndex(Folder((rig or self.rig).disk, "/logs"), BASE, 1 << 20)

    def drawn(self) -> tuple[int, ...] | None:
        time, offset = self.entries[-1] if self.entries else (4, 0)
        entry = time + self.draw(st.integers(-1, 3)), offset + self.draw(st.integers(1, 3))
        self.real.maybe_append(entry[0], BASE + entry[1])
        return entry if entry[0] > (time if self.entries else -1) else None

    def offset_at(self, place: int) -> int:
        return self.entries[place][1]

    def check_answers(self) -> None:
        times = [time for time, _ in self.entries]
        entries = [(-1, BASE), *((time, BASE + offset) for time, offset in self.entries)]
        assert self.real.last_entry == entries[-1]
        wanted = self.draw(st.integers(0, (times or [0])[-1] + 1))
        assert self.real.lookup(wanted) == entries[bisect_right(times, wanted)]


class Aborted(Pair):
    """Transactions of three producers, of which most are aborted."""

    layout = struct.Struct(">hqqqq")
    preallocates = False

    def new(self, rig: Rig | None = None) -> AbortedIndex:
        return AbortedIndex(Folder((rig or self.rig).disk, "/logs"), BASE)

    def begin(self) -> None:
        self.open: dict[int, int] = {}
        self.next_offset = BASE
        self.is_changed = False

    def drawn(self) -> tuple[int, ...] | None:
        producer = self.draw(st.integers(1, 3))
        self.next_offset += 1
        if producer not in self.open:
            self.open[producer] = self.next_offset
            return None
        first = self.open.pop(producer)
        entry = (0, producer, first, self.next_offset, min(self.open.values(), default=self.next_offset + 1))
        self.real.append(AbortedTransaction(*entry[1:]))
        return entry

    def offset_at(self, place: int) -> int:
        # Of the marker. What was open then is not open in another way now: later markers have later offsets.
        return self.entries[place][3] - BASE

    def truncate(self) -> None:
        super().truncate()
        self.next_offset += 1
        self.open = {}

    def rebuild(self) -> None:
        """The old file stays until the new one is durable."""
        before = self.rig.disk.read_bytes(self.real.path) if self.rig.disk.exists(self.real.path) else None
        kept = self.entries if self.draw(st.booleans()) else self.entries[: self.draw(st.integers(0, 4))]
        self.real.start_rebuild()
        assert self.real.is_stale and self.real.entries == 0
        for entry in kept:
            self.real.append(AbortedTransaction(*entry[1:]))
        self.entries = [*kept]
        now = self.rig.disk.read_bytes(self.real.path) if self.rig.disk.exists(self.real.path) else None
        assert now == before
        self.real.finish_rebuild()
        assert not self.real.is_stale
        self.is_torn = False
        self.is_changed = before is not None and before == self.data
        if not self.is_changed:
            after = copy_of(self.rig, "after")
            after.store.power_cut()
            after.start()
            self.check_loaded(after)

    def check_answers(self) -> None:
        ends = [entry[3] for entry in self.entries]
        assert self.real.last_offset == (ends[-1] if ends else BASE - 1)
        assert [(0, *entry) for entry in self.real] == self.entries
        last = self.next_offset + 2
        start = self.draw(st.integers(BASE, last))
        upper = self.draw(st.integers(start, last))
        found, complete = self.real.collect(start, upper)
        wanted = [entry for entry in self.entries if entry[2] < upper and entry[3] >= start]
        assert [(0, *entry) for entry in found] == wanted
        assert complete == any(entry[4] >= upper for entry in self.entries[bisect_left(ends, start) :])


OFTEN = ["append", "append", "append"]
SOMETIMES = ["write", "write_without_room", "truncate", "sync", "close", "reopen", "seal"]


@pytest.mark.feature("ST-06", "ST-07", "ST-08", "ST-10")
@pytest.mark.parametrize("kind", [Offsets, Times, Aborted])
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_an_index_has_its_entries_whatever_happens_to_its_file(kind: type[Pair], data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexes, "PAGE_BYTES", SMALL_PAGE_BYTES)
        patch.setattr(indexes, "WARM_SECTION_BYTES", SMALL_PAGE_BYTES)
        patch.setattr(transaction_index, "_ENTRIES_AT_ONCE", 2)
        pair = kind(data.draw)
        more = [*SOMETIMES, "rebuild"] if kind is Aborted else SOMETIMES
        steps = [*OFTEN, *data.draw(st.lists(st.sampled_from(more), min_size=1, max_size=4))]
        for _ in range(data.draw(st.integers(1, 15))):
            getattr(pair, data.draw(st.sampled_from(steps)))()
            pair.check()


@pytest.mark.feature("ST-06", "ST-07", "ST-08")
@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex, AbortedIndex])
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_bytes_are_an_index_or_are_refused(kind: type[EntryFile], data: st.DataObject) -> None:
    """By size, by what is before the base, and by an order that its ends contradict."""
    draw = data.draw
    number = st.integers(-3, 6)
    rows = draw(st.lists(st.tuples(number, number), min_size=1, max_size=4))
    rig = Rig()
    if kind is AbortedIndex:
        index: Any = AbortedIndex(Folder(rig.disk, "/logs"), BASE)
        versions = [draw(st.sampled_from([0, 0, 0, 1])) for _ in rows]
        lasts = [BASE + last for _, last in rows]
        firsts = [draw(st.sampled_from([-1, 0, BASE, BASE + 3])) for _ in rows]
        entries = [*zip(versions, firsts, lasts, strict=True)]
        content = b"".join(struct.pack(">hqqqq", version, 5, first, last, last) for version, first, last in entries)
        fits = not any(versions) and all(0 <= f < x for f, x in zip(firsts, lasts, strict=True))
        fits = fits and lasts[0] >= BASE and all(one < two for one, two in pairwise(lasts))
    elif kind is TimeIndex:
        index = TimeIndex(Folder(rig.disk, "/logs"), BASE, 1 << 20)
        content = b"".join(struct.pack(">qi", *row) for row in rows)
        fits = rows[-1][0] >= rows[0][0] and rows[-1][1] >= 0
    else:
        index = OffsetIndex(Folder(rig.disk, "/logs"), BASE, 1 << 20)
        content = b"".join(struct.pack(">ii", *row) for row in rows)
        fits = rows[-1][0] >= 0
    if len(rows) > 1 and rows[-1] == (0, 0):
        return  # taken for preallocated
    content += bytes(b"\x01" * draw(st.sampled_from([0, 0, 1, 7])))
    fits = fits and len(content) % index.entry_bytes == 0
    rig.disk.open(index.path, create=True).pwrite(content, 0)
    if fits:
        index.load()
        assert index.entries == len(rows)
    else:
        with pytest.raises(CorruptIndex):
            index.load()
