"""Questions to the cluster's administrator, in threads with event loops of their own: long answers do not delay the
page's feed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import trio

from barnabas.client.admin import Admin
from barnabas.client.cluster import NoBrokerAvailable
from barnabas.cluster.errors import ClusterError
from barnabas.protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")

ANSWER_MS = 5_000
MOST_THREADS = 4
_FAILURES = (KafkaError, NoBrokerAvailable, ClusterError, OSError)
_SAYINGS = {
    ErrorCode.SECURITY_DISABLED: "The cluster has no authorizer: every client may do everything.",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "The cluster has no delegation tokens.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "Delegation tokens are shown to authenticated users only.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "The page's user may not see this: it needs Describe on the cluster.",
}


@dataclass
class Asker:
    """Asks one cluster, for all readers."""

    settings: Callable[[], Mapping[str, Any]]
    """Returns the settings of an administrator's client; may read files."""

    def __post_init__(self) -> None:
        self._limiter = trio.CapacityLimiter(MOST_THREADS)

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)

    async def ask(self, work: Callable[[Admin], Awaitable[T]]) -> tuple[T | None, str]:
        """The result of `work`, or None and the problem in one line."""
        return await self.in_thread(partial(self._ask, work))

    async def call(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """The result of `work`. Raises `KafkaError`, `NoBrokerAvailable`, `ClusterError` and `OSError`."""
        return await self.in_thread(lambda: trio.run(self._with_admin, work))

    def _ask(self, work: Callable[[Admin], Awaitable[T]]) -> tuple[T | None, str]:
        try:
            return trio.run(self._with_admin, work), ""
        except _FAILURES as error:
            return None, _saying(error)

    async def _with_admin(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """The errors of the client come out of its nursery as they are."""
        failure: Exception | None = None
        async with Admin(**{**self.settings(), "default_api_timeout_ms": ANSWER_MS}) as admin:
            try:
                result = await work(admin)
            except _FAILURES as error:
                failure = error
        if failure is not None:
            raise failure
        return result


def _saying(error: Exception) -> str:
    """The error in one line."""
    known = _SAYINGS.get(error.code) if isinstance(error, KafkaError) else None
    return known or " ".join(str(error).split())
