"""Processes of a run: the thread that a process belongs to, when its client crashes, and who reads everything at the
end. Knows no clock.

The runner gives the processes of thread `t` the numbers t, t + n, t + 2n, … (n threads), one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from barnabas.runtime.world import Chance
from clients.client import ClientError, ClientSettings, WorkClient
from operations import Completion, Invocation, Outcome
from workloads.topics import Topics
from workloads.workload import WorkloadOptions

T = TypeVar("T")

CRASH = Invocation("crash")
REPLICAS = 3
MIXED = "mixed"
"""A group protocol under which each client of a thread has another one than the client before it."""
PATIENCE_NS = 180_000_000_000
"""For the last readings: what is not there then will not come."""
REBALANCE_SECONDS = 2.0
DRAIN_SECONDS = 60.0


class Lives:
    """The processes of one run."""

    def __init__(self, options: WorkloadOptions) -> None:
        self._options = options
        self.threads = options.processes
        self.replicas = int(options.more.get("replicas", REPLICAS))
        self._topic_configs = options.topic_configs
        self._protocol = options.group_protocol
        self._prefix = options.more.get("prefix", "")
        self._every_ns = options.crash_every_seconds * 1e9
        self._asked_ns: dict[int, int] = {}

    def named(self, name: str) -> str:
        """A topic's, group's or transactional id's name, apart from those of other runs in that cluster."""
        return self._prefix + name

    def thread(self, process: int) -> int:
        return process % self.threads

    def protocol(self, process: int) -> str:
        """The group protocol of its client."""
        if self._protocol != MIXED:
            return self._protocol
        return ("classic", "consumer")[(process // self.threads + self.thread(process)) % 2]

    def of_no_group(self, base: ClientSettings) -> ClientSettings:
        """Settings of a client without a group and without transactions."""
        return replace(
            base,
            group_id=None,
            transactional_id=None,
            isolation=self._options.isolation,
            idempotence=self._options.idempotence,
        )

    def topics(self, partitions: int) -> Topics:
        """Topics with that number of partitions, and the replicas and configs that the options ask for."""
        return Topics(partitions, self.replicas, self._topic_configs)

    def crashes(self, process: int, chance: Chance, now_ns: int) -> bool:
        """Decides by chance whether its client crashes now; asked before each operation."""
        since_ns = now_ns - self._asked_ns.get(process, now_ns)
        self._asked_ns[process] = now_ns
        return self._every_ns > 0 and chance.random() < since_ns / self._every_ns


async def crash(client: WorkClient) -> Completion:
    await client.crash()
    return Completion("info", ends_process=True)


def failed(error: ClientError, value: Any = None) -> Completion:
    """The completion of an operation of one call that failed: `fail` if surely nothing happened, else `info`."""
    outcome: Outcome = "fail" if error.definite else "info"
    return Completion(outcome, value, (error.name, error.text), ends_process=error.fatal)


def one_of(chance: Chance, choices: Sequence[T]) -> T:
    return choices[chance.randrange(0, len(choices))]


def drawn(chance: Chance, shares: Sequence[tuple[str, float]]) -> str:
    """One of these names; each has its share of 1."""
    left = chance.random()
    for name, share in shares:
        left -= share
        if left < 0:
            return name
    return shares[0][0]


class Finale:
    """The last part of a run: some threads read everything, in their own time."""

    def __init__(self, readers: Iterable[int]) -> None:
        self.begun = False
        self._missing = dict.fromkeys(readers)
        self._deadline_ns: int | None = None
        self._given_up = False

    def begin(self) -> None:
        self.begun = True

    def waits_for(self, thread: int, now_ns: int) -> bool:
        """True if this thread has not read everything yet."""
        if self._deadline_ns is None:
            self._deadline_ns = now_ns + PATIENCE_NS
        self._given_up = self._given_up or now_ns > self._deadline_ns
        return thread in self._missing and not self._given_up

    def completed(self, thread: int, invocation: Invocation, completion: Completion) -> None:
        """If it is a reading that came to the end of everything, that thread has finished."""
        if invocation.f == "read" and invocation.value["final"] and completion.type == "ok" and completion.value["end"]:
            self.has_finished(thread)

    def has_finished(self, thread: int) -> None:
        self._missing.pop(thread, None)

    @property
    def over(self) -> bool:
        return self._given_up or not self._missing


class Drain:
    """The time before the last readings: consumers go on until there has been nothing to consume for a while."""

    def __init__(self, session_seconds: float) -> None:
        """`session_seconds`: a dead member holds its partitions for this time, then another one gets them; after more
        than that without a record consumers were given all that they will be."""
        self._quiet_ns = round((session_seconds + REBALANCE_SECONDS) * 1e9)
        self._longest_ns = max(round(DRAIN_SECONDS * 1e9), 3 * self._quiet_ns)
        self._began_ns: int | None = None
        self._last_ns = 0
        self._seen = False
        self._over = False

    def see(self) -> None:
        """Somebody was given something."""
        self._seen = True

    def is_over(self, now_ns: int) -> bool:
        if self._began_ns is None:
            self._began_ns = self._last_ns = now_ns
        if self._seen:
            self._seen, self._last_ns = False, now_ns
        too_long = now_ns - self._last_ns > self._quiet_ns or now_ns - self._began_ns > self._longest_ns
        self._over = self._over or too_long
        return self._over
