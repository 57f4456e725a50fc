"""The parts that all connections of a server share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.runtime.flusher import Flusher
from barnabas.runtime.memory import MemoryBudget
from barnabas.runtime.refused_peers import RefusedPeers
from barnabas.runtime.request import Request
from barnabas.runtime.response_slot import ResponseSlot
from barnabas.runtime.server_limits import ServerLimits
from barnabas.runtime.steps import Steps
from barnabas.runtime.turns import Turns
from barnabas.runtime.worker import Worker
from barnabas.runtime.world import Clock, stopped

Handle = Callable[[Request, ResponseSlot], Steps | None]
"""Serves a request. Returns the steps that remain."""


@dataclass(frozen=True, slots=True)
class Service:
    """The parts that all connections of a server share."""

    handle: Handle
    limits: ServerLimits
    monotonic: Clock
    flusher: Flusher
    scratch: bytearray
    turns: Turns
    worker: Worker
    memory: MemoryBudget
    refused: RefusedPeers
    stopwatch: Callable[[], float] = stopped
    overran: Callable[[int, float], None] = lambda api_key, seconds: None
    """Called with an API key and seconds if a request, or a step of one, took longer than `turns.BUDGET_SECONDS`."""
