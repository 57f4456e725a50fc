"""Where a group goes on after its offsets are moved: what was asked for, and what that is in each partition.

A core: it is given what is known of partitions, and asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from barnabas.cluster.errors import WrongArgument


class Partition(NamedTuple):
    """Sorts by topic, then number."""

    topic: str
    partition: int


class Aim(Enum):
    """What is asked for."""

    EARLIEST = auto()
    LATEST = auto()
    CURRENT = auto()
    """Where the group is, or the end where it has committed nothing: makes that explicit."""
    OFFSET = auto()
    SHIFT = auto()
    TIME = auto()
    """The first record that is not older."""
    GIVEN = auto()
    """An offset for each partition."""


@dataclass(frozen=True, slots=True)
class Target:
    """An aim with its number: an offset, how far to shift, or milliseconds since 1970."""

    aim: Aim
    value: int = 0
    given: Mapping[Partition, int] | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one partition."""

    first: int
    """The offset of its first record."""
    end: int
    committed: int | None
    """None: the group has committed nothing."""
    at_time: int | None = None
    """The first record that is not older than the time asked for; None: all are older."""


@dataclass(frozen=True, slots=True)
class Reset:
    """One partition's part of the plan."""

    partition: Partition
    before: int | None
    after: int
    wanted: int
    """Other than `after` if there is no such offset: then the nearest is taken."""


def plan(target: Target, known: Mapping[Partition, Known]) -> list[Reset]:
    """The partitions in order. Raises `WrongArgument` where there is nothing to start from."""
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
    """Lines of `topic,partition,offset`; empty ones and those that begin with # are passed over. Raises
    `WrongArgument`.
    """
    found: dict[Partition, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = [part.strip().strip('"') for part in line.split(",")]
        if len(parts) != 3 or not parts[0] or not all(_is_whole(part) for part in parts[1:]):
            raise WrongArgument(f"{name}, line {number}: not topic,partition,offset")
        partition = Partition(parts[0], int(parts[1]))
        if partition in found:
            raise WrongArgument(f"{name}, line {number}: {parts[0]}:{parts[1]} stands there twice")
        found[partition] = int(parts[2])
    if not found:
        raise WrongArgument(f"{name}: no line of topic,partition,offset")
    return found


def write_csv(resets: Iterable[Reset]) -> list[str]:
    """Lines that `read_csv` reads."""
    return [f"{reset.partition.topic},{reset.partition.partition},{reset.after}" for reset in resets]


def one_target(targets: Sequence[tuple[str, Target | None]]) -> Target:
    """The only one that was given; each with the name of its option. Raises `WrongArgument`."""
    given = [(option, target) for option, target in targets if target is not None]
    if not given:
        raise WrongArgument(f"where to? One of {', '.join(option for option, _ in targets)}")
    if len(given) > 1:
        raise WrongArgument(f"{given[0][0]} and {given[1][0]}: one of them")
    found = given[0][1]
    assert found is not None
    return found


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
