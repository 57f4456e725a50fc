"""Formatting makes directories a node's own, once."""

import random
from pathlib import Path

import pytest

from barnabas.kraft.format import (
    FormatError,
    FormatRequest,
    bootstrap_checkpoint,
    format_directories,
)
from barnabas.kraft.initial_controllers import parse_initial_controllers, standalone_controller
from barnabas.kraft.metadata.bootstrap import bootstrap_records
from barnabas.kraft.metadata_log import MetadataLog
from barnabas.kraft.raft.voter_history import QuorumRecord
from barnabas.kraft.raft.voters import Endpoint
from barnabas.kraft.snapshots import BOOTSTRAP_SNAPSHOT, encode_snapshot, read_quorum_records
from barnabas.protocol.messages.metadata_log import FeatureLevelRecord
from barnabas.protocol.primitives import uuid_from_string
from barnabas.protocol.records.batch import iterate_batches
from barnabas.protocol.records.record import decode_records
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.uuids import random_uuid
from barnabas.storage.log_directory import MetaProperties, read_meta_properties

CLUSTER = "q1Sh-9_ISia_zwGINzRvyQ"
KAFKAS_FEATURES = [
    FeatureLevelRecord(name=name, feature_level=level)
    for name, level in (
        ("metadata.version", 30),
        ("eligible.leader.replicas.version", 1),
        ("group.version", 1),
        ("share.version", 1),
        ("streams.version", 1),
        ("transaction.version", 2),
    )
]
"""The records that Kafka 4.3.1 wrote into `data/bootstrap.checkpoint`."""


def format_for(
    node_id: int, *directories: Path, cluster_id: str = CLUSTER, ignore_formatted: bool = False
) -> list[str]:
    paths = [str(directory) for directory in directories]
    request = FormatRequest(cluster_id, node_id, paths, bootstrap_records(), ignore_formatted)
    return format_directories(RealDisk(), request, random.Random(1))


@pytest.mark.feature("KR-15")
def test_each_directory_gets_the_nodes_identity_and_an_id_of_its_own(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "deep" / "b"
    assert format_for(101, first, second) == [str(first), str(second)]
    identities = [read_meta_properties(RealDisk(), str(directory)) for directory in (first, second)]
    assert [(each.cluster_id, each.node_id) for each in identities if each] == [(CLUSTER, 101)] * 2
    assert len({each.directory_id for each in identities if each}) == 2
    assert sorted(path.name for path in first.iterdir()) == ["bootstrap.checkpoint", "meta.properties"]


@pytest.mark.feature("KR-15")
def test_the_checkpoint_has_the_bytes_that_kafka_writes() -> None:
    theirs = (Path(__file__).parent / "data" / "bootstrap.checkpoint").read_bytes()
    ours = bootstrap_checkpoint(KAFKAS_FEATURES)
    assert len(ours) == len(theirs)
    for (position, header), (same_position, expected) in zip(
        iterate_batches(ours), iterate_batches(theirs), strict=True
    ):
        assert position == same_position
        # Kafka reads the clock again for each batch.
        times = {"crc": 0, "base_timestamp": 0, "max_timestamp": 0}
        assert header._replace(**times) == expected._replace(**times)
        found = [record._replace(timestamp=0) for record in decode_records(ours, position)]
        assert found == [record._replace(timestamp=0) for record in decode_records(theirs, position)]


@pytest.mark.feature("KR-15")
def test_formatting_twice_is_refused_or_ignored_but_never_done(tmp_path: Path) -> None:
    format_for(1, tmp_path / "a")
    before = (tmp_path / "a" / "meta.properties").read_bytes()
    with pytest.raises(FormatError, match="is formatted already; --ignore-formatted leaves it as it is"):
        format_for(1, tmp_path / "a", tmp_path / "b")
    assert not (tmp_path / "b").exists()
    assert format_for(1, tmp_path / "a", tmp_path / "b", ignore_formatted=True) == [str(tmp_path / "b")]
    assert (tmp_path / "a" / "meta.properties").read_bytes() == before


@pytest.mark.feature("KR-15", "MB-01")
def test_a_directory_of_another_cluster_or_node_is_left_alone(tmp_path: Path) -> None:
    format_for(1, tmp_path / "a")
    with pytest.raises(FormatError, match=f"belongs to cluster {CLUSTER}, not other"):
        format_for(1, tmp_path / "a", cluster_id="other", ignore_formatted=True)
    with pytest.raises(FormatError, match="belongs to node 1, not 2"):
        format_for(2, tmp_path / "a", ignore_formatted=True)


@pytest.mark.feature("MB-01")
@pytest.mark.parametrize("cluster_id", ["", "with blank", "ümlaut", "a=b", "a\nb"])
def test_a_cluster_id_has_letters_that_survive_everywhere(tmp_path: Path, cluster_id: str) -> None:
    with pytest.raises(FormatError, match="is no cluster id"):
        format_for(1, tmp_path / "a", cluster_id=cluster_id)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version=1\nnode.id=1\n", "meta.properties: cluster.id is missing"),
        ("version=1\ncluster.id=x\n", "meta.properties: node.id is missing"),
        ("version=1\ncluster.id=x\nnode.id=one\n", "meta.properties: invalid literal"),
        ("version=1\ncluster.id=x\nnode.id=1\ndirectory.id=x\n", "meta.properties: not a uuid"),
        ("version=0\nbroker.id=1\n", "meta.properties: version 0, expected 1"),
        ("cluster.id=\\u12\n", "meta.properties"),
    ],
)
def test_a_broken_identity_is_reported_not_replaced(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(FormatError, match=message):
        format_for(1, tmp_path)
    assert (tmp_path / "meta.properties").read_text() == text


def test_identities_written_by_kafka_are_read(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n#Sat Nov 21 07:18:54 UTC 2026\nnode.id=101\ndirectory.id=_5O6kdnKaSmGN6UGDDXQWA\nversion=1\n"
        f"cluster.id={CLUSTER}\n"
    )
    assert read_meta_properties(RealDisk(), str(tmp_path)) == MetaProperties(
        CLUSTER, 101, uuid_from_string("_5O6kdnKaSmGN6UGDDXQWA")
    )


def test_random_ids_are_uuids_of_version_4_and_never_look_like_options() -> None:
    class Stubborn(random.Random):
        """Draws a text that opens with a dash, then a good one."""

        def __init__(self) -> None:
            super().__init__(1)
            self.draws = [b"\xf8" + bytes(15), bytes(range(16))]

        def randbytes(self, n: int) -> bytes:
            return self.draws.pop(0)

    drawn = random_uuid(Stubborn())
    assert drawn == bytes([0, 1, 2, 3, 4, 5, 0x46, 7, 0x88, 9, 10, 11, 12, 13, 14, 15])


@pytest.mark.feature("KR-14", "KR-15")
def test_the_first_voters_are_in_a_snapshot_of_nothing(tmp_path: Path) -> None:
    directory_id = bytes(range(1, 17))
    first = standalone_controller(7, Endpoint("CONTROLLER", "host", 9093), directory_id)
    data = str(tmp_path / "data")
    request = FormatRequest("c3VjaC1hLWNsdXN0ZXI", 7, [data], bootstrap_records(), False, data, first)
    format_directories(RealDisk(), request, random.Random(1), 1234)
    path = f"{data}/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
    level, voters = read_quorum_records(RealDisk(), path, BOOTSTRAP_SNAPSHOT)
    assert (level.offset, level.kraft_version) == (-1, 1)
    assert voters.voters == first
    identity = read_meta_properties(RealDisk(), data)
    assert identity is not None and identity.directory_id == directory_id
    log = MetadataLog.open(RealDisk(), data, 0, 1 << 20, 1000)
    assert log.read_quorum_records() == (level, voters)
    log.close()


@pytest.mark.feature("KR-14", "KR-15")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1@h:1",
        "x@h:1:AAECAwQFBgcICQoLDA0ODw",
        "1@h:70000:AAECAwQFBgcICQoLDA0ODw",
        "1@h:1:short",
        "1@h:1:AAAAAAAAAAAAAAAAAAAAAA",
    ],
)
def test_wrong_initial_controllers_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_initial_controllers(text, "CONTROLLER")
    two = "1@a:1:AAECAwQFBgcICQoLDA0ODw,2@[::1]:2:AQECAwQFBgcICQoLDA0ODw"
    assert parse_initial_controllers(two, "CONTROLLER").ids == (1, 2)


@pytest.mark.feature("KR-14", "KR-15")
def test_the_first_voters_are_written_as_kafkas_tool_writes_them() -> None:
    """`data/voters.checkpoint` is what `kafka-storage.sh format --initial-controllers` of 4.3.1 wrote."""
    theirs = (Path(__file__).parent / "data" / "voters.checkpoint").read_bytes()
    first = "1@127.0.0.1:26900:JEXY6aqzQY-32P5TStzaFg,2@localhost:26901:MvDxzVmcRsaTz33bUuRU6A"
    voters = parse_initial_controllers(first, "CONTROLLER")
    records = (QuorumRecord(offset=-1, kraft_version=1), QuorumRecord(offset=-1, voters=voters))
    ours = b"".join(encode_snapshot(BOOTSTRAP_SNAPSHOT, (), LAST_CONTAINED_MS, records))
    assert control_records(ours) == control_records(theirs)


LAST_CONTAINED_MS = 0x1A220941EA7
"""The time in the header of that snapshot; its batches have later ones."""


def control_records(snapshot: bytes) -> list[tuple[int, int, int, list[tuple[bytes, bytes]]]]:
    """Size, offsets, keys and values of each batch: all but its time."""
    found = []
    for position, header in iterate_batches(snapshot):
        batch = decode_records(memoryview(snapshot)[position : position + header.size_bytes])
        pairs = [(bytes(record.key or b""), bytes(record.value or b"")) for record in batch]
        assert header.is_control
        found.append((header.size_bytes, header.base_offset, header.last_offset, pairs))
    return found
