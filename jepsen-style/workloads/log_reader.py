"""A thread's way through some partitions, from their beginning, a piece for each operation.

Makes the values that `checkers.readings` looks at. Reading changes nothing in the cluster, so a reading that failed did
surely nothing; what it had been given until then is evidence all the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from clients.client import ClientError, Read, WorkClient
from operations import Completion, Invocation, Place
from workloads.lives import Lives

POLL_MS = 200
MOST_RECORDS = 1_000
"""Maximum number of records of one operation."""
QUIET_POLLS = 5
"""Without anything: the operation ends."""
QUIET_READINGS = 10
"""In a row, when everything is healed: there will be nothing more."""


def json_value(read: Read) -> Any:
    return json.loads(read.value)


class LogReader:
    """The reader of one thread. The next client of the thread goes on where the last one was."""

    def __init__(self, places: Sequence[Place], decode: Callable[[Read], Any]) -> None:
        self._places = list(places)
        self._decode = decode
        self._next = dict.fromkeys(self._places, 0)
        self._client: WorkClient | None = None
        self._quiet = 0

    async def read(self, client: WorkClient) -> Completion:
        """From where the last one ended up to the ends that the cluster names now, or less."""
        taken: dict[Place, list[list[Any]]] = {place: [] for place in self._places}
        began = dict(self._next)
        ends: dict[Place, int] = {}
        error: ClientError | None = None
        try:
            if client is not self._client:
                await self._assign(client)
            ends.update(await client.end_offsets(self._places))
            await self._read_to(client, ends, taken)
        except ClientError as raised:
            error = raised
        after = dict(self._next)
        progress = any(after[place] > began[place] for place in self._places)
        at_end = bool(ends) and all(after[place] >= ends.get(place, 0) for place in self._places)
        self._quiet = 0 if progress or error else self._quiet + 1
        value = {
            "parts": [[*place, began[place], after[place], taken[place]] for place in self._places],
            "ends": [[*place, end] for place, end in ends.items()],
            "end": at_end or ("quiet" if self._quiet >= QUIET_READINGS else False),
        }
        if error:
            return Completion("fail", value, (error.name, error.text), ends_process=error.fatal)
        return Completion("ok", value)

    async def _assign(self, client: WorkClient) -> None:
        is_first = not any(self._next.values())
        await client.assign(self._places, from_beginning=is_first)
        if not is_first:
            for place, offset in self._next.items():
                await client.seek(place, offset)
        self._client = client

    async def _read_to(self, client: WorkClient, ends: dict[Place, int], taken: dict[Place, list[list[Any]]]) -> None:
        quiet = count = 0
        while quiet < QUIET_POLLS and count < MOST_RECORDS:
            if all(self._next[place] >= ends.get(place, 0) for place in self._places):
                return
            before = dict(self._next)
            for read in await client.poll(POLL_MS):
                if read.place in taken:
                    count += 1
                    self._take(read, taken)
            for place in self._places:
                self._next[place] = max(self._next[place], await client.position(place) or 0)
            quiet = 0 if self._next != before else quiet + 1

    def _take(self, read: Read, taken: dict[Place, list[list[Any]]]) -> None:
        taken[read.place].append([read.offset, self._decode(read)])
        self._next[read.place] = max(self._next[read.place], read.offset + 1)


class LogReaders:
    """The readers of all threads of a run. The final reading starts from the beginning with each client."""

    def __init__(self, lives: Lives, places: Sequence[Place], decode: Callable[[Read], Any]) -> None:
        self._lives = lives
        self._places = places
        self._decode = decode
        self._readers: dict[int, LogReader] = {}
        """By thread."""
        self._final: dict[int, LogReader] = {}
        """By process."""

    def of(self, process: int, invocation: Invocation) -> LogReader:
        """The reader for a `read`."""
        if invocation.value["final"]:
            return self._final.setdefault(process, LogReader(self._places, self._decode))
        return self._readers.setdefault(self._lives.thread(process), LogReader(self._places, self._decode))
