"""Certificates of the programs that serve HTTP: from a properties file, and read again when they change."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import trio

from barnabas.cluster.errors import WrongArgument
from barnabas.runtime.real import real_world
from barnabas.runtime.tls.options import TlsConfigError, TlsOptions
from barnabas.runtime.tls.reload import POLL_SECONDS, TlsHolder
from barnabas.settings.errors import SettingsError
from barnabas.settings.properties import parse_properties

_ELSEWHERE = ("ssl_principal_mapping_rules",)
SETTINGS = tuple(sorted(each.name.replace("_", ".") for each in fields(TlsOptions) if each.name not in _ELSEWHERE))
"""Settings of the file, with Kafka's names and meanings."""


class Https:
    """The two ends of HTTPS: connections that are accepted, and those to programs of the same kind."""

    def __init__(self, values: Mapping[str, str], name: str) -> None:
        """`values` by Kafka's keys; `name` is in the log. Reads the files that they name. Raises TlsConfigError."""
        options = TlsOptions.of(values)
        world = real_world()
        self._accepting = TlsHolder(options, world, server=True, name=name)
        self._dialling = TlsHolder(options, world, client=True, name=name)
        if self._accepting.server_context().suites:
            raise TlsConfigError(
                "ssl.cipher.suites cannot choose among the suites of TLS 1.3 for HTTPS; "
                "leave them out, or set ssl.enabled.protocols=TLSv1.2"
            )

    def server_context(self) -> ssl.SSLContext:
        """A context for a listener; later handshakes use the newest certificates."""
        context = self._accepting.server_context().ssl

        def use_newest(end: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            end.context = self._accepting.server_context().ssl

        context.sni_callback = use_newest
        return context

    def client_context(self) -> ssl.SSLContext:
        """The newest context for one connection to another program."""
        return self._dialling.client_context().ssl

    async def run(self) -> None:
        """Look at the files until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._accepting.run)
            while True:
                await trio.sleep(POLL_SECONDS)
                await self._dialling.look()


def read_https(file: Path | None, name: str) -> Https | None:
    """Raises `WrongArgument` for a file that cannot be used; None without one."""
    if file is None:
        return None
    try:
        found = parse_properties(file.read_text(), str(file))
    except OSError as error:
        raise WrongArgument(f"--https-config {file}: {error.strerror}") from None
    except (SettingsError, UnicodeDecodeError) as error:
        raise WrongArgument(f"--https-config {file}: {error}") from None
    for key in found:
        if key not in SETTINGS:
            raise WrongArgument(f"--https-config {file}: unknown setting {key}; allowed: {', '.join(SETTINGS)}")
    try:
        return Https({key: value for key, (value, _line) in found.items()}, name)
    except TlsConfigError as error:
        raise WrongArgument(f"--https-config {file}: {error}") from None
