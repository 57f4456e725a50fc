"""Kafka's own tool alters the users of PLAIN on a running node, ours and Apache Kafka: stored and shown alike.

What differs is the effect: Apache Kafka's listeners read their users once, ours follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas import Admin
from barnabas.client.errors import SaslAuthenticationException
from tests.compat.client.any_cluster import BARNABAS
from tests.compat.client.secured_kafka import JAAS_PASSWORD, USER, SecuredKafka
from tests.compat.java import Java, ToolOutput

pytestmark = [pytest.mark.feature("SE-04", "AD-02"), pytest.mark.slow]

KEY = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
BROKER = ("--entity-type", "brokers", "--entity-name", "1")
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Tool:
    """`kafka-configs` for the node's dynamic configs."""

    def __init__(self, java: Java, node: SecuredKafka, directory: Path) -> None:
        self._java = replace(java, bootstrap=node.bootstrap("PLAINTEXT"))
        self._file = directory / "changes.properties"

    def set(self, key: str, value: str, code: int = 0) -> ToolOutput:
        self._file.write_text(f"{key}={value}\n")
        return self._java.ask("configs", "--alter", *BROKER, "--add-config-file", str(self._file), code=code)

    def unset(self, key: str) -> None:
        self._java.ask("configs", "--alter", *BROKER, "--delete-config", key)

    def shown(self, key: str) -> str:
        """The line about a key."""
        lines = self._java.ask("configs", "--describe", *BROKER).lines
        return next((line.strip() for line in lines if line.strip().startswith(f"{key}=")), "")


@pytest.fixture
def tool(java: Java, secured: SecuredKafka, tmp_path: Path) -> Iterator[Tool]:
    made = Tool(java, secured, tmp_path)
    yield made
    if made.shown(KEY):
        made.unset(KEY)


async def log_in(node: SecuredKafka, user: str, password: str) -> None:
    options: dict[str, Any] = dict(node.options("SASL_PLAINTEXT", "PLAIN"))
    options |= {"sasl_plain_username": user, "sasl_plain_password": password}
    async with Admin(**options) as admin:
        await admin.list_topics()


async def test_users_of_plain_are_stored_alike_and_followed_by_ours(
    secured: SecuredKafka, kind_of_cluster: str, tool: Tool
) -> None:
    tool.set(KEY, f'{MODULE} user_{USER}="{JAAS_PASSWORD}" user_carol="carols";'.replace("\\", "\\\\"))
    assert tool.shown(KEY) == (
        f"{KEY}=null sensitive=true synonyms={{DYNAMIC_BROKER_CONFIG:{KEY}=null, STATIC_BROKER_CONFIG:{KEY}=null}}"
    )
    if kind_of_cluster == BARNABAS:
        await log_in(secured, "carol", "carols")
    else:
        with pytest.raises(SaslAuthenticationException):
            await log_in(secured, "carol", "carols")
    tool.unset(KEY)
    with pytest.raises(SaslAuthenticationException):
        await log_in(secured, "carol", "carols")


async def test_a_value_that_no_listener_can_use_is_refused_by_ours_and_ignored_by_kafka(
    kind_of_cluster: str, tool: Tool
) -> None:
    if kind_of_cluster == BARNABAS:
        refused = tool.set(KEY, "nonsense", code=1)
        assert "InvalidRequestException" in refused.out + refused.err
        assert "plain.sasl.jaas.config" in refused.out + refused.err
        assert tool.shown(KEY) == ""
    else:
        tool.set(KEY, "nonsense")
        assert tool.shown(KEY).startswith(f"{KEY}=null sensitive=true")
