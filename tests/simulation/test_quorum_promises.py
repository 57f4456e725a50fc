"""The promises of the metadata quorum catch each way to break them, and let its legal neighbour pass."""

from __future__ import annotations

import pytest

from barnabas.kraft.metadata.image import MetadataImage
from barnabas.kraft.raft.voters import ReplicaKey
from simulation.findings import Findings
from simulation.invariants.quorum import QuorumPromises, ReplicaView, VotersChange

from .fake_logs import Disks, FakeLog

pytestmark = pytest.mark.feature("KR-17", "FI-11")


class Quorum:
    """Three voters, driven step by step."""

    def __init__(self) -> None:
        self.findings = Findings(lambda: 0.0)
        self.disks = Disks()
        self.logs = {node_id: self.disks.log(f"log-{node_id}") for node_id in (101, 102, 103)}
        self.deltas: list[object] = []
        self.promises = QuorumPromises(self.findings, self.disks.content, self.deltas.append)
        self.seen: dict[int, ReplicaView] = {}

    def step(self, node_id: int, epoch: int, leader: int | None = None, **more: int | None) -> None:
        """`more`: voted, high_watermark, synced, cut_to, loads."""
        log = self.logs[node_id]
        self.promises.stepped(
            ReplicaView(
                key=ReplicaKey(node_id),
                is_voter=True,
                is_leader=leader == node_id,
                epoch=epoch,
                leader_id=leader,
                voted_id=more.get("voted"),
                high_watermark=more.get("high_watermark") or 0,
                synced_end_offset=log.log_end_offset if more.get("synced") is None else more["synced"] or 0,
                log=log,
                voters=tuple(ReplicaKey(each) for each in sorted(self.logs)),
                loads_snapshot=bool(more.get("loads")),
            ),
            more.get("cut_to"),
        )

    def restart(self, node_id: int) -> FakeLog:
        """The same content in a log that was opened again."""
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
    assert "the image of broker-1 differs" in quorum.broken


def test_the_same_record_behind_others(quorum: Quorum) -> None:
    """Each record for itself is known: the logs part before them."""
    quorum.logs[101].append_setting(1, "a").append_setting(2, "b")
    quorum.logs[102].append_setting(1, "a").append_setting(2, "b")
    quorum.step(101, 2, None)
    quorum.step(102, 2, None)
    assert quorum.broken == ""
    quorum.logs[103].append_setting(3, "z").append_setting(2, "b")
    quorum.step(103, 3, None)
    assert "before (epoch, offset) (2, 1) is (3, 0), elsewhere (1, 0)" in quorum.broken


def test_a_cut_log_goes_on_behind_what_is_left(quorum: Quorum) -> None:
    quorum.logs[101].append_setting(1, "a").append_setting(1, "b")
    quorum.step(101, 1, 101)
    quorum.logs[101].cut(1)
    quorum.step(101, 2, None, cut_to=1)
    quorum.logs[101].append_setting(2, "c")
    quorum.logs[102].append_setting(1, "a").append_setting(2, "c")
    quorum.step(101, 2, None)
    quorum.step(102, 2, None)
    assert quorum.broken == ""


def test_a_log_whose_beginning_is_dropped_goes_on_behind_its_end(quorum: Quorum) -> None:
    replicate(quorum, 1, "a", "b", "c")
    quorum.step(102, 1, 101)
    quorum.step(101, 1, 101, high_watermark=2)
    quorum.disks.snapshots["00000000000000000001-0000000001.checkpoint"] = bytearray(b"all up to 1")
    quorum.logs[101].log_start_offset = 1
    replicate(quorum, 1, "d")
    quorum.step(101, 1, 101, high_watermark=2)
    quorum.step(102, 1, 101, high_watermark=2)
    assert quorum.broken == ""


def test_a_leader_that_cuts_its_log(quorum: Quorum) -> None:
    replicate(quorum, 1, "a", "b")
    quorum.step(101, 1, 101)
    quorum.logs[101].cut(1)
    quorum.step(101, 2, None, cut_to=1)  # deposed, it may
    quorum.logs[101].append_setting(2, "c")
    quorum.step(101, 3, 101)
    assert quorum.broken == ""
    quorum.logs[101].cut(1)
    quorum.step(101, 3, 101, cut_to=1)
    assert "leader 101 of epoch 3 has cut its log from 2 to 1" in quorum.broken


def test_a_leader_that_loads_a_snapshot(quorum: Quorum) -> None:
    quorum.step(102, 1, 101, loads=1)
    quorum.step(101, 1, 101)
    assert quorum.broken == ""
    quorum.step(101, 1, 101, loads=1)
    assert "leader 101 loads a snapshot" in quorum.broken


def test_a_commit_by_one_who_does_not_lead(quorum: Quorum) -> None:
    replicate(quorum, 1, "a", "b")
    for node_id in quorum.logs:
        quorum.step(node_id, 1, 101)
    quorum.step(101, 1, 101, high_watermark=1)
    quorum.step(102, 1, 101, high_watermark=1)
    assert quorum.broken == ""
    quorum.step(102, 1, 101, high_watermark=2)
    assert "node 102 in epoch 1 commits up to 2, and does not lead" in quorum.broken


def test_a_leader_that_commits_what_an_earlier_one_wrote(quorum: Quorum) -> None:
    """Raft, figure 8: a majority has it, and yet the next leader may lack it."""
    replicate(quorum, 1, "a")
    for node_id in quorum.logs:
        quorum.step(node_id, 2, 102)
    quorum.step(102, 2, 102, high_watermark=1)
    assert "which is not of its epoch but of 1" in quorum.broken


def test_a_voter_that_comes_back_without_what_it_had_synced(quorum: Quorum) -> None:
    replicate(quorum, 1, "a", "b")
    quorum.step(102, 1, 101)
    quorum.step(101, 1, 101, high_watermark=1)
    quorum.restart(102).cut(1)
    quorum.step(102, 1, 101)  # what is gone was not committed
    assert quorum.broken == ""
    quorum.restart(102).cut(0)
    quorum.step(102, 1, 101)
    assert "node 102 had synced what was committed up to 1, and comes back with 0" in quorum.broken


def test_a_log_begins_where_a_snapshot_ends(quorum: Quorum) -> None:
    replicate(quorum, 1, "a", "b", "c")
    quorum.step(102, 1, 101)
    quorum.step(101, 1, 101, high_watermark=3)
    quorum.disks.snapshots["00000000000000000002-0000000001.checkpoint"] = bytearray(b"all up to 2")
    quorum.logs[101].log_start_offset = 2
    quorum.step(101, 1, 101, high_watermark=3)
    assert quorum.broken == ""
    quorum.logs[102].log_start_offset = 1
    quorum.step(102, 1, 101)
    assert "the log of node 102 begins at 1" in quorum.broken and "is not there" in quorum.broken


def replaced(log: FakeLog, offset: int) -> FakeLog:
    """A snapshot up to there is in its place."""
    log.cut(0)
    log.log_start_offset = log.log_end_offset = log.segment.base_offset = offset
    return log


def test_a_snapshot_replaces_a_log_that_went_on_behind_it(quorum: Quorum) -> None:
    quorum.logs[103].append_setting(1, "a").append_setting(1, "x").append_setting(1, "y").append_setting(1, "z")
    quorum.step(103, 1, 103)
    for node_id in (101, 102):
        log = quorum.logs[node_id].append_setting(1, "a")
        for name in ("b", "c", "d", "e"):
            log.append_setting(2, name)
    quorum.step(102, 2, 101)
    quorum.step(101, 2, 101, high_watermark=2)
    quorum.disks.snapshots["00000000000000000002-0000000002.checkpoint"] = bytearray(b"all up to 2")
    log = replaced(quorum.logs[103], 2)
    quorum.step(103, 2, 101)
    for name in ("c", "d", "e"):
        log.append_setting(2, name)
    quorum.step(103, 2, 101, high_watermark=2)
    assert quorum.broken == ""


def test_a_snapshot_replaces_a_log_with_committed_records_behind_it(quorum: Quorum) -> None:
    replicate(quorum, 1, "a", "b", "c")
    quorum.step(102, 1, 101)
    quorum.step(101, 1, 101, high_watermark=3)
    quorum.step(102, 1, 101, high_watermark=3)
    quorum.disks.snapshots["00000000000000000002-0000000001.checkpoint"] = bytearray(b"all up to 2")
    replaced(quorum.logs[102], 2)
    quorum.step(102, 1, 101, high_watermark=3)
    assert "node 102 begins again at 2, committed are 3" in quorum.broken


def test_a_snapshot_that_is_unlike_the_others(quorum: Quorum) -> None:
    name = "00000000000000000002-0000000001.checkpoint"
    for node_id in (101, 102):
        quorum.disks.snapshots[name] = bytearray(b"all up to 2")
        quorum.promises.snapshot_published(node_id, f"/{node_id}/{name}")
    assert quorum.broken == ""
    quorum.disks.snapshots[name] = bytearray(b"nearly all")
    quorum.promises.snapshot_published(103, f"/103/{name}")
    assert f"node 103 has a snapshot {name} that is unlike others'" in quorum.broken


def change(offset: int, before: tuple[int, ...], after: tuple[int, ...], before_offset: int = -1) -> VotersChange:
    before_keys, after_keys = (tuple(ReplicaKey(each) for each in ids) for ids in (before, after))
    return VotersChange(1, offset, before_keys, before_offset, after_keys)


@pytest.mark.feature("KR-14")
def test_voters_change_one_at_a_time_and_after_a_commit(quorum: Quorum) -> None:
    quorum.promises.voters_changed(change(1, (101, 102), (101,)))
    assert "a change before a commit in the own epoch" in quorum.broken

    quorum = Quorum()
    replicate(quorum, 1, "a")
    for node_id in (102, 103, 101):
        quorum.step(node_id, 1, 101, high_watermark=1 if node_id == 101 else 0)
    quorum.promises.voters_changed(change(1, (101, 102, 103), (101, 102)))
    assert quorum.broken == ""
    quorum.promises.voters_changed(change(2, (101, 102), (101,), before_offset=1))
    assert "two changes at once, the one before is at 1, committed 1" in quorum.broken
    quorum.promises.voters_changed(change(2, (101, 102), (103,), before_offset=0))
    assert "more than one voter changes" in quorum.broken


@pytest.mark.feature("KR-14")
def test_a_lost_disk_counts_for_what_was_on_it_and_for_nothing_later(quorum: Quorum) -> None:
    replicate(quorum, 1, "a")
    quorum.step(102, 1, 101)
    quorum.promises.disk_lost(102)
    assert quorum.promises.is_lost(ReplicaKey(102))
    quorum.step(103, 1, 101, synced=0)
    quorum.step(101, 1, 101, high_watermark=1)
    assert quorum.broken == "", "it was on the disks of two of three"
    replicate(quorum, 1, "b")
    quorum.step(101, 1, 101, high_watermark=2)
    assert "committed up to 2, but only 1 of 3 voters have it on disk" in quorum.broken
