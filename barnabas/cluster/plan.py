"""What a launcher is told to start; a value that travels as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

MODULES = {"broker": "broker.process", "controller": "kraft.process"}
"""Where the `load` of a role is."""


LAUNCHER_REFUSES = 2
"""The launcher's exit code when settings or directories do not fit; then nothing was started."""


@dataclass(frozen=True, slots=True)
class Programs:
    """What the nodes of a cluster are: the ones that users run, or others for those who break clusters."""

    modules: Mapping[str, str] = field(default_factory=lambda: dict(MODULES))
    """By role, where its `load` is."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that nodes have besides those of whoever starts them."""


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
    """What one launcher does."""

    cluster_id: str
    starts: Sequence[Start]
    restarts: bool = False
    """Whether a node that ends by itself is started again."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        plan = json.loads(text)
        return cls(plan["cluster_id"], [Start(**start) for start in plan["starts"]], plan["restarts"])
