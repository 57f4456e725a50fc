"""The port by which share groups change states at share coordinators, as tests see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class AskedShareStates:
    """Keeps what it was asked to initialize, as (group id, state epoch, states)."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, Mapping[bytes, Any]]] = []

    def initialize(self, group_id: str, state_epoch: int, states: Mapping[bytes, Any]) -> None:
        self.asked.append((group_id, state_epoch, states))
