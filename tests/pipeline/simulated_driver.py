"""The driver of a sink with a simulated cluster: blocking code in a thread, each of whose calls is an event of the
simulation. Either the thread or the simulation runs, so a seed always gives the same run.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio

from barnabas.pipeline import blocking_cluster, retry_policy
from barnabas.pipeline.addresses import Address
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.errors import ConnectionFailed
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import ChannelError
from scenarios.stage import Stage


class Bridge:
    """Connects one thread with the event loop."""

    def __init__(self) -> None:
        self._asked: queue.Queue[Any] = queue.Queue()
        self._answers: queue.Queue[Any] = queue.Queue()

    def ask(self, job: Callable[[], Any]) -> Any:
        """In the thread: run something in the event loop, and wait for its result."""
        self._asked.put(job)
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def run(self, work: Callable[[], Any]) -> Any:
        """In the event loop: the result of `work`, which runs in a thread."""
        ended: list[Any] = []

        def in_thread() -> None:
            try:
                ended.append(work())
            except BaseException as error:
                ended.append(error)
            self._asked.put(None)

        thread = threading.Thread(target=in_thread)
        thread.start()
        while (job := self._asked.get()) is not None:
            try:
                self._answers.put(await job())
            except ChannelError as error:
                self._answers.put(error)
        thread.join()
        if isinstance(ended[0], BaseException):
            raise ended[0]
        return ended[0]


class SimulatedDriver(BlockingCluster):
    """A blocking cluster client on the host `host` of a stage. Tries brokers in the order of `bootstrap`."""

    def __init__(self, stage: Stage, host: str, bootstrap: list[str], bridge: Bridge) -> None:
        addresses = [f"{name}:{stage.node(name).node.port}" for name in bootstrap]
        super().__init__(",".join(addresses), request_timeout_ms=5_000)
        self._stage, self._host, self._bridge = stage, host, bridge
        stage.world_of(host)

    def _candidates(self) -> list[Address]:
        return sorted(self._addresses, key=lambda each: self._failed_at.get(each, 0.0))

    def _call_address(self, address: Address, request: Message, timeout_ms: int, version: int | None = None) -> Any:
        async def call() -> Any:
            return await self._stage.ask(address.host, request, host=self._host, version=version, timeout_ms=timeout_ms)

        try:
            return self._bridge.ask(call)
        except ChannelError as error:
            self._try_last(address)
            raise ConnectionFailed(str(error)) from None


class _Time:
    """The module `time` with the simulation's time."""

    def __init__(self, stage: Stage, bridge: Bridge) -> None:
        self._stage, self._bridge = stage, bridge

    def monotonic(self) -> float:
        return self._stage.universe.time.now

    def sleep(self, seconds: float) -> None:
        async def sleep() -> None:
            await trio.sleep(seconds)

        self._bridge.ask(sleep)


def in_simulated_time(monkeypatch: pytest.MonkeyPatch, stage: Stage, bridge: Bridge) -> None:
    """Blocking clients use the simulation's time from now on."""
    for module in (blocking_cluster, retry_policy):
        monkeypatch.setattr(module, "time", _Time(stage, bridge))
