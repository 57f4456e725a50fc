"""The parts that all connections of a server share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runtime.flusher import Flusher
from runtime.memory import MemoryBudget
from runtime.request import Request
from runtime.response_slot import ResponseSlot
from runtime.server_limits import ServerLimits
from runtime.steps import Steps
from runtime.turns import Turns
from runtime.worker import Worker
from runtime.world import Clock, stopped

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
    stopwatch: Callable[[], float] = stopped
    overran: Callable[[int, float], None] = lambda api_key, seconds: None
    """Called with an API key and seconds if a request, or a step of one, took longer than `turns.BUDGET_SECONDS`."""
