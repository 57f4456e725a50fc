"""`barnabas tokens`: the secret of a token is printed once, when it is created, and is never on the command line."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import trio

from barnabas.cli import tokens
from barnabas.cli.main import run
from barnabas.client.admin import DelegationToken, KafkaPrincipal

ALICE, BOB = KafkaPrincipal("alice"), KafkaPrincipal("bob")
TOKEN = DelegationToken("id-1", b"hmac", ALICE, ALICE, (BOB,), 0, 86_400_000, 604_800_000)


class Cluster:
    """An `Admin` that records the calls and has one token."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    async def create_delegation_token(self, **wanted: Any) -> DelegationToken:
        self.asked.append(("create", wanted))
        return replace(TOKEN, renewers=tuple(wanted["renewers"]))

    async def describe_delegation_token(self, owners: list[KafkaPrincipal] | None = None) -> list[DelegationToken]:
        self.asked.append(("describe", owners))
        return [TOKEN]

    async def renew_delegation_token(self, hmac: bytes, *, renew_time_period_ms: int) -> int:
        self.asked.append(("renew", (hmac, renew_time_period_ms)))
        return 90_000_000

    async def expire_delegation_token(self, hmac: bytes, *, expiry_time_period_ms: int) -> int:
        self.asked.append(("expire", (hmac, expiry_time_period_ms)))
        return 1 << 62


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()

    def with_admin(_: object, work: Callable[[Any], Awaitable[Any]]) -> Any:
        return trio.run(work, cluster)

    monkeypatch.setattr(tokens, "with_admin", with_admin)
    return cluster


@pytest.mark.feature("SE-07", "TO-02")
def test_create_prints_the_secret(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--owner", "User:alice", "--renewer", "bob", "--renewer", "carol", "--max-lifetime", "12h"]
    assert run(["security", "token", "create", *words]) == 0
    renewers = [BOB, KafkaPrincipal("carol")]
    assert cluster.asked == [("create", {"owner": ALICE, "renewers": renewers, "max_lifetime_ms": 43_200_000})]
    printed = json.loads(capsys.readouterr().out)
    assert (printed["token"], printed["hmac"]) == ("id-1", "aG1hYw==")
    assert printed["renewers"] == ["User:bob", "User:carol"]


@pytest.mark.feature("SE-07", "TO-02")
def test_list_does_not_print_it(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["security", "token", "list"]) == 0
    titles, row = capsys.readouterr().out.splitlines()
    assert titles.split() == ["token", "owner", "renewers", "issued", "expires", "renewable", "until"]
    moments = ["1970-01-01T00:00:00.000Z", "1970-01-02T00:00:00.000Z", "1970-01-08T00:00:00.000Z"]
    assert row.split() == ["id-1", "User:alice", "User:bob", *moments]
    assert run(["security", "token", "list", "--owner", "bob", "--json"]) == 0
    assert cluster.asked == [("describe", None), ("describe", [BOB])]
    printed = capsys.readouterr().out
    assert [it["owner"] for it in json.loads(printed)] == ["User:alice"]
    assert "aG1hYw" not in printed


@pytest.mark.feature("SE-07", "TO-02")
def test_tokens_are_renewed_and_expired_by_id(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["security", "token", "renew", "id-1", "--period", "1h"]) == 0
    assert capsys.readouterr().out == "token id-1 expires 1970-01-02T01:00:00.000Z\n"
    assert run(["security", "token", "expire", "id-1"]) == 0
    assert capsys.readouterr().out == f"token id-1 expires {1 << 62}\n"
    assert [it for it in cluster.asked if it[0] != "describe"] == [
        ("renew", (b"hmac", 3_600_000)),
        ("expire", (b"hmac", -1)),
    ]
    assert run(["security", "token", "renew", "id-2"]) == 1
    assert capsys.readouterr().err == "there is no token id-2, or you may not see it\n"
