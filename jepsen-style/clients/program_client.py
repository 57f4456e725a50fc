"""A client in a process of its own: a line of JSON goes in for each call, and one comes out. A crash is SIGKILL.

So are calls without an end: whatever holds a library up, it ends with its process, and holds up nobody else.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import trio

from clients import definite_errors
from clients.client import ClientError, ClientSettings, Read, Sent
from operations import Place

CALL_SECONDS = 45.0
"""Every call is bounded by the client; a process that takes longer is killed."""
START_SECONDS = 60.0
CLOSE_SECONDS = 10.0
_CHUNK_BYTES = 65_536


class Program(NamedTuple):
    """The program that runs in the process."""

    name: str
    command: Sequence[str]
    options: Callable[[ClientSettings], Mapping[str, Any]]
    """Its first line of input."""
    classified: Callable[[Mapping[str, Any], frozenset[str]], ClientError]
    """From an answer that is an error, and the names of errors after which surely nothing happened."""
    environment: Mapping[str, str] = {}
    """Beside ours."""


class ProgramLibrary:
    """Makes them."""

    def __init__(self, program: Program, now_ns: Callable[[], int]) -> None:
        self.name = program.name
        self._program = program
        self._now_ns = now_ns

    @asynccontextmanager
    async def open(self, settings: ClientSettings, host: str) -> AsyncIterator[ProgramClient]:
        process = await trio.lowlevel.open_process(
            list(self._program.command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self._program.environment},
            # Ctrl-C is for the process that leads the run.
            start_new_session=True,
        )
        try:
            client = ProgramClient(self._program, settings, process, self._now_ns)
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


class ProgramClient:
    """A `WorkClient`."""

    def __init__(
        self, program: Program, settings: ClientSettings, process: trio.Process, now_ns: Callable[[], int]
    ) -> None:
        self._program = program
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
        """It takes its time to come up; that belongs to no operation."""
        try:
            await self._exchange(json.dumps(self._program.options(self._settings)), START_SECONDS)
        except ClientError as error:
            text = f"{self._program.name} did not come up: {error.text}"
            raise ClientError(error.name, text, definite=True, fatal=True) from error

    # ---- administrator

    async def create_topic(
        self, name: str, partitions: int, replicas: int, configs: Mapping[str, str] | None = None
    ) -> None:
        call = {"name": name, "partitions": partitions, "replicas": replicas, "configs": dict(configs or {})}
        await self._call("create_topic", call, definite_errors.OF_CHANGES)

    async def delete_topic(self, name: str) -> None:
        await self._call("delete_topic", {"name": name}, definite_errors.OF_CHANGES)

    async def create_partitions(self, name: str, total: int) -> None:
        await self._call("create_partitions", {"name": name, "total": total}, definite_errors.OF_CHANGES)

    async def list_topics(self) -> Mapping[str, int]:
        found: dict[str, int] = await self._call("list_topics", {}, definite_errors.OF_CHANGES)
        return found

    async def alter_config(self, topic: str, name: str, value: str) -> None:
        await self._call("alter_config", {"topic": topic, "key": name, "value": value}, definite_errors.OF_CHANGES)

    async def describe_config(self, topic: str, name: str) -> str:
        return str(await self._call("describe_config", {"topic": topic, "key": name}, definite_errors.OF_CHANGES))

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
        sent = await self._call("send", call, definite_errors.OF_SENDS)
        return Sent(sent["offset"], sent["timestamp_ms"])

    async def init_transactions(self) -> None:
        await self._nothing_happens("init_transactions", fatal=True)

    async def begin(self) -> None:
        await self._nothing_happens("begin", fatal=False)

    async def _nothing_happens(self, name: str, *, fatal: bool) -> None:
        """A call that puts no record into a log, whatever its outcome."""
        try:
            await self._call(name, {}, definite_errors.OF_SENDS)
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
        await self._call("assign", call, definite_errors.OF_CHANGES)
        self._reads_something, self._assignment = bool(places), list(places)

    async def subscribe(self, topics: Sequence[str]) -> None:
        await self._call("subscribe", {"topics": list(topics)}, definite_errors.OF_CHANGES)
        self._reads_something, self._assignment = bool(topics), []

    async def seek(self, place: Place, offset: int) -> None:
        await self._call("seek", {"place": list(place), "offset": offset}, definite_errors.OF_CHANGES)

    async def poll(self, timeout_ms: int) -> list[Read]:
        if not self._reads_something:
            await trio.sleep(timeout_ms / 1000)
            return []
        records = await self._call("poll", {"timeout_ms": timeout_ms}, definite_errors.OF_CHANGES)
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
        found = await self._call("position", {"place": list(place)}, definite_errors.OF_CHANGES)
        return None if found is None else int(found)

    async def commit_offsets(self) -> Mapping[Place, int]:
        return _offsets(await self._call("commit_offsets", {}, frozenset()))

    async def committed(self, places: Sequence[Place]) -> Mapping[Place, int]:
        call = {"places": [list(place) for place in places]}
        return _offsets(await self._call("committed", call, definite_errors.OF_CHANGES))

    async def committed_by_one(self, places: Sequence[Place], turn: int) -> Mapping[Place, int]:
        return await self.committed(places)

    async def end_offsets(self, places: Sequence[Place]) -> Mapping[Place, int]:
        call = {"places": [list(place) for place in places]}
        return _offsets(await self._call("end_offsets", call, definite_errors.OF_CHANGES))

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
            raise self._program.classified(answer, definite_names)
        return answer["ok"]

    async def _exchange(self, line: str, seconds: float) -> dict[str, Any]:
        answer: dict[str, Any] | None = None
        with trio.move_on_after(seconds):
            try:
                await self._stdin.send_all(line.encode() + b"\n")
                answer = json.loads(await self._read_line())
            except (trio.BrokenResourceError, EOFError, ValueError) as error:
                text = f"{self._program.name} has ended, or its answer is malformed"
                raise ClientError("ProcessEnded", text, definite=False, fatal=True) from error
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

    def _note_rebalances(self, rebalances: list[dict[str, Any]]) -> None:
        for each in rebalances:
            places = [Place(*place) for place in each["places"]]
            gone = dict.fromkeys(places)
            kept = [place for place in self._assignment if place not in gone]
            self._assignment = kept + places if each["kind"] == "assigned" else kept
            self._rebalances.append({**each, "t_ns": self._now_ns()})


def _offsets(listed: list[list[Any]]) -> dict[Place, int]:
    return {Place(topic, partition): offset for topic, partition, offset in listed}
