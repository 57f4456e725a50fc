"""The command line: one line for each wrong argument, exit code 2, no traceback."""

import json
from pathlib import Path

import pytest

from barnabas.cli.main import run

CONTAINER_FILES = (
    *("security", "container-files", "--volume", "volume", "--sasl-ssl-ports", "1,2,3"),
    *("--shape", str(Path(__file__).parents[3] / "cluster-configs" / "compose")),
)
SET_PASSWORD = ("security", "user", "set-password", "u")

BROKER = Path(__file__).parents[3] / "cluster-configs" / "local" / "broker-1.properties"
CLUSTER_ID = "q1Sh-9_ISia_zwGINzRvyQ"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["clustr"], "barnabas: No such command 'clustr'"),
        (["cluster"], "barnabas cluster: Missing command; commands are up, down, status"),
        (["cluster", "up", "--base-port", "x"], "barnabas cluster up: Invalid value for '--base-port'"),
        (["cluster", "up", "--base-port", "70000"], "--base-port 70000: 1 to 65035"),
        (
            ["cluster", "up", "--set", "num.partitions"],
            "--set must be KEY=VALUE, e.g.",
        ),
        (["cluster", "kill", "broker-9"], "there is no node broker-9; there are broker-1"),
        (["consume", "t", "--release"], "--release needs --share-group"),
        (["consume", "t", "--share-group", "g", "--release", "--reject"], "--release and --reject exclude each other"),
        (["consume", "t", "--share-group", "g", "-G", "h"], "--group cannot be used with --share-group"),
        (["consume", "t", "--share-group", "g", "-e"], "--share-group; --idle SECONDS ends the command"),
        (["consume", "t", "--share-group", " "], "--share-group must not be blank"),
        (["perf", "consume", "t", "--share-group", "g", "-G", "h"], "--group and --share-group exclude each other"),
        (["cluster", "kill"], "barnabas cluster kill: Missing argument 'NODE'"),
        (["storage", "format", "-c", "x.properties"], "Missing option '--cluster-id'"),
        (["storage", "format", "-c", "x.properties", "-t", "id"], "x.properties: No such file or directory"),
        (
            ["storage", "format", "-c", "x", "-t", "id", "--standalone", "-N"],
            "--standalone, --initial-controllers and --no-initial-controllers exclude each other",
        ),
        (
            ["storage", "format", "-c", "x", "-t", "id", "-I", "1@h:1:id", "--standalone"],
            "--standalone, --initial-controllers and --no-initial-controllers exclude each other",
        ),
        (["topics", "create"], "Missing argument 'TOPIC...'"),
        (
            ["topics", "list", "--bootstrap-server", "localhost"],
            "--bootstrap-server must be HOST:PORT; got 'localhost'",
        ),
        (["topics", "create", "t", "--config", "retention.ms"], "--config must be NAME=VALUE; got 'retention.ms'"),
        (["produce", "t", "-k", ""], "--key-separator cannot be empty"),
        (["consume", "t", "--max-messages", "-1"], "Invalid value for '--max-messages'"),
        (["produce", "t", "--acks", "7"], "acks must be all, -1, 0 or 1; got '7'"),
        (["produce", "t", "-X", "delivery.timeout.ms=1"], "delivery_timeout_ms must be at least"),
        (["produce", "t", "-X", "lingerms=1"], "-X lingerms=1: no such client setting; did you mean linger.ms?"),
        (["produce", "t", "nowhere"], "Invalid value for '[FILE]...'"),
        (["consume", "t", "-o", "x"], "--offset x: must be beginning"),
        (["consume", "t", "-f", "%y"], "--format: unknown letter %y"),
        (["consume", "t", "u", "-X", "isolation.level=x", "-b", "127.0.0.1:1"], "isolation_level must be"),
        (["topics", "alter", "t"], "nothing to alter"),
        (["topics", "create", "t", "--assign", "1:x"], "--assign 1:x: must be broker ids"),
        (["topics", "create", "t", "--assign", "1", "-p", "2"], "--assign excludes -p and -r"),
        (["topics", "offsets", "t:x"], "TOPIC t:x: x is not a partition"),
        (["topics", "offsets", "t", "--at", "noon"], "--at noon: not a time"),
        (["topics", "delete-records", "t"], "needs TOPIC[:PARTITIONS] --before OFFSET, or --from-file FILE"),
        (["topics", "elect"], "needs TOPIC[:PARTITIONS] or --all"),
        (["topics", "reassign", "execute", "nowhere"], "Invalid value for 'PLAN'"),
        (["groups", "describe"], "Missing argument 'GROUP...'"),
        (["groups", "describe", "g", "--members", "--state"], "--members and --state exclude each other"),
        (["groups", "reset-offsets", "g", "--all-topics"], "needs one of --to-earliest, --to-latest"),
        (["groups", "reset-offsets", "g", "--to-latest"], "needs --topic"),
        (
            ["groups", "reset-offsets", "g", "--to-latest", "--to-offset", "1"],
            "--to-latest and --to-offset exclude",
        ),
        (["groups", "remove-members", "g"], "needs --instance ID, --member ID or --all"),
        (["configs", "describe", "planet", "x"], "KIND must be one of topic, broker"),
        (["configs", "set", "broker", "x", "a=b"], "NAME must be a broker id or default; got 'x'"),
        (["configs", "set", "topic", "t", "a"], "set must be NAME=VALUE; got 'a'"),
        (["configs", "quotas", "set", "a=1"], "needs --user, --client or both, or --ip"),
        (["configs", "quotas", "set", "a=x", "--user", "u"], "quotas must be numbers; got 'a=x'"),
        ([*SET_PASSWORD, "--mechanism", "PLAIN"], "--mechanism must be SCRAM-SHA-256 or SCRAM-SHA-512"),
        ([*SET_PASSWORD, "--iterations", "1"], "Invalid value for '--iterations'"),
        ([*CONTAINER_FILES, "--ssl-ports", "1,2"], "--ssl-ports 1,2: one port for each of broker-1, broker-2"),
        ([*CONTAINER_FILES, "--ssl-ports", "1,2,x"], "--ssl-ports 1,2,x: one port for each of broker-1, broker-2"),
        (["security", "token", "create", "--max-lifetime", "x"], "--max-lifetime x: not a duration"),
        (["security", "token", "create", "--renewer", "User:"], "--renewer must be a user's name; got 'User:'"),
        (["transactions", "abort", "t", "--start-offset", "1"], "needs TOPIC:PARTITION, e.g. flights:0; got 't'"),
        (["transactions", "list", "--older-than", "x"], "--older-than x: not a duration"),
        (["perf", "produce", "t", "--percentiles", "x"], "--percentiles must be numbers from 0 to 100"),
        (["perf", "consume", "t", "-n", "0"], "Invalid value for '--records'"),
        (["log", "dump", "nowhere.log"], "Invalid value for 'FILE...'"),
    ],
)
def test_a_wrong_argument_is_reported_in_one_line(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1
    assert captured.out == ""


def test_a_node_that_does_not_run_cannot_be_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "kill", "broker-1", "--data", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "broker-1 does not run; `barnabas cluster start broker-1` starts it\n"


def test_help_without_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "Usage: barnabas" in capsys.readouterr().out


def test_a_cluster_that_never_ran_is_all_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "status", "--json", "--data", str(tmp_path)]) == 0
    status = json.loads(capsys.readouterr().out)
    assert {node["state"] for node in status["nodes"]} == {"stopped"}
    assert status["quorum"] is None
    assert run(["cluster", "status", "--data", str(tmp_path)]) == 0
    assert "no active controller" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_setting_causes_a_warning_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["cluster", "up", "--data", str(tmp_path), "--base-port", "70000", "--set", "brokr.rack=r"]
    assert run(words) == 2
    assert "warning: brokr.rack is not a setting of Kafka 4.3; did you mean broker.rack?" in capsys.readouterr().err


@pytest.mark.feature("KR-15")
def test_format_info_and_a_second_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = str(BROKER)
    assert run(["storage", "info", "-c", config]) == 1
    assert capsys.readouterr().out == ".cluster/broker-1/data: not formatted\n"
    assert run(["storage", "format", "-c", config, "-t", CLUSTER_ID]) == 0
    assert capsys.readouterr().out == f"formatted .cluster/broker-1/data for node 1 of cluster {CLUSTER_ID}\n"
    assert run(["storage", "info", "-c", config]) == 0
    assert f"cluster.id={CLUSTER_ID} node.id=1 directory.id=" in capsys.readouterr().out
    assert run(["storage", "format", "-c", config, "-t", CLUSTER_ID]) == 1
    assert "is formatted already; --ignore-formatted leaves it" in capsys.readouterr().err
    assert run(["storage", "format", "-c", config, "-t", CLUSTER_ID, "--ignore-formatted"]) == 0
    assert run(["storage", "format", "-c", config, "-t", "another", "--ignore-formatted"]) == 1
    assert f"belongs to cluster {CLUSTER_ID}, not another" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--feature", "metadata.version=999"], "metadata.version cannot be set to 999"),
        (["--feature", "no.such=1"], "no.such cannot be set to 1"),
        (["--feature", "metadata.version"], "--feature must be NAME=VALUE; got 'metadata.version'"),
        (["--feature", "metadata.version=new"], "the level must be a whole number"),
        (["--release-version", "1.0"], "there is no metadata.version 1.0"),
    ],
)
def test_levels_that_do_not_exist_are_refused(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["storage", "format", "-c", str(BROKER), "-t", CLUSTER_ID, *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / ".cluster").exists()


def test_random_ids_differ(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["storage", "random-uuid"]) == run(["storage", "random-uuid"]) == 0
    first, second = capsys.readouterr().out.split()
    assert first != second and len(first) == len(second) == 22


@pytest.mark.feature("TO-01")
def test_levels_of_a_release_and_what_levels_need(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["storage", "version-mapping", "-r", "3.9"]) == 0
    message = capsys.readouterr().out.splitlines()
    assert message[0] == "metadata.version=21 (3.9-IV0)"
    assert "eligible.leader.replicas.version=0" in message
    assert run(["storage", "version-mapping"]) == 0
    assert "eligible.leader.replicas.version=1" in capsys.readouterr().out
    assert run(["storage", "version-mapping", "-r", "1.0"]) == 2
    words = ["-f", "eligible.leader.replicas.version=1", "-f", "group.version=1"]
    assert run(["storage", "feature-dependencies", *words]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "eligible.leader.replicas.version=1 needs metadata.version=23",
        "group.version=1 needs nothing",
    ]
    assert run(["storage", "feature-dependencies", "-f", "group.version=9"]) == 2
    assert "this node supports levels 0 to 1" in capsys.readouterr().err
