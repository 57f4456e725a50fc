"""The page's view "Access" of Apache Kafka with its own authorizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import trio

from barnabas.client.admin import Admin, ClientQuotaEntity, ScramMechanism, UserScramCredentialUpsertion
from barnabas.client.admin.acl_values import AclBinding
from barnabas.cluster.ports import free_base_port
from barnabas.page.access import Access
from barnabas.page.access_tables import Filter
from barnabas.page.asking import Asker
from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from barnabas.settings.authorization import STANDARD_AUTHORIZER
from tests.compat.apache import ApacheKafka
from tests.compat.available import kafka_libs

pytestmark = [pytest.mark.compat, pytest.mark.client("apache-kafka")]

LISTS = [
    AclBinding(AclResourceType.TOPIC, "alice-", "User:alice", AclOperation.ALL, pattern_type=PatternType.PREFIXED),
    AclBinding(AclResourceType.TOPIC, "alice-old", "User:alice", AclOperation.WRITE, AclPermissionType.DENY),
]


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Access]:
    libs = kafka_libs()
    assert libs is not None
    port = free_base_port([0, 1])
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    node = ApacheKafka(libs, tmp_path_factory.mktemp("kafka"), (port, port + 1), settings)
    node.start()

    async def prepare() -> None:
        async with Admin(bootstrap_servers=(f"127.0.0.1:{port}",)) as admin:
            await admin.create_acls(LISTS)
            change = UserScramCredentialUpsertion("alice", ScramMechanism.SCRAM_SHA_256, "a password", 8192)
            await admin.alter_user_scram_credentials([change])
            await admin.alter_client_quotas({ClientQuotaEntity((("user", "alice"),)): {"consumer_byte_rate": 2048.0}})

    async def no_denials() -> Sequence[Mapping[str, Any]]:
        """Its nodes have no HTTP listeners to ask."""
        return []

    try:
        trio.run(prepare)
        yield Access(Asker(lambda: {"bootstrap_servers": (f"127.0.0.1:{port}",)}), list, no_denials)
    finally:
        node.stop()


def rows(access: Access, table: str) -> list[tuple[Any, ...]]:
    answer = trio.run(access.table, table, Filter())
    assert answer["problem"] == ""
    return [tuple(row.values()) for row in answer["rows"]]


@pytest.mark.feature("SE-08")
def test_the_tables_of_apache_kafka(access: Access) -> None:
    assert rows(access, "acls") == [
        ("User:alice", "*", "deny", "write", "topic", "literal", "alice-old"),
        ("User:alice", "*", "allow", "all", "topic", "prefixed", "alice-"),
    ]
    assert rows(access, "users") == [("alice", "SCRAM-SHA-256", 8192)]
    assert rows(access, "quotas") == [("user alice", "consumer_byte_rate", 2048.0)]
    assert trio.run(access.table, "tokens", Filter())["problem"] != ""
    assert rows(access, "denials") == []


@pytest.mark.parametrize(
    ("principal", "name", "allowed", "reason"),
    [
        ("alice", "alice-new", True, "patternType=PREFIXED"),
        ("alice", "alice-old", False, "permissionType=DENY"),
        ("bob", "alice-old", False, "the ACLs of the resource do not allow it"),
        ("bob", "other", False, "super.users and allow.everyone.if.no.acl.found of the nodes are not known here"),
    ],
)
def test_its_lists_decide(access: Access, principal: str, name: str, allowed: bool, reason: str) -> None:
    query = {"principal": principal, "operation": "write", "resource": "topic", "name": name}
    verdict = trio.run(access.check, query)
    assert verdict["allowed"] is allowed and reason in verdict["reason"]
