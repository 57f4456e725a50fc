"""The retries of a blocking operation: their maximum duration, and the backoff between them."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from barnabas.pipeline.errors import TimedOut
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.backoff import Backoff

MISSING_TOPIC_MS = 5_000
"""A broker may not know a new topic yet. If this time passes, the topic does not exist."""

FIRST_BACKOFF_MS = 50
MAX_BACKOFF_MS = 1_000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retry policy of all operations of one cluster client."""

    bootstrap: str
    retry_timeout_ms: int
    chance: random.Random

    def start(self, operation: str) -> Retries:
        """For one operation that begins now; `operation` is named in error messages."""
        return Retries(self, operation)


class Retries:
    """The attempts of one operation."""

    def __init__(self, policy: RetryPolicy, operation: str) -> None:
        self._operation = operation
        self._policy = policy
        self._backoff = Backoff(FIRST_BACKOFF_MS, MAX_BACKOFF_MS, policy.chance)
        self._began = time.monotonic()
        self._missing_since = 0.0
        self._missing: KafkaError | None = None

    def wait(self, reason: object) -> None:
        """Sleep before the next attempt. TimedOut with the reason, or the KafkaError of a missing topic, when the retry
        timeout is over."""
        wait_seconds = self._backoff.next_ms() / 1000
        limit_ms = self._policy.retry_timeout_ms
        if time.monotonic() + wait_seconds - self._began > limit_ms / 1000:
            if self._missing is not None:
                raise self._missing
            raise TimedOut(
                f"{self._operation}: gave up after {limit_ms / 1000:g} s: {reason}; check that the cluster at"
                f" {self._policy.bootstrap} is up, then run the same command again: it resumes where it stopped"
            )
        time.sleep(wait_seconds)

    def missing(self, topic: str, partition: int | None = None) -> None:
        """Record that a broker does not know the topic. KafkaError after MISSING_TOPIC_MS of it."""
        now = time.monotonic()
        if self._missing is None:
            name = topic if partition is None else f"{topic}-{partition}"
            self._missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {name}")
            self._missing_since = now
        if now - self._missing_since > MISSING_TOPIC_MS / 1000:
            raise self._missing

    def found(self) -> None:
        self._missing = None
