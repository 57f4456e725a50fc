"""The core that must do without the rest: how it is chosen, when it has converged, what its disks say if it has not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.controller_channel import ControllerChannel
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from barnabas.runtime.simulated.chance import make_stream
from barnabas.runtime.simulated.store import Store
from simulation.ghosts import GhostLog
from simulation.invariants.places import PartitionKey
from simulation.liveness_phase import (
    Core,
    Truth,
    choose_core,
    log_end,
    not_converged,
    why_not_recoverable,
    writable,
)
from tests.simulation.plans import is_found, usual

KEY = PartitionKey("t", 0)
BROKERS, CONTROLLERS = (1, 2, 3), (101, 102, 103)


def image_of(*, leader: int, isr: tuple[int, ...], elr: tuple[int, ...] = ()) -> Any:
    partition = SimpleNamespace(leader=leader, isr=isr, elr=elr, replicas=BROKERS)
    topic = SimpleNamespace(name=KEY.topic, partitions={KEY.partition: partition})
    return SimpleNamespace(topics=SimpleNamespace(by_name={KEY.topic: topic}))


def disk_with(records: int, topic: str = KEY.topic, torn: int = 0) -> tuple[Store, str]:
    """A log of so many batches of one record, the last one torn off by so many bytes."""
    store = Store(make_stream(1, "disk"), lambda: 0)
    store.make_directories(f"/data/{topic}-0")
    inode = store.create(f"/data/{topic}-0/00000000000000000000.log")
    for offset in range(records):
        batch = build_batch([Record(offset, 0, None, b"x", ())], base_offset=offset)
        inode.write(batch, len(inode.cached))
    inode.truncate(len(inode.cached) - torn)
    return store, "/data"


def truth_of(image: Any, metadata: int, records: int) -> Truth:
    return Truth(image, GhostLog(end_offset=metadata), {KEY: GhostLog(end_offset=records)})


@pytest.mark.feature("FI-05")
def test_a_core_is_a_majority_of_voters_and_has_a_member_of_each_partition_that_lost_nothing() -> None:
    for seed in range(20):
        chance = make_stream(seed, "core")
        core = choose_core(chance, image_of(leader=1, isr=(1,), elr=(2,)), BROKERS, CONTROLLERS, [1])
        assert core is not None
        assert core.brokers == (2,), "the only one that has everything and lost nothing"
        assert len(core.controllers) == 2 and set(core.controllers) <= set(CONTROLLERS)
    assert choose_core(make_stream(1, "core"), image_of(leader=-1, isr=(), elr=(1,)), BROKERS, CONTROLLERS, [1]) is None


@pytest.mark.feature("FI-05")
def test_a_core_has_converged_when_it_leads_with_all_that_it_has() -> None:
    core = Core((1, 2), (101, 102))
    assert "has leader 3" in not_converged(image_of(leader=3, isr=(1, 2, 3)), core)
    assert "ISR (1,)" in not_converged(image_of(leader=1, isr=(1,)), core)
    assert "ISR (1, 2, 3)" in not_converged(image_of(leader=1, isr=(1, 2, 3)), core), "3 is not to be waited for"
    image = image_of(leader=2, isr=(2, 1))
    assert not_converged(image, core) == ""
    assert writable(image, core, lambda _: 2) == [KEY]
    assert writable(image, Core((2,), (101, 102)), lambda _: 2) == []


@pytest.mark.feature("FI-05")
def test_the_oracle_reads_disks_up_to_what_is_torn() -> None:
    assert log_end(*disk_with(5), *KEY) == 5
    assert log_end(*disk_with(5, torn=3), *KEY) == 4
    assert log_end(*disk_with(5), "other", 0) == 0


@pytest.mark.feature("FI-05")
def test_the_oracle_distinguishes_unrecoverable_from_stuck() -> None:
    core = Core((1,), (101, 102))
    image = image_of(leader=-1, isr=(1,))
    whole = {1: disk_with(5), 101: disk_with(9, "__cluster_metadata"), 102: disk_with(4, "__cluster_metadata")}
    truth = truth_of(image, metadata=9, records=5)
    assert why_not_recoverable(core, truth, whole.__getitem__) == ""
    assert "its members in the core end at {1: 4}" in why_not_recoverable(
        core, truth, {**whole, 1: disk_with(5, torn=1)}.__getitem__
    )
    assert "committed metadata go up to 10" in why_not_recoverable(
        core, truth_of(image, metadata=10, records=5), whole.__getitem__
    )
    elsewhere = truth_of(image_of(leader=3, isr=(3,)), metadata=9, records=5)
    assert "no member of ISR (3,)" in why_not_recoverable(core, elsewhere, whole.__getitem__)


@pytest.mark.feature("FI-05", "FI-11")
def test_a_core_that_is_stuck_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake: a deaf broker keeps its connection, over which its heartbeats still arrive, and so its office."""
    monkeypatch.setattr(ControllerChannel, "_close_channel", lambda self: None)
    conditions = ("core=true", "until-broken=true")
    plans = (usual(seed, "set", condition=conditions, nemesis=("slow",), time=15.0) for seed in range(19, 49))
    assert is_found("", plans, "is stuck, and its disks have all that it needs")
