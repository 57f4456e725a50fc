"""`barnabas log check` beside a list of what is wrong with each file of a directory tree."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from barnabas.storage.log_check import main
from barnabas.storage.names import offset_file_name
from tests.examples import examples
from tests.storage.rig import NOW_MS

OTHER_FILES = ["00000000000000000000.index", "orders.log", "00000000000000000000.log.deleted", "meta.properties"]


def batch_of(offset: int, count: int) -> bytes:
    records = [Record(offset + place, NOW_MS, b"k", b"v") for place in range(count)]
    return build_batch(records, base_offset=offset)


def a_segment(draw: Any, base: int) -> tuple[bytes, list[str], int]:
    """(content, what is wrong, number of batches)"""
    content, wrong, batches, offset = b"", list[str](), 0, base
    for _ in range(draw(st.integers(0, 4))):
        how = draw(st.sampled_from(["well", "well", "gap", "flipped", "again", "cut"]))
        count = draw(st.integers(1, 3))
        if how == "gap":
            offset += 2
        data = batch_of(offset, count)
        if how == "flipped":
            data = data[:-1] + bytes([data[-1] ^ 1])
            wrong.append(f"offset {offset}: wrong CRC")
        elif how == "again" and offset > base:
            wrong.append(f"offset {offset - 1}: its offset is not above {offset - 1}")
            content, batches = content + batch_of(offset - 1, 1), batches + 1
        elif how == "cut":
            left = draw(st.integers(1, len(data) - 1))
            wrong.append(f"byte {len(content)}: ")
            return content + data[:left], wrong, batches
        content, batches, offset = content + data, batches + 1, offset + count
    return content, wrong, batches


@pytest.mark.feature("ST-20", "OP-07")
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_each_file_of_a_tree_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: st.DataObject
) -> None:
    draw = data.draw
    shutil.rmtree(tmp_path)
    expected, files, batches = list[str](), 0, 0
    for place in ("", "orders-0", "orders-0/inner", "stock-1"):
        directory = tmp_path / place
        directory.mkdir()
        for name in draw(st.lists(st.sampled_from(OTHER_FILES), unique=True, max_size=2)):
            (directory / name).write_bytes(b"?")
        for base in draw(st.lists(st.sampled_from([0, 7]), unique=True, max_size=2)):
            path = directory / offset_file_name(base, ".log")
            content, wrong, count = a_segment(draw, base)
            path.write_bytes(content)
            expected += [f"{path}: {each}" for each in wrong]
            files, batches = files + 1, batches + count
    status = main([f"{tmp_path}{draw(st.sampled_from(['', '/']))}"])
    *found, last = capsys.readouterr().out.splitlines()
    assert len(found) == len(expected)
    for line, start in zip(sorted(found), sorted(expected), strict=True):
        assert line.startswith(start)
    verdict = f"{len(expected)} damaged" if expected else "all valid"
    assert last == f"{batches} batches in {files} segments, {verdict}"
    assert status == (1 if expected else 0)
