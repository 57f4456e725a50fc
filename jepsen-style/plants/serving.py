"""Mistakes of those who serve requests: clients that behave well do not see them, hostile ones do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import trio

from barnabas.broker import forwarding
from barnabas.broker.coordinator.shard import Shard
from barnabas.broker.forwarding import Forwarding
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import EncodeError
from barnabas.protocol.records.record_check import ProduceLimits
from barnabas.runtime.background import Background, Failed, Task
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import Meter
from barnabas.runtime.server_connection import ServerConnection

LONG_ID = 200
"""Characters of an id that a planted coordinator cannot write."""


def let_failures_out(_original: Any) -> Any:
    """A failure in the background ends the node."""

    async def run(self: Background, task: Task, args: tuple[Any, ...], failed: Failed | None) -> None:
        await task(*args)

    return run


def fail_on_long_ids(original: Any) -> Any:
    """A coordinator finds out late, by an unexpected exception, that it cannot write an id."""

    def append(self: Shard[Any], records: Any, *more: Any) -> None:
        for record in records:
            for spec in record.key.FIELDS:
                value = getattr(record.key, spec.name)
                if isinstance(value, str) and len(value) > LONG_ID:
                    raise EncodeError(f"{spec.name} has {len(value)} characters")
        original(self, records, *more)

    return append


def serve_closed_connections(_original: Any) -> Any:
    """All requests that came are carried out, though their connection is closed."""

    async def serve(self: ServerConnection, frames: list[bytearray]) -> None:
        position = 0
        while position < len(frames) and not self._finishing:
            self._was_held_up = True
            position += self._turn(frames, position)
            if self._steps is not None:
                await self.driver.take_all(self._steps)
                self._steps = None
            if self._responses.is_full and not self.closed:
                await self._wait_for_room()
            await trio.lowlevel.checkpoint()

    return serve


def check_heads_alone(original: Any) -> Any:
    """A leader believes the head of a batch."""

    def produce_limits(self: Partition) -> ProduceLimits:
        limits: ProduceLimits = original.fget(self)
        return replace(limits, head_only=True)

    return property(produce_limits)


def forward_all_at_once(_original: Any) -> Any:
    """Requests of one connection overtake each other on their way to the controller."""

    def forward(self: Forwarding, call: Call) -> None:
        self._ports.background.spawn(forwarding.forward_one, self._ports, call)

    return forward


def never_end_a_step(_original: Any) -> Any:
    """Handlers do not pause between the items of a request."""

    def step_ends(self: Meter, items: int = 1) -> bool:
        return False

    return step_ends
