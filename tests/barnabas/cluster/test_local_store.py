"""`cluster up --s3`: the S3 server of a local cluster starts before its brokers, keeps its files, and ends with it."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from barnabas.cli import main
from barnabas.client.admin import NewTopic
from barnabas.cluster import local_store
from barnabas.cluster.layout import Layout
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.local_store import LocalStore
from barnabas.cluster.ports import free_base_port
from barnabas.cluster.processes import ProcessId
from barnabas.settings.broker import load_broker_settings
from barnabas.sync import Admin, Producer
from tests.eventually import eventually
from tests.s3_servers import VERSITYGW

pytestmark = pytest.mark.feature("TS-03")

HAS_SERVER = shutil.which("versitygw") is not None or VERSITYGW.exists()


def test_without_the_server_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(local_store, "_BUILT", Path("nowhere"))
    assert main.run(["cluster", "up", "--s3", "--data", str(tmp_path)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "make versitygw" in line and "barnabas.remote.store.url=file:///some/directory" in line
    assert list(tmp_path.iterdir()) == []


def test_brokers_get_the_store_and_its_keys_which_nobody_else_may_read(tmp_path: Path) -> None:
    layout = Layout.open(tmp_path, 20_000)
    store = LocalStore(layout)
    broker, controller = layout.node("broker-1"), layout.node("controller-101")
    assert store.settings_of(controller) == {"remote.log.storage.system.enable": "true"}
    layout.render_config(broker, store.settings_of(broker))
    file = layout.config_file(broker)
    settings, warnings = load_broker_settings(file.read_text(), file.name)
    assert warnings == [] and settings.remote_store is not None
    assert settings.remote_store.endpoint == "http://127.0.0.1:20090"
    assert settings.remote_store.access_key and settings.remote_store.secret_key
    assert LocalStore(layout).settings_of(broker) == store.settings_of(broker), "the keys are made once"
    for path in (file, tmp_path / "s3" / "keys.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.slow
@pytest.mark.skipif(not HAS_SERVER, reason="there is no versitygw; `make versitygw` builds it")
def test_a_cluster_keeps_its_server_over_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = {"remote.log.manager.task.interval.ms": "500"}
    cluster = LocalCluster(data, free_base_port((0, 1, 2, 90, 100, 101, 102, 200, 201, 202, 300, 301, 302)), settings)
    cluster.add_s3()
    bucket = data / "s3" / "files" / "segments"
    try:
        cluster.up()
        cluster.wait_ready()
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            configs = {"remote.storage.enable": "true", "internal.segment.bytes": "16384"}
            admin.create_topics(NewTopic("t", num_partitions=1, replication_factor=3, configs=configs))
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for _ in range(100):
                producer.send("t", b"x" * 1000, partition=0)
        eventually(lambda: len(list(bucket.rglob("*.log"))) >= 3)
        assert cluster.down() == []
        assert ProcessId.read(data / "run" / "s3.pid") is None
        again = LocalCluster(data)
        assert again.s3 is not None
        again.up()
        again.wait_ready()
        assert len(list(bucket.rglob("*.log"))) >= 3
    finally:
        LocalCluster(data).down()
