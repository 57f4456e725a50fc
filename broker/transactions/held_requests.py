"""Core: requests to begin a transaction, held while the previous one of the same id is prepared."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from barnabas.broker.coordinator.outcome import Now, Outcome, ProducerStamp, Reply, Timers
from barnabas.broker.transactions.transaction import BUMPS_EPOCH, TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.settings.broker import BrokerSettings

_HELD = "held"


class Adding(NamedTuple):
    """A request to add partitions to a transaction."""

    producer: ProducerStamp
    partitions: frozenset[TopicPartition]
    transaction_version: int
    reply: Reply
    response: Callable[[ErrorCode], object]

    def answer(self, code: ErrorCode) -> tuple[Reply, object]:
        return self.reply, self.response(code)


class HeldRequests:
    def __init__(self, timers: Timers, settings: Callable[[], BrokerSettings]) -> None:
        self._timers = timers
        self._settings = settings
        self._held: dict[str, list[Adding]] = {}

    def hold(self, transactional_id: str, adding: Adding, now: Now) -> None:
        """Hold the request until the previous transaction has ended, but not for long."""
        held = self._held.setdefault(transactional_id, [])
        held.append(adding)
        if len(held) == 1:
            settings = self._settings()
            patience_ms = settings.add_partitions_to_txn_retry_backoff_max_ms
            if adding.transaction_version >= BUMPS_EPOCH:
                # A broker sent this request; requests for other producers queue behind it, and it retries soon anyway.
                patience_ms = min(settings.add_partitions_to_txn_retry_backoff_ms, patience_ms)
            self._timers.schedule(
                (transactional_id, _HELD), now.monotonic_ms + patience_ms, partial(self._let_go, transactional_id)
            )

    def _let_go(self, transactional_id: str, now: Now) -> Outcome:
        """Ask the held requests to retry."""
        return Outcome(answers=[each.answer(ErrorCode.CONCURRENT_TRANSACTIONS) for each in self.take(transactional_id)])

    def take(self, transactional_id: str) -> list[Adding]:
        """Requests of one id, which are no longer held."""
        held = self._held.pop(transactional_id, [])
        if held:
            self._timers.cancel((transactional_id, _HELD))
        return held

    def give_up(self) -> list[Reply]:
        """Replies of all held requests, which nobody will answer."""
        replies = [adding.reply for addings in self._held.values() for adding in addings]
        self._held.clear()
        return replies
