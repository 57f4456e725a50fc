"""The plan of a launcher: the nodes to start, as a value that travels as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

MODULES = {"broker": "barnabas.broker.process", "controller": "barnabas.kraft.process"}
"""The module with the `load` of each role."""


LAUNCHER_REFUSES = 2
"""The launcher's exit code when settings or directories do not fit; then nothing was started."""


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of the nodes of a cluster: the ones that users run, or breakable ones."""

    modules: Mapping[str, str] = field(default_factory=lambda: dict(MODULES))
    """By role, where its `load` is."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of nodes besides those of the parent."""


@dataclass(frozen=True, slots=True)
class Start:
    """One node to start."""

    module: str
    node_id: int
    config_file: str
    log_directories: Sequence[str]
    log_file: str
    pid_file: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one launcher."""

    cluster_id: str
    starts: Sequence[Start]
    restarts: bool = False
    """A node that ends by itself is restarted."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        plan = json.loads(text)
        return cls(plan["cluster_id"], [Start(**start) for start in plan["starts"]], plan["restarts"])
