"""The common part of worlds of real processes: nodes that are started, killed, stopped, frozen and looked at.

Knows `LocalCluster` and no link: `local.py` and `netns.py` have the links and the other faults.
Calls that block run in threads.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.processes import State
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.schema import Message
from barnabas.runtime.real import real_world
from barnabas.runtime.world import World
from loss_budget import Membership, NodeState
from operations import Place
from worlds.cluster import ReplicaView
from worlds.node_views import Onlooker

T = TypeVar("T")

STOP_SECONDS = 30.0
PORT_TRIES = 3
_STATES: dict[str, NodeState] = {State.RUNNING.value: "running", State.PAUSED.value: "paused"}


async def in_thread(work: Callable[[], T]) -> T:
    """Runs blocking work in a thread. A cancelled caller still waits: half-done work on processes is worse than late
    work."""
    return await trio.to_thread.run_sync(work)


def run_alone(main: Callable[[], Awaitable[T]]) -> T:
    """`trio.run`, which raises an error itself and not a group with nothing else in it."""
    try:
        return trio.run(main)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from None


def on_free_ports(main: Callable[[Callable[[], None]], Awaitable[T]]) -> T:
    """`run_alone` with what `main` calls when its nodes have their ports. A port that was free may be taken before the
    nodes are started: then again, on others."""
    for attempt in range(1, PORT_TRIES + 1):
        have_ports = False

        def note() -> None:
            nonlocal have_ports
            have_ports = True

        try:
            return run_alone(lambda: main(note))
        except ClusterError as error:
            if have_ports or attempt == PORT_TRIES or " is taken by " not in str(error):
                raise
    raise AssertionError("the last attempt ends")


async def unregister(looker: Onlooker, name: str, broker_id: int) -> None:
    """By the active controller. Raises ClusterError."""
    controller = await looker.active_controller()
    if controller is None:
        raise ClusterError(f"{name} cannot be unregistered: there is no active controller")
    answer = await looker.ask(controller, UnregisterBrokerRequest(broker_id=broker_id))
    if answer is None or answer.error_code:
        refusal = "nothing" if answer is None else ErrorCode(answer.error_code).name
        raise ClusterError(f"{name} cannot be unregistered: {controller} answers {refusal}")


class RunClocks:
    """The machine's clocks, from the beginning of the run on."""

    def __init__(self) -> None:
        self._began_ns = time.monotonic_ns()

    def now_ns(self) -> int:
        return time.monotonic_ns() - self._began_ns

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ProcessCluster:
    """Nodes that are processes of this machine."""

    def __init__(self, cluster: LocalCluster, looker: Onlooker) -> None:
        self._cluster = cluster
        self._looker = looker
        self._clocks = RunClocks()

    @property
    def brokers(self) -> Sequence[str]:
        return [node.name for node in self._cluster.layout.brokers]

    @property
    def controllers(self) -> Sequence[str]:
        return [node.name for node in self._cluster.layout.controllers]

    def world(self, host: str) -> World:
        return real_world()

    def now_ns(self) -> int:
        return self._clocks.now_ns()

    def wall_ms(self) -> int:
        return self._clocks.wall_ms()

    # ---- nodes

    async def kill(self, *names: str) -> None:
        await in_thread(lambda: self._cluster.kill(*names))

    async def start(self, *names: str) -> None:
        await in_thread(lambda: self._cluster.start(*names))

    async def stop(self, name: str) -> None:
        """In good order; a node that does not leave within half a minute is killed, and that is an error."""
        if not await in_thread(lambda: self._cluster.stop(name, STOP_SECONDS)):
            raise ClusterError(f"{name} did not stop within {STOP_SECONDS:.0f} s and was killed")

    async def pause(self, name: str) -> None:
        self._cluster.pause(name)

    async def resume(self, name: str) -> None:
        self._cluster.resume(name)

    async def unregister(self, name: str) -> None:
        """The cluster forgets a broker that does not run; it is a member again when it is started."""
        await unregister(self._looker, name, self._cluster.layout.node(name).id)

    async def states(self) -> Mapping[str, NodeState]:
        return self._states()

    def _states(self) -> dict[str, NodeState]:
        return {node.name: _STATES.get(node.state, "dead") for node in self._cluster.processes()}

    def _require_dead(self, name: str) -> None:
        if self._states().get(name) != "dead":
            raise ClusterError(f"{name} runs: stop or kill it first")

    async def ask(self, name: str, request: Message) -> Any:
        answer = await self._looker.ask(name, request)
        if answer is None:
            raise ClusterError(f"{name} does not answer")
        return answer

    # ---- looking

    async def leader_of(self, place: Place) -> str | None:
        return await self._looker.leader_of(place)

    async def active_controller(self) -> str | None:
        return await self._looker.active_controller()

    async def quorum_claims(self) -> Mapping[str, tuple[int, str]]:
        """By controller: the epoch that it knows, and who leads in it ("": it knows nobody)."""
        return await self._looker.quorum_claims()

    async def coordinator_of(self, kind: Literal["group", "transaction", "share"], id_: str) -> str | None:
        return await self._looker.coordinator_of(kind, id_)

    async def views(self) -> Sequence[ReplicaView]:
        states = self._states()
        return await self._looker.views([name for name in self.brokers if states[name] == "running"])

    async def memberships(self) -> Sequence[Membership]:
        states = self._states()
        return await self._looker.memberships([name for name in self.brokers if states[name] == "running"])

    async def wait_ready(self, timeout_seconds: float = 60.0) -> None:
        await in_thread(lambda: self._cluster.wait_ready(timeout_seconds))

    def log_files(self) -> Mapping[str, Path]:
        layout = self._cluster.layout
        return {node.name: layout.log_file(node) for node in layout.nodes}
