"""Sent and read values of any workload: the cells of the order around a finding, and two curves.

Workloads whose operations are micro-operations have columns in the history already. The others record what they sent as
`records` or `legs` (`[topic, partition, value]`) or as one value with its place and offset, and what they read as
`parts` (`[topic, partition, from, to, [[offset, value], ...]]`); their values may be any JSON, and get a number each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from histories.history import FAIL, POLL, SEND, History
from operations import place_of
from reports.scales import Integers

MOST_LINES = 400_000
"""Longer histories without micro-operations are skipped, because each of their lines is parsed again."""

UNDECIDED = frozenset({"append"})
"""Operations that send into a transaction which another operation commits."""


@dataclass(frozen=True, slots=True)
class Values:
    """Each value that was sent or read."""

    call: Integers
    """Row of the operations."""
    key: Integers
    value: Integers
    offset: Integers
    """-1: not known."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names of keys and values."""

    places: Mapping[int, str]
    values: Sequence[str] | None
    """By number; None: the numbers themselves."""

    def place(self, key: int) -> str:
        return self.places.get(key, f"key {key}")

    def value(self, number: int) -> str:
        return str(number) if self.values is None else self.values[number]


def of_history(history: History) -> tuple[Values, Values, Names]:
    """Sent, read, and their names."""
    micro = history.micro
    if len(micro) or len(history) > MOST_LINES:
        sent, read = (micro.where(micro.kind == kind) for kind in (SEND, POLL))
        places = {key: f"{place_of(key)}" for key in np.unique(micro.key).tolist() if key >= 0}
        columns = (Values(each.operation, each.key, each.value, each.offset) for each in (sent, read))
        return next(columns), next(columns), Names(places, None)
    return _Gathering(history).values()


class _Gathering:
    """Gathers values of completions that have no columns."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._places: dict[str, int] = {}
        self._values: dict[str, int] = {}
        self._sent: list[tuple[int, int, int, int]] = []
        self._read: list[tuple[int, int, int, int]] = []

    def values(self) -> tuple[Values, Values, Names]:
        operations = self._history.operations
        lines = zip(operations.shown_by.tolist(), operations.invoked.tolist(), strict=True)
        for row, (shown_by, invoked) in enumerate(lines):
            for i in dict.fromkeys((shown_by, invoked)):
                value = self._history.value(i)
                if isinstance(value, Mapping) and self._take(row, value):
                    break
        sent, read = (Values(*np.array(rows, np.int64).reshape(-1, 4).T) for rows in (self._sent, self._read))
        return sent, read, Names({key: place for place, key in self._places.items()}, list(self._values))

    def _take(self, row: int, value: Mapping[str, Any]) -> bool:
        """True if the completion contains what was sent or read; otherwise the invocation counts."""
        before = len(self._sent) + len(self._read)
        for part in _lists(value.get("parts")):
            match part:
                case [str(topic), int(partition), _, _, list(records)]:
                    for record in records:
                        match record:
                            case [int(offset), seen]:
                                self._read.append((row, *self._numbers(topic, partition, seen), offset))
        for record in [*_lists(value.get("records")), *_lists(value.get("legs"))]:
            match record:
                case [str(topic), int(partition), sent]:
                    self._sent.append((row, *self._numbers(topic, partition, sent), -1))
        match value:
            case {"place": [str(topic), int(partition)], "offset": int(offset), **rest}:
                sent = rest.get("element", rest.get("value"))
                self._sent.append((row, *self._numbers(topic, partition, sent), offset))
        return len(self._sent) + len(self._read) > before

    def _numbers(self, topic: str, partition: int, value: Any) -> tuple[int, int]:
        place, text = f"{topic}-{partition}", json.dumps(value, separators=(",", ":"))
        return self._places.setdefault(place, len(self._places)), self._values.setdefault(text, len(self._values))


def _lists(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def decided(history: History, sent: Values) -> Values:
    """Without what only another operation committed, and without what failed."""
    fs = [number for number, f in enumerate(history.fs) if f in UNDECIDED]
    operations = history.operations
    keep = ~np.isin(operations.f[sent.call], fs) & (operations.outcome[sent.call] != FAIL)
    return Values(sent.call[keep], sent.key[keep], sent.value[keep], sent.offset[keep])
