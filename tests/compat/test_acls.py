"""`kafka-acls` against our cluster: ACLs are added, listed, obeyed, and removed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port
from barnabas.settings.authorization import STANDARD_AUTHORIZER
from tests.compat.java import Java
from tests.compat.running import RunningCluster

pytestmark = [pytest.mark.compat, pytest.mark.client("java")]

ONE_NODE = f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9193
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9193
controller.listener.names=CONTROLLER
log.dirs=data
barnabas.http.listener=127.0.0.1:9292
authorizer.class.name={STANDARD_AUTHORIZER}
allow.everyone.if.no.acl.found=true
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RunningCluster]:
    """Everybody is anonymous, and a super user."""
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    cluster = RunningCluster.start_new(tmp_path / "cluster", settings)
    yield cluster
    cluster.down()


@pytest.fixture
def open_node(tmp_path: Path) -> Iterator[LocalCluster]:
    """One node without super users, where all is allowed that has no ACL."""
    (tmp_path / "shape").mkdir()
    (tmp_path / "shape" / "broker-1.properties").write_text(ONE_NODE)
    cluster = LocalCluster(tmp_path / "data", free_base_port([0, 101, 200]), config_dir=tmp_path / "shape")
    cluster.up()
    cluster.wait_ready()
    yield cluster
    cluster.down()


def listed(java: Java, *words: str) -> list[tuple[str, str]]:
    """(resource, ACL) pairs, as the tool prints them, sorted."""
    found, resource = [], ""
    for line in java.ask("acls", "--list", *words).lines:
        head = re.match(r"Current ACLs for resource `ResourcePattern\((.*)\)`:", line)
        if head:
            resource = head[1]
        elif line.strip():
            found.append((resource, line.strip()))
    return sorted(found)


@pytest.mark.feature("SE-08", "AD-07", "TO-02")
def test_acls_are_added_listed_and_removed(guarded: RunningCluster, libs: Path) -> None:
    java = Java(libs, guarded.bootstrap_servers)
    both = ("--operation", "Read", "--operation", "Write")
    java.ask("acls", "--add", "--allow-principal", "User:bob", *both, "--topic", "flights")
    prefix = ("--topic", "fl", "--resource-pattern-type", "prefixed")
    java.ask("acls", "--add", "--deny-principal", "User:eve", "--deny-host", "10.0.0.9", *prefix)
    java.ask("acls", "--add", "--allow-principal", "User:ops", "--operation", "Alter", "--cluster")
    java.ask("acls", "--add", "--allow-principal", "User:bob", "--consumer", "--topic", "flights", "--group", "g")

    flights = "resourceType=TOPIC, name=flights, patternType=LITERAL"
    fl = "resourceType=TOPIC, name=fl, patternType=PREFIXED"
    denied = (fl, "(principal=User:eve, host=10.0.0.9, operation=ALL, permissionType=DENY)")
    of_bob = [
        (flights, f"(principal=User:bob, host=*, operation={operation}, permissionType=ALLOW)")
        for operation in ("DESCRIBE", "READ", "WRITE")
    ]
    cluster = "resourceType=CLUSTER, name=kafka-cluster, patternType=LITERAL"
    group = "resourceType=GROUP, name=g, patternType=LITERAL"
    everything = [
        (cluster, "(principal=User:ops, host=*, operation=ALTER, permissionType=ALLOW)"),
        (group, "(principal=User:bob, host=*, operation=READ, permissionType=ALLOW)"),
        *of_bob,
        denied,
    ]
    for broker in guarded.layout.brokers:
        guarded.wait_for(
            f"{broker.name} has all ACLs",
            lambda address=f"127.0.0.1:{broker.port}": listed(Java(libs, address)) == sorted(everything),
        )
    assert listed(java, "--topic", "flights", "--resource-pattern-type", "match") == sorted([*of_bob, denied])
    assert listed(java, "--topic", "flights") == of_bob
    refused = java.ask("acls", "--add", "--allow-principal", "User:bob", "--topic", "", code=1)
    assert "Invalid empty resource name" in refused.out + refused.err

    active = guarded.active_controller()
    guarded.stop(active)
    guarded.start(active)
    guarded.wait_ready()
    java.ask("acls", "--remove", "--force", "--topic", "flights")
    java.ask("acls", "--remove", "--force", *prefix)
    java.ask("acls", "--remove", "--force", "--cluster")
    java.ask("acls", "--remove", "--force", "--group", "g")
    guarded.wait_for("nothing is left", lambda: listed(java) == [])


@pytest.mark.slow
@pytest.mark.feature("SE-08", "SE-09", "AD-07")
def test_a_denied_request_is_refused_and_explained(open_node: LocalCluster, libs: Path) -> None:
    java = Java(libs, open_node.layout.bootstrap_servers)
    java.ask("topics", "--create", "--topic", "flights", "--partitions", "1", "--replication-factor", "1")
    java.ask("topics", "--create", "--topic", "seats", "--partitions", "1", "--replication-factor", "1")
    # The right to delete on the cluster would be one on every topic.
    others = ("Create", "Alter", "Describe", "ClusterAction", "AlterConfigs", "DescribeConfigs")
    operations = [word for operation in others for word in ("--operation", operation)]
    java.ask("acls", "--add", "--allow-principal", "User:ANONYMOUS", *operations, "--cluster")
    deny = ("--deny-principal", "User:ANONYMOUS", "--operation", "Delete", "--operation", "AlterConfigs")
    java.ask("acls", "--add", *deny, "--topic", "fl", "--resource-pattern-type", "prefixed")
    # A topic with an ACL is closed for all operations that no ACL allows.
    java.ask("acls", "--add", "--allow-principal", "User:*", "--operation", "All", "--topic", "flights")

    refused = java.ask("topics", "--delete", "--topic", "flights", code=1)
    assert "TopicAuthorizationException" in refused.out + refused.err
    entity = ("--entity-type", "topics", "--entity-name", "flights")
    refused = java.ask("configs", "--alter", *entity, "--add-config", "retention.ms=1000", code=1)
    assert "TopicAuthorizationException" in refused.out + refused.err
    java.ask("topics", "--alter", "--topic", "flights", "--partitions", "2")
    java.ask("topics", "--delete", "--topic", "seats")

    log = open_node.layout.log_file(open_node.layout.node("broker-1")).read_text()
    rule = "acl=StandardAcl[resourceType=TOPIC, resourceName=fl, patternType=PREFIXED, principal=User:ANONYMOUS, host=*"
    assert "Principal = User:ANONYMOUS is Denied operation = DELETE from host = 127.0.0.1" in log
    assert "Topic:LITERAL:flights for request = DeleteTopics with resourceRefCount = 1 based on rule Matching" in log
    assert rule in log
    assert "kind=access" in log

    java.ask("acls", "--remove", "--force", "--topic", "fl", "--resource-pattern-type", "prefixed")
    java.ask("topics", "--delete", "--topic", "flights")
    assert java.ask("topics", "--list").out.split() == []
