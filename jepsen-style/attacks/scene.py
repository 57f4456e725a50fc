"""One attack under way: its deadline, who is attacked, and what it costs the cluster meanwhile."""

from __future__ import annotations

import math
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field

from attacks.cpu_twins import CpuRecorder, beyond_idle, cpu_seconds_of, run_twins
from attacks.process_meter import Usage, reset_peak, usage_of
from attacks.target import Latencies, Target, environment_of_own_modules
from attacks.wire import HOST, Peer
from barnabas.cluster.layout import Node
from barnabas.protocol.messages.api_versions import ApiVersionsRequest

LIMIT_SECONDS = 60.0
"""A broker that is frozen for longer counts as "> 60 s"."""
PREPARE_SECONDS = 60.0
IDLE_SECONDS = 3.0
"""Time for which the producer is measured before an attack."""
LEAST_SECONDS = 2.0
"""Shortest time for which it is measured from the attack on."""
MOST_TIMES_P99 = 5
"""The producer's p99 may be that many times its idle value."""
PROBE_SECONDS = 0.1
PROMPT_SECONDS = 0.5
"""A broker that answers a new connection within that time has recovered."""
METRICS_SECONDS = 5.0
SLOW_STEPS_METRIC = "barnabas_request_overbudget"
"""Steps of a node's event loop above 20 ms, by API."""


@dataclass(slots=True)
class Outcome:
    """Measured outcome of an attack."""

    name: str
    bytes_sent: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """CPU seconds of the attacked node."""
    grown_mb: float = 0.0
    """Peak growth of the node that grew most."""
    longest_wait_seconds: float = 0.0
    """Longest time in which a new connection to the attacked node got an ApiVersions response."""
    before: Latencies = field(default_factory=lambda: Latencies.of([]))
    during: Latencies = field(default_factory=lambda: Latencies.of([]))
    slow_steps: int | None = None
    """Above 20 ms, as all nodes count them; None if they do not."""
    with_twins: Latencies | None = None
    """The producer's while other processes used as much CPU time as the nodes did; None if that was not measured."""
    slow_steps_with_twins: int = 0
    dead: list[str] = field(default_factory=list)
    missing: int | None = 0
    """Acknowledged records that are missing; None if unknown."""
    problems: list[str] = field(default_factory=list)
    """Problems that the attack itself found."""
    over_limit: bool = False


class Scene:
    """An attack prepares what it needs, calls `begin` and attacks. Everything that waits ends at the deadline."""

    def __init__(self, name: str, target: Target) -> None:
        self.target = target
        self.outcome = Outcome(name)
        self.victim: Node = target.brokers[0]
        self._deadline = time.monotonic() + PREPARE_SECONDS
        self._began = math.nan
        self._usage: dict[str, Usage | None] = {}
        self._idle_rates: dict[str, float] = {}
        """CPU seconds per second of each node before the attack."""
        self._recorder = CpuRecorder(target.pids)
        self._slow_steps: int | None = None
        self._is_prompt = False
        """Whether the last new connection was answered promptly."""
        self._over = threading.Event()
        self._prober = threading.Thread(target=self._probe, daemon=True)

    # ---- for attacks

    def peer(self, node: Node | None = None, *, receive_buffer_bytes: int = 0) -> Peer:
        """A connection to the attacked node, or to another."""
        return Peer((node or self.victim).port, lambda: self._deadline, receive_buffer_bytes=receive_buffer_bytes)

    def send(self, peer: Peer, data: bytes) -> None:
        peer.send(data)
        self.outcome.bytes_sent += len(data)

    def begin(self, victim: Node | None = None) -> None:
        """The attack begins: from now on it is measured."""
        self.victim = victim or self.victim
        idle_from = time.monotonic()
        idle = {name: cpu_seconds_of(pid) for name, pid in self.target.pids.items()}
        time.sleep(IDLE_SECONDS)
        self._began = time.monotonic()
        for name, pid in self.target.pids.items():
            self._idle_rates[name] = (cpu_seconds_of(pid) - idle[name]) / (self._began - idle_from)
        self.outcome.before = self.target.latencies(idle_from, self._began)
        for name, pid in self.target.pids.items():
            reset_peak(pid)
            self._usage[name] = usage_of(pid)
        self._slow_steps = self._count_slow_steps()
        self._deadline = time.monotonic() + LIMIT_SECONDS
        self._recorder.start()
        self._prober.start()

    def report(self, problem: str) -> None:
        self.outcome.problems.append(problem)

    @property
    def deadline(self) -> float:
        return self._deadline

    # ---- for the runner of the attacks

    def play(self, attack: Callable[[Scene], None]) -> Outcome:
        outcome = self.outcome
        try:
            attack(self)
        except TimeoutError:
            outcome.problems.append("an answer never came")
        except OSError as error:
            # What a node that ends or defends itself does to an attacker.
            outcome.problems += [] if self._has_begun else [f"could not be prepared: {error}"]
        if self._has_begun:
            self._wait_for_recovery()
            self._recorder.stop()
            self._conclude()
            if self._is_to_be_compared():
                self._compare()
        return outcome

    @property
    def _has_begun(self) -> bool:
        return not math.isnan(self._began)

    def _wait_for_recovery(self) -> None:
        time.sleep(max(0.0, self._began + LEAST_SECONDS - time.monotonic()))
        self._over.set()
        self._prober.join()
        self.outcome.over_limit = not self._is_prompt and self.victim.name not in self.target.dead()

    def _probe(self) -> None:
        """New connections to the attacked node, until the attack is over and one is answered promptly."""
        while True:
            began = time.monotonic()
            try:
                with self.peer() as peer:
                    peer.call(ApiVersionsRequest(), 0)
                is_answered = True
            except OSError:
                is_answered = False
            took = time.monotonic() - began
            self.outcome.longest_wait_seconds = max(self.outcome.longest_wait_seconds, took)
            self._is_prompt = is_answered and took < PROMPT_SECONDS
            gone = not is_answered and self.victim.name in self.target.dead()
            is_over = time.monotonic() + PROMPT_SECONDS >= self._deadline or gone
            if is_over or (self._over.is_set() and self._is_prompt):
                return
            time.sleep(PROBE_SECONDS)

    def _conclude(self) -> None:
        outcome, target = self.outcome, self.target
        ended = time.monotonic()
        outcome.seconds = ended - self._began
        outcome.during = target.latencies(self._began, ended)
        outcome.dead = target.dead()
        for name, pid in target.pids.items():
            before, after = self._usage[name], usage_of(pid)
            if before is None or after is None:
                continue
            outcome.grown_mb = max(outcome.grown_mb, after.peak_mb - before.resident_mb)
            if name == self.victim.name:
                outcome.cpu_seconds = after.cpu_seconds - before.cpu_seconds
        if outcome.over_limit:
            outcome.missing = None
            return
        slow_steps = self._count_slow_steps()
        if slow_steps is not None and self._slow_steps is not None:
            outcome.slow_steps = slow_steps - self._slow_steps
        acknowledged = target.acknowledged()
        readable = target.readable()
        outcome.missing = None if readable is None else max(0, acknowledged - readable)

    def _is_to_be_compared(self) -> bool:
        """True if the producer waited, or steps took, so long that it matters how much of that is due to busy cores."""
        outcome = self.outcome
        if outcome.dead or outcome.over_limit or not outcome.before.count:
            return False
        return outcome.during.p99 > MOST_TIMES_P99 * outcome.before.p99 or bool(outcome.slow_steps)

    def _compare(self) -> None:
        outcome, target = self.outcome, self.target
        time.sleep(IDLE_SECONDS)
        before = self._count_slow_steps() or 0
        slots = {name: beyond_idle(used, self._idle_rates[name]) for name, used in self._recorder.slots.items()}
        began, ended = run_twins(slots, environment_of_own_modules(), preferred=target.preferred)
        outcome.with_twins = target.latencies(began, max(ended, began + LEAST_SECONDS))
        outcome.slow_steps_with_twins = (self._count_slow_steps() or 0) - before

    def _count_slow_steps(self) -> int | None:
        """Sum over all reachable nodes; None if none of them counts."""
        counts = [count for node in self.target.cluster.nodes if (count := _slow_steps_of(node)) is not None]
        return sum(counts) if counts else None


def _slow_steps_of(node: Node) -> int | None:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{node.http_port}/metrics", timeout=METRICS_SECONDS) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return None
    values = [float(line.rpartition(" ")[2]) for line in lines if line.startswith(SLOW_STEPS_METRIC)]
    return int(sum(values)) if values else None
