"""Reads the state of coordinators for one request, in steps; the response is sent when all that it depends on is
replicated.

A request may name very many groups or transactions. Each is read on its own; the wait for replication is one for each
shard that was read, however many of its groups were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from barnabas.broker.coordinator.outcome import Operation
from barnabas.broker.coordinator.shard import Shard
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import Meter
from barnabas.runtime.server import Steps

Part = TypeVar("Part")

AT_ONCE = 32
"""Parts that are refused in the step in which their shard is lost; more of them take several steps."""


class CoordinatorReads(Generic[Part]):
    """The parts of one response, in the order of the request."""

    def __init__(self, call: Call, refused: Callable[[int, ErrorCode], Part]) -> None:
        """`refused` makes the part of one place from an error code."""
        self.parts: list[Part] = []
        self.call = call
        self._refused = refused
        self._places: dict[Shard[Any], list[int]] = {}

    def put(self, part: Part) -> None:
        """Add a part. It depends on no shard, unless `depends_on` was called for it."""
        self.parts.append(part)

    def refuse(self, code: ErrorCode) -> None:
        """Add a part that is an error."""
        self.parts.append(self._refused(len(self.parts), code))

    def depends_on(self, shard: Shard[Any]) -> None:
        """The next part is read from this shard."""
        self._places.setdefault(shard, []).append(len(self.parts))

    def read(self, shard: Shard[Any], operation: Operation) -> None:
        """Add the result of a read-only operation."""
        self.depends_on(shard)
        try:
            self.put(shard.look(operation))
        except KafkaError as error:
            self.refuse(error.code)

    def settle(self, finish: Callable[[Sequence[Part]], None]) -> None:
        """Call `finish` with all parts when what they depend on is replicated. Parts of a shard that is lost by then
        are refused."""
        waiting = _Waiting(self, finish)
        for shard, places in self._places.items():
            waiting.count += 1
            shard.when_committed(self.call.guarded(partial(waiting.settled, places)))
        waiting.settled((), ErrorCode.NONE)

    def replace(self, failed: Sequence[tuple[Sequence[int], ErrorCode]], done: Callable[[], None]) -> Steps:
        """Replace the parts at these places by errors, in steps; then call `done`."""
        meter = Meter(self.call)
        for places, code in failed:
            for place in places:
                self.parts[place] = self._refused(place, code)
                if meter.step_ends():
                    yield None
        done()


class _Waiting(Generic[Part]):
    """The waits of one request for its shards."""

    def __init__(self, reads: CoordinatorReads[Part], finish: Callable[[Sequence[Part]], None]) -> None:
        self._reads = reads
        self._finish = finish
        self._failed: list[tuple[Sequence[int], ErrorCode]] = []
        self.count = 1
        """Shards that are waited for, plus one for `CoordinatorReads.settle` itself."""

    def settled(self, places: Sequence[int], code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            self._failed.append((places, code))
        self.count -= 1
        if self.count == 0:
            self._all_settled()

    def _all_settled(self) -> None:
        done = partial(self._finish, self._reads.parts)
        if not self._failed:
            done()
        elif sum(len(places) for places, _ in self._failed) <= AT_ONCE:
            for _ in self._reads.replace(self._failed, done):
                pass
        else:
            call = self._reads.call
            call.spawn(call.take_steps, self._reads.replace(self._failed, done))
