"""Mistakes of storage and of the controller, planted into running nodes: the promises must find each soon.

Of these no client need ever see anything: a replica that forgets what it had flushed is out of the ISR by then, and an
index that is wrong is asked only when somebody seeks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.kraft.controller import partition_change
from barnabas.runtime.world import Disk
from barnabas.storage import flushing
from barnabas.storage.folder import Folder
from barnabas.storage.indexes import OffsetIndex
from tests.simulation.plans import is_found, usual

pytestmark = pytest.mark.feature("FI-11")

SEEDS = range(1, 9)
ALWAYS_FLUSHED = ("min.insync.replicas=2", "flush.messages=1")


def found(*promises: str, **changes: object) -> bool:
    """Within so many seeds of nothing but records."""
    changes = {"topic_config": ALWAYS_FLUSHED, "interval": 2.0, **changes}
    return is_found("", (usual(seed, "set", **changes) for seed in SEEDS), *promises)


FORGOTTEN = ("had flushed", "had synced what was committed")
"""Promises that a log without its flushed records breaks: on a broker, or on a controller."""
POWER_CUTS = ("power",)


@pytest.mark.feature("ST-04", "ST-10")
def test_a_flush_that_syncs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushing, "_sync", lambda file: None)
    assert found(*FORGOTTEN, nemesis=POWER_CUTS)


@pytest.mark.feature("ST-04", "ST-10")
def test_a_flush_that_syncs_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """New segments are synced, and the directory that names them is not."""

    class NoNames:
        def __init__(self, disk: Disk) -> None:
            self._disk = disk

        def __getattr__(self, name: str) -> Any:
            return (lambda path: None) if name == "sync_directory" else getattr(self._disk, name)

    original: Callable[..., None] = flushing.FlushWork.__call__

    def flush(self: flushing.FlushWork) -> None:
        folder = self._folder
        self._folder = Folder(NoNames(folder.disk), folder.path)
        try:
            original(self)
        finally:
            self._folder = folder

    monkeypatch.setattr(flushing.FlushWork, "__call__", flush)
    tiny = (*ALWAYS_FLUSHED, "internal.segment.bytes=1000")
    assert found(*FORGOTTEN, topic_config=tiny, nemesis=POWER_CUTS)


@pytest.mark.feature("ST-06")
def test_an_index_that_is_off_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    original: Callable[..., None] = OffsetIndex.append

    def append(self: OffsetIndex, offset: int, position: int) -> None:
        original(self, offset + 1 if self.entries == 1 else offset, position)

    monkeypatch.setattr(OffsetIndex, "append", append)
    assert found("offset index says", nemesis=("kill",), settings=("log.index.interval.bytes=200",))


@pytest.mark.feature("RE-08")
def test_eligible_replicas_that_are_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of eligible replicas is not cleared when the ISR is large enough again."""
    change = partition_change.PartitionChange
    original: Callable[..., None] = change._gather_elr

    def gather(self: Any) -> None:
        original(self)
        if len(self.isr) == self.rules.min_insync_replicas:
            self._elr = tuple(it for it in self.replicas if it not in self.isr)

    monkeypatch.setattr(change, "_gather_elr", gather)
    assert found("eligible beside an ISR of min.insync.replicas", nemesis=("kill",))
