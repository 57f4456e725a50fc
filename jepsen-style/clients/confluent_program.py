"""The program of a librdkafka client: reads calls as lines of JSON, answers each with one.

It is a process of its own because librdkafka's binding may wait for the library with Python's lock in its hand (2.16: a
member that closes while its partitions are taken from it): everything else in the interpreter then stands still for
ever.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from clients.client import ClientError, ClientSettings
from clients.confluent_client import ConfluentClient
from operations import Place

Call = Mapping[str, Any]


class Program:
    """One client, and what it is asked for."""

    def __init__(self, client: ConfluentClient) -> None:
        self._client = client
        self._calls: dict[str, Callable[[Call], Awaitable[Any]]] = {
            "create_topic": lambda call: client.create_topic(
                call["name"], call["partitions"], call["replicas"], call["configs"]
            ),
            "delete_topic": lambda call: client.delete_topic(call["name"]),
            "create_partitions": lambda call: client.create_partitions(call["name"], call["total"]),
            "list_topics": lambda call: client.list_topics(),
            "alter_config": lambda call: client.alter_config(call["topic"], call["key"], call["value"]),
            "describe_config": lambda call: client.describe_config(call["topic"], call["key"]),
            "send": self._send,
            "init_transactions": lambda call: client.init_transactions(),
            "begin": lambda call: client.begin(),
            "send_offsets": lambda call: client.send_offsets(
                {Place(topic, partition): offset for topic, partition, offset in call["offsets"]}
            ),
            "commit_transaction": lambda call: client.commit_transaction(),
            "abort_transaction": lambda call: client.abort_transaction(),
            "assign": lambda call: client.assign(_places(call), from_beginning=call["from_beginning"]),
            "subscribe": lambda call: client.subscribe(call["topics"]),
            "seek": lambda call: client.seek(Place(*call["place"]), call["offset"]),
            "poll": self._poll,
            "position": lambda call: client.position(Place(*call["place"])),
            "commit_offsets": self._commit_offsets,
            "committed": self._committed,
            "end_offsets": self._end_offsets,
            "close": lambda call: client.close(),
        }

    async def answer(self, call: Call) -> dict[str, Any]:
        answer: dict[str, Any]
        try:
            answer = {"ok": await self._calls[call["call"]](call)}
        except ClientError as error:
            answer = {"error": error.name, "text": error.text, "definite": error.definite, "fatal": error.fatal}
        return answer | {"rebalances": self._client.take_rebalances()}

    async def _send(self, call: Call) -> Any:
        key = None if call["key"] is None else base64.b64decode(call["key"])
        sent = await self._client.send(Place(call["topic"], call["partition"]), key, base64.b64decode(call["value"]))
        return {"offset": sent.offset, "timestamp_ms": sent.timestamp_ms}

    async def _poll(self, call: Call) -> Any:
        return [
            [*read.place, read.offset, _text(read.key), _text(read.value), read.timestamp_ms, read.leader_epoch]
            for read in await self._client.poll(call["timeout_ms"])
        ]

    async def _commit_offsets(self, call: Call) -> Any:
        return _listed(await self._client.commit_offsets())

    async def _committed(self, call: Call) -> Any:
        return _listed(await self._client.committed(_places(call)))

    async def _end_offsets(self, call: Call) -> Any:
        return _listed(await self._client.end_offsets(_places(call)))


def _places(call: Call) -> list[Place]:
    return [Place(*place) for place in call["places"]]


def _listed(offsets: Mapping[Place, int]) -> list[list[Any]]:
    return [[*place, offset] for place, offset in offsets.items()]


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


async def main() -> None:
    settings = ClientSettings(**json.loads(sys.stdin.readline()))
    # The parent stamps events with the time that all share.
    program = Program(ConfluentClient(settings, lambda: 0, trio.CapacityLimiter(10)))
    answer: dict[str, Any] = {"ok": None, "rebalances": []}
    while True:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        line = await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        if not line:
            # The parent is gone; closing in good order might never end.
            os._exit(0)
        answer = await program.answer(json.loads(line))


if __name__ == "__main__":
    trio.run(main)
