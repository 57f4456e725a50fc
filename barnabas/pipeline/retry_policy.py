"""How long one operation is tried again, and with which waits between. Blocking; knows no connection."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from barnabas.client.patience import Backoff
from barnabas.pipeline.errors import TimedOut
from protocol.errors import ErrorCode, KafkaError

MISSING_TOPIC_MS = 5_000
"""A broker may not have heard yet of a topic that was just made; after so long it is not there."""

FIRST_BACKOFF_MS = 50
MAX_BACKOFF_MS = 1_000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How patient a cluster's operations are."""

    bootstrap: str
    retry_timeout_ms: int
    chance: random.Random

    def start(self, operation: str) -> Retries:
        """For one operation, that begins now."""
        return Retries(self, operation)


class Retries:
    """Of one operation: waits between attempts, and the end of them."""

    def __init__(self, policy: RetryPolicy, what: str) -> None:
        self._what = what
        self._retry_policy = policy
        self._backoff = Backoff(FIRST_BACKOFF_MS, MAX_BACKOFF_MS, policy.chance)
        self._began = time.monotonic()
        self._missing_since = 0.0
        self._missing: KafkaError | None = None

    def wait(self, reason: object) -> None:
        """Before the next attempt. TimedOut, with the reason, when there is to be none."""
        wait_seconds = self._backoff.next_ms() / 1000
        limit_ms = self._retry_policy.retry_timeout_ms
        if time.monotonic() + wait_seconds - self._began > limit_ms / 1000:
            if self._missing is not None:
                raise self._missing
            raise TimedOut(
                f"{self._what}: given up after {limit_ms / 1000:g} s: {reason}; check that the cluster at"
                f" {self._retry_policy.bootstrap} is up, and run this again: it goes on where it was"
            )
        time.sleep(wait_seconds)

    def missing(self, topic: str, partition: int | None = None) -> None:
        """A broker does not know the topic. KafkaError once that has lasted."""
        now = time.monotonic()
        if self._missing is None:
            name = topic if partition is None else f"{topic}-{partition}"
            self._missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {name}")
            self._missing_since = now
        if now - self._missing_since > MISSING_TOPIC_MS / 1000:
            raise self._missing

    def found(self) -> None:
        self._missing = None
