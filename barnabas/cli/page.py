"""`barnabas page`: a live view of a cluster in the browser; with `--allow-faults`, buttons that inject faults."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.connection import ClientConfig, Connection, SchemaRegistry
from barnabas.cli.http_token import HttpsConfig, HttpTokenFile, http_token_file, read_http_token
from barnabas.cli.option_group import grouped
from barnabas.cli.options import LocalOptions, bootstrap_from, overrides_from
from barnabas.cli.session import run_until_done
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
    from barnabas.client.schemas.lookup import RegistryLookup
    from barnabas.page.show import RestOptions

DEFAULT_PORT = 9644

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,…",
        help="Bootstrap servers of any cluster to view; default: the local cluster in --data.",
    ),
]


@dataclass(frozen=True)
class Serving:
    """Options for the page's own address."""

    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to serve the page on.")] = DEFAULT_PORT
    host: Annotated[
        str, typer.Option("--host", help="Address to serve the page on; any but loopback lets others view it.")
    ] = "127.0.0.1"
    token_file: HttpTokenFile = None
    https_config: HttpsConfig = None
    registry: SchemaRegistry = None


@dataclass(frozen=True)
class Actions:
    """Options for what the page may do to the cluster."""

    allow_faults: Annotated[
        bool,
        typer.Option("--allow-faults", help="Show fault buttons; starts the cluster in --data if it is not running."),
    ] = False
    load: Annotated[
        bool, typer.Option("--load", help="Start the load: 500 records/s, acks=all, every record accounted for.")
    ] = False
    tour: Annotated[bool, typer.Option("--tour", help="Start the tour of faults.")] = False


@dataclass(frozen=True)
class Interface:
    """Options for the REST interface."""

    rest: Annotated[
        bool, typer.Option("--rest", help="Serve topics, groups and records as JSON and server-sent events under /v3.")
    ] = False
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Let /v3 write records, create topics and delete them.")
    ] = False


@grouped
def page(
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    *,
    local: LocalOptions,
    serving: Serving,
    actions: Actions,
    interface: Interface,
) -> None:
    """Show the cluster live on a page, until Ctrl-C."""
    if (actions.allow_faults or actions.load or actions.tour) and bootstrap is not None:
        raise WrongArgument("--allow-faults, --load and --tour need the local cluster; leave out --bootstrap")
    if (actions.load or actions.tour) and not actions.allow_faults:
        raise WrongArgument("--load and --tour need --allow-faults")
    if (local.base_port is not None or local.settings) and not actions.allow_faults:
        raise WrongArgument("--base-port and --set need --allow-faults: they are for a cluster that the page starts")
    if interface.allow_writes and not interface.rest:
        raise WrongArgument("--allow-writes needs --rest")
    _require_packages()
    from barnabas.client.admin import AdminSettings
    from barnabas.https import read_https
    from barnabas.page.server import open_port
    from barnabas.page.show import Show, show

    is_local = bootstrap is None
    token_file = http_token_file(serving.token_file, local.data, is_local=is_local)
    http_token = read_http_token(token_file)
    connection = Connection(bootstrap, local.data, client_config)
    https = read_https(serving.https_config, "the page")
    listener, address = open_port(serving.host, serving.port, "http" if https is None else "https")
    options = Show(
        listener,
        address,
        secrets.token_urlsafe(16),
        http_token=http_token,
        https=https,
        admin=lambda: connection.settings(AdminSettings.model_fields, client_id="barnabas-page"),
        allow_faults=actions.allow_faults,
        load=actions.load,
        tour=actions.tour,
    )
    options.note = _note
    options.registry = _registry(connection, serving.registry)
    if interface.rest:
        options.rest = _rest(connection, interface.allow_writes)
        if not address.is_loopback and http_token is None:
            raise WrongArgument("--rest on an address other than loopback needs --http-token-file")
    if bootstrap is not None:
        options.bootstrap = bootstrap_from(bootstrap, local.data)
        options.security = connection.security()
    else:
        from barnabas.cluster.layout import Layout
        from barnabas.page.local_side import open_for_faults, open_read_only

        overrides = overrides_from(local.settings)
        if (actions.load or actions.tour) and Layout.open(local.data.absolute()).is_secure:
            raise WrongArgument("--load and --tour write over PLAINTEXT, which a secure cluster denies; leave them out")
        options.open_side = lambda: (
            open_for_faults(local.data, local.base_port, overrides, _note)
            if actions.allow_faults
            else open_read_only(local.data)
        )
    if not address.is_loopback:
        who = "anybody who reaches it" if http_token is None else "who has the token"
        how = "; the connection is not encrypted" if https is None else ""
        if http_token is None or https is None:
            _note(f"warning: {who} can view the cluster at {address.url}{how}")
    if token_file is not None:
        _note(f"the page asks for a password: the token in {token_file}, with any user name")
    run_until_done(lambda: show(options, lambda url: _print_url(url, options.token, actions, interface)))


def _print_url(url: str, token: str, actions: Actions, interface: Interface) -> None:
    if actions.allow_faults or interface.allow_writes:
        typer.echo(f"{url}/#token={token}")
    else:
        typer.echo(url)
    if not actions.allow_faults:
        _note("the page is read-only; --allow-faults shows buttons")


def _rest(connection: Connection, allow_writes: bool) -> RestOptions:
    from barnabas.client.consumer.settings import ConsumerSettings
    from barnabas.client.producer.settings import ProducerSettings
    from barnabas.page.show import RestOptions

    return RestOptions(
        lambda: connection.settings(ConsumerSettings.model_fields, client_id="barnabas-rest"),
        lambda: connection.settings(ProducerSettings.model_fields, client_id="barnabas-rest"),
        allow_writes,
    )


def _registry(connection: Connection, url: str | None) -> RegistryLookup | None:
    """The registry of --schema-registry or of the file with client settings. Raises `WrongArgument`."""
    from barnabas.client.consumer.settings import ConsumerSettings
    from barnabas.client.errors import ConfigException
    from barnabas.client.schemas.access import registry_of

    settings = connection.settings(ConsumerSettings.model_fields, schema_registry_url=url)
    if not settings.get("schema_registry_url"):
        return None
    try:
        return registry_of(settings, "--schema-registry")
    except ConfigException as error:
        raise WrongArgument(str(error.message)) from None


def _require_packages() -> None:
    try:
        import hypercorn
        import quart_trio
    except ModuleNotFoundError as error:
        raise ClusterError(
            f"the page needs the package {error.name}: install the extra `page`, in a checkout `pip install '.[page]'`"
        ) from None
    del hypercorn, quart_trio


def _note(text: str) -> None:
    typer.echo(text, err=True)
