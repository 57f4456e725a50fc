"""The HTTP port: rules come and go, and foreign pages change nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

import pytest
import trio

from barnabas import sync
from barnabas.cluster.errors import ClusterError
from barnabas.dev.embedded import EmbeddedServers
from barnabas.fault_proxy.http_page import HttpPage
from barnabas.fault_proxy.listeners import ClusterProxy
from barnabas.fault_proxy.recorder import Recorder
from barnabas.fault_proxy.setup import ProxySetup, running_proxy
from barnabas.runtime.http_token import HttpToken

JSON = {"Content-Type": "application/json"}


@dataclass
class Site:
    """The page of a running proxy, and a browser without manners."""

    proxy: ClusterProxy
    page: HttpPage

    async def ask(
        self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status, and the body as JSON or as text."""
        return await trio.to_thread.run_sync(self._ask, method, path, body, JSON if headers is None else headers)

    def _ask(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> tuple[int, Any]:
        connection = HTTPConnection("127.0.0.1", self.page.address.port, timeout=20)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            is_json = "json" in answer.headers["Content-Type"]
            return answer.status, json.loads(text) if is_json else text.strip()
        finally:
            connection.close()


@asynccontextmanager
async def site(broker: str, token: HttpToken | None = None) -> AsyncIterator[Site]:
    async with running_proxy(ProxySetup(broker)) as proxy, trio.open_nursery() as nursery:
        page = HttpPage(proxy, Recorder(proxy), "127.0.0.1", 0, token)
        await nursery.start(page.serve)
        with trio.fail_after(60):
            yield Site(proxy, page)
        nursery.cancel_scope.cancel()


async def test_rules_are_added_listed_and_removed(barnabas_broker: EmbeddedServers) -> None:
    async with site(barnabas_broker) as found:
        assert await found.ask("GET", "/rules") == (200, [])
        status, rule = await found.ask("POST", "/rules", '"Produce topic=orders drop=request"')
        assert (status, rule["number"], rule["topic"]) == (201, 1, "orders")
        status, rules = await found.ask("POST", "/rules", '[{"api": "Fetch", "delay_ms": 5}, "Heartbeat error=16"]')
        assert [each["rule"] for each in rules] == ["Fetch delay_ms=5", "Heartbeat error=NOT_COORDINATOR"]
        assert (await found.ask("DELETE", "/rules/2"))[0] == 200
        assert [each["number"] for each in (await found.ask("GET", "/rules"))[1]] == [1, 3]
        assert await found.ask("DELETE", "/rules/2") == (404, "rules are 1, 3; got 2")
        assert await found.ask("DELETE", "/rules") == (200, [])


async def test_messages_rules_and_brokers_are_shown(barnabas_broker: EmbeddedServers, barnabas_topic: str) -> None:
    async with site(barnabas_broker) as found:
        await found.ask("POST", "/rules", '"Produce error=NOT_LEADER_OR_FOLLOWER times=1"')

        def write() -> None:
            with sync.Producer(bootstrap_servers=found.proxy.bootstrap_servers) as producer:
                producer.send(barnabas_topic, b"order")

        await trio.to_thread.run_sync(write)
        _, trace = await found.ask("GET", "/trace")
        assert [each.get("errors") for each in trace if each["api"] == "Produce"] == [
            None,
            ["NOT_LEADER_OR_FOLLOWER"],
            None,
            None,
        ]
        assert len((await found.ask("GET", "/trace?last=3"))[1]) == 3
        assert (await found.ask("GET", "/trace?last=many"))[0] == 400
        _, [broker] = await found.ask("GET", "/brokers")
        assert broker == {
            "broker": str(barnabas_broker),
            "node_id": 1,
            "port": int(found.proxy.bootstrap_servers.rpartition(":")[2]),
        }
        status, page = await found.ask("GET", "/")
        assert status == 200 and "NOT_LEADER_OR_FOLLOWER" in page and "<script" not in page


async def test_links_break_and_heal(barnabas_broker: EmbeddedServers) -> None:
    async with site(barnabas_broker) as found:
        assert (await found.ask("POST", "/links", '{"broker": 1, "cut": true, "direction": "responses"}'))[0] == 201
        [name] = [each["broker"] for each in found.proxy.brokers()]
        faults = found.proxy.common.faults
        assert faults.link(name, "client").cut and not faults.link("client", name).cut
        await found.ask("DELETE", "/links")
        assert not faults.link(name, "client").cut
        assert (await found.ask("POST", "/links", '{"broker": 9, "cut": true}'))[0] == 400


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/rules", None, {"Host": "evil.example"}, 403),
        ("POST", "/rules", '"Produce drop=request"', {"Content-Type": "text/plain"}, 415),
        ("POST", "/rules", "{", JSON, 400),
        ("POST", "/rules", '{"api": "Produce"}', JSON, 400),
        ("POST", "/rules", "7", JSON, 400),
        ("POST", "/rules", '"' + "x" * 70_000 + '"', JSON, 413),
        ("PUT", "/rules", "{}", JSON, 405),
        ("DELETE", "/rules/x", None, {}, 404),
        ("GET", "/nothing", None, {}, 404),
    ],
)
async def test_a_wrong_request_is_answered_in_one_line(
    barnabas_broker: EmbeddedServers, method: str, path: str, body: str | None, headers: dict[str, str], status: int
) -> None:
    async with site(barnabas_broker) as found:
        answered, text = await found.ask(method, path, body, headers)
        assert (answered, "\n" in text, bool(text)) == (status, False, True)
        assert found.proxy.common.rules.rules == []


async def test_a_port_that_is_taken_is_named(barnabas_broker: EmbeddedServers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with running_proxy(ProxySetup(barnabas_broker)) as proxy:
            with pytest.raises(ClusterError, match="Address already in use; choose another --http-port"):
                HttpPage(proxy, Recorder(proxy), "127.0.0.1", taken.getsockname()[1])


async def test_with_a_token_every_request_needs_it(barnabas_broker: EmbeddedServers) -> None:
    token = HttpToken("a-token-of-a-proxy")
    async with site(barnabas_broker, token) as found:
        asked = (("GET", "/", None), ("POST", "/rules", '"Fetch delay_ms=5"'), ("GET", "/trace", None))
        for method, path, body in asked:
            for headers in (JSON, {**JSON, "Authorization": "Bearer another-token-here"}):
                assert await found.ask(method, path, body, headers) == (
                    401,
                    "the proxy needs the token of its --http-token-file",
                )
        assert found.proxy.common.rules.rules == []
        right = {**JSON, "Authorization": token.authorization}
        assert (await found.ask("POST", "/rules", '"Fetch delay_ms=5"', right))[0] == 201
