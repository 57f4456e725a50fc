"""Core: inputs and outputs as values, and the JSON that they travel as."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Input:
    """A record in the input topic. It is committed."""

    id: str
    key: str
    partition: int
    offset: int
    at_s: float
    """Time at which it was produced, in seconds since the epoch."""
    outputs: tuple[str, ...] = ()
    """Ids of the outputs that it must lead to."""


@dataclass(frozen=True, slots=True)
class Output:
    """An output as a sink has it."""

    id: str
    place: str
    """Partition, file or path. Order is defined within a place."""
    position: int
    """Position in its place."""
    at_s: float
    """Time at which the checker saw it."""

    def __str__(self) -> str:
        return f"{self.place}@{self.position}"


class NotReadable(ValueError):
    """An output in which no id can be found."""


def write_value(number: int, key: str, n: int, padding: int) -> bytes:
    """The value of an input: its id, its key, its number among the inputs of its key."""
    value: dict[str, Any] = {"id": number, "key": key, "n": n}
    if padding:
        value["pad"] = "x" * padding
    return json.dumps(value).encode()


def read_value(value: bytes) -> dict[str, Any]:
    """An input as the application sees it."""
    found: dict[str, Any] = json.loads(value)
    return found


def same_id(record: Mapping[str, Any]) -> Sequence[Any]:
    """Ids of the outputs of an input, if nothing else is known: one output with the same id."""
    return [record["id"]]


def id_in_json(_key: bytes | None, value: bytes) -> Any:
    """The id of an output that is a JSON object with `id`. Raises `NotReadable`."""
    try:
        return json.loads(value)["id"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotReadable(f"not JSON with an id: {value[:80]!r} ({type(error).__name__})") from None


@dataclass(frozen=True, slots=True)
class Transformation:
    """Describes the outputs that an application makes of its inputs."""

    outputs: Callable[[Mapping[str, Any]], Sequence[Any]] = same_id
    """By input, the ids of the outputs."""
    identify: Callable[[bytes | None, bytes], Any] = id_in_json
    """By key and value of an output, its id; None: it is not to be judged."""

    def outputs_of(self, record: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(str(each) for each in self.outputs(record))
