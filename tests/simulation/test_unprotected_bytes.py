"""A log detects all damage that the nemesis does to disks."""

from __future__ import annotations

import pytest

from barnabas.runtime.simulated.store import Store
from barnabas.storage.log import PartitionLog
from simulation.unprotected_bytes import leader_epochs
from tests.storage.rig import Rig, all_batches, append, batch

pytestmark = pytest.mark.feature("FI-08", "ST-10")


def garbled(seed: int, rig: Rig) -> tuple[list[bytes], PartitionLog]:
    """Batches that a log held before the power cut, and the recovered log."""
    log = rig.open()
    append(log, batch(1), leader_epoch=seed % 3)
    log.flush()
    for number in range(4):
        append(log, batch(1 + number), leader_epoch=3 + number // 2)
    held, store = all_batches(log), rig.store
    store.garbage = True
    rig.power_cut()
    return held, rig.open(recovery_point=log.recovery_point)


def test_a_log_detects_all_garbage() -> None:
    cut = 0
    for seed in range(400):
        rig = Rig(seed)
        rig.store.unguarded = leader_epochs
        held, log = garbled(seed, rig)
        left = all_batches(log)
        assert left == held[: len(left)]
        assert left
        cut += any("wrong CRC" in event for event in log.recovery_events)
    assert cut > 20, "bits change everywhere else"


def test_only_leader_epochs_are_spared() -> None:
    rig = Rig()
    log = rig.open()
    for epoch in (258, 515):
        append(log, batch(2), leader_epoch=epoch)
    content = rig.store.file(log.segments[0].log_path).cached
    spared = sorted(leader_epochs("00000000000000000000.log", content))
    assert [content[at] for at in spared] == [0, 0, 1, 2, 0, 0, 2, 3]
    assert not leader_epochs("00000000000000000000.index", content)
    assert not leader_epochs("00000000000000000000.log", bytearray(100))
    assert not Store(rig.store.chance, lambda: 0).unguarded("00000000000000000000.log", content)
