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
from tests.eventually import eventually

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
    assert run(["cluster", "drain", "2", "--throttle", "200000", *where]) == 0
    assert replicas(data, "events") == {1, 3, 4}
    capsys.readouterr()
    assert run(["configs", "describe", "broker", "3", *where]) == 0
    assert "throttled.rate" not in capsys.readouterr().out
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


@pytest.mark.feature("RE-19", "AD-05", "TO-06")
def test_a_replica_moves_to_another_disk(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ["--data", str(data)]
    cluster = LocalCluster(data)
    config = cluster.layout.config_file(cluster.layout.node("broker-1"))
    first, second = data / "broker-1" / "data", data / "broker-1" / "second"
    cluster.stop("broker-1")
    config.write_text(config.read_text().replace(f"log.dirs={first}", f"log.dirs={first},{second}"))
    cluster.start("broker-1")
    cluster.wait_ready()
    assert run(["topics", "create", "events", "--partitions", "1", *where]) == 0
    lines = "".join(f"record {number}\n" for number in range(RECORDS))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    assert run(["produce", "events", *where]) == 0
    source, target = (first, second) if (first / "events-0").exists() else (second, first)
    to = ["cluster", "move-replica", "events:0", "--broker", "1", "--to"]
    assert run([*to, str(target), *where]) == 0
    cluster.wait_until(lambda: "" if (target / "events-0").exists() else "it has not moved", 30)
    assert not (source / "events-0").exists()
    name = "events-0/00000000000000000000.log"
    assert (target / name).read_bytes() == (data / "broker-2" / "data" / name).read_bytes() != b""
    capsys.readouterr()
    assert run([*to, "/nowhere", *where]) == 1
    assert "LOG_DIR_NOT_FOUND" in capsys.readouterr().err.upper().replace("LOGDIRNOTFOUND", "LOG_DIR_NOT_FOUND")


@pytest.mark.feature("RE-20", "TO-06", "MB-19")
def test_a_reassignment_is_throttled_and_the_throttle_removed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--data", str(data)]
    assert run(["topics", "create", "events", "--assign", "1,2", *where]) == 0
    plan = data / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "events", "partition": 0, "replicas": [3, 2]}]}')
    assert run(["topics", "reassign", "execute", str(plan), "--throttle", "1000000", *where]) == 0
    LocalCluster(data).wait_until(lambda: "" if replicas(data, "events") == {2, 3} else "moving", 30)
    capsys.readouterr()
    assert run(["configs", "describe", "topic", "events", *where]) == 0
    shown = capsys.readouterr().out
    assert "follower.replication.throttled.replicas" in shown and "0:3" in shown
    assert run(["topics", "reassign", "verify", str(plan), *where]) == 0
    capsys.readouterr()
    assert run(["configs", "describe", "topic", "events", *where]) == 0
    assert "throttled" not in capsys.readouterr().out
    assert run(["configs", "describe", "broker", "3", *where]) == 0
    assert "throttled.rate" not in capsys.readouterr().out


@pytest.mark.feature("KR-14", "AD-06")
def test_controllers_join_and_leave(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--data", str(data)]
    assert run(["cluster", "add", "controller", *where]) == 0
    out = capsys.readouterr().out
    assert "controller-104 is a voter of the metadata log: controller-101, controller-102, controller-103" in out
    leader = leader_of(data)
    assert run(["cluster", "remove", f"controller-{leader}", *where]) == 0
    assert f"controller-{leader} is stopped; its data is in" in capsys.readouterr().out
    left = sorted({101, 102, 103, 104} - {leader})
    assert voters(data) == left
    assert run(["topics", "create", "events", *where]) == 0

    first, second, third = left
    LocalCluster(data).kill(f"controller-{first}")
    eventually(lambda: leader_of(data) in (second, third))
    other = third if leader_of(data) == second else second
    capsys.readouterr()
    assert run(["cluster", "remove", f"controller-{other}", *where, "--timeout", "10"]) == 1
    refused = capsys.readouterr().err
    assert f"controller-{other} stays: of the voters that would remain" in refused and "which is no majority" in refused
    LocalCluster(data).start(f"controller-{first}")
    assert run(["cluster", "roll", *where]) == 0
    assert run(["cluster", "down", *where]) == 0
    assert run(["cluster", "up", *where]) == 0
    assert voters(data) == left
    text = (data / "conf" / "broker-1.properties").read_text()
    assert "controller.quorum.voters" not in text and "controller.quorum.bootstrap.servers=" in text


def leader_of(data: Path) -> int:
    quorum = LocalCluster(data).status([]).quorum
    return -1 if quorum is None else quorum.leader


def voters(data: Path) -> list[int]:
    quorum = LocalCluster(data).status([]).quorum
    return [] if quorum is None else sorted(quorum.voters)


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
