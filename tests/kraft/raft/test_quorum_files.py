"""The files of the metadata log beside its segments: quorum-state and snapshots, in Kafka's formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.kraft.quorum_state import CorruptQuorumState, QuorumStateFile
from barnabas.kraft.raft.history import OffsetAndEpoch
from barnabas.kraft.raft.roles import ElectionState
from barnabas.kraft.raft.voters import ReplicaKey
from barnabas.kraft.snapshots import (
    CorruptSnapshotFile,
    SnapshotFiles,
    load_snapshot,
    parse_snapshot_file_name,
    read_bootstrap_records,
    snapshot_file_name,
)
from barnabas.protocol.messages.metadata_log import ConfigRecord, FeatureLevelRecord
from barnabas.protocol.schema import Message
from barnabas.runtime.disk import RealDisk

SNAPSHOT = OffsetAndEpoch(offset=1234, epoch=7)
VOTED = ReplicaKey(3, bytes(range(16)))


# ---- quorum-state


@pytest.mark.feature("KR-05")
@pytest.mark.parametrize(
    ("data_version", "expected"),
    [
        (
            0,
            '{"clusterId":"","leaderId":-1,"leaderEpoch":9,"votedId":3,"appliedOffset":0,'
            '"currentVoters":[{"voterId":1},{"voterId":3}],"data_version":0}',
        ),
        (
            1,
            '{"leaderId":-1,"leaderEpoch":9,"votedId":3,"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw","data_version":1}',
        ),
    ],
)
def test_the_election_state_is_kafkas_json(tmp_path: Path, data_version: int, expected: str) -> None:
    file = QuorumStateFile(RealDisk(), str(tmp_path))
    file.write(ElectionState(epoch=9, voted=VOTED), (1, 3), data_version)
    assert (tmp_path / "quorum-state").read_text() == expected
    voted = VOTED if data_version == 1 else ReplicaKey(3)
    assert file.read() == ElectionState(epoch=9, voted=voted)


@pytest.mark.feature("KR-05")
def test_a_new_node_has_no_election_state_and_a_leader_is_remembered(tmp_path: Path) -> None:
    file = QuorumStateFile(RealDisk(), str(tmp_path))
    assert file.read() == ElectionState()
    file.write(ElectionState(epoch=2, leader_id=1), (1,))
    assert file.read() == ElectionState(epoch=2, leader_id=1)
    assert [path.name for path in tmp_path.iterdir()] == ["quorum-state"]


@pytest.mark.feature("KR-05")
@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '"x"',
        '{"leaderId":1,"leaderEpoch":2,"votedId":-1}',
        '{"leaderId":1,"leaderEpoch":2,"votedId":-1,"data_version":2}',
        '{"leaderId":1,"leaderEpoch":-1,"votedId":-1,"data_version":0}',
        '{"leaderId":"a","leaderEpoch":1,"votedId":-1,"data_version":0}',
        '{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"x","data_version":1}',
    ],
)
def test_a_file_that_cannot_be_read_is_not_taken_for_no_vote(tmp_path: Path, content: str) -> None:
    (tmp_path / "quorum-state").write_text(content)
    with pytest.raises(CorruptQuorumState, match="quorum-state"):
        QuorumStateFile(RealDisk(), str(tmp_path)).read()


# ---- snapshots


def config_records(count: int) -> list[Message]:
    return [
        ConfigRecord(resource_type=2, resource_name="topic", name=f"key-{number}", value="x" * 100)
        for number in range(count)
    ]


def write(tmp_path: Path, records: list[Message]) -> Path:
    files = SnapshotFiles(RealDisk(), str(tmp_path))
    files.write(SNAPSHOT, records, 1_000)
    files.publish(SNAPSHOT)
    files.published(SNAPSHOT)
    assert files.latest == SNAPSHOT
    return tmp_path / snapshot_file_name(SNAPSHOT)


@pytest.mark.feature("KR-10")
@pytest.mark.parametrize("count", [0, 1, 12_000])
def test_a_snapshot_gives_back_its_records(tmp_path: Path, count: int) -> None:
    path = write(tmp_path, config_records(count))
    assert path.name == "00000000000000001234-0000000007.checkpoint"
    assert load_snapshot(RealDisk(), str(path)) == (1_000, config_records(count))
    assert SnapshotFiles(RealDisk(), str(tmp_path)).ids == [SNAPSHOT]


@pytest.mark.feature("KR-10")
def test_names_of_snapshots() -> None:
    assert parse_snapshot_file_name(snapshot_file_name(SNAPSHOT)) == SNAPSHOT
    for name in ("00000000000000001234-0000000007.checkpoint.part", "1234-7.checkpoint", "bootstrap.checkpoint"):
        assert parse_snapshot_file_name(name) is None


@pytest.mark.feature("KR-10")
def test_files_of_an_interrupted_write_are_removed(tmp_path: Path) -> None:
    SnapshotFiles(RealDisk(), str(tmp_path)).write(SNAPSHOT, config_records(3), 1_000)
    assert len(list(tmp_path.iterdir())) == 1
    assert SnapshotFiles(RealDisk(), str(tmp_path)).latest is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.feature("KR-10", "KR-11")
def test_a_snapshot_that_was_cut_or_damaged_anywhere_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, config_records(3))
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(CorruptSnapshotFile):
            load_snapshot(RealDisk(), str(path))
    outside_crc = {0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15}
    for place in (at for at in range(61) if at not in outside_crc):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(CorruptSnapshotFile):
            load_snapshot(RealDisk(), str(path))
    path.write_bytes(whole + whole)
    with pytest.raises(CorruptSnapshotFile, match="follows the footer"):
        load_snapshot(RealDisk(), str(path))


@pytest.mark.feature("KR-15")
def test_the_bootstrap_checkpoint_that_kafka_writes_is_understood(tmp_path: Path) -> None:
    theirs = Path(__file__).parent.parent / "data" / "bootstrap.checkpoint"
    assert read_bootstrap_records(RealDisk(), str(tmp_path)) == []
    (tmp_path / "bootstrap.checkpoint").write_bytes(theirs.read_bytes())
    records = read_bootstrap_records(RealDisk(), str(tmp_path))
    assert records
    assert all(isinstance(record, FeatureLevelRecord) for record in records)
    first = records[0]
    assert isinstance(first, FeatureLevelRecord)
    assert first.name == "metadata.version"
