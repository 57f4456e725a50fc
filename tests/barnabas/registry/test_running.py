"""A registry before a broker: its topic, two of them at once, and what they do on a topic that is not theirs."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.topic_values import NewTopic
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer.producer import Producer
from barnabas.client.schemas.access import registry_of
from barnabas.client.schemas.lookup import NewSchema
from barnabas.cluster.errors import ClusterError
from barnabas.dev.embedded import embedded
from barnabas.dev.node import DevNode, dev_node
from barnabas.dev.options import DevOptions
from barnabas.registry.candidate import ElectionSettings
from barnabas.registry.decisions import MOST_VERSIONS
from barnabas.registry.records import Change, SchemaValue
from barnabas.registry.running import RegistryOptions, RunningRegistry, run_registry
from barnabas.registry.store import TopicStore
from barnabas.runtime.error_groups import only_error
from barnabas.runtime.sasl.http_exchange import HttpRequest, answer_of
from barnabas.web import listen
from tests.barnabas.registry.rig import Rig, record

A, AB = record("a:int"), record("a:int", "b:int=0")
QUICK = ElectionSettings(session_timeout_ms=6_000, heartbeat_interval_ms=100)


def ask_now(url: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Status and body. Blocks."""
    data = None if body is None else json.dumps(body).encode()
    answer = answer_of(HttpRequest(url + path, {"Content-Type": "application/json"}, data, method=method))
    return answer.status, json.loads(answer.body)


async def ask(url: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    return await trio.to_thread.run_sync(ask_now, url, method, path, body)


def schemas(subject: str) -> str:
    return f"/subjects/{subject}/versions"


@asynccontextmanager
async def broker(**options: Any) -> AsyncIterator[DevNode]:
    async with dev_node(DevOptions(port=0, **options)) as node:
        yield node


def options_for(node: DevNode, **more: Any) -> RegistryOptions:
    listener: socket.socket = listen("127.0.0.1", 0, "the registry")
    return RegistryOptions(listener, "127.0.0.1", {"bootstrap_servers": node.bootstrap_servers}, election=QUICK, **more)


@asynccontextmanager
async def registry(node: DevNode, **more: Any) -> AsyncIterator[RunningRegistry]:
    """A registry that is stopped at the end. Raises its error as itself."""
    try:
        async with trio.open_nursery() as nursery:
            running: RunningRegistry = await nursery.start(run_registry, options_for(node, **more))
            yield running
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise only_error(group) from None


async def test_a_registry_reads_what_the_one_before_it_wrote() -> None:
    async with broker() as node:
        async with registry(node) as first:
            assert (await ask(first.url, "POST", schemas("s"), {"schema": A}))[1]["id"] == 1
            await ask(first.url, "PUT", "/config/s", {"compatibility": "FULL"})
        async with registry(node) as second:
            assert (await ask(second.url, "GET", schemas("s") + "/1"))[1]["schema"] == A
            assert await ask(second.url, "GET", "/config/s") == (200, {"compatibilityLevel": "FULL"})
            assert (await ask(second.url, "POST", schemas("s"), {"schema": AB}))[1]["id"] == 2


async def test_the_topic_is_compacted_and_has_confluents_keys() -> None:
    async with broker() as node:
        async with registry(node) as running:
            await ask(running.url, "POST", schemas("s"), {"schema": A})
        async with Admin(bootstrap_servers=node.bootstrap_servers) as admin:
            assert len((await admin.describe_topics(["_schemas"]))["_schemas"].partitions) == 1
        async with Consumer(bootstrap_servers=node.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("_schemas", 0)])
            keys = [each.key for each in await consumer.poll(10_000)]
    assert keys == [b'{"keytype":"NOOP","magic":0}', b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}']


async def test_two_registries_agree() -> None:
    async with broker() as node, registry(node) as one, registry(node) as other:
        answers: list[int] = []

        async def register(url: str, number: int) -> None:
            body = {"schema": record(f"f{number}:int=0")}
            status, answer = await ask(url, "POST", schemas(f"s{number % 3}"), body)
            assert status == 200, answer
            answers.append(answer["id"])

        await ask(one.url, "PUT", "/config", {"compatibility": "NONE"})
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(register, (one.url, other.url)[number % 2], number)
        assert sorted(answers) == list(range(1, 21)), "each has an id of its own"
        leaders = [each.service.election.leads for each in (one, other)]
        assert sorted(leaders) == [False, True]
        for path in ("/subjects", "/schemas"):
            with trio.fail_after(10):
                while await ask(one.url, "GET", path) != await ask(other.url, "GET", path):
                    await trio.sleep(0.01)


async def test_the_other_registry_takes_over() -> None:
    life_of_first = trio.CancelScope()

    async def run_first(node: DevNode, *, task_status: trio.TaskStatus[RunningRegistry]) -> None:
        with life_of_first:
            await run_registry(options_for(node), task_status=task_status)

    async with broker() as node, trio.open_nursery() as nursery:
        first: RunningRegistry = await nursery.start(run_first, node)
        async with registry(node) as second:
            assert (first.service.election.leads, second.service.election.leads) == (True, False)
            assert (await ask(second.url, "POST", schemas("s"), {"schema": A}))[1]["id"] == 1, "passed on"
            life_of_first.cancel()
            with trio.fail_after(30):
                while not second.service.election.leads:
                    await trio.sleep(0.01)
            assert (await ask(second.url, "POST", schemas("s"), {"schema": AB}))[1]["id"] == 2


async def test_a_leader_that_was_deposed_writes_nothing() -> None:
    async with broker() as node, registry(node) as running:
        service = running.service
        service.election._candidate.leader = None
        status, answer = await ask(running.url, "POST", schemas("s"), {"schema": A})
        assert (status, answer["error_code"]) == (500, 50004)
        assert await ask(running.url, "GET", "/subjects") == (200, [])


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        (NewTopic("_schemas", 3, configs={"cleanup.policy": "compact"}), "should have only 1 partition but has 3"),
        (NewTopic("_schemas", 1), "cleanup.policy must be compact; got delete"),
        (NewTopic("_schemas", 1, configs={"cleanup.policy": "compact,delete"}), "must be compact; got compact,delete"),
    ],
)
async def test_a_topic_of_another_kind_is_refused_in_one_line(topic: NewTopic, reason: str) -> None:
    async with broker() as node:
        async with Admin(bootstrap_servers=node.bootstrap_servers) as admin:
            await admin.create_topics(topic)
        with pytest.raises(ClusterError, match=reason):
            async with registry(node):
                pass


async def test_records_of_others_in_the_topic_are_passed_over() -> None:
    async with broker() as node:
        clients = {"bootstrap_servers": node.bootstrap_servers}
        async with TopicStore(clients):
            pass
        async with Producer(**clients) as producer:
            for key, value in [(b"", b""), (b"{}", b"{}"), (b'{"keytype":"SCHEMA"}', None), (b"\xff", b"\xff")]:
                await producer.send("_schemas", value, key=key)
        async with registry(node) as running:
            assert (await ask(running.url, "POST", schemas("s"), {"schema": A}))[1]["id"] == 1


async def test_a_body_that_never_ends_is_refused() -> None:
    async with broker() as node, registry(node) as running:
        host, port = running.url.removeprefix("http://").split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            head = f"POST {schemas('s')} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            await stream.send_all(f"{head}Content-Length: {4 << 20}\r\n\r\n".encode())
            with trio.fail_after(30):
                try:
                    for _ in range(64):
                        await stream.send_all(b" " * (64 << 10))
                except trio.BrokenResourceError:
                    pass  # the answer may come before all is sent
                assert b"422" in await stream.receive_some(65_536)
        text = HttpRequest(running.url + schemas("s"), {"Content-Type": "text/plain"}, b"{}")
        answer = await trio.to_thread.run_sync(answer_of, text)
        assert answer.status == 415, "a web page of somebody else can send no other type"


async def test_ten_thousand_versions_are_the_most() -> None:
    values = [SchemaValue("s", number, number, record(f"f{number}:int=0")) for number in range(1, MOST_VERSIONS + 1)]
    records = [Change(each.key, each).encode() for each in values]
    rig = Rig(records[:-1])
    await rig.ask("PUT", "/config", {"compatibility": "BACKWARD_TRANSITIVE"})
    assert await rig.register("s", record("new:int=0")) == MOST_VERSIONS
    status, answer = await rig.ask("POST", schemas("s"), {"schema": record("other:int=0")})
    assert (status, answer["error_code"]) == (422, 42205)
    assert answer["message"] == "Subject s has 10000 versions, the most that are kept here"
    assert len((await rig.ask("GET", schemas("s")))[1]) == MOST_VERSIONS


async def test_writes_wait_for_an_election() -> None:
    """The group of the registries is gone with the topic of groups, and comes again."""
    async with broker() as node, registry(node) as running:
        before = running.service.election.generation
        async with Admin(bootstrap_servers=node.bootstrap_servers) as admin:
            await admin.delete_topics(["__consumer_offsets"])
        with trio.fail_after(30):
            while running.service.election.leads and running.service.election.generation == before:
                await trio.sleep(0.01)
        assert (await ask(running.url, "POST", schemas("s"), {"schema": A}))[0] == 200


def test_an_embedded_broker_has_a_registry() -> None:
    with embedded(registry=True, topics=["orders"]) as servers:
        assert ask_now(servers.registry_url, "POST", schemas("s"), {"schema": A})[1]["id"] == 1
        servers.reset()
        assert ask_now(servers.registry_url, "GET", "/subjects?deleted=true") == (200, [])
        assert ask_now(servers.registry_url, "POST", schemas("s"), {"schema": AB})[1]["id"] == 2, "ids go on"


def test_schemas_go_back_with_a_restored_state() -> None:
    with embedded(registry=True) as servers:
        ask_now(servers.registry_url, "POST", schemas("kept"), {"schema": A})
        snapshot = servers.snapshot()
        ask_now(servers.registry_url, "POST", schemas("later"), {"schema": AB})
        servers.restore(snapshot)
        assert ask_now(servers.registry_url, "GET", "/subjects") == (200, ["kept"])
        assert ask_now(servers.registry_url, "POST", schemas("later"), {"schema": AB})[1]["id"] == 2


def test_schemas_stay_with_the_directory(tmp_path: Path) -> None:
    with embedded(registry=True, directory=tmp_path) as servers:
        assert ask_now(servers.registry_url, "POST", schemas("s"), {"schema": A})[1]["id"] == 1
    with embedded(registry=True, directory=tmp_path) as servers:
        assert ask_now(servers.registry_url, "GET", schemas("s") + "/latest")[1]["schema"] == A


def test_a_secure_broker_has_a_registry_that_logs_in() -> None:
    with embedded(registry=True, secure=True) as servers:
        lookup = registry_of(servers.registry_settings, "the test")
        assert lookup.register("s", NewSchema("AVRO", A)) == 1


def test_without_a_registry_there_is_no_address() -> None:
    with embedded() as servers, pytest.raises(ClusterError, match=r"use embedded\(registry=True\)"):
        _ = servers.registry_url
