"""Core: invocations, their completions, and the line of the history that each becomes.

Jepsen's words: `ok` did happen, `fail` surely did not, `info` is unknown. Knows no client and no cluster.

A micro-operation is a JSON list: `["send", key, [offset | null, value]]` or `["poll", {"key": [[offset, value], ...]}]`
when it is done, `["send", key, value]` and `["poll"]` before. A key is an integer that stands for one partition; in
JSON the keys of the object in a poll are strings. Values are integers, unique for each key of a run.

Fields of the note of a completion, where the client knows them:
`rebalances`   those seen meanwhile: `[{"kind": "assigned" | "revoked" | "lost", "places": [[topic, partition], ...]}]`
`leader_epochs`   under which sends were acknowledged: `{"key": epoch}`; Kafka's answer to a producer has none
`read_epochs`   of the batches that were polled: `[[key, first offset, last offset, epoch], ...]`, as they were given
`committed`   offsets whose commit was acknowledged: `{"key" or "topic-partition": offset}`
`committed_seen`   committed offsets as the coordinator returned them; -1: none
`settled`   true if everything was healed and quiet when it was asked
`group`, `generation`   of those two
`from_beginning`   true if an `assign` put every position to the start
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

OperationType = Literal["invoke", "ok", "fail", "info"]
Outcome = Literal["ok", "fail", "info"]

NEMESIS = "nemesis"
"""The process of faults."""


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def place_of(key: int) -> Place:
    """The partition that a key of `queue` and `list-append` stands for: two keys share a topic."""
    return Place(f"t{key // 2}", key % 2)


def key_of(place: Place) -> int:
    """The other way round."""
    return int(place.topic[1:]) * 2 + place.partition


@dataclass(frozen=True, slots=True)
class Invocation:
    """The next operation of a process."""

    f: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Completion:
    """The outcome of an operation."""

    type: Outcome
    value: Any = None
    error: tuple[str, str] | None = None
    """Kafka's name of the error and its text: ("NotLeaderOrFollowerException", "...")."""
    node: str | None = None
    """The node that answered, where it is known."""
    note: Mapping[str, Any] = field(default_factory=dict)
    """Evidence: rebalances seen meanwhile, leader epoch of an answer."""
    ends_process: bool = False
    """The client is no longer usable, though the outcome is known. After `info` a process always ends."""


class Moment(NamedTuple):
    """A moment of a run, by its two clocks."""

    t_ns: int
    """Since the run began, of a clock that never goes back."""
    wall_ms: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One line of `history.jsonl`."""

    i: int
    """Its place in the history, from 0 on, without gaps."""
    process: int | str
    """A logical thread of the test, that never comes again after `info`; or `NEMESIS`."""
    type: OperationType
    f: str
    value: Any
    t_ns: int
    """Since the run began, of a clock that never goes back."""
    wall_ms: int
    client: str | None = None
    """`barnabas`, `confluent` or `java`."""
    node: str | None = None
    error: tuple[str, str] | None = None
    note: Mapping[str, Any] = field(default_factory=dict)
