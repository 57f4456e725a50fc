"""Holds the contexts of a listener or of channels, and makes new ones when their files or options change.

New contexts are for new connections; those that are open stay as they are. A file that cannot be used is reported
once, and the contexts before it stay.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from barnabas.runtime.tls.options import TlsConfigError, TlsOptions
from barnabas.runtime.world import World

if TYPE_CHECKING:
    from barnabas.runtime.tls.contexts import Contexts, TlsContext

log = logging.getLogger(__name__)

POLL_SECONDS = 10.0
"""Time between two looks at the files. Kubernetes changes them by a symbolic link, so their contents are compared."""


EXPIRY_DAYS = 14
"""The log has a warning on each of the last days of a certificate."""

_DAY_MS = 86_400_000

Contents = Mapping[str, bytes | OSError]
"""Contents of files by path, or the error of each that could not be read."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Contexts that are ready to be used, and what they were made of."""

    options: TlsOptions
    contexts: Contexts
    digests: Mapping[str, bytes]


class TlsHolder:
    """The contexts of one listener, or of one kind of outgoing connection."""

    def __init__(
        self, options: TlsOptions, world: World, *, server: bool = False, client: bool = False, name: str = "TLS"
    ) -> None:
        """`server` and `client` are the ends that it is for; `name` stands in the log. Raises TlsConfigError."""
        self._world = world
        self._server = server
        self._client = client
        self._name = name
        self._failed: Mapping[str, bytes] = {}
        """The contents that could not be used."""
        self._warned = (0, 0)
        """The end of validity, and the days until then, of the last warning."""
        self.reloads = 0
        self.failed_reloads = 0
        """Changed files that could not be used."""
        self._current = self._prepare(options, self._read(options))

    @property
    def options(self) -> TlsOptions:
        return self._current.options

    @property
    def expires_ms(self) -> int | None:
        """The end of the own certificate's validity, in ms since 1970; None without a certificate."""
        return self._current.contexts.expires_ms

    def server_context(self) -> TlsContext:
        """The context for a connection that was accepted."""
        context = self._current.contexts.server
        assert context is not None, "made for the other end"
        return context

    def client_context(self) -> TlsContext:
        """The context for a connection that was dialled."""
        context = self._current.contexts.client
        assert context is not None, "made for the other end"
        return context

    def prepare(self, values: Mapping[str, str]) -> Prepared:
        """Contexts by the stores of `values`, which are texts by Kafka's keys; the files are read again. They must be
        the same node's. Raises TlsConfigError."""
        options = self.options.reconfigured(values)
        return self._checked(self._prepare(options, self._read(options)))

    async def prepare_aside(self, values: Mapping[str, str]) -> Prepared:
        """`prepare` away from the event loop: a store with a slow key derivation takes some 10 ms."""
        return await self._world.run_blocking(lambda: self.prepare(values))

    def adopt(self, prepared: Prepared) -> None:
        """Use these contexts for new connections."""
        self._current = prepared
        self._failed = {}
        self.reloads += 1
        log.info("%s: new connections use the certificates that were just read", self._name)

    async def run(self) -> None:
        """Look at the files until cancelled."""
        while True:
            self._warn_of_expiry()
            await trio.sleep(POLL_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Use the files if they have changed."""
        before = self._current
        # Read once: what is tried, and remembered if it cannot be used, is what was compared.
        found = await self._world.run_blocking(lambda: self._read(before.options))
        digests = _digests(found)
        if digests == before.digests:
            self._failed = {}
            return
        if digests == self._failed:
            return
        try:
            prepared = await self._world.run_blocking(lambda: self._checked(self._prepare(before.options, found)))
        except TlsConfigError as error:
            self._failed = digests
            self.failed_reloads += 1
            log.error("%s: the changed certificates cannot be used, and the old ones stay: %s", self._name, error)
            return
        if self._current is before:
            self.adopt(prepared)

    def _warn_of_expiry(self) -> None:
        if self.expires_ms is None:
            return
        days = (self.expires_ms - self._world.wall_clock.now_ms()) // _DAY_MS
        if days < EXPIRY_DAYS and (self.expires_ms, days) != self._warned:
            self._warned = self.expires_ms, days
            when = f"expires in {days} days" if days >= 0 else "has expired"
            log.warning("%s: the certificate %s; replace its file, a restart is not needed", self._name, when)

    def _read(self, options: TlsOptions) -> Contents:
        return {path: self._contents(path) for path in options.files}

    def _contents(self, path: str) -> bytes | OSError:
        try:
            return self._world.disk.read_bytes(path)
        except OSError as error:
            return error

    def _prepare(self, options: TlsOptions, found: Contents) -> Prepared:
        # Nodes without TLS do not load cryptography.
        from barnabas.runtime.tls.contexts import make_contexts

        def read(path: str) -> bytes:
            data = found[path]
            if isinstance(data, OSError):
                raise data
            return data

        now_ms = self._world.wall_clock.now_ms()
        contexts = make_contexts(options, read, now_ms, server=self._server, client=self._client)
        return Prepared(options, contexts, _digests(found))

    def _checked(self, prepared: Prepared) -> Prepared:
        """Raises TlsConfigError if these are not the same node's."""
        from barnabas.runtime.tls.contexts import check_names

        old, new = self._current.contexts, prepared.contexts
        check_names(old.names, new.names, prepared.options)
        if new.has_truststore and not old.has_truststore:
            raise TlsConfigError("the trust store cannot be added to a running listener or channel; restart the node")
        return prepared


def _digests(found: Contents) -> dict[str, bytes]:
    return {path: _digest(contents) for path, contents in found.items()}


def _digest(contents: bytes | OSError) -> bytes:
    if isinstance(contents, OSError):
        return str(contents.errno).encode()
    return hashlib.sha256(contents).digest()
