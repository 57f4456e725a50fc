"""The promises of the metadata quorum catch each way to break them, and let its legal neighbour pass."""

from __future__ import annotations

import pytest

from barnabas.cluster.simulation.findings import Findings
from barnabas.cluster.simulation.invariants.quorum import QuorumPromises, ReplicaView
from kraft.metadata.image import MetadataImage

from .fake_logs import Disks, FakeLog

pytestmark = pytest.mark.feature("KR-17", "FI-11")


class Quorum:
    """Three voters whose steps a story tells."""

    def __init__(self) -> None:
        self.findings = Findings(lambda: 0.0)
        self.disks = Disks()
        self.logs = {node_id: self.disks.log(f"log-{node_id}") for node_id in (101, 102, 103)}
        self.deltas: list[object] = []
        self.promises = QuorumPromises(self.findings, self.disks.content, self.deltas.append)
        self.seen: dict[int, ReplicaView] = {}

    def step(self, node_id: int, epoch: int, leader: int | None = None, **more: int | None) -> None:
        """`more`: voted, high_watermark, synced, cut_to."""
        log = self.logs[node_id]
        self.promises.stepped(
            ReplicaView(
                node_id=node_id,
                is_voter=True,
                is_leader=leader == node_id,
                epoch=epoch,
                leader_id=leader,
                voted_id=more.get("voted"),
                high_watermark=more.get("high_watermark") or 0,
                synced_end_offset=log.log_end_offset if more.get("synced") is None else more["synced"] or 0,
                log=log,
            ),
            more.get("cut_to"),
        )

    def restart(self, node_id: int) -> FakeLog:
        """The same content in a log that was opened anew."""
        old = self.logs[node_id]
        new = self.logs[node_id] = self.disks.log(f"log-{node_id}")
        new.segment.content = old.segment.content
        new.log_end_offset = old.log_end_offset
        new.epochs = old.epochs
        return new

    @property
    def broken(self) -> str:
        return "; ".join(self.findings.broken)


@pytest.fixture
def quorum() -> Quorum:
    return Quorum()


def replicate(quorum: Quorum, epoch: int, *names: str) -> None:
    for log in quorum.logs.values():
        for name in names:
            log.append_setting(epoch, name)


def test_a_quiet_quorum_breaks_nothing(quorum: Quorum) -> None:
    replicate(quorum, 1, "a", "b")
    for node_id in quorum.logs:
        quorum.step(node_id, 1, 101, voted=101)
    for node_id in quorum.logs:
        quorum.step(node_id, 1, 101, high_watermark=2)
    quorum.step(102, 2, 102, voted=102, high_watermark=2)
    assert quorum.broken == ""
    assert quorum.promises.leaders == {1: 101, 2: 102}
    assert quorum.promises.image.config(2, "topic") == {"a": "1", "b": "1"}
    assert len(quorum.deltas) == 2


def test_two_leaders_in_an_epoch(quorum: Quorum) -> None:
    quorum.step(101, 3, 101)
    quorum.step(103, 3, 101)
    assert quorum.broken == ""
    quorum.step(102, 3, 102)
    assert "epoch 3 has two leaders" in quorum.broken


def test_an_epoch_that_falls_in_a_crash(quorum: Quorum) -> None:
    quorum.step(101, 3, None)
    quorum.restart(101)
    quorum.step(101, 3, None)
    assert quorum.broken == ""
    quorum.restart(101)
    quorum.step(101, 2, None)
    assert "the epoch of node 101 fell from 3 to 2" in quorum.broken


def test_a_second_vote_in_an_epoch(quorum: Quorum) -> None:
    quorum.step(101, 3, None, voted=102)
    quorum.restart(101)
    quorum.step(101, 4, None, voted=103)
    assert quorum.broken == ""
    quorum.step(101, 4, None, voted=102)
    assert "voted for 103 and for 102 in epoch 4" in quorum.broken


def test_a_leader_without_a_committed_record(quorum: Quorum) -> None:
    replicate(quorum, 1, "a")
    quorum.logs[101].append_setting(1, "b")
    quorum.logs[102].append_setting(1, "b")
    quorum.step(102, 1, 101)
    quorum.step(101, 1, 101, high_watermark=2)
    quorum.step(102, 2, 102, high_watermark=1)
    assert quorum.broken == ""
    quorum.step(103, 3, 103)
    assert "leader 103 of epoch 3 ends at 1, committed is up to 2" in quorum.broken


def test_another_record_at_a_committed_offset(quorum: Quorum) -> None:
    quorum.logs[101].append_setting(1, "a")
    quorum.logs[102].append_setting(1, "a")
    quorum.logs[103].append_setting(2, "z")
    quorum.step(102, 1, 101)
    quorum.step(103, 2, None)
    quorum.step(101, 1, 101, high_watermark=1)
    assert quorum.broken == ""
    quorum.step(103, 2, None, high_watermark=1)
    assert "was committed" in quorum.broken


def test_one_epoch_writes_an_offset_twice(quorum: Quorum) -> None:
    quorum.logs[101].append_setting(1, "a")
    quorum.logs[102].append_setting(1, "z")
    quorum.step(101, 1, 101)
    quorum.step(102, 1, 101)
    assert "where another has" in quorum.broken


def test_committed_without_a_majority_on_disk(quorum: Quorum) -> None:
    replicate(quorum, 1, "a")
    quorum.step(102, 1, 101, synced=0)
    quorum.step(103, 1, 101, synced=0)
    quorum.step(101, 1, 101, high_watermark=1)
    assert "only 1 of 3 voters have it on disk" in quorum.broken


def test_committed_by_one_who_died_since(quorum: Quorum) -> None:
    replicate(quorum, 1, "a")
    quorum.step(102, 1, 101)  # its power is cut now; what it synced stays
    quorum.step(101, 1, 101, high_watermark=1)
    assert quorum.broken == ""


def test_a_committed_record_is_cut(quorum: Quorum) -> None:
    replicate(quorum, 1, "a", "b", "c")
    quorum.step(102, 1, 101)
    quorum.step(101, 1, 101, high_watermark=2)
    quorum.logs[101].cut(2)
    quorum.step(101, 2, None, high_watermark=2, cut_to=2)
    assert quorum.broken == ""
    quorum.logs[101].cut(1)
    quorum.step(101, 2, None, high_watermark=2, cut_to=1)
    assert "node 101 cuts at 1, committed are 2" in quorum.broken


def test_a_high_watermark_that_falls(quorum: Quorum) -> None:
    replicate(quorum, 1, "a", "b")
    quorum.step(102, 1, 101)
    quorum.step(101, 1, 101, high_watermark=2)
    quorum.restart(101)
    quorum.step(101, 1, None, high_watermark=0)  # after a restart it is not known yet
    quorum.step(101, 1, None, high_watermark=2)
    assert quorum.broken == ""
    quorum.step(101, 1, None, high_watermark=1)
    assert "fell from 2 to 1" in quorum.broken


def test_a_high_watermark_behind_the_end(quorum: Quorum) -> None:
    replicate(quorum, 1, "a")
    quorum.step(102, 1, 101)
    quorum.step(101, 1, 101, high_watermark=2)
    assert "records up to 1 only" in quorum.broken


def test_a_node_that_sees_another_cluster(quorum: Quorum) -> None:
    replicate(quorum, 1, "a")
    quorum.step(102, 1, 101)
    quorum.step(101, 1, 101, high_watermark=1)
    same = quorum.promises.image
    quorum.promises.applied("broker-1", MetadataImage(offset=0, configs=dict(same.configs), features=same.features))
    quorum.promises.applied("broker-1", MetadataImage(offset=7))  # further than what is known: nothing to compare
    assert quorum.broken == ""
    quorum.promises.applied("broker-1", MetadataImage(offset=0))
    assert "broker-1 sees another cluster" in quorum.broken
