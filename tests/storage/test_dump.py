"""Output of `python -m barnabas.storage.dump`."""

from __future__ import annotations

import random
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.protocol.messages.control_records import LeaderChangeMessage
from barnabas.protocol.messages.group_log import OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.messages.metadata_log import TopicRecord
from barnabas.protocol.messages.transaction_log import TransactionLogKey
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch, build_raft_control_batch
from barnabas.protocol.records.coordinator import encode_key, encode_versioned
from barnabas.protocol.records.metadata import encode_metadata_record
from barnabas.protocol.records.record import Record
from barnabas.settings.topic import TopicConfig
from barnabas.storage.directories import LogDirectories
from barnabas.storage.dump import dump_lines, main
from barnabas.storage.log_dir_work import NewLog
from barnabas.storage.producer_snapshot_format import encode_snapshot
from barnabas.storage.producers import ProducerEntry, SequencedBatch
from barnabas.storage.remote.metadata_records import encode
from tests.examples import examples
from tests.storage.remote.remote_rig import segment
from tests.storage.rig import NOW_MS, Rig, append, batch, numbered, producer_batch


def dumped(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], list[str]]:
    status = main(arguments)
    captured = capsys.readouterr()
    return status, captured.out.splitlines(), captured.err.splitlines()


@pytest.mark.feature("ST-20")
def test_batches_and_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "00000000000000000000.log"
    marker = build_end_txn_batch(EndTxn(False, 6), 9, 2, NOW_MS)
    path.write_bytes(build_batch([Record(0, 7, None, b"x" * 500, (("h", b"1"),))], compression=4) + marker)
    status, out, _ = dumped(capsys, str(path))
    assert status == 0
    assert out[0] == f"{path}:"
    assert out[1].startswith("  offsets 0 to 0, at byte 0, ")
    assert ", zstd, max timestamp 7, " in out[1]
    assert out[2].startswith("    offset 0 timestamp 7 key null value 'xxx")
    assert out[2].endswith("… (500 bytes) headers [('h', \"'1'\")]")
    assert "producer 9 epoch 2, " in out[3]
    assert out[3].endswith("transactional, control")
    assert out[4].endswith("abort by coordinator epoch 6")
    status, out, _ = dumped(capsys, "--batches", str(path))
    assert len(out) == 3


@pytest.mark.feature("ST-04", "ST-20")
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_indexes(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: st.DataObject) -> None:
    """Each entry is a line; entries that do not increase and a part of an entry are damage."""
    is_time = data.draw(st.booleans())
    base = data.draw(st.sampled_from([0, 100]))
    entry = struct.Struct(">qi" if is_time else ">ii")
    entries = data.draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=5))
    entries = [*map(tuple, sorted(entries))] if data.draw(st.integers(0, 3)) else entries  # type: ignore[list-item]
    part, zeros = data.draw(st.sampled_from([(0, 0), (0, 0), (5, 0), (0, 3)]))
    path = tmp_path / f"{base:020}{'.timeindex' if is_time else '.index'}"
    path.write_bytes(b"".join(entry.pack(*it) for it in entries) + b"\x01" * part + bytes(zeros * entry.size))
    status, out, err = dumped(capsys, str(path))
    rows = entries + [(0, 0)] * zeros
    entries = list(rows)
    while not part and len(rows) > 1 and entries and entries[-1] == (0, 0):
        entries.pop()  # taken for preallocated
    increases = all(one[0] < two[0] and one[1] <= two[1] for one, two in pairwise(entries))
    assert (status, len(err)) == ((0, 0) if increases and not part else (1, 1))
    if status == 0:
        expected = [
            f"timestamp {first} offset {base + second}" if is_time else f"offset {base + first} at byte {second}"
            for first, second in entries
        ]
        if len(rows) > len(entries):
            expected.append(f"{(len(rows) - len(entries)) * entry.size} preallocated bytes of zeros")
        assert [line.strip() for line in out[1:]] == expected


@pytest.mark.feature("ST-08", "ST-20")
def test_aborted_transactions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    entry = (0).to_bytes(2, "big") + b"".join(each.to_bytes(8, "big") for each in (9, 3, 7, 5))
    path.write_bytes(entry)
    status, out, _ = dumped(capsys, str(path))
    assert (status, out[1:]) == (0, ["  producer 9 aborted offsets 3 to 7, last stable offset then 5"])
    path.write_bytes(entry + entry[:-1])
    status, out, err = dumped(capsys, str(path))
    assert (status, len(out)) == (1, 2)
    assert "not a multiple of 34" in err[0]


def test_the_metadata_log_is_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    path = directory / "00000000000000000000.log"
    change = LeaderChangeMessage(leader_id=3)
    topic = TopicRecord(name="orders", topic_id=bytes(range(16)))
    path.write_bytes(
        build_raft_control_batch([change], 0, 1, NOW_MS)
        + build_batch([Record(0, NOW_MS, None, encode_metadata_record(topic, 0))], base_offset=1)
        + build_batch([Record(0, NOW_MS, None, b"\xff?")], base_offset=2)
    )
    status, out, _ = dumped(capsys, str(path))
    assert status == 0
    assert "leader_change LeaderChangeMessage(" in out[2]
    assert "v0 TopicRecord(name='orders'" in out[4]
    assert "undecodable (" in out[6]


@pytest.mark.feature("TS-04")
def test_remote_log_metadata_is_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "__remote_log_metadata-7"
    directory.mkdir()
    path = directory / "00000000000000000000.log"
    path.write_bytes(build_batch([Record(0, NOW_MS, None, encode(segment(1, 5, 99)))]))
    status, out, _ = dumped(capsys, str(path))
    assert status == 0
    assert "v0 RemoteLogSegmentMetadataRecord(" in out[2]
    assert "start_offset=5, end_offset=99" in out[2]


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("00000000000000000000.log", batch()[:-1], "the batch at byte 0 has "),
        ("00000000000000000000.log", batch()[:-1] + b"?", "wrong CRC in the batch at byte 0"),
        ("00000000000000000000.log", batch() + bytes(500), f"zeros from byte {len(batch())} on"),
        ("00000000000000000000.log", b"what is this, then?", "no valid batch at byte 0: "),
        ("00000000000000000000.index", b"\0\0\0\1\0\0\0\2\0\0\1", "11 bytes are not a multiple of 8"),
        ("00000000000000000000.index", b"\0\0\0\5\0\0\0\5\0\0\0\4\0\0\0\6", "entry 1 does not increase"),
        ("short.index", b"", "the file name must begin with a base offset"),
        ("00000000000000000000.snapshot", b"\0\1\0\0\0\0\0", "not a producer snapshot: wrong CRC"),
        ("leader-epoch-checkpoint", b"7\n", "malformed: version 7, expected 0"),
        ("image.png", b"", "not a file of a log"),
        ("missing.log", None, "No such file or directory"),
    ],
)
def test_damage_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, data: bytes | None, problem: str
) -> None:
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    good = tmp_path / "recovery-point-offset-checkpoint"
    good.write_bytes(b"0\n1\norders 0 5\n")
    status, out, err = dumped(capsys, str(path), str(good))
    assert status == 1
    assert len(err) == 1
    assert err[0].startswith(f"{path}: {problem}")
    assert out[-1] == "  orders-0 5", "the other files are shown"


@pytest.mark.feature("ST-20", "CG-02", "TX-01")
def test_records_of_coordinators_are_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "__consumer_offsets-7"
    directory.mkdir()
    path = directory / "00000000000000000000.log"
    key = encode_key(OffsetCommitKey(group="g", topic="t", partition=3))
    value = encode_versioned(OffsetCommitValue(offset=42, metadata="m", commit_timestamp=1), 3)
    unknown = b"\x03\xe7"
    path.write_bytes(
        build_batch(
            [
                Record(0, 1, key, value),
                Record(1, 1, key, None),
                Record(2, 1, unknown, b"x"),
                Record(3, 1, key, b"\0"),
            ]
        )
    )
    status, out, _ = dumped(capsys, str(path))
    assert status == 0
    assert "OffsetCommitKey(group='g', topic='t', partition=3) v3 OffsetCommitValue(offset=42" in out[2]
    assert out[3].endswith("OffsetCommitKey(group='g', topic='t', partition=3) tombstone")
    assert "of an unknown type: key" in out[4]
    assert "undecodable (" in out[5]

    directory = tmp_path / "__transaction_state-0"
    directory.mkdir()
    path = directory / "00000000000000000000.log"
    key = encode_key(TransactionLogKey(transactional_id="x"))
    path.write_bytes(build_batch([Record(0, 1, key, None)]))
    assert dumped(capsys, str(path))[1][2].endswith("TransactionLogKey(transactional_id='x') tombstone")


@pytest.mark.feature("ST-20")
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_field_of_a_batch_and_of_its_records_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: st.DataObject
) -> None:
    draw = data.draw
    count, base, epoch = draw(st.integers(1, 3)), draw(st.sampled_from([0, 500])), draw(st.integers(-1, 4))
    producer, append_time = draw(st.sampled_from([-1, 0, 9])), draw(st.none() | st.just(NOW_MS))
    horizon, codec = draw(st.none() | st.just(NOW_MS + 7)), draw(st.sampled_from([0, 1, 4]))
    values = draw(st.lists(st.sampled_from([None, b"", b"v", b"x" * 200, b"x" * 201]), min_size=count, max_size=count))
    records = [Record(base + at, 10 + at, b"k" if at else None, value) for at, value in enumerate(values)]
    options: Any = {"producer_id": producer, "producer_epoch": 2, "base_sequence": 5} if producer >= 0 else {}
    options["transactional"] = producer >= 0 and draw(st.booleans())
    built = build_batch(
        records,
        base_offset=base,
        leader_epoch=epoch,
        compression=codec,
        log_append_time=append_time,
        delete_horizon_ms=horizon,
        **options,
    )
    last = base + count - 1
    crc, time = int.from_bytes(built[17:21], "big"), NOW_MS if append_time is not None else 9 + count
    parts = [f"offsets {base} to {last}", "at byte 0", f"{len(built)} bytes", f"{count} records", f"epoch {epoch}"]
    parts += ["magic 2", {0: "none", 1: "gzip", 4: "zstd"}[codec], f"max timestamp {time}", f"crc {crc:08x}"]
    parts += ["log append time"] if append_time is not None else []
    parts += [f"producer {producer} epoch 2", f"sequence 5 to {4 + count}"] if producer >= 0 else []
    parts += ["transactional"] if options["transactional"] else []
    parts += [f"delete horizon {NOW_MS + 7}"] if horizon is not None else []
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(built)
    status, out, err = dumped(capsys, str(path))
    assert (status, err, out[1]) == (0, [], "  " + ", ".join(parts))
    for at, (line, value) in enumerate(zip(out[2:], values, strict=True)):
        shown = "null" if value is None else f"'{value[:200].decode()}'"
        shown += f"… ({len(value)} bytes)" if value is not None and len(value) > 200 else ""
        stamp = NOW_MS if append_time is not None else 10 + at
        key = "'k'" if at else "null"
        assert line == f"    offset {base + at} timestamp {stamp} key {key} value {shown}"


@pytest.mark.feature("ST-12", "ST-20")
@given(st.booleans(), st.integers(0, 3), st.integers(-1, 3), st.integers(1, 4))
def test_producers(has_batch: bool, epoch: int, open_from: int, count: int) -> None:
    entry = ProducerEntry(9)
    entry.epoch, entry.coordinator_epoch, entry.last_timestamp = epoch, 6, 77
    entry.transaction_first_offset = open_from
    if has_batch:
        entry.batches.append(SequencedBatch(5, 4 + count, 20, 19 + count, 77))
    rig = Rig()
    path = "/logs/00000000000000000003.snapshot"
    rig.disk.open(path, create=True).pwrite(encode_snapshot([entry]), 0)
    [line] = dump_lines(rig.disk, path)
    where = f"last sequence {4 + count}, offsets 20 to {19 + count}" if has_batch else "last sequence -1, no batch"
    state = f"transaction open from offset {open_from}" if open_from >= 0 else "no open transaction"
    assert line == f"producer 9 epoch {epoch}, {where}, last timestamp 77, coordinator epoch 6, {state}"


def shown(rig: Rig, path: str) -> list[str]:
    return list(dump_lines(rig.disk, path))


@pytest.mark.feature("ST-11", "ST-20")
def test_every_file_of_a_node_is_shown() -> None:
    """While it runs with new logs, and after it has stopped."""
    rig = Rig()
    node = LogDirectories.open(rig.disk, ["/logs/a"], 1, random.Random(1), "the cluster")
    node.load(lambda topic: TopicConfig(), NOW_MS)
    topic_id = bytes(range(16))
    for index in range(3):
        node.make(NewLog("orders", index, topic_id, TopicConfig()), NOW_MS)
    log = node.logs["orders", 0]
    append(log, producer_batch(9, 0, 0, 2), leader_epoch=3)
    log.append_as_follower(bytearray(numbered(5, 1, 7)), NOW_MS, leaders_epochs=[(4, 3), (7, 5)])
    log.set_high_watermark(4)
    node.note_epoch(12)
    ids = [f"orders-{index} {uuid_to_string(topic_id)}" for index in range(3)]
    assert shown(rig, "/logs/a/topic-id-checkpoint") == ids
    assert shown(rig, "/logs/a/orders-0/gap-epochs") == ["0", "2", "2 5 7 4 3", "2 5 7 7 5"]
    assert shown(rig, "/logs/a/.broker_epoch") == ["boot-0 12"]
    node.close(13)
    assert shown(rig, "/logs/a/.kafka_cleanshutdown") == ['{"version":0,"brokerEpoch":13}']
    assert shown(rig, "/logs/a/recovery-point-offset-checkpoint") == ["orders-0 6", "orders-1 0", "orders-2 0"]
    assert shown(rig, "/logs/a/replication-offset-checkpoint") == ["orders-0 4", "orders-1 0", "orders-2 0"]
    assert shown(rig, "/logs/a/empty-logs-checkpoint")[:3] == ["0", "13", "2"]
    assert "node.id=1" in shown(rig, "/logs/a/meta.properties")
    assert shown(rig, "/logs/a/.boot_id") == ["boot-0"]
    directory = "/logs/a/orders-0"
    epochs = ["epoch 3 from offset 0", "epoch 4 from offset 3", "epoch 7 from offset 5"]
    assert shown(rig, f"{directory}/leader-epoch-checkpoint") == epochs
    assert shown(rig, f"{directory}/partition.metadata") == ["version: 0", f"topic_id: {uuid_to_string(topic_id)}"]
    [producer] = shown(rig, f"{directory}/{6:020}.snapshot")
    assert producer.startswith("producer 9 epoch 0, last sequence 1, offsets 0 to 1")
    path = f"{directory}/{0:020}.log"
    lines = shown(rig, path)
    batches = [line.partition(",")[0].strip() for line in lines if "at byte" in line]
    assert batches == ["offsets 0 to 1", "offsets 5 to 5"]
    for suffix in (".deleted", ".swap", ".cleaned"):
        rig.disk.rename(path, path + suffix)
        assert shown(rig, path + suffix) == lines
        rig.disk.rename(path + suffix, path)
    for path, _ in rig.store.files("/logs/a"):
        if not path.endswith(".lock"):
            shown(rig, path)
