"""Files that are made one or deleted, and snapshots that are removed."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.lake.commits import SnapshotView, TableView
from barnabas.lake.progress import OFFSETS
from barnabas.lake.upkeep import CompactionRules, FileSize, FoundFile, crowded, expirable, orphans

NAME = "barnabas-{:06d}-0123456789abcdef0123456789abcdef-00000.parquet"


@dataclass(frozen=True)
class Sized:
    size_bytes: int


def test_small_files_of_the_fullest_day_become_one() -> None:
    files = (
        [FileSize(Sized(10), "monday")] * 3 + [FileSize(Sized(10), "tuesday")] * 5 + [FileSize(Sized(99), "tuesday")]
    )
    assert crowded(files, CompactionRules(min_files=5, small_bytes=50)) == [Sized(10)] * 5
    assert crowded(files, CompactionRules(min_files=6, small_bytes=50)) == []
    assert crowded([], CompactionRules()) == []


def test_one_new_file_does_not_get_too_large() -> None:
    files = [FileSize(Sized(10), "monday")] * 100
    assert len(crowded(files, CompactionRules(min_files=2, small_bytes=50, result_bytes=200))) == 20


def test_only_old_files_of_ours_without_a_snapshot_are_orphans() -> None:
    own, kept, young, later = (NAME.format(number) for number in (1, 2, 3, 9))
    found = [
        FoundFile(f"s3://lake/data/day=1/{own}", 10),
        FoundFile(f"s3://lake/data/day=1/{kept}", 10),
        FoundFile(f"s3://lake/data/day=1/{young}", 100),
        FoundFile(f"s3://lake/data/day=1/{later}", 10),
        FoundFile("s3://lake/data/day=1/00000-0-of-another-program.parquet", 10),
    ]
    assert orphans(found, {f"s3a://lake/data/day=1/{kept}"}, 5, 50) == [f"s3://lake/data/day=1/{own}"]


def test_snapshots_of_others_and_the_current_one_stay() -> None:
    own = {OFFSETS: "{}"}
    view = TableView(
        "lake.orders", (SnapshotView(5, own), SnapshotView(4, own), SnapshotView(3, {}), SnapshotView(2, own))
    )
    times = {5: 10, 4: 100, 3: 10, 2: 10}
    assert expirable(view, times, 50) == [2]
    # While the current snapshot has no offsets, those of older ones are needed.
    assert expirable(TableView("lake.orders", (SnapshotView(6, {}), *view.snapshots)), times, 1_000) == []
    assert expirable(TableView("lake.orders", ()), {}, 50) == []
