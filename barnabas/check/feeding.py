"""Feeds the input topic: numbered records with keys, and some in transactions that are aborted."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import trio

from barnabas import Producer
from barnabas.check.options import Load
from barnabas.check.records import write_value
from barnabas.client.producer.future import FutureRecordMetadata
from barnabas.protocol.errors import KafkaError

ABORT_EVERY_S = 2.0
_ABORTED_AT_ONCE = 3


class Feeder:
    """The producer of one run. Rate, keys and sizes come from the seed."""

    def __init__(self, topic: str, load: Load, seed: int, *, with_aborted: bool) -> None:
        self._topic = topic
        self._load = load
        self._chance = random.Random(f"feed/{seed}")
        self._with_aborted = with_aborted
        self._transactional_id = f"barnabas-check-{seed}"
        self._numbers = 0
        self._of_key: dict[str, int] = {}
        self.sent: dict[str, float] = {}
        """By id, the time of the acknowledgement."""
        self.uncertain: set[str] = set()
        """Ids of records whose outcome is unknown."""
        self.aborted: set[str] = set()

    async def run(self, client: Mapping[str, Any], until: Callable[[], bool]) -> None:
        """Feeds while `until` is false, then waits for the acknowledgements."""
        async with Producer(**client, linger_ms=0) as producer, trio.open_nursery() as nursery:
            if self._with_aborted:
                nursery.start_soon(self._abort_some, client, until)
            due = trio.current_time()
            while not until():
                number, key, value = self._next()
                self.uncertain.add(str(number))
                try:
                    future = await producer.enqueue(self._topic, value, key=key.encode())
                except KafkaError:
                    continue
                nursery.start_soon(self._await, future, str(number))
                due = max(due + self._chance.expovariate(self._load.rate), trio.current_time() - 1.0)
                await trio.sleep_until(due)

    def _next(self) -> tuple[int, str, bytes]:
        self._numbers += 1
        key = f"k{self._chance.randrange(self._load.keys)}"
        n = self._of_key.get(key, 0) + 1
        self._of_key[key] = n
        padding = self._chance.randrange(self._load.padding + 1)
        return self._numbers, key, write_value(self._numbers, key, n, padding)

    async def _await(self, future: FutureRecordMetadata, number: str) -> None:
        try:
            await future
        except KafkaError:
            return  # it may be in the log or not: it stays uncertain
        self.sent[number] = time.time()
        self.uncertain.discard(number)

    async def _abort_some(self, client: Mapping[str, Any], until: Callable[[], bool]) -> None:
        """Records that no reader of committed records sees."""
        async with Producer(**client, transactional_id=self._transactional_id) as producer:
            while not until():
                await trio.sleep(ABORT_EVERY_S)
                try:
                    async with producer.transaction():
                        for _ in range(_ABORTED_AT_ONCE):
                            number, key, value = self._next()
                            self.aborted.add(str(number))
                            await producer.enqueue(self._topic, value, key=key.encode())
                        await producer.flush()
                        raise _OnPurpose
                except (_OnPurpose, KafkaError):
                    continue


class _OnPurpose(Exception):
    """Ends a transaction that is to be aborted."""
