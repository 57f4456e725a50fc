"""`barnabas cluster add`, `drain`, `remove` and `roll` on processes: brokers come and go, and no record is lost."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.main import run
from barnabas.cluster.layout import Layout
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.membership import Members
from barnabas.cluster.ports import free_base_port

RECORDS = 50


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("BARNABAS_BOOTSTRAP_SERVER", raising=False)
    monkeypatch.delenv("BARNABAS_CLIENT_CONFIG", raising=False)
    data = tmp_path / "cluster"
    cluster = LocalCluster(data, free_base_port())
    cluster.up()
    try:
        cluster.wait_ready()
        yield data
    finally:
        LocalCluster(data).down()


def replicas(data: Path, topic: str) -> set[int]:
    return {replica for part in LocalCluster(data).status([topic]).partitions for replica in part.replicas}


@pytest.mark.feature("AD-05", "AD-06", "MB-19")
def test_a_broker_joins_another_leaves_and_all_are_restarted(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ["--data", str(data)]
    assert run(["topics", "create", "events", "--partitions", "4", *where]) == 0
    lines = "".join(f"record {number}\n" for number in range(RECORDS))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    assert run(["produce", "events", *where]) == 0

    assert run(["cluster", "drain", "2", *where]) == 1
    assert "has 3 replicas, and without broker 2 only 2 brokers are in service" in capsys.readouterr().err

    assert run(["cluster", "add", *where]) == 0
    assert run(["cluster", "drain", "2", *where]) == 0
    assert replicas(data, "events") == {1, 3, 4}
    assert run(["topics", "create", "later", "--partitions", "4", *where]) == 0
    assert replicas(data, "later") == {1, 3, 4}, "a drained broker gets no new replicas"
    assert run(["cluster", "remove", "broker-2", *where]) == 0
    assert [broker.id for broker in LocalCluster(data).layout.brokers] == [1, 3, 4]
    assert LocalCluster(data).status([]).brokers == [1, 3, 4]

    assert run(["topics", "create", "single", "--replication-factor", "1", *where]) == 0
    (holder,) = replicas(data, "single")
    capsys.readouterr()
    assert run(["cluster", "roll", f"broker-{holder}", *where]) == 1
    assert f"single:0 would have no leader: broker {holder} has its only replica in sync" in capsys.readouterr().err
    assert run(["topics", "delete", "single", *where]) == 0
    assert run(["cluster", "roll", *where]) == 0
    assert capsys.readouterr().out.count("was restarted in") == 6
    assert run(["consume", "events", "--from-beginning", "--exit", *where]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(f"record {number}" for number in range(RECORDS))
    assert run(["cluster", "down", *where]) == 0
    assert run(["cluster", "up", *where]) == 0
    assert [broker.id for broker in LocalCluster(data).layout.brokers] == [1, 3, 4], "a removed broker stays away"


def test_members_are_remembered(tmp_path: Path) -> None:
    members, broker_id = Members.read(tmp_path).with_broker([1, 2, 3])
    assert broker_id == 4
    members.without("broker-2").write(tmp_path)
    assert [node.name for node in Layout.open(tmp_path, 20_000).brokers] == ["broker-1", "broker-3", "broker-4"]
    again, broker_id = Members.read(tmp_path).without("broker-4").with_broker([1, 3])
    assert broker_id == 5, "no id comes back"
    again.write(tmp_path)
    layout = Layout.open(tmp_path, 20_000)
    layout.render_config(layout.node("broker-5"), {})
    text = layout.config_file(layout.node("broker-5")).read_text()
    assert "node.id=5\n" in text and "listeners=PLAINTEXT://127.0.0.1:20004\n" in text
    assert "101@127.0.0.1:20100" in text and "127.0.0.1:20204" in text
