"""The producer snapshots of a log beside a plain dictionary of their bytes, and of what a power cut must leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.storage.folder import Folder
from barnabas.storage.names import EPOCH_FILE, SYNC_FAILED_FILE, parse_offset_file_name
from barnabas.storage.producer_snapshots import SnapshotFiles
from tests.examples import examples
from tests.storage.power_cuts import copy_of
from tests.storage.rig import Rig

DIRECTORY = "/logs/orders-0"
OFFSET = st.integers(0, 8)


@dataclass
class Plain:
    data: bytes
    is_durable: bool = False


class Pair:
    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.rig = Rig(seed=draw(st.integers(0, 9)))
        self.rig.disk.make_directories(DIRECTORY)
        self.rig.disk.open(f"/logs/{EPOCH_FILE}", create=True).close()
        self.rig.store.sync_all()
        self.known: dict[int, Plain] = {}
        self.real = self.opened(self.rig)

    @staticmethod
    def opened(rig: Rig) -> SnapshotFiles:
        return SnapshotFiles(Folder(rig.disk, DIRECTORY), rig.disk.list(DIRECTORY))

    def write(self) -> None:
        offset, data = self.draw(OFFSET), bytes(self.draw(st.integers(0, 5)))
        self.real.write(offset, data)
        self.known[offset] = Plain(data)

    def sync(self) -> None:
        """Durable under its name, too, once the directory is synced, as a flush does."""
        offset = self.draw(OFFSET)
        self.real.sync(offset)
        if offset in self.known:
            self.known[offset].is_durable = True

    def sync_on_a_failing_disk(self) -> None:
        """The next start must know that the page cache may have what the disk never gets."""
        offset = self.draw(OFFSET)
        fault = self.rig.store.fail("sync")
        if offset in self.known:
            with pytest.raises(OSError, match="Input/output"):
                self.real.sync(offset)
            assert self.rig.disk.exists(f"{DIRECTORY}/{SYNC_FAILED_FILE}")
            assert not self.rig.disk.exists(f"/logs/{EPOCH_FILE}")
        else:
            self.real.sync(offset)
        self.rig.store.faults.remove(fault)

    def remove(self) -> None:
        offsets = self.draw(st.lists(OFFSET, max_size=3))
        self.real.remove(offsets)
        for offset in offsets:
            self.known.pop(offset, None)

    def remove_after(self) -> None:
        """A snapshot that comes back would be applied to other records."""
        end = self.draw(OFFSET)
        gone = [offset for offset in self.known if offset > end]
        self.real.remove_after(end)
        for offset in gone:
            del self.known[offset]
        after = copy_of(self.rig, "after")
        after.store.power_cut(())
        after.start()
        assert not gone or max(self.opened(after).offsets, default=0) <= end

    def remove_strays(self) -> None:
        """Those at the starts of segments stay, and the newest, up to the end of the log."""
        bases, end = self.draw(st.lists(OFFSET, max_size=3)), self.draw(OFFSET)
        self.real.remove_strays(bases, end)
        left = [offset for offset in sorted(self.known) if offset <= end]
        self.known = {offset: self.known[offset] for offset in left if offset in bases or offset == left[-1]}

    def lose_power(self) -> None:
        self.rig.store.sync_directory(DIRECTORY)
        after = copy_of(self.rig, "after")
        after.store.power_cut()
        after.start()
        again = self.opened(after)
        assert again.offsets == sorted(self.known)
        for offset, plain in self.known.items():
            assert not plain.is_durable or again.read(offset) == plain.data

    def reopen(self) -> None:
        self.rig.kill()
        self.real = self.opened(self.rig)
        assert self.real.unsynced == []

    def check(self) -> None:
        assert self.real.offsets == sorted(self.known)
        names = [parsed for parsed in map(parse_offset_file_name, self.rig.disk.list(DIRECTORY)) if parsed is not None]
        assert names == [(offset, ".snapshot") for offset in sorted(self.known)]
        unsynced = {*self.real.unsynced}
        assert unsynced <= self.known.keys() and not any(self.known[offset].is_durable for offset in unsynced)
        for offset, plain in self.known.items():
            assert self.real.read(offset) == plain.data
            file = self.real.open(offset)
            assert (file.size(), file.pread(10, 0)) == (len(plain.data), plain.data)
            file.close()


STEPS = ["write", "write", "write", "sync", "sync", "sync_on_a_failing_disk", "remove", "remove_after"]
STEPS += ["remove_strays", "lose_power", "reopen"]


@pytest.mark.feature("ST-12", "ST-10")
@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_snapshots_are_what_was_written_and_not_removed(data: st.DataObject) -> None:
    pair = Pair(data.draw)
    for _ in range(data.draw(st.integers(1, 15))):
        step = data.draw(st.sampled_from(STEPS))
        getattr(pair, step)()
        pair.check()
        if step == "write":
            assert pair.real.unsynced
