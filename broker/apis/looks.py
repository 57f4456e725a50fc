"""What coordinators know, read for one request in steps: the answer leaves when all that it rests on is replicated.

A request may name very many groups or transactions. Each is looked at by itself; the wait for the replicas is one for
each partition that was looked at, however many of its groups were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from broker.coordinator.outcome import Operation
from broker.coordinator.shard import Shard
from protocol.errors import ErrorCode, KafkaError
from runtime.dispatch import Call
from runtime.meter import Meter
from runtime.server import Steps

Part = TypeVar("Part")

AT_ONCE = 32
"""Parts that are refused in the turn in which their shard is lost."""


class Looks(Generic[Part]):
    """The parts of one answer, in the order of the questions."""

    def __init__(self, call: Call, refused: Callable[[int, ErrorCode], Part]) -> None:
        """`refused` makes the part of one place out of an error."""
        self.parts: list[Part] = []
        self.call = call
        self._refused = refused
        self._places: dict[Shard[Any], list[int]] = {}

    def put(self, part: Part) -> None:
        """A part that rests on nothing."""
        self.parts.append(part)

    def refuse(self, code: ErrorCode) -> None:
        """The next place gets an error."""
        self.parts.append(self._refused(len(self.parts), code))

    def rests_on(self, shard: Shard[Any]) -> None:
        """The next part is read from this shard."""
        self._places.setdefault(shard, []).append(len(self.parts))

    def look(self, shard: Shard[Any], operation: Operation) -> None:
        """The next part is the answer of an operation that only reads."""
        self.rests_on(shard)
        try:
            self.put(shard.look(operation))
        except KafkaError as error:
            self.refuse(error.code)

    def settle(self, finish: Callable[[Sequence[Part]], None]) -> None:
        """Call `finish` with all parts when what they rest on is replicated. Parts of a shard that is lost by then are
        refused."""
        waiting = _Waiting(self, finish)
        for shard, places in self._places.items():
            waiting.count += 1
            shard.when_committed(self.call.guarded(partial(waiting.settled, places)))
        waiting.settled((), ErrorCode.NONE)

    def replace(self, failed: Sequence[tuple[Sequence[int], ErrorCode]], done: Callable[[], None]) -> Steps:
        """Refuse these places after all, in steps."""
        meter = Meter(self.call)
        for places, code in failed:
            for place in places:
                self.parts[place] = self._refused(place, code)
                if meter.step_ends():
                    yield None
        done()


class _Waiting(Generic[Part]):
    """The waits for the shards of one request."""

    def __init__(self, looks: Looks[Part], finish: Callable[[Sequence[Part]], None]) -> None:
        self._looks = looks
        self._finish = finish
        self._failed: list[tuple[Sequence[int], ErrorCode]] = []
        self.count = 1
        """Shards that are waited for, and one for `Looks.settle` itself."""

    def settled(self, places: Sequence[int], code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            self._failed.append((places, code))
        self.count -= 1
        if self.count == 0:
            self._looks_settled()

    def _looks_settled(self) -> None:
        done = partial(self._finish, self._looks.parts)
        if not self._failed:
            done()
        elif sum(len(places) for places, _ in self._failed) <= AT_ONCE:
            for _ in self._looks.replace(self._failed, done):
                pass
        else:
            call = self._looks.call
            call.spawn(call.take_steps, self._looks.replace(self._failed, done))
