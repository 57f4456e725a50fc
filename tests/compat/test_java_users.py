"""Users and quotas by Kafka's own tools, on our cluster; and first users, formatted by one and started by the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.cli.main import run
from barnabas.cluster.ports import free_base_port
from barnabas.cluster.probe import ask
from barnabas.kraft.snapshots import read_bootstrap_records
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from barnabas.protocol.messages.metadata_log import FeatureLevelRecord, UserScramCredentialRecord
from barnabas.protocol.records.batch import iterate_batches
from barnabas.protocol.records.record import decode_records
from barnabas.runtime.disk import RealDisk
from tests.compat.java import Java
from tests.compat.mixed import KAFKA, OURS, MixedCluster
from tests.compat.running import RunningCluster

pytestmark = [pytest.mark.compat, pytest.mark.client("java")]

ALICE = "SCRAM-SHA-256=[name=alice,password=alice-secret,iterations=8192,salt=c2FsdHNhbHQ=]"
BOB = (
    "SCRAM-SHA-512=[name=bob,saltedpassword=QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5ejAx"
    "MjM0NTY3ODkrLw==,salt=MTIzNDU2Nzg=]"
)


def entity(*kinds_and_names: tuple[str, str | None]) -> list[str]:
    """The options of `kafka-configs`; None is the default entity."""
    words = []
    for kind, name in kinds_and_names:
        words += ["--entity-type", kind, *(["--entity-default"] if name is None else ["--entity-name", name])]
    return words


@pytest.mark.feature("AD-07", "TO-02", "TO-09", "SE-04")
def test_passwords_by_kafka_configs(java: Java, cluster: RunningCluster) -> None:
    alice = entity(("users", "alice"))
    java.ask("configs", "--alter", *alice, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=alice-secret]")
    java.ask("configs", "--alter", *alice, "--add-config", "SCRAM-SHA-512=[password=alice-secret]")
    mechanisms = "SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096"
    everybody = java.ask("configs", "--describe", "--entity-type", "users")
    assert f"SCRAM credential configs for user-principal 'alice' are {mechanisms}" in everybody.lines
    assert "alice-secret" not in everybody.out
    java.ask("configs", "--alter", *alice, "--delete-config", "SCRAM-SHA-256")
    left = java.ask("configs", "--describe", *alice).lines
    assert left == ["SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-512=iterations=4096"]
    gone = java.ask("configs", "--alter", *alice, "--delete-config", "SCRAM-SHA-256", code=1)
    assert "Attempt to delete a user credential that does not exist" in gone.err + gone.out
    few = java.ask(
        "configs", "--alter", *alice, "--add-config", "SCRAM-SHA-512=[iterations=20000,password=x]", code=1
    )
    assert "Too many iterations" in few.err + few.out
    java.ask("configs", "--alter", *alice, "--delete-config", "SCRAM-SHA-512")
    assert java.ask("configs", "--describe", *alice).lines == []


@pytest.mark.slow
@pytest.mark.feature("QU-03", "QU-04", "QU-08", "TO-02", "TO-09")
@pytest.mark.parametrize(
    ("of", "key", "shown"),
    [
        ([("users", "carol")], "producer_byte_rate=1024", "user-principal 'carol'"),
        ([("users", None)], "request_percentage=12.5", "the default user-principal"),
        ([("clients", "app")], "consumer_byte_rate=2048", "client-id 'app'"),
        ([("clients", None)], "controller_mutation_rate=0.5", "the default client-id"),
        (
            [("users", "carol"), ("clients", "app")],
            "producer_byte_rate=512",
            "user-principal 'carol', client-id 'app'",
        ),
        (
            [("users", None), ("clients", None)],
            "producer_byte_rate=256",
            "the default user-principal, the default client-id",
        ),
        ([("ips", "10.1.2.3")], "connection_creation_rate=7", "ip '10.1.2.3'"),
        ([("ips", None)], "connection_creation_rate=70", "the default ip"),
    ],
)
def test_quotas_by_kafka_configs(
    java: Java, cluster: RunningCluster, of: list[tuple[str, str | None]], key: str, shown: str
) -> None:
    name, value = key.split("=")
    java.ask("configs", "--alter", *entity(*of), "--add-config", key)
    assert f"Quota configs for {shown} are {name}={float(value)}" in java.ask(
        "configs", "--describe", *entity(*of)
    ).lines
    java.ask("configs", "--alter", *entity(*of), "--delete-config", name)
    assert "Quota configs" not in java.ask("configs", "--describe", *entity(*of)).out


def first_users(directory: Path) -> list[UserScramCredentialRecord]:
    records = read_bootstrap_records(RealDisk(), str(directory))
    users = [it for it in records if isinstance(it, UserScramCredentialRecord)]
    assert all(isinstance(it, FeatureLevelRecord) for it in records[: -len(users)]), "users come last"
    return users


def record_values(directory: Path) -> list[bytes | None]:
    """The values of a snapshot's records, as they are in the file; a header is the first, a footer the last."""
    content = (directory / "bootstrap.checkpoint").read_bytes()
    return [
        None if record.value is None else bytes(record.value)
        for position, _ in iterate_batches(content)
        for record in decode_records(content, position)
    ]


@pytest.mark.feature("AD-07", "KR-15", "TO-01", "SE-04")
def test_kafka_and_we_format_the_same_first_users(java: Java, tmp_path: Path) -> None:
    for name in ("theirs", "ours"):
        (tmp_path / f"{name}.properties").write_text(
            "process.roles=controller\nnode.id=7\nlisteners=CONTROLLER://127.0.0.1:9093\n"
            f"log.dirs={tmp_path}/{name}\ncontroller.listener.names=CONTROLLER\n"
            "controller.quorum.voters=7@127.0.0.1:9093\n"
        )
    words = ["-t", "q1Sh-9_ISia_zwGINzRvyQ", "--add-scram", ALICE, "--add-scram", BOB]
    java.run("storage", "format", "-c", str(tmp_path / "theirs.properties"), *words)
    assert run(["storage", "format", "-c", str(tmp_path / "ours.properties"), *words]) == 0
    theirs, ours = first_users(tmp_path / "theirs"), first_users(tmp_path / "ours")
    assert [(it.name, it.mechanism, it.iterations) for it in ours] == [("alice", 1, 8192), ("bob", 2, 4096)]
    assert ours == theirs, "salts and keys, too"
    assert record_values(tmp_path / "ours")[-3:-1] == record_values(tmp_path / "theirs")[-3:-1], "byte by byte"


@pytest.mark.slow
@pytest.mark.feature("AD-07", "QU-04", "KR-15", "SE-04", "MB-01", "MB-22")
@pytest.mark.parametrize(("controllers", "brokers"), [(KAFKA, OURS), (OURS, KAFKA), (OURS, OURS)])
def test_first_users_and_changes_in_a_mixed_cluster(
    controllers: str, brokers: str, libs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """We format; Kafka's tool asks the broker, which forwards changes to the controller."""
    with MixedCluster(libs, tmp_path, base_port=free_base_port(range(8))) as cluster:
        controller = cluster.add(controllers, 101, "controller")
        broker = cluster.add(brokers, 1, "broker")
        for node in (controller, broker):
            with node.config.open("a") as config:
                config.write(f"controller.quorum.voters={cluster.voters(controller)}\n")
            words = ["--add-scram", ALICE, "--add-scram", BOB] if node is controller else []
            assert run(["storage", "format", "-c", str(node.config), "-t", cluster.cluster_id, *words]) == 0
            cluster.start(node)
        capfd.readouterr()

        def users() -> dict[str, list[tuple[int, int]]]:
            request = DescribeUserScramCredentialsRequest(users=None)
            response = ask(broker.port, request, DescribeUserScramCredentialsResponse)
            return {
                it.user: [(each.mechanism, each.iterations) for each in it.credential_infos]
                for it in response.results
            }

        cluster.wait(lambda: users() == {"alice": [(1, 8192)], "bob": [(2, 4096)]}, "the first users are known")
        java = Java(libs, cluster.bootstrap_servers)
        bob = entity(("users", "bob"))
        java.ask("configs", "--alter", *bob, "--add-config", "producer_byte_rate=7")
        java.ask("configs", "--alter", *bob, "--delete-config", "SCRAM-SHA-512")
        cluster.wait(lambda: list(users()) == ["alice"], "bob has no password any more")
        shown = java.ask("configs", "--describe", "--entity-type", "users").lines
        assert shown == [
            "Quota configs for user-principal 'bob' are producer_byte_rate=7.0",
            "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=8192",
        ]
        assert not re.search("alice-secret", broker.log.read_text() + controller.log.read_text())
