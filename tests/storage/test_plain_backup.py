"""A copy of a log directory beside a plain one: whole batches in order, and a line for each partition that has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.runtime.world import Disk
from barnabas.storage.backup import ATTEMPTS, back_up
from barnabas.storage.names import offset_file_name
from tests.examples import examples
from tests.storage.rig import Rig, batch

SOURCE, TARGET = "/logs/source", "/logs/copy"
ROOT_FILES = ["replication-offset-checkpoint", "log-start-offset-checkpoint", "meta.properties", "topic-id-checkpoint"]
SMALL_FILES = ["leader-epoch-checkpoint", "partition.metadata", "quorum-state", "00000000000000000003.snapshot"]
LEFT_OUT = ["00000000000000000000.index", ".lock", "00000000000000000000.log.deleted"]


@dataclass
class Plain:
    """A partition: what its copy must hold, and what is wrong with it."""

    files: dict[str, bytes]
    copied_bytes: int = 0
    problem: str = ""


def write(disk: Disk, path: str, data: bytes) -> None:
    disk.make_directories(path.rpartition("/")[0])
    file = disk.open(path, create=True)
    file.pwrite(data, 0)
    file.close()


def batch_at(offset: int, count: int, value: bytes) -> bytes:
    return offset.to_bytes(8, "big") + batch(count, value=value)[8:]


def a_partition(draw: Callable[[st.SearchStrategy[Any]], Any], disk: Disk, path: str) -> Plain:
    """Segments of some batches. The last one may end within a batch; one of all may be damaged."""
    plain = Plain({})
    offset, segments, written_to = 0, draw(st.integers(1, 3)), -1
    for number in range(segments):
        offset += draw(st.sampled_from([0, 0, 2]))
        offset += offset_file_name(offset, ".log") in plain.files  # after an empty segment
        name, content = offset_file_name(offset, ".log"), b""
        for _ in range(draw(st.integers(0, 4))):
            count = draw(st.integers(1, 3))
            content += batch_at(offset, count, bytes(draw(st.sampled_from([1, 60, 300]))))
            offset = written_to = offset + count
        last = batch_at(offset, 1, b"last")
        how = draw(st.sampled_from(["well"] * 6 + ["cut", "flipped", "before"]))
        plain.files[name] = content
        plain.copied_bytes += len(content)
        is_last = number == segments - 1
        if how == "cut":
            content += last[: draw(st.integers(1, len(last) - 1))]
            if not is_last:
                plain.problem = plain.problem or f"{name}: no whole batch at byte {len(plain.files[name])}"
        elif how == "flipped":
            place = draw(st.sampled_from([21, 40, len(last) - 1]))
            content += last[:place] + bytes([last[place] ^ 1]) + last[place + 1 :]
            plain.problem = plain.problem or f"{name}: no valid batch at byte {len(plain.files[name])}"
        elif how == "before" and written_to == offset:
            content += batch_at(offset - 1, 1, b"again")
            plain.problem = plain.problem or f"{name}: no valid batch at byte {len(plain.files[name])}"
        write(disk, f"{path}/{name}", content)
        if not content:
            disk.open(f"{path}/{name}", create=True).close()
    for name in draw(st.lists(st.sampled_from(SMALL_FILES), unique=True)):
        plain.files[name] = name.encode()
        write(disk, f"{path}/{name}", name.encode())
    for name in draw(st.lists(st.sampled_from(LEFT_OUT), unique=True)):
        write(disk, f"{path}/{name}", b"left out")
    return plain


@pytest.mark.feature("OP-07")
@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_a_copy_has_all_whole_batches_of_each_partition(data: st.DataObject) -> None:
    disk = Rig().disk
    disk.make_directories(SOURCE)
    root = data.draw(st.lists(st.sampled_from([*ROOT_FILES, ".kafka_cleanshutdown", "recovery-point"]), unique=True))
    for name in root:
        write(disk, f"{SOURCE}/{name}", name.encode())
    partitions = {}
    for number in range(data.draw(st.integers(0, 2))):
        partitions[f"orders-{number}"] = a_partition(data.draw, disk, f"{SOURCE}/orders-{number}")
    for name in ("orders-9.0123456789abcdef0123456789abcdef-delete", "other"):
        write(disk, f"{SOURCE}/{name}/00000000000000000000.log", batch())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("barnabas.storage.backup.CHUNK_BYTES", data.draw(st.sampled_from([61, 100, 200, 500, 1 << 20])))
        counts = [(done.partitions, done.bytes, len(done.problems)) for done in back_up(disk, SOURCE, TARGET)]
        *_, done = back_up(disk, SOURCE, TARGET)
    good = [plain for plain in partitions.values() if not plain.problem]
    assert counts[-1] == (len(good), sum(plain.copied_bytes for plain in good), len(partitions) - len(good))
    assert len(counts) == len(partitions) + 1, "one for each partition, and one at the end"
    expected = {name: plain.problem for name, plain in partitions.items() if plain.problem}
    assert len(done.problems) == len(expected)
    for line, (name, problem) in zip(done.problems, sorted(expected.items()), strict=True):
        assert line == f"{SOURCE}/{name} could not be copied in {ATTEMPTS} attempts: {SOURCE}/{name}/{problem}"
    for name, plain in partitions.items():
        if not plain.problem:
            found = {each: disk.read_bytes(f"{TARGET}/{name}/{each}") for each in disk.list(f"{TARGET}/{name}")}
            assert found == plain.files
    copied = [name for name in disk.list(TARGET) if not disk.is_directory(f"{TARGET}/{name}")]
    assert copied == sorted({*root} & {*ROOT_FILES})
    assert {name for name in disk.list(TARGET) if disk.is_directory(f"{TARGET}/{name}")} == {*partitions}


@pytest.mark.feature("OP-07")
def test_a_partition_that_is_deleted_meanwhile_is_left_out() -> None:
    rig = Rig()
    disk = rig.disk
    write(disk, f"{SOURCE}/orders-0/00000000000000000000.log", batch())
    write(disk, f"{SOURCE}/orders-1/00000000000000000000.log", batch())
    copying = back_up(disk, SOURCE, TARGET)
    assert next(copying).partitions == 1
    disk.remove_tree(f"{SOURCE}/orders-1")
    *_, done = copying
    assert (done.partitions, done.problems) == (1, [])
    assert not disk.exists(f"{TARGET}/orders-1")
