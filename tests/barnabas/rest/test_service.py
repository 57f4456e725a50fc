"""The REST interface on a page, over real sockets, in front of a broker in the test process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from barnabas import Admin, Consumer, Producer, TopicPartition, sync
from barnabas.client.consumer.settings import ConsumerSettings
from barnabas.client.schemas.lookup import RegistryLookup
from barnabas.dev.embedded import EmbeddedServers, embedded
from barnabas.page.asking import Asker
from barnabas.page.feed import Feed
from barnabas.page.server import Page, open_port
from barnabas.page.watch import Watch
from barnabas.rest.routes import rest_routes
from barnabas.rest.schema_values import SchemaValues
from barnabas.rest.service import MOST_READERS, Rest
from barnabas.runtime.real import real_world

TOKEN = "the-token"


class Client:
    """A client of HTTP without a library."""

    def __init__(self, port: int, cluster_id: str) -> None:
        self.port = port
        self.root = f"/v3/clusters/{cluster_id}"

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
        """Status and JSON of the answer; `X_Name` for a header `X-Name`."""
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            await stream.send_all(self._request(method, path, body, {"Connection": "close", **headers}))
            answer = b"".join([piece async for piece in stream])
        head, _, content = answer.partition(b"\r\n\r\n")
        text = content.decode()
        try:
            return int(head.split(b" ")[1]), json.loads(text) if text else None
        except ValueError:
            return int(head.split(b" ")[1]), [json.loads(line) for line in text.splitlines()]

    async def write(self, path: str, body: object, **headers: str) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.ask("POST", path, data, **{"X_Barnabas_Token": TOKEN, **headers})

    @asynccontextmanager
    async def events(self, path: str, **headers: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Server-sent events: `id`, and `data` as JSON."""
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            await stream.send_all(self._request("GET", path, b"", {"Accept": "text/event-stream", **headers}))
            yield _events(stream)

    def _request(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        sent = {"Host": f"127.0.0.1:{self.port}", "Content-Length": str(len(body)), **headers}
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in sent.items())
        where = path if path.startswith("/v3") else f"{self.root}{path}"
        return f"{method} {where} HTTP/1.1\r\n{lines}\r\n".encode() + body


async def _events(stream: trio.SocketStream) -> AsyncIterator[dict[str, Any]]:
    text = b""
    async for piece in stream:
        text += piece
        while b"\n\n" in text:
            event, _, text = text.partition(b"\n\n")
            lines = dict(line.partition(b": ")[::2] for line in event.split(b"\n"))
            if b"data" in lines:
                yield {"id": lines.get(b"id", b"").decode(), "data": json.loads(lines[b"data"])}


@asynccontextmanager
async def serving(
    servers: str, *, allow_writes: bool = True, schemas: SchemaValues | None = None
) -> AsyncIterator[Client]:
    def settings() -> dict[str, str]:
        return {"bootstrap_servers": servers}

    rest = Rest(Asker(settings), settings, settings, allow_writes, schemas)
    feed = Feed()
    listener, place = open_port("127.0.0.1", 0)
    watch = Watch(real_world(), feed, [])
    page = Page(
        watch, feed, listener, place, TOKEN, lambda _: {}, lambda: "", routes=rest_routes(rest, TOKEN)
    )
    async with trio.open_nursery() as nursery:
        with trio.fail_after(60):
            await nursery.start(rest.run)
            await nursery.start(page.serve)
            async with Admin(**settings()) as admin:  # type: ignore[arg-type]
                cluster_id = (await admin.describe_cluster()).cluster_id
            yield Client(place.port, cluster_id)
        nursery.cancel_scope.cancel()


def string(text: str) -> dict[str, object]:
    return {"value": {"type": "STRING", "data": text}}


async def test_topics_are_created_described_and_deleted(barnabas_broker: EmbeddedServers) -> None:
    async with serving(barnabas_broker) as client:
        configs = [{"name": "retention.ms", "value": "60000"}]
        new = {"topic_name": "rest-made", "partitions_count": 3, "configs": configs}
        status, made = await client.write("/topics", new)
        assert (status, made["kind"], made["partitions_count"]) == (201, "KafkaTopic", 3)
        assert made["metadata"]["resource_name"].endswith("/topic=rest-made")
        status, again = await client.write("/topics", new)
        assert (status, again["error_code"]) == (400, 40002)
        made_at = "/topics/rest-made"
        for path in ("", "/brokers", "/topics", made_at, f"{made_at}/partitions", "/consumer-groups"):
            status, found = await client.ask("GET", path)
            assert status == 200 and found["metadata"]["self"].endswith(path), found
        _, found = await client.ask("GET", "/topics/rest-made/configs")
        [retention] = [it for it in found["data"] if it["name"] == "retention.ms"]
        assert (retention["value"], retention["is_default"]) == ("60000", False)
        assert (await client.ask("DELETE", "/topics/rest-made", X_Barnabas_Token=TOKEN))[0] == 204
        status, gone = await client.ask("GET", "/topics/rest-made")
        assert (status, gone["error_code"]) == (404, 40403)
        assert (await client.ask("GET", "/v3/clusters/other/topics"))[0] == 404


async def test_records_are_written_listed_and_read_on(barnabas_broker: EmbeddedServers, barnabas_topic: str) -> None:
    path = f"/topics/{barnabas_topic}/records"
    async with serving(barnabas_broker) as client:
        body = b" ".join(json.dumps(string(f"value {number}")).encode() for number in range(5)) + b'{"value":7}'
        _, answers = await client.write(path, body)
        assert [it.get("offset") for it in answers] == [0, 1, 2, 3, 4, None]
        assert answers[-1]["message"].startswith("record 6: value must be")
        _, one = await client.write(path, string("value 5"))
        assert (one["offset"], one["value"]) == (5, {"type": "STRING", "size": 7})
        _, first = await client.ask("GET", f"{path}?from=earliest&max=2")
        assert [it["value"]["data"] for it in first["data"]] == ["value 0", "value 1"]
        _, rest = await client.ask("GET", f"{path}?after={first['metadata']['after']}&contains=4")
        assert [it["offset"] for it in rest["data"]] == [4]
        async with client.events(f"{path}?from=3") as events:
            seen = [await anext(events) for _ in range(3)]
            assert [it["data"]["offset"] for it in seen] == [3, 4, 5]
            await client.write(path, string("value 6"))
            last = await anext(events)
            assert (last["data"]["value"]["data"], last["id"]) == ("value 6", "0:7")
        async with client.events(f"{path}?from=earliest", Last_Event_ID="0:6") as events:
            assert (await anext(events))["data"]["offset"] == 6


async def test_a_group_goes_on_after_what_was_delivered(barnabas_broker: EmbeddedServers, barnabas_topic: str) -> None:
    path, group = f"/topics/{barnabas_topic}/records?from=earliest&group={barnabas_topic}", barnabas_topic
    place = TopicPartition(barnabas_topic, 0)
    async with (
        serving(barnabas_broker) as client,
        Consumer(bootstrap_servers=barnabas_broker, group_id=group) as looking,
    ):
        await client.write(f"/topics/{barnabas_topic}/records", string("first"))
        async with client.events(path) as events:
            assert (await anext(events))["data"]["value"]["data"] == "first"
            while (await looking.committed([place]))[place] is None:
                pass
        await client.write(f"/topics/{barnabas_topic}/records", string("second"))
        async with client.events(path) as events:
            assert (await anext(events))["data"]["value"]["data"] == "second"
        status, lags = await client.ask("GET", f"/consumer-groups/{group}/lags")
        assert status == 200 and lags["data"][0]["log_end_offset"] == 2


async def test_a_refused_request_names_the_reason(barnabas_broker: EmbeddedServers, barnabas_topic: str) -> None:
    path = f"/topics/{barnabas_topic}/records"
    async with serving(barnabas_broker) as client:
        status, answer = await client.ask("POST", path, b"{}")
        assert (status, answer["error_code"]) == (403, 40301)
        status, _ = await client.write(path, string("x"), Origin="http://evil.example")
        assert status == 403
        assert (await client.write(path, b"x" * (2 << 20)))[0] == 413
        status, answer = await client.ask("GET", path + "?from=soon")
        assert (status, answer["message"][:13]) == (400, "from must be ")
        status, answer = await client.ask("GET", path + "?group=g")
        assert status == 400 and "server-sent events" in answer["message"]
        status, answer = await client.ask("GET", path + "?partition=9")
        assert (status, answer["message"]) == (404, f"topic {barnabas_topic} has no partition 9")
    async with serving(barnabas_broker, allow_writes=False) as client:
        status, answer = await client.write(path, string("x"))
        assert (status, answer["message"]) == (405, "the interface is read-only; start the page with --allow-writes")


async def test_readers_are_limited_and_leave_no_trace(barnabas_broker: EmbeddedServers, barnabas_topic: str) -> None:
    path = f"/topics/{barnabas_topic}/records"
    async with serving(barnabas_broker) as client, Producer(bootstrap_servers=barnabas_broker) as producer:
        await producer.send(barnabas_topic, b"x")
        rest_of_readers = MOST_READERS - 1
        async with client.events(f"{path}?from=earliest") as events:
            await anext(events)
            streams = []
            for _ in range(rest_of_readers):
                stream = await trio.open_tcp_stream("127.0.0.1", client.port)
                await stream.send_all(client._request("GET", path, b"", {"Accept": "text/event-stream"}))
                assert b"200" in await stream.receive_some()
                streams.append(stream)
            status, answer = await client.ask("GET", path, Accept="text/event-stream")
            assert (status, answer["error_code"]) == (503, 50302)
            for stream in streams:
                await stream.aclose()
            await producer.send(barnabas_topic, b"y")  # a reader that is gone is noticed by what it does not take
            assert (await anext(events))["data"]["offset"] == 1
        while (await client.ask("GET", f"{path}?from=earliest"))[0] == 503:
            pass


def test_a_reader_takes_the_settings_of_a_consumer() -> None:
    from barnabas.rest.service import _READER, _WRITER

    assert set(_READER) <= set(ConsumerSettings.model_fields)
    from barnabas.client.producer.settings import ProducerSettings

    assert set(_WRITER) <= set(ProducerSettings.model_fields)


SEAT = (
    '{"type": "record", "name": "Seat", "fields": [{"name": "row", "type": "int"}, {"name": "map", "type": "bytes"}, '
    '{"name": "tilt", "type": "double"}]}'
)


async def test_values_are_decoded_by_the_schema_registry() -> None:
    with embedded(topics=["seats"], registry=True) as servers:

        def write() -> None:
            settings = {"bootstrap_servers": servers, **servers.registry_settings}
            with sync.Producer(**settings, value_serializer="avro", value_schema=SEAT) as producer:
                producer.send("seats", {"row": 7, "map": b"\xff\x00", "tilt": float("nan")}, key=b"7A")
            with sync.Producer(bootstrap_servers=servers) as producer:
                producer.send("seats", b"\x00\x00\x00\x00\x63by an unknown schema")
                producer.send("seats", b"by none")

        await trio.to_thread.run_sync(write)
        asked = "/topics/seats/records?from=earliest&value=schema&wait_ms=10000"
        async with serving(servers, schemas=SchemaValues(RegistryLookup([servers.registry_url]))) as client:
            status, found = await client.ask("GET", asked)
            assert status == 200
            first, *others = found["data"]
            assert first["value"] == {
                "type": "AVRO",
                "schema_id": 1,
                "data": {"row": 7, "map": "/wA=", "tilt": "nan"},
            }
            assert first["key"] == {"type": "STRING", "data": "7A"}
            assert [each["value"]["type"] for each in others] == ["BINARY", "BINARY"]
            async with client.events("/topics/seats/records?from=earliest&value=schema") as events:
                event = await anext(events)
                assert event["data"]["value"]["data"]["row"] == 7
        async with serving(servers) as client:
            status, refusal = await client.ask("GET", asked)
            assert status == 400 and "start the page with --schema-registry" in refusal["message"]
