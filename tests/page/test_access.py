"""The view "Access" of real clusters: a secure one with its administrator, and a plain one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.cli.connection import Connection
from barnabas.cli.local_users import publish_users
from barnabas.cli.main import run
from barnabas.client.admin import AdminSettings
from barnabas.client.admin.acl_values import AclBinding
from barnabas.cluster.errors import WrongArgument
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port
from barnabas.page.access import Access
from barnabas.page.access_tables import ROWS_OF_A_PAGE, Filter, acl_rows, page_of, throttle_rows
from barnabas.page.asking import Asker
from barnabas.page.feed import Feed
from barnabas.page.node_state import NotAState, read_state
from barnabas.page.show import addresses_of
from barnabas.page.watch import Watch
from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType
from barnabas.runtime.http_token import HttpToken
from barnabas.runtime.real import real_world
from barnabas.security.node_rules import rules_of


@dataclass
class Stage:
    """A cluster, with the view of it."""

    data: Path
    cluster: LocalCluster

    def access(self) -> Access:
        security = self.cluster.security
        token = None if security is None else HttpToken.parse(security.http_token_file.read_bytes())
        watch = Watch(real_world(), Feed(), addresses_of(self.cluster.layout, token))
        connection = Connection(data=self.data)
        settings = partial(connection.settings, AdminSettings.model_fields)
        return Access(Asker(settings), watch.fresh_states, watch.denials, partial(rules_of, self.data))

    def ask(self, table: str, **wanted: Any) -> dict[str, Any]:
        return trio.run(self.access().table, table, Filter(**wanted))

    def check(self, **query: str) -> dict[str, Any]:
        return trio.run(self.access().check, query)

    def command(self, *words: str) -> int:
        return run([*words, "--data", str(self.data)])


def started(data: Path, *, secure: bool) -> Iterator[Stage]:
    cluster = LocalCluster(data, free_base_port())
    if secure:
        cluster.make_secure()
    cluster.up()
    try:
        cluster.wait_ready()
        if secure:
            publish_users(data)
        yield Stage(data, cluster)
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    yield from started(tmp_path_factory.mktemp("secure"), secure=True)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    yield from started(tmp_path_factory.mktemp("plain"), secure=False)


@pytest.mark.feature("SE-08")
def test_a_denial_is_shown_with_the_list_that_caused_it(
    secure: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alice loses a right; her denial names the list, the check gives the same answer, and so does `barnabas why`."""
    assert secure.command("topics", "create", "alice-flights") == 0
    assert secure.command("security", "acl", "check", "alice", "write", "--topic", "alice-flights") == 0
    assert "an ACL allows it: StandardAcl[resourceType=TOPIC, resourceName=alice-," in capsys.readouterr().out
    assert secure.command("security", "acl", "add", "alice", "write", "--topic", "alice-flights", "--deny") == 0
    as_alice = ["--command-config", str(secure.data / "security" / "alice" / "client.properties")]
    (tmp_path / "record").write_text("gate open")
    assert secure.command("produce", "alice-flights", str(tmp_path / "record"), *as_alice) == 1
    capsys.readouterr()
    assert secure.command("security", "acl", "check", "alice", "write", "--topic", "alice-flights", "--json") == 1
    [verdict] = json.loads(capsys.readouterr().out)
    assert verdict["allowed"] is False and "permissionType=DENY" in verdict["reason"]
    query = {"principal": "alice", "operation": "write", "resource": "topic", "name": "alice-flights"}
    assert secure.check(**query) == verdict
    assert secure.check(**{**query, "principal": "admin"})["reason"] == "it is in super.users"

    denials = secure.ask("denials", principal="alice", resource="topic alice-flights")
    denial = denials["rows"][0]
    assert denial["what"].startswith("User:alice from 127.0.0.1 is denied WRITE on topic alice-flights")
    assert denial["cause"] == verdict["reason"]
    assert secure.ask("denials", principal="bob")["rows"] == []
    assert secure.command("why", "User:alice") == 0
    assert "is denied WRITE on topic alice-flights" in capsys.readouterr().out


def test_users_and_tokens_are_shown_without_secrets(secure: Stage) -> None:
    assert secure.command("security", "token", "create", "--renewer", "alice") == 0
    users, tokens = secure.ask("users", principal="ALICE"), secure.ask("tokens")
    assert [(row["mechanism"], row["iterations"]) for row in users["rows"]] == [
        ("SCRAM-SHA-256", 4096),
        ("SCRAM-SHA-512", 4096),
    ]
    assert (users["found"], users["total"]) == (2, 6)
    [token] = tokens["rows"]
    assert (token["who"], token["renewers"]) == ("User:admin", ["User:alice"])
    assert set(token) == {"who", "token", "renewers", "expires_ms", "renewable_until_ms"}


def test_a_quota_is_shown(secure: Stage) -> None:
    assert secure.command("configs", "quotas", "set", "producer_byte_rate=1024", "--user", "alice") == 0
    quotas = secure.ask("quotas")
    assert quotas["rows"] == [{"who": "user alice", "quota": "producer_byte_rate", "value": 1024.0}]
    assert quotas["throttled"] == []


def test_a_user_without_the_right_gets_one_line(secure: Stage) -> None:
    access = secure.access()
    alice = Connection(data=secure.data, client_config=secure.data / "security" / "alice" / "client.properties")
    access.asker = Asker(partial(alice.settings, AdminSettings.model_fields))
    found = trio.run(access.table, "acls", Filter())
    assert (found["rows"], found["problem"]) == (
        [],
        "The page's user may not see this: it needs Describe on the cluster.",
    )


@pytest.mark.feature("SE-08")
def test_a_cluster_without_an_authorizer_is_described_in_one_line(plain: Stage) -> None:
    nothing = "The cluster has no authorizer: every client may do everything."
    assert plain.ask("acls") == {"rows": [], "start": 0, "found": 0, "total": 0, "problem": nothing}
    assert plain.ask("tokens")["problem"] != ""
    assert plain.ask("users")["problem"] == plain.ask("quotas")["problem"] == ""
    verdict = plain.check(principal="bob", operation="write", resource="cluster")
    assert (verdict["allowed"], verdict["reason"]) == (
        True,
        "the cluster has no authorizer: everybody may do everything",
    )
    # Its pages need no token, as ever.
    assert plain.command("why", "quorum") == 0


def test_a_cluster_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    stage = Stage(tmp_path, LocalCluster(tmp_path, free_base_port()))
    access = stage.access()
    access.settings = lambda: {"bootstrap_servers": ("127.0.0.1:1",), "retry_backoff_max_ms": 100}
    answer = trio.run(access.table, "users", Filter())
    assert answer["rows"] == [] and answer["problem"] and "\n" not in answer["problem"]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({}, "resource must be one of topic, group, cluster"),
        ({"resource": "topic", "operation": "fly"}, "operation must be one of all, read"),
        ({"resource": "topic", "operation": "read", "name": "x"}, "principal and name must not be empty"),
    ],
)
def test_a_malformed_question_is_refused(query: dict[str, str], reason: str, tmp_path: Path) -> None:
    stage = Stage(tmp_path, LocalCluster(tmp_path, free_base_port()))
    with pytest.raises(WrongArgument, match=reason):
        stage.check(**query)


def test_ten_thousand_lists_are_shown_page_by_page() -> None:
    lists = [
        AclBinding(AclResourceType.TOPIC, f"topic-{index}", f"User:user-{index % 5000}", AclOperation.READ, permission)
        for index in range(10_000)
        for permission in [AclPermissionType.DENY if index == 9_999 else AclPermissionType.ALLOW]
    ]
    rows = acl_rows(lists)
    first = page_of(rows, Filter())
    assert (len(first["rows"]), first["found"], first["rows"][0]["name"]) == (ROWS_OF_A_PAGE, 10_000, "topic-9999")
    assert len(json.dumps(first)) < 10_000
    last = page_of(rows, Filter(start=10_000_000))
    assert (last["start"], len(last["rows"])) == (10_000 - ROWS_OF_A_PAGE, ROWS_OF_A_PAGE)
    some = page_of(rows, Filter(principal="user:USER-77", resource="TOPIC topic-50", start=3))
    assert [row["name"] for row in some["rows"]] == ["topic-5077"]
    assert page_of([], Filter(start=7)) == {"rows": [], "start": 0, "found": 0, "total": 0}


def test_throttled_clients_come_from_the_state_of_brokers() -> None:
    state = {
        "id": 1, "role": "broker", "state": "running", "missing": "", "metadata": {},
        "throttled": [{
            "user": "alice", "client_id": "app", "quota": "producer_byte_rate", "limit": 10, "rate": 12.5,
            "throttle_ms": 700, "left_ms": 650, "throttles": 3,
        }],
    }  # fmt: skip
    [row] = throttle_rows([("broker-1", read_state(state))])
    assert row == {
        "who": "user alice, client-id app", "node": "broker-1", "quota": "producer_byte_rate", "limit": 10.0,
        "rate": 12.5, "left_ms": 650.0,
    }  # fmt: skip
    for hostile in (7, [7], [{"quota": "x"}], [{"quota": "x", "limit": "many", "rate": 1, "left_ms": 1}]):
        with pytest.raises(NotAState):
            read_state({**state, "throttled": hostile})
