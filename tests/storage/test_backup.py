"""Copies of log directories whose node writes, compacts and deletes meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.runtime.disk import RealDisk
from barnabas.storage.backup import Backup, back_up
from tests.storage.rig import batch


def write(path: Path, *batches: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(batches))


def segment(base_offset: int, count: int = 2) -> bytes:
    data = bytearray(batch(count))
    data[0:8] = base_offset.to_bytes(8, "big")
    return bytes(data)


def copied(source: Path, target: Path) -> Backup:
    *_, last = back_up(RealDisk(), str(source), str(target))
    return last


@pytest.mark.feature("OP-07")
def test_a_copy_has_whole_batches_and_no_indexes(tmp_path: Path) -> None:
    source, target = tmp_path / "data", tmp_path / "copy"
    write(source / "t-0" / "00000000000000000000.log", segment(0), segment(2))
    write(source / "t-0" / "00000000000000000004.log", segment(4), segment(6)[:40])
    write(source / "t-0" / "00000000000000000000.index", b"x" * 8)
    write(source / "t-0" / "leader-epoch-checkpoint", b"0\n0\n")
    write(source / "t-1.0123456789abcdef0123456789abcdef-delete" / "00000000000000000000.log", segment(0))
    write(source / "meta.properties", b"node.id=1\n")
    done = copied(source, target)
    assert (done.partitions, done.problems) == (1, [])
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()) == [
        "meta.properties",
        "t-0/00000000000000000000.log",
        "t-0/00000000000000000004.log",
        "t-0/leader-epoch-checkpoint",
    ]
    assert (target / "t-0" / "00000000000000000004.log").read_bytes() == segment(4), "without the batch in progress"


@pytest.mark.feature("OP-07")
def test_damage_in_the_source_is_reported_and_the_rest_is_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "data", tmp_path / "copy"
    damaged = bytearray(segment(0, 5))
    damaged[-3] ^= 1
    write(source / "bad-0" / "00000000000000000000.log", bytes(damaged))
    write(source / "good-0" / "00000000000000000000.log", segment(0))
    done = copied(source, target)
    assert done.partitions == 1
    assert len(done.problems) == 1 and "bad-0" in done.problems[0] and "no valid batch at byte 0" in done.problems[0]


@pytest.mark.feature("OP-07")
def test_a_large_batch_is_copied_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.storage.backup.CHUNK_BYTES", 200)
    source, target = tmp_path / "data", tmp_path / "copy"
    write(source / "t-0" / "00000000000000000000.log", segment(0, 3), segment(3, 40), segment(43, 3))
    assert copied(source, target).problems == []
    name = "00000000000000000000.log"
    assert (target / "t-0" / name).read_bytes() == (source / "t-0" / name).read_bytes()


class Compacting(RealDisk):
    """A cleaner exchanges a segment when the first one was read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.exchanges = 1

    def list(self, path: str) -> list[str]:
        names = super().list(path)
        if path.endswith("t-0") and self.exchanges and "/data/" in path:
            self.exchanges -= 1
            (self.folder / "00000000000000000002.log").unlink()
            write(self.folder / "00000000000000000000.log", segment(0), segment(3))
        return names


@pytest.mark.feature("OP-07")
def test_a_partition_that_is_compacted_meanwhile_is_copied_again(tmp_path: Path) -> None:
    source, target = tmp_path / "data", tmp_path / "copy"
    write(source / "t-0" / "00000000000000000000.log", segment(0))
    write(source / "t-0" / "00000000000000000002.log", segment(2))
    disk = Compacting(source / "t-0")
    *_, done = back_up(disk, str(source), str(target))
    assert (done.partitions, done.problems, disk.exchanges) == (1, [], 0)
    assert [path.name for path in (target / "t-0").iterdir()] == ["00000000000000000000.log"]
    assert (target / "t-0" / "00000000000000000000.log").read_bytes() == segment(0) + segment(3)
