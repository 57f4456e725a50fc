"""Kafka's own client, in a Java process for each: lines of JSON go in and come out. A crash is SIGKILL."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from clients import definite, java_program
from clients.client import ClientError, ClientSettings, Read, Sent
from operations import Place

CALL_SECONDS = 45.0
"""Every call is bounded by the client; a process that takes longer is killed."""
START_SECONDS = 60.0
CLOSE_SECONDS = 6.0
_CHUNK_BYTES = 65_536

FATAL = frozenset(
    {
        "ProducerFencedException",
        "OutOfOrderSequenceException",
        "FencedInstanceIdException",
        "InvalidPidMappingException",
        "IllegalStateException",
        "TransactionalIdAuthorizationException",
        "ClusterAuthorizationException",
    }
)
"""After these a client is of no more use. A producer without transactions survives a broken sequence, but nobody needs
it to."""


def check() -> str:
    """See `java_program.check`."""
    return java_program.check()


def classified(answer: Mapping[str, Any], definite_names: frozenset[str]) -> ClientError:
    """From the program's word: what was never sent surely did not happen."""
    name = str(answer["error"])
    never_sent = answer.get("sent") is False
    return ClientError(
        name, str(answer.get("text")), definite=never_sent or name in definite_names, fatal=name in FATAL
    )


class JavaLibrary:
    """Makes them."""

    name = "java"

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._command = java_program.command()

    @asynccontextmanager
    async def open(self, settings: ClientSettings, host: str) -> AsyncIterator[JavaClient]:
        process = await trio.lowlevel.open_process(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            client = JavaClient(settings, process, self._now_ns)
            await client.begin_life()
            yield client
            await client.close()
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()
                for stream in (process.stdin, process.stdout):
                    assert stream is not None
                    await stream.aclose()


class JavaClient:
    """A `WorkClient`."""

    def __init__(self, settings: ClientSettings, process: trio.Process, now_ns: Callable[[], int]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._settings = settings
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._now_ns = now_ns
        self._buffer = bytearray()
        self._reads_something = False
        self._assignment: list[Place] = []
        self._rebalances: list[dict[str, Any]] = []
        self._gone = False

    async def begin_life(self) -> None:
        """Java takes its time to come up; that belongs to no operation."""
        try:
            await self._exchange(json.dumps(options(self._settings)), START_SECONDS)
        except ClientError as error:
            raise ClientError(error.name, f"java did not come up: {error.text}", definite=True, fatal=True) from error

    # ---- administrator

    async def create_topic(
        self, name: str, partitions: int, replicas: int, configs: Mapping[str, str] | None = None
    ) -> None:
        call = {"name": name, "partitions": partitions, "replicas": replicas, "configs": dict(configs or {})}
        await self._call("create_topic", call, definite.OF_CHANGES)

    async def delete_topic(self, name: str) -> None:
        await self._call("delete_topic", {"name": name}, definite.OF_CHANGES)

    async def create_partitions(self, name: str, total: int) -> None:
        await self._call("create_partitions", {"name": name, "total": total}, definite.OF_CHANGES)

    async def list_topics(self) -> Mapping[str, int]:
        found: dict[str, int] = await self._call("list_topics", {}, definite.OF_CHANGES)
        return found

    async def alter_config(self, topic: str, name: str, value: str) -> None:
        await self._call("alter_config", {"topic": topic, "key": name, "value": value}, definite.OF_CHANGES)

    async def describe_config(self, topic: str, name: str) -> str:
        return str(await self._call("describe_config", {"topic": topic, "key": name}, definite.OF_CHANGES))

    def answered_by(self) -> str | None:
        return None

    # ---- producer

    async def send(self, place: Place, key: bytes | None, value: bytes) -> Sent:
        call = {
            "topic": place.topic,
            "partition": place.partition,
            "key": None if key is None else base64.b64encode(key).decode(),
            "value": base64.b64encode(value).decode(),
        }
        sent = await self._call("send", call, definite.OF_SENDS)
        return Sent(sent["offset"], sent["timestamp_ms"])

    async def init_transactions(self) -> None:
        await self._nothing_happens("init_transactions", fatal=True)

    async def begin(self) -> None:
        await self._nothing_happens("begin", fatal=False)

    async def _nothing_happens(self, name: str, *, fatal: bool) -> None:
        """Whatever becomes of the call, no record is in a log for it."""
        try:
            await self._call(name, {}, definite.OF_SENDS)
        except ClientError as error:
            raise ClientError(error.name, error.text, definite=True, fatal=fatal or error.fatal) from error

    async def send_offsets(self, offsets: Mapping[Place, int]) -> None:
        listed = [[*place, offset] for place, offset in offsets.items()]
        await self._call("send_offsets", {"offsets": listed}, frozenset())

    async def commit_transaction(self) -> None:
        await self._call("commit_transaction", {}, frozenset())

    async def abort_transaction(self) -> None:
        await self._call("abort_transaction", {}, frozenset())

    # ---- consumer

    async def assign(self, places: Sequence[Place], *, from_beginning: bool) -> None:
        call = {"places": [list(place) for place in places], "from_beginning": from_beginning}
        await self._call("assign", call, definite.OF_CHANGES)
        self._reads_something, self._assignment = bool(places), list(places)

    async def subscribe(self, topics: Sequence[str]) -> None:
        await self._call("subscribe", {"topics": list(topics)}, definite.OF_CHANGES)
        self._reads_something, self._assignment = bool(topics), []

    async def seek(self, place: Place, offset: int) -> None:
        await self._call("seek", {"place": list(place), "offset": offset}, definite.OF_CHANGES)

    async def poll(self, timeout_ms: int) -> list[Read]:
        if not self._reads_something:
            await trio.sleep(timeout_ms / 1000)
            return []
        records = await self._call("poll", {"timeout_ms": timeout_ms}, definite.OF_CHANGES)
        return [
            Read(
                Place(topic, partition),
                offset,
                None if key is None else base64.b64decode(key),
                base64.b64decode(value),
                timestamp_ms,
                leader_epoch,
            )
            for topic, partition, offset, key, value, timestamp_ms, leader_epoch in records
        ]

    async def position(self, place: Place) -> int | None:
        return int(await self._call("position", {"place": list(place)}, definite.OF_CHANGES))

    async def commit_offsets(self) -> Mapping[Place, int]:
        return _offsets(await self._call("commit_offsets", {}, frozenset()))

    async def committed(self, places: Sequence[Place]) -> Mapping[Place, int]:
        call = {"places": [list(place) for place in places]}
        return _offsets(await self._call("committed", call, definite.OF_CHANGES))

    async def end_offsets(self, places: Sequence[Place]) -> Mapping[Place, int]:
        call = {"places": [list(place) for place in places]}
        return _offsets(await self._call("end_offsets", call, definite.OF_CHANGES))

    def assignment(self) -> list[Place]:
        return list(self._assignment)

    def take_rebalances(self) -> list[dict[str, Any]]:
        taken, self._rebalances = self._rebalances, []
        return taken

    # ---- the end

    async def crash(self) -> None:
        self._gone = True
        self._process.kill()
        await self._process.wait()

    async def close(self) -> None:
        """In good order, if it has not crashed; in bounded time."""
        if not self._gone:
            with trio.move_on_after(CLOSE_SECONDS):
                try:
                    await self._call("close", {}, frozenset())
                except ClientError:
                    pass  # the process is killed anyway

    # ---- inside

    async def _call(self, name: str, call: Mapping[str, Any], definite_names: frozenset[str]) -> Any:
        if self._gone:
            raise ClientError("ProcessEnded", "this client is gone", definite=True, fatal=True)
        answer = await self._exchange(json.dumps({"call": name, **call}), CALL_SECONDS)
        self._note_rebalances(answer["rebalances"])
        if "error" in answer:
            raise classified(answer, definite_names)
        return answer["ok"]

    async def _exchange(self, line: str, seconds: float) -> dict[str, Any]:
        answer: dict[str, Any] | None = None
        with trio.move_on_after(seconds):
            try:
                await self._stdin.send_all(line.encode() + b"\n")
                answer = json.loads(await self._read_line())
            except (trio.BrokenResourceError, EOFError) as error:
                raise ClientError("ProcessEnded", "java has ended", definite=False, fatal=True) from error
            finally:
                # A half-read answer would be taken for the next call's.
                self._gone = answer is None
        if answer is None:
            raise ClientError("TimeoutException", f"no end within {seconds:g} s", definite=False, fatal=True)
        return answer

    async def _read_line(self) -> bytes:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            chunk = await self._stdout.receive_some(_CHUNK_BYTES)
            if not chunk:
                raise EOFError
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _note_rebalances(self, told: list[dict[str, Any]]) -> None:
        for each in told:
            places = [Place(*place) for place in each["places"]]
            gone = dict.fromkeys(places)
            kept = [place for place in self._assignment if place not in gone]
            self._assignment = kept + places if each["kind"] == "assigned" else kept
            self._rebalances.append({**each, "t_ns": self._now_ns()})


def _offsets(listed: list[list[Any]]) -> dict[Place, int]:
    return {Place(topic, partition): offset for topic, partition, offset in listed}


# ---- settings


def options(settings: ClientSettings) -> dict[str, Any]:
    common = {
        "bootstrap.servers": settings.bootstrap_servers,
        "client.id": settings.client_id,
        "request.timeout.ms": settings.request_timeout_ms,
        "retry.backoff.ms": 50,
        "retry.backoff.max.ms": 500,
        "reconnect.backoff.max.ms": 1_000,
        "socket.connection.setup.timeout.ms": 1_000,
        "socket.connection.setup.timeout.max.ms": 2_000,
    }
    # Changes are asked for once: what happened at a second try could be the doing of the first.
    admin = common | {"retries": 0, "default.api.timeout.ms": settings.max_block_ms}
    return {
        "patience_ms": settings.max_block_ms,
        "admin": admin,
        "producer": common | _producer(settings),
        "consumer": common | _consumer(settings),
    }


def _producer(settings: ClientSettings) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "acks": settings.acks,
        "enable.idempotence": str(settings.idempotence).lower(),
        "linger.ms": 0,
        "delivery.timeout.ms": settings.delivery_timeout_ms,
        "max.block.ms": settings.max_block_ms,
    }
    if settings.transactional_id is not None:
        chosen["transactional.id"] = settings.transactional_id
        chosen["transaction.timeout.ms"] = settings.transaction_timeout_ms
    return chosen


def _consumer(settings: ClientSettings) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "isolation.level": settings.isolation,
        "auto.offset.reset": settings.auto_offset_reset,
        "default.api.timeout.ms": settings.max_block_ms,
        "max.poll.interval.ms": 15_000,
        "fetch.max.wait.ms": 100,
        "allow.auto.create.topics": "false",
        "enable.auto.commit": "false",
    }
    if settings.group_id is not None:
        chosen["group.id"] = settings.group_id
        chosen["group.protocol"] = settings.group_protocol
        chosen["enable.auto.commit"] = str(settings.auto_commit).lower()
        if settings.group_instance_id is not None:
            chosen["group.instance.id"] = settings.group_instance_id
        if settings.group_protocol == "classic":
            chosen["session.timeout.ms"] = settings.session_timeout_ms
            chosen["heartbeat.interval.ms"] = settings.heartbeat_interval_ms
    return chosen
