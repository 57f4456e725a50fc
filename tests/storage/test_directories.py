"""Log dirs: identity, content, and failures of one of them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import read_header
from barnabas.runtime.world import Disk
from barnabas.settings.topic import TopicConfig
from barnabas.storage.checkpoints import REPLICATION_OFFSET_CHECKPOINT, read_offsets, write_durably
from barnabas.storage.directories import LogDirectories
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_dir_work import DirectoryFailure, NewLog
from barnabas.storage.log_directory import (
    LogDirectory,
    LogDirectoryError,
    MetaProperties,
    format_directory,
    read_meta_properties,
)
from barnabas.storage.names import directory_name, marked_directory_name, parse_directory_name
from barnabas.storage.partition_metadata import (
    MalformedPartitionMetadata,
    format_partition_metadata,
    parse_partition_metadata,
)
from tests.examples import examples
from tests.storage.power_cuts import copy_of
from tests.storage.rig import NOW_MS, Rig, all_batches, all_offsets, append, batch, numbered, small_segments

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
TOPIC_ID = bytes(range(16))
CONFIG = TopicConfig()
PATHS = ["/logs/a", "/logs/b", "/logs/c"]


def config_of(topic: str) -> TopicConfig:
    return CONFIG


def start(
    rig: Rig, paths: list[str] | None = None, node_id: int = 1, cluster_id: str | None = CLUSTER
) -> LogDirectories:
    directories = LogDirectories.open(
        rig.disk, PATHS if paths is None else paths, node_id, random.Random(rig.seed), cluster_id
    )
    directories.load(config_of, NOW_MS)
    return directories


def make(directories: LogDirectories, topic: str, partition: int = 0, config: TopicConfig = CONFIG) -> PartitionLog:
    log = directories.make(NewLog(topic, partition, TOPIC_ID, config), NOW_MS)
    assert log is not None
    return log


def text(disk: Disk, path: str) -> str:
    return disk.read_bytes(path).decode()


@pytest.mark.feature("ST-17")
def test_each_directory_gets_an_identity_that_stays() -> None:
    rig = Rig()
    first = start(rig)
    ids = [directory.directory_id for directory in first.directories]
    assert len(set(ids)) == 3
    lines = text(rig.disk, "/logs/a/meta.properties").splitlines()
    assert f"cluster.id={CLUSTER}" in lines
    assert "node.id=1" in lines
    assert "version=1" in lines
    first.close(7)
    rig.kill()
    again = start(rig, cluster_id=None)
    assert [directory.directory_id for directory in again.directories] == ids
    assert again.cluster_id == CLUSTER


@pytest.mark.feature("ST-17")
def test_a_directory_without_an_id_is_given_one_that_stays() -> None:
    """Kafka wrote none before KIP-858."""
    rig = Rig()
    rig.disk.make_directories("/logs/a")
    write_durably(rig.disk, "/logs/a/meta.properties", MetaProperties(CLUSTER, 1, None).format())
    first = start(rig, ["/logs/a"], cluster_id=None)
    given = first.directories[0].directory_id
    assert given is not None
    first.close(7)
    rig.kill()
    rig.seed += 1
    assert start(rig, ["/logs/a"], cluster_id=None).directories[0].directory_id == given


@pytest.mark.feature("ST-17")
def test_a_directory_and_its_parents_survive_a_power_cut() -> None:
    for seed in range(10):
        rig = Rig(seed)
        format_directory(rig.disk, "/very/deep/log/", MetaProperties(CLUSTER, 1, TOPIC_ID))
        rig.power_cut()
        assert read_meta_properties(rig.disk, "/very/deep/log") == MetaProperties(CLUSTER, 1, TOPIC_ID)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"node_id": 2}, "/logs/a belongs to node 1, not 2"),
        ({"cluster_id": "other"}, f"/logs/a belongs to cluster {CLUSTER}, not other"),
        ({"paths": ["/logs/new"], "cluster_id": None}, "/logs/new was never formatted"),
    ],
)
def test_foreign_directories_are_refused_in_one_line(change: dict[str, object], problem: str) -> None:
    rig = Rig()
    start(rig).close(1)
    with pytest.raises(LogDirectoryError, match=problem):
        start(rig, **change)  # type: ignore[arg-type]
    start(rig)


def test_a_second_process_is_kept_out() -> None:
    rig = Rig()
    start(rig)
    with pytest.raises(LogDirectoryError, match="/logs/a is in use by another process"):
        start(rig)


def test_a_file_of_kafka_is_read() -> None:
    rig = Rig()
    data = (
        b"#\n#Tue Nov 04 10:00:00 UTC 2025\ncluster.id=abc\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\nnode.id=3\nversion=1\n"
    )
    found = MetaProperties.parse(data, "meta.properties")
    assert found == MetaProperties("abc", 3, TOPIC_ID)
    assert MetaProperties.parse(found.format(), "meta.properties") == found
    for broken in (b"", b"version=0\n", b"version=1\ncluster.id=x\n", b"version=1\ncluster.id=x\nnode.id=y\n"):
        with pytest.raises(LogDirectoryError):
            MetaProperties.parse(broken, "meta.properties")
    assert read_meta_properties(rig.disk, "/logs") is None


@pytest.mark.feature("ST-17")
def test_a_new_partition_goes_where_the_fewest_are() -> None:
    rig = Rig()
    directories = start(rig)
    for partition in range(6):
        make(directories, "orders", partition)
    places = [directories.directory_of("orders", partition) for partition in range(6)]
    assert [place.path for place in places if place] == PATHS * 2
    wanted = directories.directories[2].directory_id
    directories.make(NewLog("chosen", 0, TOPIC_ID, CONFIG, wanted), NOW_MS)
    assert rig.disk.exists("/logs/c/chosen-0/partition.metadata")


@pytest.mark.feature("ST-17")
def test_the_directory_of_the_metadata_log_takes_no_replicas() -> None:
    """A directory last used by Kafka may lack the marker of a clean stop, which says nothing about replicas."""
    rig = Rig()
    opened = LogDirectories.open(rig.disk, PATHS, 1, random.Random(rig.seed), CLUSTER, metadata_path="/logs/meta")
    opened.load(config_of, NOW_MS)
    meta = opened.directories[-1]
    assert (meta.path, meta.directory_id is None) == ("/logs/meta", False)
    for partition in range(6):
        make(opened, "orders", partition)
    opened.make(NewLog("chosen", 0, TOPIC_ID, CONFIG, meta.directory_id), NOW_MS)
    assert {log.directory.rpartition("/")[0] for log in opened.logs.values()} == set(PATHS)
    assert [directory.path for directory in opened.with_replicas] == PATHS
    opened.close(7)
    rig.disk.remove("/logs/meta/.kafka_cleanshutdown")
    again = LogDirectories.open(rig.disk, PATHS, 1, random.Random(rig.seed), CLUSTER, metadata_path="/logs/meta")
    assert again.previous_broker_epoch == 7
    again.abandon()
    rig.store.fail("read", prefix="/logs/a/")
    rig.store.fail("read", prefix="/logs/b/")
    rig.store.fail("read", prefix="/logs/c/")
    with pytest.raises(LogDirectoryError, match="no log dir is usable"):
        LogDirectories.open(rig.disk, PATHS, 1, random.Random(rig.seed), CLUSTER, metadata_path="/logs/meta")


@pytest.mark.feature("ST-10", "ST-11", "ST-18")
def test_a_clean_stop_is_distinguished_from_a_crash() -> None:
    rig = Rig()
    directories = start(rig)
    log = make(directories, "orders", config=small_segments())
    for _ in range(30):
        append(log, batch(2))
    log.set_high_watermark(50)
    log.advance_log_start_offset(31)
    directories.close(broker_epoch=99)
    assert text(rig.disk, "/logs/a/.kafka_cleanshutdown") == '{"version":0,"brokerEpoch":99}'
    assert text(rig.disk, "/logs/a/recovery-point-offset-checkpoint") == "0\n1\norders 0 60\n"
    assert text(rig.disk, "/logs/a/replication-offset-checkpoint") == "0\n1\norders 0 50\n"
    assert text(rig.disk, "/logs/a/log-start-offset-checkpoint") == "0\n1\norders 0 31\n"

    rig.power_cut()
    again = start(rig)
    assert again.previous_broker_epoch == 99
    log = again.logs["orders", 0]
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (31, 50, 60)
    assert log.recovery_events == []
    assert not rig.disk.exists("/logs/a/.kafka_cleanshutdown"), "from now on a stop is a crash"
    append(log, batch(5))

    rig.kill()
    third = start(rig)
    assert third.previous_broker_epoch == -1
    assert third.logs["orders", 0].log_end_offset == 65


@pytest.mark.feature("ST-10")
def test_the_last_clean_stop_is_known_before_anything_is_loaded() -> None:
    rig = Rig()
    start(rig, ["/logs/a"]).close(99)
    rig.power_cut()
    opened = LogDirectories.open(rig.disk, ["/logs/a"], 1, random.Random(rig.seed))
    assert opened.previous_broker_epoch == 99, "a broker says so when it registers, which is before it loads"
    assert rig.disk.exists("/logs/a/.kafka_cleanshutdown"), "nothing was touched yet"
    opened.load_work(config_of, NOW_MS)
    assert not rig.disk.exists("/logs/a/.kafka_cleanshutdown")


@pytest.mark.feature("ST-10", "MB-05")
def test_a_node_that_was_killed_knows_that_it_lost_nothing_if_its_machine_went_on() -> None:
    rig = Rig()
    directories = start(rig)
    assert directories.note_epoch(12) == []
    rig.kill()
    assert start(rig).previous_broker_epoch == 12
    rig.power_cut()
    assert start(rig).previous_broker_epoch == -1


@pytest.mark.feature("ST-10", "OP-06")
def test_a_full_disk_does_not_know_the_broker_epoch_and_stays_online() -> None:
    rig = Rig()
    directories = start(rig, ["/logs/a"])
    rig.store.capacity_bytes = rig.store.used_bytes
    directories.note_failures(directories.note_epoch(12))
    assert len(directories.online) == 1
    rig.store.capacity_bytes = 1 << 30
    rig.kill()
    assert start(rig, ["/logs/a"]).previous_broker_epoch == -1


@pytest.mark.feature("ST-10", "MB-05")
def test_a_failed_sync_is_a_loss_though_the_machine_goes_on() -> None:
    rig = Rig()
    directories = start(rig, ["/logs/a"])
    log = make(directories, "orders")
    directories.note_epoch(12)
    append(log, batch(2))
    rig.store.fail("sync", prefix="/logs/a/orders-0/")
    with pytest.raises(KafkaError, match="Input/output error"):
        log.flush()
    rig.store.faults.clear()
    rig.kill()
    assert start(rig, ["/logs/a"]).previous_broker_epoch == -1


def test_a_marker_without_an_epoch_is_a_marker_all_the_same() -> None:
    rig = Rig()
    start(rig, ["/logs/a"]).close(5)
    file = rig.disk.open("/logs/a/.kafka_cleanshutdown")
    file.truncate(0)
    again = start(rig, ["/logs/a"])
    assert again.directories[0].was_clean
    assert again.previous_broker_epoch == -1


@pytest.mark.feature("ST-10", "CR-02")
def test_a_kill_keeps_the_gaps_that_a_leader_gave() -> None:
    """The leader's log had been compacted before: what its follower wrote and never flushed has gaps."""
    rig = Rig()
    directories = start(rig)
    make(directories, "orders")
    log = directories.logs["orders", 0]
    for offset in (0, 7, 12):
        log.append_as_follower(bytearray(numbered(offset)), NOW_MS)
    rig.kill()
    again = start(rig)
    assert all_offsets(again.logs["orders", 0]) == [0, 7, 12]
    assert not any(directory.lost_power for directory in again.directories)

    rig.power_cut()
    third = start(rig)
    assert all(directory.lost_power for directory in third.directories)
    assert all_offsets(third.logs["orders", 0]) in ([], [0]), "such a gap cannot be distinguished from a loss"


def follow(log: PartitionLog, *offsets: int) -> None:
    """Append what a leader with a compacted log sent."""
    for offset in offsets:
        log.append_as_follower(bytearray(numbered(offset)), NOW_MS)


def flush_if_due(log: PartitionLog) -> None:
    """Flushes the log if it is due; a broker does this periodically."""
    if log.flushes.are_due(NOW_MS):
        log.flush()


@pytest.mark.feature("ST-10", "CR-02")
def test_gaps_that_a_leader_gave_are_made_durable_soon() -> None:
    """Otherwise a power loss, long after, would cost everything behind the first gap."""
    rig = Rig()
    directories = start(rig)
    log = make(directories, "orders")
    follow(log, 0, 1)
    assert not log.flushes.are_due(NOW_MS), "without a gap, flushing is left to the kernel"
    follow(log, 7, 8)
    assert log.flushes.has_unflushed_gaps
    flush_if_due(log)
    assert not log.flushes.has_unflushed_gaps
    assert log.recovery_point == 9
    follow(log, 9)
    assert not log.flushes.are_due(NOW_MS)
    assert not directories.checkpoint_work()()
    rig.power_cut()
    assert all_offsets(start(rig).logs["orders", 0])[:4] == [0, 1, 7, 8]


@pytest.mark.feature("ST-10", "CR-02")
def test_gaps_that_are_found_after_a_kill_are_made_durable_soon() -> None:
    rig = Rig()
    follow(make(start(rig), "orders"), 0, 7)
    rig.kill()
    again = start(rig).logs["orders", 0]
    assert again.flushes.has_unflushed_gaps
    flush_if_due(again)
    assert not again.flushes.has_unflushed_gaps


@pytest.mark.feature("ST-10", "CR-02")
@pytest.mark.parametrize(("lost", "end"), [(False, 10), (True, 13)])
def test_without_their_checkpoint_compacted_logs_keep_all_gaps(
    lost: bool, end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts cleaned long ago would seem to be damaged. With the checkpoint, a gap behind the recovery point is a loss.
    """
    rig = Rig()
    config = replace(CONFIG, cleanup_policy=frozenset({"compact"}))
    monkeypatch.setattr(f"{__name__}.CONFIG", config)
    directories = start(rig, ["/logs/a"])
    log = make(directories, "orders", config=config)
    follow(log, 0, 7, 8, 9)
    log.flush()
    assert not directories.checkpoint_work()()
    follow(log, 12)
    for _, inode in rig.store.files("/logs/a"):
        inode.sync()
    rig.store.sync_directory("/logs/a")
    if lost:
        write_durably(rig.disk, "/logs/a/recovery-point-offset-checkpoint", b"nonsense")
    rig.power_cut()
    assert start(rig, ["/logs/a"]).logs["orders", 0].log_end_offset == end


@pytest.mark.feature("ST-10")
def test_a_loss_of_power_is_known_until_all_logs_are_recovered() -> None:
    rig = Rig()
    start(rig, ["/logs/a"])
    rig.power_cut()
    for _ in range(2):
        opened = LogDirectories.open(rig.disk, ["/logs/a"], 1, random.Random(rig.seed))
        opened.load_work(config_of, NOW_MS)
        assert opened.directories[0].lost_power
        rig.kill()
    start(rig, ["/logs/a"])
    rig.kill()
    assert not start(rig, ["/logs/a"]).directories[0].lost_power


@pytest.mark.feature("ST-10", "ST-17")
def test_a_directory_without_boot_id_counts_as_killed() -> None:
    rig = Rig()
    format_directory(rig.disk, "/logs/a", MetaProperties(CLUSTER, 1, TOPIC_ID))
    rig.power_cut()
    assert not start(rig, ["/logs/a"]).directories[0].lost_power


@pytest.mark.feature("ST-19")
def test_a_directory_of_another_topic_is_refused() -> None:
    rig = Rig()
    directories = start(rig)
    make(directories, "orders")
    assert text(rig.disk, "/logs/a/orders-0/partition.metadata") == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    directories.close(1)
    again = start(rig)
    with pytest.raises(KafkaError) as refused:
        again.find("orders", 0, bytes(15) + b"x")
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    assert again.find("orders", 0, TOPIC_ID) is again.logs["orders", 0]


@pytest.mark.feature("ST-19")
def test_malformed_partition_metadata() -> None:
    assert parse_partition_metadata(format_partition_metadata(TOPIC_ID) + b"\n", "x") == TOPIC_ID
    for broken in (
        b"",
        b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version: 0\ntopic_id: ?",
        b"\xff\xfe",
        format_partition_metadata(bytes(16)),
    ):
        with pytest.raises(MalformedPartitionMetadata):
            parse_partition_metadata(broken, "x")


@pytest.mark.feature("ST-19")
def test_a_deleted_partition_is_renamed_and_removed_later() -> None:
    rig = Rig()
    directories = start(rig, ["/logs/a"])
    log = make(directories, "orders")
    append(log, batch(3))
    part = log.read(0, 1000, 3)
    directories.delete("orders", 0, NOW_MS)
    assert ("orders", 0) not in directories.logs
    (renamed,) = [name for name in rig.disk.list("/logs/a") if name.endswith("-delete")]
    assert parse_directory_name(renamed) == ("orders", 0, "delete")
    assert part is not None
    assert len(part.file.pread(part.size_bytes, part.position)) == part.size_bytes, "a read may still run"

    new = make(directories, "orders")
    assert new.log_end_offset == 0
    assert directories.deletion_work(NOW_MS + 59_999) is None
    work = directories.deletion_work(NOW_MS + 60_000)
    assert work is not None
    assert work() == []
    assert not [name for name in rig.disk.list("/logs/a") if name.endswith("-delete")]


@pytest.mark.feature("ST-19")
def test_a_deletion_goes_on_after_a_restart() -> None:
    rig = Rig()
    directories = start(rig, ["/logs/a"])
    make(directories, "orders")
    make(directories, "strange")
    directories.delete("orders", 0, NOW_MS)
    directories.mark_stray("strange", 0, NOW_MS)
    rig.kill()
    again = start(rig, ["/logs/a"])
    assert again.logs == {}
    assert len(again.strays) == 1
    work = again.deletion_work(NOW_MS + 60_000)
    assert work is not None
    work()
    assert [name for name in rig.disk.list("/logs/a") if "-0" in name] == [again.strays[0].rpartition("/")[2]]


def test_a_recreated_partition_inherits_nothing() -> None:
    rig = Rig()
    directories = start(rig, ["/logs/a"])
    log = make(directories, "orders")
    for _ in range(10):
        append(log)
    log.set_high_watermark(10)
    log.advance_log_start_offset(8)
    directories.close(1)
    rig.kill()
    again = start(rig, ["/logs/a"])
    again.delete("orders", 0, NOW_MS)
    new = make(again, "orders")
    assert (new.log_start_offset, new.high_watermark, new.log_end_offset, new.recovery_point) == (0, 0, 0, 0)


@pytest.mark.feature("ST-17")
def test_a_failed_directory_goes_offline_and_the_others_go_on() -> None:
    rig = Rig()
    directories = start(rig)
    for partition in range(3):
        append(make(directories, "orders", partition))
    failed: list[tuple[LogDirectory, list[PartitionLog]]] = []
    directories.on_offline = lambda directory, logs: failed.append((directory, logs))
    rig.store.fail("write", "sync", "read", prefix="/logs/b")
    with pytest.raises(KafkaError) as refused:
        append(directories.logs["orders", 1])
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [(directory.path, [log.partition for log in logs]) for directory, logs in failed] == [("/logs/b", [1])]
    assert sorted(directories.logs) == [("orders", 0), ("orders", 2)]
    append(directories.logs["orders", 0])
    make(directories, "new")
    assert directories.checkpoint_work()() == []
    directories.close(4)
    assert len(failed) == 1
    rig.kill()
    again = start(rig)
    assert [directory.path for directory in again.online] == ["/logs/a", "/logs/c"]
    assert again.previous_broker_epoch == -1, "not all of it was clean"


def test_a_failing_checkpoint_is_reported_by_its_work() -> None:
    rig = Rig()
    directories = start(rig)
    make(directories, "orders")
    rig.store.fail("sync", prefix="/logs/a")
    failures = directories.checkpoint_work()()
    assert {failure.directory.path for failure in failures} == {"/logs/a"}
    directories.note_failures(failures)
    assert directories.logs == {}


def test_without_any_directory_there_is_no_start() -> None:
    rig = Rig()
    rig.store.fail("write", prefix="/logs")
    with pytest.raises(LogDirectoryError, match=r"no log dir is usable: /logs/a: .*Input/output error"):
        start(rig)
    with pytest.raises(LogDirectoryError, match="none is configured"):
        start(rig, [])


def test_a_log_that_cannot_be_opened_takes_its_directory_offline() -> None:
    rig = Rig()
    directories = start(rig)
    append(make(directories, "orders"))
    rig.kill()
    rig.store.fail("read", prefix="/logs/a/orders-0")
    again = start(rig)
    assert [directory.path for directory in again.online] == ["/logs/b", "/logs/c"]


def test_two_copies_of_a_partition_are_refused() -> None:
    rig = Rig()
    directories = start(rig)
    make(directories, "orders")
    directories.close(1)
    rig.disk.make_directories("/logs/b/orders-0")
    with pytest.raises(LogDirectoryError, match="/logs/b/orders-0 and /logs/a/orders-0"):
        start(rig)


@pytest.mark.feature("ST-17")
def test_logs_may_be_opened_in_any_order() -> None:
    rig = Rig()
    directories = start(rig)
    for partition in range(5):
        append(make(directories, "orders", partition), batch(partition + 1))
    rig.kill()
    again = LogDirectories.open(rig.disk, PATHS, 1, random.Random(0), CLUSTER)
    work = again.load_work(config_of, NOW_MS)
    for piece in reversed(work):
        result = piece()
        assert not isinstance(result, DirectoryFailure)
        again.adopt(piece, result)
    assert {key[1]: log.log_end_offset for key, log in again.logs.items()} == {p: p + 1 for p in range(5)}


def flushed_log(rig: Rig) -> PartitionLog:
    """Ten records, and a checkpoint according to which they are durable."""
    directories = start(rig, ["/logs/a"])
    log = make(directories, "orders")
    for _ in range(10):
        append(log)
    log.flush()
    directories.checkpoint_work()()
    return log


@pytest.mark.feature("ST-11")
def test_truncating_flushed_records_moves_the_checkpoint_first() -> None:
    rig = Rig()
    log = flushed_log(rig)
    log.truncate_to(4)
    assert read_offsets(rig.disk, "/logs/a/recovery-point-offset-checkpoint") == {("orders", 0): 4}


@pytest.mark.feature("ST-11", "RE-11")
def test_the_high_watermark_excludes_what_a_power_cut_may_restore() -> None:
    """A deposed leader truncates its own records, follows, learns that all is committed, and loses its power: it may be
    back in the state before its truncation (seed 81958).
    """
    undone = 0
    for seed in range(20):
        rig = Rig(seed=seed)
        directories = start(rig, ["/logs/a"])
        log = make(directories, "orders")
        for _ in range(10):
            append(log)
        log.flush()
        log.truncate_to(4)
        for offset in range(4, 10):
            log.append_as_follower(numbered(offset, leader_epoch=1), NOW_MS)
        log.set_high_watermark(10)
        directories.checkpoint_work()()
        rig.power_cut()
        found = start(rig, ["/logs/a"]).logs["orders", 0]
        if found.log_end_offset > 4 and found.latest_epoch == 0:
            undone += 1
            assert found.high_watermark <= 4
    assert undone


@pytest.mark.feature("ST-11", "RE-11")
@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 1 << 30), st.lists(st.tuples(st.integers(0, 12), st.integers(0, 8)), min_size=1, max_size=4))
@example(0, [(4, 6), (8, 4)])
@example(1, [(8, 1), (4, 6)])
def test_a_log_is_unchanged_below_the_given_high_watermark(seed: int, cuts: list[tuple[int, int]]) -> None:
    """However often it was truncated and extended before a flush: the next leader's records follow each truncation. A
    power cut may undo any of that, but not below the checkpoint.
    """
    rig = Rig(seed=seed)
    directories = start(rig, ["/logs/a"])
    log = make(directories, "orders")
    for _ in range(10):
        append(log)
    log.flush()
    for epoch, (cut, more) in enumerate(cuts, start=1):
        log.truncate_to(cut)
        end = log.log_end_offset
        for offset in range(end, end + more):
            log.append_as_follower(numbered(offset, leader_epoch=epoch), NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    directories.checkpoint_work()()
    before = all_batches(log)
    for number in range(4):
        unlucky = copy_of(rig, f"{seed} {number}")
        unlucky.power_cut()
        found = start(unlucky, ["/logs/a"]).logs["orders", 0]
        after = all_batches(found)
        committed = sum(read_header(data).next_offset <= found.high_watermark for data in after)
        assert after[:committed] == before[:committed]


@pytest.mark.feature("ST-10", "CR-14")
@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 1 << 30), st.lists(st.tuples(st.sampled_from("adfc"), st.integers(1, 6)), min_size=4))
@example(0, [("a", 6), ("a", 6), ("d", 6), ("c", 1)])
@example(0, [("a", 6), ("a", 6), ("d", 6), ("f", 1), ("d", 3), ("c", 1)])
def test_a_power_cut_never_empties_a_log_whose_records_were_deleted(seed: int, steps: list[tuple[str, int]]) -> None:
    """The log start that is noted never lies beyond what is durable: append, delete, flush what is due, checkpoint."""
    rig = Rig(seed=seed)
    directories = start(rig, ["/logs/a"])
    log = make(directories, "orders", config=CONFIG)
    noted = 0
    for step, count in steps:
        if step == "a":
            append(log, *[batch()] * count)
            log.set_high_watermark(log.log_end_offset)
        elif step == "d":
            log.advance_log_start_offset(min(log.log_start_offset + count, log.high_watermark))
        elif step == "f":
            assert log.flushes.are_due(NOW_MS) >= (log.log_start_offset > log.recovery_point)
            log.flushes.run()
            assert not log.flushes.are_due(NOW_MS), "one flush is enough"
        else:
            directories.checkpoint_work()()
            noted = min(log.log_start_offset, log.recovery_point)
    for number in range(4):
        unlucky = copy_of(rig, f"{seed} {number}")
        unlucky.power_cut()
        found = start(unlucky, ["/logs/a"]).logs["orders", 0]
        assert not [event for event in found.recovery_events if "emptied" in event]
        assert found.log_start_offset == noted
        assert all_batches(found) == all_batches(log)[: found.log_end_offset - noted] or noted < log.log_start_offset
    log.flushes.run()
    directories.checkpoint_work()()
    rig.power_cut()
    found = start(rig, ["/logs/a"]).logs["orders", 0]
    assert (found.log_start_offset, found.log_end_offset) == (log.log_start_offset, log.log_end_offset)


def test_a_flushed_truncation_frees_the_high_watermark() -> None:
    rig = Rig()
    directories = start(rig, ["/logs/a"])
    log = make(directories, "orders")
    for _ in range(10):
        append(log)
    log.truncate_to(4)
    append(log)
    log.set_high_watermark(5)
    assert log.flushes.high_watermark_after_a_crash == 4
    assert log.flushes.are_wanted and log.flushes.are_due(NOW_MS)
    work = log.flushes.work()
    assert work is not None
    work()
    log.flushes.done(work.offset)
    assert not log.flushes.are_due(NOW_MS)
    assert not log.flushes.are_wanted
    directories.checkpoint_work()()
    assert read_offsets(rig.disk, "/logs/a/replication-offset-checkpoint") == {("orders", 0): 5}


@pytest.mark.feature("ST-11", "OP-06")
def test_a_full_disk_postpones_the_truncation_of_flushed_records() -> None:
    rig = Rig()
    log = flushed_log(rig)
    room = rig.store.capacity_bytes
    rig.store.capacity_bytes = rig.store.used_bytes
    for _ in range(2):
        with pytest.raises(KafkaError):
            log.truncate_to(4)
        assert all_offsets(log) == list(range(10))
    rig.store.capacity_bytes = room
    log.truncate_to(4)
    assert read_offsets(rig.disk, "/logs/a/recovery-point-offset-checkpoint") == {("orders", 0): 4}


@pytest.mark.feature("ST-11", "OP-06")
def test_checkpoints_wait_for_room() -> None:
    """Some are due every few seconds: a disk that is full for a while must not cost the directory."""
    rig = Rig()
    directories = start(rig, ["/logs/a"])
    log = make(directories, "orders")
    for _ in range(10):
        append(log)
    log.flush()
    log.set_high_watermark(4)
    directories.note_failures(directories.checkpoint_work()())
    path = "/logs/a/replication-offset-checkpoint"
    assert read_offsets(rig.disk, path) == {("orders", 0): 4}
    room = rig.store.capacity_bytes
    rig.store.capacity_bytes = rig.store.used_bytes
    log.set_high_watermark(9)
    directories.note_failures(directories.checkpoint_work()())
    assert directories.online and read_offsets(rig.disk, path) == {("orders", 0): 4}
    rig.store.capacity_bytes = room
    directories.note_failures(directories.checkpoint_work()())
    assert read_offsets(rig.disk, path) == {("orders", 0): 9}


@pytest.mark.feature("ST-11", "OP-06")
def test_a_stop_on_a_full_disk_is_no_clean_one() -> None:
    rig = Rig()
    directories = start(rig, ["/logs/a"])
    make(directories, "orders", 0)
    rig.store.capacity_bytes = rig.store.used_bytes
    directories.close(7)
    rig.store.capacity_bytes = 1 << 30
    assert start(rig, ["/logs/a"]).previous_broker_epoch == -1


def test_unrelated_files_in_a_log_dir_are_ignored() -> None:
    rig = Rig()
    start(rig, ["/logs/a"]).close(1)
    for name in ("__cluster_metadata-0", "lost+found", "notes", "moved-0.0123abcd-future"):
        rig.disk.make_directories(f"/logs/a/{name}")
    again = start(rig, ["/logs/a"])
    assert again.logs == {}
    assert list(again.futures.logs) == [("moved", 0)], "an unfinished copy"


def test_retention_and_flushing_reach_every_log() -> None:
    rig = Rig()
    directories = start(rig)
    config = small_segments(retention_ms=1000)
    for partition in range(3):
        log = make(directories, "orders", partition, config)
        for _ in range(40):
            append(log)
        log.set_high_watermark(40)
        assert log.flushes.are_wanted
        assert all_offsets(log)[0] == 0
    assert directories.delete_old_segments(NOW_MS + 5000) > 3
    assert {log.log_start_offset for log in directories.logs.values()} == {40}


def test_names_of_directories() -> None:
    long = "t" * 249
    marked = marked_directory_name(long, 12, "0" * 32, "-delete")
    assert len(marked) == 255
    parsed = parse_directory_name(marked)
    assert parsed is not None
    assert (parsed.partition, parsed.kind) == (12, "delete")
    assert parse_directory_name(directory_name("a-b.c", 3)) == ("a-b.c", 3, "current")
    assert parse_directory_name("a-delete-3") == ("a-delete", 3, "current")
    assert parse_directory_name("orders-0.0123-stray") == ("orders", 0, "stray")
    for other in ("", "orders", "orders-", "-1", "orders-x", "orders-0.cafe-moved"):
        assert parse_directory_name(other) is None


@pytest.mark.feature("ST-11")
def test_an_unchanged_checkpoint_is_not_written() -> None:
    rig = Rig()
    directories = start(rig, ["/logs/a"])
    log = make(directories, "orders")
    append(log, batch(2))
    log.set_high_watermark(1)
    assert directories.checkpoint_work(REPLICATION_OFFSET_CHECKPOINT)() == []
    changes = rig.process.changes
    assert directories.checkpoint_work(REPLICATION_OFFSET_CHECKPOINT)() == []
    assert rig.process.changes == changes
    log.set_high_watermark(2)
    assert directories.checkpoint_work(REPLICATION_OFFSET_CHECKPOINT)() == []
    assert text(rig.disk, "/logs/a/replication-offset-checkpoint") == "0\n1\norders 0 2\n"
