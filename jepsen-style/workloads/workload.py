"""What a workload is: what it makes the clients do. Which checkers judge what came of it says `checkers.all_checkers`.

Knows no cluster and no library: the runner gives it clients. The same class runs in every world, so it takes chance and
time from its caller and imports no random, time or os.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from clients.client import ClientSettings, WorkClient
from operations import Completion, Invocation
from runtime.world import Chance


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """Of a run; all workloads take what they need."""

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
    crash_every_seconds: float = 30.0
    """Of each client, on average."""
    session_seconds: float = 6.0
    """A group gives up a member that it has not heard of for so long."""
    more: Mapping[str, str] = field(default_factory=dict)


class ProcessState(Protocol):
    """What a workload remembers of one process between its operations; made anew with each client."""


class Workload(Protocol):
    """One run of it. The runner calls `invoke` and `completed` from one thread."""

    @property
    def name(self) -> str: ...

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        """What a process's client is like: group, transactional id, isolation."""

    async def set_up(self, client: WorkClient) -> None:
        """Topics that must be there before the first operation."""

    def invoke(self, process: int, chance: Chance, now_ns: int) -> Invocation | None:
        """What this process is to do now; None: nothing at the moment."""

    async def perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        """Does it. ClientErrors are made into completions here (`fail` if definite, else `info`); whatever else is
        raised is a mistake of the suite."""

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None:
        """News for the generator: highest offsets seen, keys retired."""

    def begin_final(self) -> None:
        """The cluster is healed: from now on `invoke` gives what reads everything to the end."""

    def final_is_done(self) -> bool:
        """Everything was read that can be, or it makes no sense to go on."""
