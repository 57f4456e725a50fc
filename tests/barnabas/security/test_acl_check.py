"""A right is checked by the lists that a cluster reports and by the settings of its nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.admin.acl_values import AclBinding
from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from barnabas.security.acl_check import Question, Verdict, decide
from barnabas.security.node_rules import NodeRules, rules_of

TOPIC = AclResourceType.TOPIC
LISTS = [
    AclBinding(TOPIC, "alice-", "User:alice", AclOperation.ALL, pattern_type=PatternType.PREFIXED),
    AclBinding(TOPIC, "alice-secret", "User:alice", AclOperation.WRITE, AclPermissionType.DENY, "10.0.0.7"),
    AclBinding(TOPIC, "*", "User:*", AclOperation.READ),
]
KNOWN = NodeRules(("User:admin",), are_known=True)


def line(user: str, operation: AclOperation, name: str, host: str = "*", rules: NodeRules = KNOWN) -> str:
    question = Question(f"User:{user}", operation, TOPIC, name, host)
    return str(Verdict(question, decide(LISTS, question, rules), rules.are_known))


@pytest.mark.feature("SE-08")
@pytest.mark.parametrize(
    ("user", "operation", "name", "host", "expected"),
    [
        ("alice", AclOperation.WRITE, "alice-flights", "*", "may do WRITE on topic alice-flights: an ACL allows it: "),
        ("alice", AclOperation.WRITE, "alice-secret", "10.0.0.7", "from 10.0.0.7 may not do WRITE on topic alice"),
        ("alice", AclOperation.WRITE, "alice-secret", "10.0.0.8", "an ACL allows it: StandardAcl[resourceType=TOPIC"),
        ("bob", AclOperation.DESCRIBE, "flights", "*", "resourceName=*, patternType=LITERAL, principal=User:*"),
        ("bob", AclOperation.WRITE, "flights", "*", "may not do WRITE on topic flights: the ACLs of the"),
        ("admin", AclOperation.DELETE, "flights", "*", "may do DELETE on topic flights: it is in super.users"),
    ],
)
def test_the_rule_that_decides(user: str, operation: AclOperation, name: str, host: str, expected: str) -> None:
    assert expected in line(user, operation, name, host)


def test_without_any_list_the_setting_of_the_nodes_decides() -> None:
    question = Question("User:bob", AclOperation.ALTER, AclResourceType.CLUSTER, "kafka-cluster")
    assert not decide(LISTS, question, KNOWN).allows
    assert decide(LISTS, question, NodeRules(allow_everyone_if_no_acl_found=True)).allows
    unknown = Verdict(question, decide(LISTS, question, NodeRules()), NodeRules().are_known)
    assert str(unknown).endswith("super.users and allow.everyone.if.no.acl.found of the nodes are not known here")


def test_the_settings_are_those_of_the_first_broker(tmp_path: Path) -> None:
    assert rules_of(tmp_path) == NodeRules()
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "broker-1.properties"
    file.write_text("super.users=User:admin;User:CN=a,O=b\nallow.everyone.if.no.acl.found=true\n")
    assert rules_of(tmp_path) == NodeRules(("User:admin", "User:CN=a,O=b"), True, True)
    file.write_text("super.users=admin\n")
    assert rules_of(tmp_path) == NodeRules()
