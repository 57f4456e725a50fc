"""Keeps the public keys of an OAuth provider up to date, from a URL or a file.

A login finds a key in memory or not at all. A token with an unknown key id is refused, and makes the keys be fetched
again in the background, as in Kafka: the client's next attempt finds the new key.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

import trio

from barnabas.protocol.sasl.jwt_claims import Jwt
from barnabas.runtime.backoff import Backoff
from barnabas.runtime.sasl.http_exchange import MOST_RESPONSE_BYTES, HttpFailed, HttpRequest, exchange
from barnabas.runtime.sasl.verification_keys import KeySet, VerificationKey
from barnabas.runtime.world import World

log = logging.getLogger(__name__)

UNKNOWN_KEY_MS = 10_000
"""Least time between fetches because of unknown key ids: anybody can invent such ids."""
FILE_POLL_MS = 1000
_LONGEST_KEY_ID = 1000


class JwksFailed(Exception):
    """The keys cannot be had. The text is one line."""


@dataclass(frozen=True, slots=True)
class JwksTimes:
    """`sasl.oauthbearer.jwks.endpoint.…`"""

    refresh_ms: int = 3600_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000


class Source(Protocol):
    """A place that has keys."""

    @property
    def place(self) -> str:
        """A URL or path, for the log."""

    async def fetch(self) -> KeySet:
        """Raises JwksFailed."""

    async def wait_for_change(self, wake: trio.Event) -> None:
        """Return when the keys may have changed, or when `wake` is set."""


class Jwks:
    """The keys at one place. `run` keeps them; until it has fetched them once, no token is accepted."""

    def __init__(self, world: World, source: Source, times: JwksTimes) -> None:
        self._world = world
        self._source = source
        self._times = times
        self._keys = KeySet()
        self._fetched_ms: int | None = None
        self._wake = trio.Event()
        self.loaded = trio.Event()
        """Set once there are keys."""

    def find(self, token: Jwt) -> VerificationKey | None:
        """The key that may have signed the token. If its id is unknown, the keys are fetched again soon."""
        key = self._keys.find(token)
        if key is None and token.key_id is not None and len(token.key_id) <= _LONGEST_KEY_ID:
            self._wake.set()
        return key

    async def load(self) -> None:
        """Fetch the keys once. Raises JwksFailed; the keys of before stay."""
        self._fetched_ms = self._world.monotonic.now_ms()
        keys = await self._source.fetch()
        if keys.ids != self._keys.ids:
            log.info("%s: %d keys", self._source.place, len(keys.keys))
        self._keys = keys
        self.loaded.set()

    async def run(self) -> None:
        """Keep the keys until cancelled. Never fails: it logs, and tries again."""
        backoff = Backoff(self._times.retry_backoff_ms, self._times.retry_backoff_max_ms, self._world.chance)
        while True:
            try:
                await self.load()
                backoff.reset()
                await self._until_wanted()
            except JwksFailed as error:
                log.warning("the keys of OAUTHBEARER cannot be fetched: %s", error)
                await trio.sleep(backoff.next_ms() / 1000)

    async def _until_wanted(self) -> None:
        """Wait for the end of the interval, for a change of the file or for an unknown key id."""
        self._wake = trio.Event()
        with trio.move_on_after(self._times.refresh_ms / 1000):
            await self._source.wait_for_change(self._wake)
        if self._wake.is_set() and self._fetched_ms is not None:
            since_ms = self._world.monotonic.now_ms() - self._fetched_ms
            await trio.sleep(max(0, UNKNOWN_KEY_MS - since_ms) / 1000)


class UrlSource:
    """Keys at a URL of HTTP."""

    def __init__(self, world: World, request: HttpRequest) -> None:
        self.place = request.url
        self._world = world
        self._request = request

    async def fetch(self) -> KeySet:
        def work() -> KeySet:
            return KeySet.parse(exchange(self._request))

        return await _fetched(self.place, self._world.run_blocking(work))

    async def wait_for_change(self, wake: trio.Event) -> None:
        await wake.wait()


class FileSource:
    """Keys in a file, which is looked at once a second."""

    def __init__(self, world: World, path: str) -> None:
        self.place = path
        self._world = world
        self._path = path
        self._modified_ms: int | None = None

    async def fetch(self) -> KeySet:
        def work() -> KeySet:
            self._modified_ms = self._modified()
            size = self._world.disk.size(self._path)
            if size > MOST_RESPONSE_BYTES:
                raise ValueError(f"{size} bytes; allowed: up to {MOST_RESPONSE_BYTES}")
            return KeySet.parse(self._world.disk.read_bytes(self._path))

        return await _fetched(self.place, self._world.run_blocking(work))

    async def wait_for_change(self, wake: trio.Event) -> None:
        while not wake.is_set() and self._modified() == self._modified_ms:
            with trio.move_on_after(FILE_POLL_MS / 1000):
                await wake.wait()

    def _modified(self) -> int | None:
        try:
            return self._world.disk.modified_ms(self._path)
        except OSError:
            return None


async def _fetched(place: str, keys: Awaitable[KeySet]) -> KeySet:
    try:
        return await keys
    except HttpFailed as error:
        raise JwksFailed(str(error)) from None
    except (OSError, ValueError) as error:
        raise JwksFailed(f"{place}: {error}") from None
