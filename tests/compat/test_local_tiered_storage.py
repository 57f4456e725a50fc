"""Kafka's LocalTieredStorage and our directory store read and delete what the other has copied."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
import trio

from barnabas.broker.remote.segment_store import IndexKind, RemoteSegmentStore, SegmentFiles
from barnabas.protocol.primitives import uuid_from_string
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.object_store import NoSuchObject
from barnabas.runtime.real import real_world
from barnabas.runtime.world import FileRegion
from barnabas.settings.object_store import LOCAL_TIERED_STORAGE, store_settings
from barnabas.storage.remote.segment import RemotePartitionKey, RemoteSegment, SegmentState
from tests.compat.java import FLAGS, TIMEOUT_SECONDS

pytestmark = [pytest.mark.compat, pytest.mark.client("java"), pytest.mark.feature("TS-03")]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "compat" / "tiered-storage" / "Segments.java"
JARS = ROOT / ".cache" / "kafka-tiered-storage"

SEGMENT = RemoteSegment(
    key=RemotePartitionKey(uuid_from_string("LWgrMmVrT0a__7a4SasuPA"), "orders.eu_1", 3),
    segment_id=uuid_from_string("bCqX9U--S-6U8XUM9II25Q"),
    start_offset=11,
    end_offset=99,
    max_timestamp_ms=1_750_000_000_000,
    broker_id=1,
    event_timestamp_ms=1_750_000_000_000,
    size_bytes=50_000,
    state=SegmentState.COPY_SEGMENT_FINISHED,
    leader_epochs=((0, 11),),
)
INDEXES = {
    "OFFSET": ("index", IndexKind.OFFSET),
    "TIMESTAMP": ("timeindex", IndexKind.TIMESTAMP),
    "PRODUCER_SNAPSHOT": ("snapshot", IndexKind.PRODUCER_SNAPSHOT),
    "TRANSACTION": ("txnindex", IndexKind.TRANSACTION),
    "LEADER_EPOCH": ("epochs", IndexKind.LEADER_EPOCH),
}
"""Kafka's name: the file of the source, and our name."""


@pytest.fixture(params=[True, False], ids=["with aborted transactions", "without"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The files of a segment."""
    directory = tmp_path / "source"
    directory.mkdir()
    (directory / "log").write_bytes(os.urandom(SEGMENT.size_bytes))
    for name in ("index", "timeindex", "snapshot", "epochs", *(["txnindex"] if request.param else [])):
        (directory / name).write_bytes(os.urandom(200))
    return directory


@pytest.fixture
def store_dir(tmp_path: Path) -> Path:
    return tmp_path / "store"


def kafka(verb: str, store_dir: Path, *words: str) -> dict[str, str]:
    """Lines of the program as a mapping."""
    jars = sorted(JARS.glob("kafka-storage-*-test.jar"))
    if not jars:
        pytest.skip("tests/compat/install.sh fetches the jar of LocalTieredStorage")
    path = os.pathsep.join([*map(str, jars), f"{ROOT / '.cache' / 'kafka-libs'}/*"])
    size = f"-Dsize={SEGMENT.size_bytes}"
    done = subprocess.run(
        ["java", *FLAGS, size, "-cp", path, str(PROGRAM), verb, str(store_dir), *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def ours(store_dir: Path) -> RemoteSegmentStore:
    """The store of a broker whose file names Kafka's class and its directory."""
    settings = store_settings(
        {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(store_dir)}
    )
    open_store = real_world().object_store
    assert settings is not None and open_store is not None
    return RemoteSegmentStore(open_store(settings))


def files(source: Path) -> SegmentFiles:
    transactions = source / "txnindex"
    return SegmentFiles(
        FileRegion(RealDisk().open(str(source / "log")), 0, SEGMENT.size_bytes),
        (source / "index").read_bytes(),
        (source / "timeindex").read_bytes(),
        transactions.read_bytes() if transactions.exists() else None,
        (source / "snapshot").read_bytes(),
        (source / "epochs").read_bytes(),
    )


def tree(directory: Path) -> dict[str, bytes]:
    return {str(each.relative_to(directory)): each.read_bytes() for each in directory.rglob("*") if each.is_file()}


def test_both_write_the_same_files(source: Path, store_dir: Path, tmp_path: Path) -> None:
    kafka("write", store_dir, str(source))
    trio.run(ours(tmp_path / "ours").copy, SEGMENT, files(source))
    assert tree(tmp_path / "ours") == tree(store_dir)
    assert len(tree(store_dir)) == len(list(source.iterdir()))


def test_we_read_and_delete_what_kafka_has_written(source: Path, store_dir: Path) -> None:
    kafka("write", store_dir, str(source))

    async def read() -> None:
        store = ours(store_dir)
        assert await store.read(SEGMENT, 0, 1 << 20) == (source / "log").read_bytes()
        for name, kind in INDEXES.values():
            if (source / name).exists():
                assert await store.read_index(SEGMENT, kind) == (source / name).read_bytes()
            else:
                with pytest.raises(NoSuchObject):
                    await store.read_index(SEGMENT, kind)
        [stored] = await store.stored(SEGMENT.key)
        assert (stored.segment_id, stored.start_offset) == (SEGMENT.segment_id, SEGMENT.start_offset)
        await store.delete(SEGMENT)

    trio.run(read)
    assert tree(store_dir) == {}


def test_kafka_reads_and_deletes_what_we_have_written(source: Path, store_dir: Path) -> None:
    trio.run(ours(store_dir).copy, SEGMENT, files(source))
    log = (source / "log").read_bytes()
    expected = {"log": hashlib.sha256(log).hexdigest(), "log-from-100": hashlib.sha256(log[100:]).hexdigest()}
    for kafkas, (name, _kind) in INDEXES.items():
        file = source / name
        expected[kafkas] = hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else "missing"
    assert kafka("read", store_dir) == expected
    kafka("delete", store_dir)
    assert tree(store_dir) == {}
