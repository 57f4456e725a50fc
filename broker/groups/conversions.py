"""Core: large groups become groups of another kind in turns of the event loop.

The group is frozen meanwhile: nothing else changes it. What it was is still read: descriptions, heartbeats of classic
members and commits go on. Requests and timers that would change it wait or are asked to try again. Each turn may write
a batch, and the log holds a whole group of one kind after each of them, of which some members may be missing. If a
batch cannot be written, the live group becomes what the log holds, and those members join again.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

from barnabas.broker.coordinator.outcome import Now, Operation, Outcome, Reply, Timers
from barnabas.broker.groups.group import GroupDirectory
from barnabas.protocol.errors import KafkaError

AT_ONCE_ITEMS = 1_000
"""Work of a conversion within the request that asks for it: about 100 members with a partition each."""
TURN_ITEMS = 500
"""Work of one turn."""
PAUSE_MS = 1
"""Pause between two turns: a timer that is due at once may run in the same step of the event loop."""
MEMBER_ITEMS = 10
"""Partitions, or topics that it has subscribed, that cost as much as a member without any."""

Turns = Generator[Outcome | None, None, Operation]
"""Each `next` is a turn. Returns the operation that runs at the end, when the group may change again."""


@dataclass(slots=True, eq=False)
class Conversion:
    """A group that becomes one of another kind."""

    group_id: str
    now: Now
    """Time of the present turn."""
    reply: Reply | None = None
    """Reply to the request that waits for the end."""
    error: KafkaError | None = None
    """Reason why the records of the last turn could not be written."""


class Conversions:
    """Conversions in one partition of `__consumer_offsets`."""

    def __init__(self, groups: GroupDirectory, timers: Timers) -> None:
        """`timers` run for frozen groups, too."""
        self._groups = groups
        self._timers = timers
        self._under_way: dict[str, Conversion] = {}

    def begin(self, conversion: Conversion, turns: Turns) -> None:
        """Freeze the group and take the turns later."""
        self._groups.freeze(conversion.group_id)
        self._under_way[conversion.group_id] = conversion
        self._schedule(conversion, turns)

    def cancel(self, group_id: str) -> None:
        """The group is as it was: the first records could not be written, and no turn was taken yet."""
        self._timers.cancel(_key(group_id))
        self._end(group_id)

    def give_up(self) -> list[Reply]:
        """The leadership has moved: replies that still wait."""
        waiting = [each.reply for each in self._under_way.values() if each.reply is not None]
        self._under_way.clear()
        return waiting

    def _turn(self, conversion: Conversion, turns: Turns, now: Now) -> Outcome:
        """Timer."""
        conversion.now = now
        try:
            outcome = next(turns) or Outcome()
        except StopIteration as end:
            self._end(conversion.group_id)
            last: Outcome = end.value(now)
            last.failed = last.failed or partial(_refuse, last.answers)
            return last
        outcome.failed = partial(self._failed, conversion)
        self._schedule(conversion, turns)
        return outcome

    def _failed(self, conversion: Conversion, error: KafkaError) -> Outcome:
        conversion.error = error
        return Outcome()

    def _end(self, group_id: str) -> None:
        del self._under_way[group_id]
        self._groups.thaw(group_id)

    def _schedule(self, conversion: Conversion, turns: Turns) -> None:
        deadline_ms = conversion.now.monotonic_ms + PAUSE_MS
        self._timers.schedule(_key(conversion.group_id), deadline_ms, partial(self._turn, conversion, turns))


def _key(group_id: str) -> Hashable:
    return ("group-conversion", group_id)


def _refuse(answers: list[tuple[Reply, Any]], error: KafkaError) -> Outcome:
    for reply, _ in answers:
        reply.refuse(error.code)
    return Outcome()
