"""Core: the options of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.check.promises import Promise
from barnabas.check.schedule import Fault


@dataclass(frozen=True, slots=True)
class Load:
    """The records that are fed."""

    rate: float = 50.0
    """Records per second."""
    keys: int = 20
    padding: int = 100
    """Each value is longer by up to this many bytes."""
    partitions: int = 6


@dataclass(frozen=True, slots=True)
class Names:
    """Names in the cluster."""

    input: str = "input"
    output: str = "output"
    group: str = "app"


@dataclass(frozen=True, slots=True)
class Times:
    """Times of one run, in seconds."""

    run_s: float = 120.0
    """Time with faults."""
    stuck_s: float = 60.0
    start_s: float = 45.0
    """Time for the instances to begin to consume."""
    grace_s: float = 10.0
    """Time for an instance to end after SIGTERM."""


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The options of one run."""

    command: Sequence[str]
    directory: str
    seed: int
    promise: Promise = field(default_factory=Promise)
    instances: int = 3
    faults: frozenset[Fault] = frozenset(Fault)
    load: Load = field(default_factory=Load)
    names: Names = field(default_factory=Names)
    times: Times = field(default_factory=Times)
    sink: str = "topic"
    map_file: str | None = None
    client: Mapping[str, Any] | None = None
    """Client settings, `bootstrap_servers` among them, of somebody else's cluster; None: a cluster of our own."""
