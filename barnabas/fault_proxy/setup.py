"""A proxy as its user describes it: addresses as text, client settings as a file or a mapping."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from barnabas.cluster.errors import WrongArgument
from barnabas.fault_proxy.dialogue import Common
from barnabas.fault_proxy.listeners import LOOPBACK, Address, ClusterProxy, ProxyOptions
from barnabas.fault_proxy.rule_book import RuleBook
from barnabas.fault_proxy.rules import Faults
from barnabas.runtime.error_groups import only_error

Config = Mapping[str, Any] | str | Path
MOST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class ProxySetup:
    """Raises `WrongArgument` where a text is none."""

    to: str
    """`host:port,…` of the cluster."""
    listen: int | str = 0
    """Port, or `host:port`; port 0 is any free one."""
    advertise: str | None = None
    config: Config | None = None
    """Client settings towards the cluster."""
    seed: int | None = None
    """Makes the chance of rules and links repeatable."""

    def addresses(self) -> tuple[Address, ...]:
        from barnabas.client.settings import parse_address

        try:
            found = [parse_address(each.strip()) for each in self.to.split(",")]
        except ValueError as error:
            raise WrongArgument(f"--to {error}") from None
        return tuple(dict.fromkeys(found))

    def check(self) -> None:
        """Raises `WrongArgument`."""
        self.addresses()
        self.listening()

    def listening(self) -> Address:
        """Host and port to listen on."""
        text = str(self.listen)
        host, colon, port = text.rpartition(":")
        if not (port.isascii() and port.isdigit() and int(port) <= MOST_PORT):
            raise WrongArgument(f"--listen must be PORT or HOST:PORT, with a port up to {MOST_PORT}; got {text!r}")
        host = host.strip("[]")
        return (("" if host == "::" else host) if colon else LOOPBACK), int(port)


@asynccontextmanager
async def running_proxy(setup: ProxySetup) -> AsyncIterator[ClusterProxy]:
    """A proxy that runs as long as the block. Raises `ClusterError`: a port in use, a cluster that does not answer;
    `WrongArgument` for wrong settings."""
    from barnabas.client.errors import ConfigException
    from barnabas.client.security import channel_security
    from barnabas.client.security_settings import SecuritySettings
    from barnabas.runtime.real import real_world

    world, chance = real_world(), random.Random(setup.seed)
    host, port = setup.listening()
    to = setup.addresses()
    try:
        settings = SecuritySettings.of(security_options(setup.config))
        async with trio.open_nursery() as nursery:
            security = channel_security(settings, world, nursery)
            options = ProxyOptions(to, port, host, setup.advertise, security)
            proxy = ClusterProxy(world, options, Common(Faults(), RuleBook(chance), chance))
            await nursery.start(proxy.run)
            yield proxy
            nursery.cancel_scope.cancel()
    except ConfigException as error:
        raise WrongArgument(str(error.message)) from None
    except BaseExceptionGroup as group:
        found = only_error(group)
        raise (WrongArgument(str(found.message)) if isinstance(found, ConfigException) else found) from None


def security_options(config: Config | None) -> dict[str, Any]:
    """The settings of TLS and SASL, by their names in Python. Others are ignored. Raises `WrongArgument`."""
    from barnabas.client.security_settings import SecuritySettings
    from barnabas.settings.errors import SettingsError
    from barnabas.settings.properties import parse_properties

    if config is None:
        return {}
    if isinstance(config, Mapping):
        given = dict(config)
    else:
        try:
            read = parse_properties(Path(config).read_text(), str(config))
        except OSError as error:
            raise WrongArgument(f"{config}: {error.strerror}") from None
        except (SettingsError, UnicodeDecodeError) as error:
            raise WrongArgument(str(error)) from None
        given = {name: value for name, (value, _line) in read.items()}
    named = {name.replace(".", "_").replace("-", "_"): value for name, value in given.items()}
    return {name: value for name, value in named.items() if name in SecuritySettings.model_fields}
