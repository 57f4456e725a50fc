"""The ends of the logs of a stopped broker, also in directories that Apache Kafka 4.3.1 wrote."""

from __future__ import annotations

import random
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.broker.log_ends import list_log_ends
from barnabas.runtime.disk import RealDisk
from barnabas.settings.broker import BrokerSettings, load_broker_settings
from barnabas.storage.log_directory import (
    CLEAN_SHUTDOWN_FILE,
    LogDirectoryError,
    MetaProperties,
    format_clean_shutdown,
    format_directory,
)
from barnabas.storage.log_ends import BrokerLogEnds

pytestmark = pytest.mark.feature("OP-07")

DATA = Path(__file__).parents[1] / "storage" / "data" / "kafka-4.3.1-logs.tar.gz"
DIRECTORY_ID = b"d" * 16
EPOCH = 17


def directory_of(tmp_path: Path, stop: str) -> Path:
    """A log directory of broker 1 with Kafka's log `orders-0` after this stop."""
    with tarfile.open(DATA) as archive:
        archive.extractall(tmp_path)
    directory = tmp_path / stop
    format_directory(RealDisk(), str(directory), MetaProperties("cluster", 1, DIRECTORY_ID))
    if stop == "clean":
        (directory / CLEAN_SHUTDOWN_FILE).write_bytes(format_clean_shutdown(EPOCH))
    return directory


def settings_of(directory: Path) -> BrokerSettings:
    text = (
        "process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:9092\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.voters=101@127.0.0.1:9093\nlog.dirs={directory}\n"
    )
    return load_broker_settings(text, "broker.properties")[0]


def ends_of(directory: Path) -> BrokerLogEnds:
    return list_log_ends(RealDisk(), settings_of(directory), random.Random(1), now_ms=1)


@pytest.mark.parametrize(("stop", "epoch"), [("clean", EPOCH), ("crashed", 0)])
def test_logs_of_apache_kafka_are_listed_as_often_as_asked(tmp_path: Path, stop: str, epoch: int) -> None:
    directory = directory_of(tmp_path, stop)
    first = ends_of(directory)
    assert (first.cluster_id, first.broker_id, first.broker_epoch) == ("cluster", 1, epoch)
    [log] = first.logs
    assert (log.topic, log.partition, log.directory_id) == ("orders", 0, DIRECTORY_ID)
    assert (log.leader_epoch, log.end_offset) == (4, 360)
    assert log.topic_id is not None
    assert ends_of(directory) == first


def test_a_log_ends_before_what_its_broker_will_cut(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, "crashed")
    last = max((directory / "orders-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-10])
    [log] = ends_of(directory).logs
    assert log.end_offset == 357


def test_a_directory_that_is_in_use_or_lost_is_reported(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, "clean")
    unlock = RealDisk().lock(f"{directory}/.lock")
    with pytest.raises(LogDirectoryError, match="is in use by another process"):
        ends_of(directory)
    unlock()
    (tmp_path / "file").write_text("")
    two = replace(settings_of(directory), log_dirs=[str(directory), str(tmp_path / "file" / "gone")])
    with pytest.raises(LogDirectoryError, match="gone is offline"):
        list_log_ends(RealDisk(), two, random.Random(1), now_ms=1)
