"""Core: plans of `groups reset-offsets`: the target and the resulting offset of each partition.

It gets the known offsets as arguments and sends no request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from barnabas.cluster.errors import WrongArgument


class Partition(NamedTuple):
    """Sorted by topic, then number."""

    topic: str
    partition: int


class Aim(Enum):
    """The kinds of reset."""

    EARLIEST = auto()
    LATEST = auto()
    CURRENT = auto()
    """The committed offset; the log end if nothing is committed."""
    OFFSET = auto()
    SHIFT = auto()
    TIME = auto()
    """The first record at or after the time."""
    GIVEN = auto()
    """An explicit offset for each partition."""


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of reset with its number: an offset, a shift, or milliseconds since 1970."""

    aim: Aim
    value: int = 0
    given: Mapping[Partition, int] | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """Known offsets of one partition."""

    first: int
    """Log start offset."""
    end: int
    committed: int | None
    """None if the group has committed nothing."""
    at_time: int | None = None
    """Offset of the first record at or after the time of the target; None if all are older."""


@dataclass(frozen=True, slots=True)
class Reset:
    """The plan for one partition."""

    partition: Partition
    before: int | None
    after: int
    wanted: int
    """Differs from `after` if the partition does not have this offset: the nearest is used."""


def plan(target: Target, known: Mapping[Partition, Known]) -> list[Reset]:
    """The plan, sorted by partition. Raises `WrongArgument` if a partition has no committed offset to shift."""
    resets = []
    for partition in sorted(known):
        each = known[partition]
        wanted = _wanted(target, partition, each)
        after = min(max(wanted, each.first), each.end)
        resets.append(Reset(partition, each.committed, after, wanted))
    return resets


def _wanted(target: Target, partition: Partition, known: Known) -> int:
    match target.aim:
        case Aim.EARLIEST:
            return known.first
        case Aim.LATEST:
            return known.end
        case Aim.CURRENT:
            return known.end if known.committed is None else known.committed
        case Aim.OFFSET:
            return target.value
        case Aim.SHIFT:
            if known.committed is None:
                raise WrongArgument(
                    f"--shift-by: {partition.topic}:{partition.partition} has no committed offset to shift"
                )
            return known.committed + target.value
        case Aim.TIME:
            return known.end if known.at_time is None else known.at_time
        case Aim.GIVEN:
            assert target.given is not None
            return target.given[partition]


def read_csv(text: str, name: str) -> dict[Partition, int]:
    """Reads lines of `topic,partition,offset`; skips empty lines and comments (#). Raises `WrongArgument`."""
    found: dict[Partition, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = [part.strip().strip('"') for part in line.split(",")]
        if len(parts) != 3 or not parts[0] or not all(_is_whole(part) for part in parts[1:]):
            raise WrongArgument(f"{name}, line {number}: not topic,partition,offset")
        partition = Partition(parts[0], int(parts[1]))
        if partition in found:
            raise WrongArgument(f"{name}, line {number}: {parts[0]}:{parts[1]} is there twice")
        found[partition] = int(parts[2])
    if not found:
        raise WrongArgument(f"{name}: no line of topic,partition,offset")
    return found


def write_csv(resets: Iterable[Reset]) -> list[str]:
    """Lines in the format of `read_csv`."""
    return [f"{reset.partition.topic},{reset.partition.partition},{reset.after}" for reset in resets]


def one_target(targets: Sequence[tuple[str, Target | None]]) -> Target:
    """The one target that is given, of pairs of option name and target. Raises `WrongArgument`."""
    given = [(option, target) for option, target in targets if target is not None]
    if not given:
        raise WrongArgument(f"needs one of {', '.join(option for option, _ in targets)}")
    if len(given) > 1:
        raise WrongArgument(f"{given[0][0]} and {given[1][0]} exclude each other")
    found = given[0][1]
    assert found is not None
    return found


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
