"""An embedded broker goes back to a state that was kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas import TopicPartition, sync
from barnabas.cluster.errors import ClusterError
from barnabas.dev.embedded import embedded
from barnabas.dev.snapshots import copy_state, replace_state

SMALL_SEGMENTS = {"log.segment.bytes": "1048576"}


def test_topics_records_and_groups_are_as_they_were(tmp_path: Path) -> None:
    with embedded(topics=["orders"], settings=SMALL_SEGMENTS) as servers:
        group = {"bootstrap_servers": servers, "group_id": "board", "auto_offset_reset": "earliest"}
        with sync.Producer(bootstrap_servers=servers) as producer:
            producer.send_all("orders", [b"%d" % number + bytes(30_000) for number in range(100)])
        with sync.Consumer("orders", **group) as consumer:  # type: ignore[arg-type]
            for _ in range(10):
                next(consumer)
        prepared = servers.snapshot()
        for _ in range(2):
            servers.create_topic("later")
            with sync.Producer(bootstrap_servers=servers) as producer:
                assert producer.send("orders", b"100").offset == 100
            with sync.Consumer("orders", **group) as consumer:  # type: ignore[arg-type]
                assert next(consumer).offset == 10
            servers.restore(prepared)
            with sync.Admin(bootstrap_servers=servers) as admin:
                assert list(admin.list_topics()) == ["orders"]
                offsets = admin.list_consumer_group_offsets("board")["board"]
            committed = offsets[TopicPartition("orders", 0)]
            assert committed is not None and committed.offset == 10


def test_a_snapshot_that_is_not_there_changes_nothing(tmp_path: Path) -> None:
    with embedded(topics=["orders"]) as servers:
        with pytest.raises(ClusterError, match="there is no snapshot"):
            servers.restore(tmp_path / "missing")
        with sync.Admin(bootstrap_servers=servers) as admin:
            assert list(admin.list_topics()) == ["orders"]


def test_only_segments_that_no_longer_change_are_linked(tmp_path: Path) -> None:
    data, kept = tmp_path / "data", tmp_path / "kept"
    log = data / "logs" / "t-0"
    log.mkdir(parents=True)
    for offset in (0, 40):
        for suffix in (".log", ".index", ".timeindex"):
            (log / f"{offset:020d}{suffix}").write_bytes(b"%d" % offset)
    (log / "leader-epoch-checkpoint").write_bytes(b"0")
    (data / "logs" / ".lock").touch()
    copy_state(data, kept)
    linked = {it.name for it in kept.rglob("*") if it.is_file() and os.stat(it).st_nlink == 2}
    assert linked == {f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")}
    assert not (kept / "logs" / ".lock").exists()
    with (log / f"{40:020d}.log").open("ab") as active:
        active.write(b" and more")
    replace_state(data, kept)
    assert (log / f"{40:020d}.log").read_bytes() == b"40"
    assert {it.name for it in tmp_path.iterdir()} == {"data", "kept"}
