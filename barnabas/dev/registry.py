"""The schema registry of a development node; that of a secure one has its certificate and its token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.private_files import write_private
from barnabas.dev.options import DevOptions
from barnabas.runtime.http_token import HttpToken
from barnabas.settings.properties import render_properties

if TYPE_CHECKING:
    from barnabas.dev.node import DevNode
    from barnabas.https import Https
    from barnabas.registry.running import RunningRegistry

USER = "admin"
"""Any user will do: the token is the password."""


async def serve_registry(
    options: DevOptions, node: DevNode, stop: trio.Event, *, task_status: trio.TaskStatus[RunningRegistry]
) -> None:
    """Until `stop` is set; started when it answers."""
    from barnabas.registry.running import RegistryOptions, run_registry
    from barnabas.web import listen

    assert options.registry_port is not None
    clients = {"bootstrap_servers": node.bootstrap_servers, **node.client_settings()}
    listener = listen(options.host, options.registry_port, "the registry")
    token, https = protection_of(node.directory) if node.is_secure else (None, None)
    async with trio.open_nursery() as nursery:
        wanted = RegistryOptions(listener, options.host, clients, token=token, https=https)
        running = await nursery.start(run_registry, wanted)
        if node.client_file is not None:
            _add_to(node.client_file, registry_settings(running.url, node.directory, is_secure=True))
        task_status.started(running)
        await stop.wait()
        nursery.cancel_scope.cancel()


def protection_of(directory: Path) -> tuple[HttpToken, Https]:
    """Token and certificate of a secure node."""
    from barnabas.dev.security import certificate_settings
    from barnabas.https import Https
    from barnabas.security.local_security import LocalSecurity

    token = HttpToken.parse(LocalSecurity.of(directory).http_token_file.read_bytes())
    return token, Https(certificate_settings(directory), "the registry")


def registry_settings(url: str, directory: Path, *, is_secure: bool) -> dict[str, str]:
    """Keyword arguments of our clients for the registry."""
    settings = {"schema_registry_url": url}
    if not is_secure:
        return settings
    from barnabas.security.local_security import LocalSecurity

    security = LocalSecurity.of(directory)
    token = HttpToken.parse(security.http_token_file.read_bytes())
    return settings | {
        "schema_registry_basic_auth_credentials_source": "USER_INFO",
        "schema_registry_basic_auth_user_info": f"{USER}:{token.secret}",
        "schema_registry_ssl_truststore_type": "PEM",
        "schema_registry_ssl_truststore_location": str(security.authority_file),
    }


def _add_to(file: Path, settings: dict[str, str]) -> None:
    """Add settings to a configuration of clients, which is written again at each start."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    write_private(file, file.read_text() + render_properties(named))
