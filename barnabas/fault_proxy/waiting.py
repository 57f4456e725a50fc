"""Core: a request that waits for its answer, and what is to be done with that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from barnabas.fault_proxy.requests import Asked
from barnabas.fault_proxy.rule_book import Rule


@dataclass(slots=True)
class Waiting:
    """A request whose answer is to come, or is here and waits for those before it."""

    asked: Asked
    rule: Rule | None = None
    answer: bytes | None = None
    """Made by the proxy."""
    refused: Any = None
    """Items to add to the broker's answer."""
    take: Callable[[bytes], None] | None = None
    """Takes the answer to a request of the proxy itself."""
