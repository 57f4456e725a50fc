"""Output of `barnabas log check` for segments."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from barnabas.storage.log_check import main
from tests.protocol.records.poison import poisons, zeros
from tests.storage.rig import NOW_MS

DATA = Path(__file__).parent / "data"


def at_offset(batch: bytes, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + batch[8:]


def plain(offset: int) -> bytes:
    return build_batch([Record(offset, NOW_MS, b"k", b"v")], base_offset=offset)


def checked(capsys: pytest.CaptureFixture[str], *places: Path) -> tuple[int, list[str]]:
    status = main([str(place) for place in places])
    return status, capsys.readouterr().out.splitlines()


@pytest.mark.feature("ST-20")
def test_every_kind_of_poison_is_found_and_what_is_right_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Batches behind a bad batch are checked, too."""
    path = tmp_path / "t-0" / "00000000000000000005.log"
    path.parent.mkdir()
    content, offset = plain(5), 6
    expected = []
    for poison in [*poisons().values(), zeros(65 << 20, 4)]:
        expected.append(f"{path}: offset {offset}: ")
        content += at_offset(poison, offset)
        offset += read_header(poison).records_count
        content += plain(offset)
        offset += 1
    path.write_bytes(content)
    status, out = checked(capsys, tmp_path)
    assert status == 1
    assert [line[: len(start)] for line, start in zip(out, expected, strict=False)] == expected
    batches = 2 * len(expected) + 1
    assert out[len(expected) :] == [f"{batches} batches in 1 segments, {len(expected)} damaged"]
    assert "unfolds to more than" in out[-2]


@pytest.mark.feature("ST-20")
def test_damage_and_offsets_out_of_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "00000000000000000005.log"
    torn = bytearray(plain(6))
    torn[-2] ^= 1
    path.write_bytes(plain(5) + torn + plain(6) + plain(7)[:-1])
    status, out = checked(capsys, path)
    assert status == 1
    position = 3 * len(torn)
    assert out == [
        f"{path}: offset 6: wrong CRC",
        f"{path}: offset 6: its offset is not above 6",
        f"{path}: byte {position}: the batch at byte {position} has {len(torn)} bytes, {len(torn) - 1} are left",
        "3 batches in 1 segments, 3 damaged",
    ]
    early = tmp_path / "00000000000000000009.log"
    early.write_bytes(plain(8))
    assert checked(capsys, early)[1][0] == f"{early}: offset 8: its offset is not above 8"


@pytest.mark.feature("ST-20")
def test_nothing_is_wrong_with_what_kafka_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tarfile.open(DATA / "kafka-4.3.1-logs.tar.gz") as archive:
        archive.extractall(tmp_path)
    status, out = checked(capsys, tmp_path)
    assert status == 0, out
    assert out[-1].endswith("all valid") and int(out[-1].split()[0]) > 100


def test_an_unreadable_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nowhere.log")]) == 1
    assert "No such file" in capsys.readouterr().err
