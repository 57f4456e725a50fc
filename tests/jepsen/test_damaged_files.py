"""Which bytes damage hits: those that a crash may take, and none that the disk had promised to keep."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from barnabas.runtime.disk import RealDisk
from barnabas.storage.checkpoints import RECOVERY_POINT_CHECKPOINT, write_offsets
from worlds.cluster import Damage
from worlds.damaging import damage_files

OLD, NEW = "00000000000000000000.log", "00000000000000000002.log"


def batch(offset: int) -> bytes:
    return bytes(build_batch([Record(offset, 1, None, b"value", ())], base_offset=offset))


@pytest.fixture
def node(tmp_path: Path) -> Path:
    for topic in ("t-0", "orders-by-day-3", "__cluster_metadata-0"):
        (tmp_path / topic).mkdir()
        (tmp_path / topic / OLD).write_bytes(batch(0) + batch(1))
        (tmp_path / topic / NEW).write_bytes(batch(2) + batch(3))
    write_offsets(RealDisk(), str(tmp_path / RECOVERY_POINT_CHECKPOINT), {("t", 0): 3, ("orders-by-day", 3): 4})
    return tmp_path


@pytest.mark.feature("FI-03")
def test_bits_are_flipped_above_the_recovery_point_only(node: Path) -> None:
    damaged = damage_files(node, Damage("flip", "*-*/*.log", probability=1.0), random.Random(1))
    size = len(batch(3))
    # Nor where no checksum looks: a batch's base offset and leader epoch.
    metadata = f"__cluster_metadata-0/{NEW}: a bit of each of {2 * (size - 12)} bytes, the first at 8"
    assert damaged == [metadata, f"t-0/{NEW}: a bit of each of {size - 12} bytes, the first at {size + 8}"]
    data = (node / "t-0" / NEW).read_bytes()
    assert data[:size] == batch(2)
    flipped = [(a ^ b).bit_count() for a, b in zip(data[size:], batch(3), strict=True)]
    assert flipped == [0] * 8 + [1] * 4 + [0] * 4 + [1] * (size - 16)
    assert (node / "t-0" / OLD).read_bytes() == batch(0) + batch(1)
    assert (node / "orders-by-day-3" / NEW).read_bytes() == batch(2) + batch(3)


@pytest.mark.feature("FI-03")
@pytest.mark.parametrize("left", [bytes(100), b"\x7f" * 100, bytes(8) + b"\x7f" * 92], ids=["zeros", "noise", "a size"])
def test_bytes_after_earlier_damage_are_damaged_again_and_durable_bytes_spared(node: Path, left: bytes) -> None:
    path = node / "t-0" / NEW
    path.write_bytes(batch(2) + left)
    [damaged] = damage_files(node, Damage("flip", "t-0/*.log", probability=1.0), random.Random(1))
    assert damaged.startswith(f"t-0/{NEW}: a bit of each of ")
    data = path.read_bytes()
    assert data[: len(batch(2))] == batch(2)
    assert data[-1] != left[-1]


@pytest.mark.feature("FI-03")
def test_the_newest_segment_is_cut(node: Path) -> None:
    size = len(batch(2))
    [damaged] = damage_files(node, Damage("truncate", "t-0/*.log", bytes_=size + 3), random.Random(1))
    assert damaged == f"t-0/{NEW}: {2 * size} bytes, now {size - 3}"
    assert (node / "t-0" / NEW).read_bytes() == batch(2)[:-3]
    assert (node / "t-0" / OLD).stat().st_size == 2 * size
    [damaged] = damage_files(node, Damage("truncate", "t-0/*.log", bytes_=10_000), random.Random(1))
    assert damaged.endswith("now 0")
    assert not damage_files(node, Damage("truncate", "nothing/*", bytes_=1), random.Random(1))


@pytest.mark.feature("FI-03")
def test_without_a_checkpoint_nothing_counts_as_durable(node: Path) -> None:
    (node / RECOVERY_POINT_CHECKPOINT).write_text("torn")
    assert len(damage_files(node, Damage("flip", "t-0/*.log", probability=1.0), random.Random(1))) == 1
    (node / RECOVERY_POINT_CHECKPOINT).unlink()
    assert not damage_files(node, Damage("flip", "t-0/*.log", probability=0.0), random.Random(1))
