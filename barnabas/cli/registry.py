"""`barnabas registry`: a schema registry with Confluent's REST interface before any cluster."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.connection import Connection
from barnabas.cli.http_token import HttpsConfig, OwnTokenFile, read_http_token
from barnabas.cli.option_group import grouped
from barnabas.cli.output import show_text
from barnabas.cli.session import NoAnswer, run_connected
from barnabas.cluster.errors import ClusterError

if TYPE_CHECKING:
    from barnabas.registry.running import RegistryOptions

DEFAULT_PORT = 8081


@dataclass(frozen=True)
class Listening:
    """Options on where a registry listens, and with whom it shares its work."""

    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65_535, help="Port; 0: any free one.")] = (
        DEFAULT_PORT
    )
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="Address to listen on; 0.0.0.0 serves other machines, too.")
    ] = "127.0.0.1"
    advertised_host: Annotated[
        str, typer.Option("--advertised-host", metavar="HOST", help="Name that other registries reach this one by.")
    ] = ""
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Topic that keeps the schemas.")] = "_schemas"
    group: Annotated[
        str, typer.Option("--group", metavar="ID", help="Group in which registries elect the one that writes.")
    ] = "schema-registry"


@dataclass(frozen=True)
class Protection:
    """Options on who may use a registry."""

    https_config: HttpsConfig = None
    token_file: OwnTokenFile = None


@grouped
def registry(*, listening: Listening, protection: Protection, connection: Connection) -> None:
    """Run a schema registry until Ctrl-C."""
    require_packages()
    from barnabas.client.admin.settings import AdminSettings
    from barnabas.https import read_https
    from barnabas.registry.candidate import ElectionSettings
    from barnabas.registry.running import RegistryOptions
    from barnabas.web import listen

    clients = connection.settings(AdminSettings.model_fields)
    clients["client_id"] = "barnabas-registry"
    clients.pop("default_api_timeout_ms", None)
    token, https = read_http_token(protection.token_file), read_https(protection.https_config, "the registry")
    options = RegistryOptions(
        listen(listening.host, listening.port, "the registry"),
        listening.host,
        clients,
        listening.topic,
        listening.advertised_host,
        ElectionSettings(listening.group),
        token,
        https,
    )
    run_connected(connection, lambda: _serve(options, connection.timeout))


async def _serve(options: RegistryOptions, timeout: float) -> None:
    """Run until cancelled. Raises `NoAnswer` if the cluster does not answer in this number of seconds."""
    import trio

    from barnabas.registry.running import run_registry
    from barnabas.runtime.error_groups import only_error
    from barnabas.runtime.process import SWITCH_SECONDS, settle_memory

    # The thread that parses may not hold up the event loop.
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        async with trio.open_nursery() as nursery:
            with trio.move_on_after(timeout) as patience:
                running = await nursery.start(run_registry, options)
                settle_memory()
                show_text(f"{running.url} serves schemas; Ctrl-C ends it")
            if patience.cancelled_caught:
                servers = ",".join(options.clients["bootstrap_servers"])
                raise NoAnswer(f"{servers}: the registry could not start within {timeout:g} s")
    except BaseExceptionGroup as group:
        raise only_error(group) from None


def require_packages() -> None:
    """Raises `ClusterError` if a package of the extra `registry` is missing."""
    try:
        import fastavro
        import google.protobuf
        import hypercorn
        import jsonschema
    except ModuleNotFoundError as error:
        raise ClusterError(
            f"the registry needs the package {error.name}: install the extra `registry`, "
            "in a checkout `pip install '.[registry]'`"
        ) from None
    del fastavro, google, hypercorn, jsonschema
