"""State files of a job: atomic writes, and one-line errors of the file system."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from barnabas.pipeline.errors import PipelineError, WrongUse
from barnabas.pipeline.files import LocalFiles, files_for, is_remote, local_path
from barnabas.pipeline.jobs.export import _named
from barnabas.pipeline.jobs.replay import Wanted, parse_ranges


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, path = LocalFiles(), str(tmp_path / "state" / "plan.json")
    files.write(path, "old")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PipelineError, match=r"No space left on device; free some space and run the same command again"):
        files.write(path, "new")
    assert files.read(path) == "old"
    assert files.names(str(tmp_path / "state")) == ["plan.json"]


def test_an_obstacle_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match=r"/file.*: Not a directory|/file.*: File exists"):
        LocalFiles().write(str(tmp_path / "file" / "plan.json"), "")
    assert LocalFiles().read(str(tmp_path / "file" / "plan.json")) is None
    (tmp_path / "file").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PipelineError, match="is not UTF-8 text"):
        LocalFiles().read(str(tmp_path / "file"))


def test_paths_of_this_machine_and_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert local_path("lake") == f"{tmp_path}/lake"
    assert local_path("file:/lake") == local_path("file:///lake") == "/lake"
    assert [is_remote(path) for path in ("lake", "file:///lake", "hdfs://name/lake")] == [False, False, True]
    assert files_for(None, "lake")[1] == f"{tmp_path}/lake"


def test_files_of_a_round_are_named_by_their_offsets() -> None:
    written = [
        "_SUCCESS",
        "part-00000-a.snappy.parquet",
        "topic=t/partition=0/date=2013-01-01/_start=100/.part-1.parquet.crc",
        "topic=t/partition=0/date=2013-01-01/_start=100/part-1.parquet",
        "topic=t/partition=0/date=2013-01-01/_start=100/part-2.parquet",
        "topic=t/partition=1/date=2013-01-02/_start=0/part-1.parquet",
    ]
    day = "topic=t/partition=0/date=2013-01-01"
    assert list(_named(written, {(0, 100): 200, (1, 0): 7})) == [
        (written[3], f"{day}/t-0-00000000000000000100-00000000000000000200.parquet"),
        (written[4], f"{day}/t-0-00000000000000000100-00000000000000000200-1.parquet"),
        (written[5], "topic=t/partition=1/date=2013-01-02/t-1-00000000000000000000-00000000000000000007.parquet"),
    ]


@pytest.mark.parametrize(
    ("topic", "begins"),
    [
        ("_audit", "audit-0-"),
        (".hidden", "hidden-0-"),
        ("a.b_c", "a.b_c-0-"),
        ("__", "topic-0-"),
        ("t" * 249, "t" * 150),
    ],
)
def test_no_reader_passes_over_a_file_and_no_name_is_too_long(topic: str, begins: str) -> None:
    written = f"topic={topic}/partition=0/date=2013-01-01/_start=0/part-1.parquet"
    [(_, name)] = _named([written], {(0, 0): 7})
    folder, _, file = name.rpartition("/")
    assert folder == written.rpartition("/_start")[0]
    assert file.startswith(begins) and len(file) < 255


def test_ranges_as_people_write_them() -> None:
    assert parse_ranges("0:100-200, 1:-5,2:7-,3:-") == (
        Wanted(partition=0, start=100, end=200),
        Wanted(partition=1, end=5),
        Wanted(partition=2, start=7),
        Wanted(partition=3),
    )


@pytest.mark.parametrize("text", ["0", "0:5", "a:1-2", "0:1-b", "0:-1-2", ":1-2"])
def test_invalid_ranges(text: str) -> None:
    with pytest.raises(WrongUse, match="--ranges must be PARTITION:START-END"):
        parse_ranges(text)
