"""A workload decides what clients do. `checkers.all_checkers` names the checkers that judge the result.

It knows no cluster and no library: the runner gives it clients. The same class runs in every world, so it takes chance
and time from its caller and imports no random, time or os.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from barnabas.runtime.world import Chance
from clients.client import ClientSettings, WorkClient
from operations import Completion, Invocation


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """Options of a run; each workload takes what it needs."""

    processes: int = 6
    keys: int = 10
    """Live at a time."""
    max_writes_per_key: int = 1_024
    transactions: bool = True
    subscribe: bool = True
    """Consumers may subscribe; else they only assign."""
    abort_probability: float = 0.1
    isolation: str = "read_committed"
    idempotence: bool = True
    group_protocol: str = "classic"
    """`classic`, `consumer`, or `mixed`: clients of one thread have them in turn."""
    crash_every_seconds: float = 30.0
    """Mean life of a client."""
    session_seconds: float = 6.0
    """A group expels a member after this time without a heartbeat."""
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    """Configs of the topics that the workload makes."""
    more: Mapping[str, str] = field(default_factory=dict)


class Workload(Protocol):
    """One run of it. The runner calls `invoke` and `completed` from one thread."""

    @property
    def name(self) -> str: ...

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        """Settings of the client of a process: group, transactional id, isolation."""

    async def set_up(self, client: WorkClient) -> None:
        """Topics that must be there before the first operation."""

    def invoke(self, process: int, chance: Chance, now_ns: int) -> Invocation | None:
        """The next operation of this process; None: nothing at the moment."""

    async def perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        """Does it. ClientErrors are made into completions here (`fail` if definite, else `info`); whatever else is
        raised is a mistake of the suite."""

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None:
        """News for the generator: highest offsets seen, keys retired."""

    def begin_final(self) -> None:
        """The cluster is healed: from now on `invoke` gives what reads everything to the end."""

    def final_is_done(self) -> bool:
        """Everything was read that can be, or it makes no sense to go on."""
