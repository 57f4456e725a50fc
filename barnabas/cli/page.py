"""`barnabas page`: a cluster live in the browser, and with `--allow-faults` the buttons that break it."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

from barnabas.cli.options import DEFAULT_DATA, BasePort, Data, Settings, bootstrap_from, overrides_from
from barnabas.cli.session import run_until_done
from barnabas.cluster.errors import ClusterError, WrongArgument

DEFAULT_PORT = 9644

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,…",
        help="Brokers of any cluster, to be looked at; the cluster in --data unless set.",
    ),
]


def page(  # noqa: PLR0913, PLR0917 - options of a command
    bootstrap: Bootstrap = None,
    data: Data = DEFAULT_DATA,
    base_port: BasePort = None,
    settings: Settings = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Where the page is.")] = DEFAULT_PORT,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen at; others than loopback let anybody look on.")
    ] = "127.0.0.1",
    allow_faults: Annotated[
        bool,
        typer.Option("--allow-faults", help="Buttons that break things; starts the cluster in --data if none runs."),
    ] = False,
    load: Annotated[
        bool, typer.Option("--load", help="Begin with a load: 500 records/s, acks=all, every one accounted for.")
    ] = False,
    tour: Annotated[bool, typer.Option("--tour", help="Begin with the tour: everything is broken in turn.")] = False,
) -> None:
    """Show the cluster live on a page, until Ctrl-C."""
    if (allow_faults or load or tour) and bootstrap is not None:
        raise WrongArgument("--allow-faults, --load and --tour are for the cluster in --data, not for --bootstrap")
    if (load or tour) and not allow_faults:
        raise WrongArgument("--load and --tour act on the cluster: that needs --allow-faults")
    if (base_port is not None or settings) and not allow_faults:
        raise WrongArgument("--base-port and --set are for a cluster that this command starts: --allow-faults")
    _require_packages()
    from barnabas.page.server import open_port
    from barnabas.page.show import Show, show

    listener, place = open_port(host, port)
    options = Show(listener, place, secrets.token_urlsafe(16), allow_faults=allow_faults, load=load, tour=tour)
    options.note = _note
    if bootstrap is not None:
        options.bootstrap = bootstrap_from(bootstrap, data)
    else:
        from barnabas.page.local_side import look_on, open_to_faults

        overrides = overrides_from(settings)
        options.open_side = lambda: open_to_faults(data, base_port, overrides, _note) if allow_faults else look_on(data)
    if not place.is_loopback:
        _note(f"warning: whoever reaches {place.address} sees the cluster; nothing here is encrypted")
    run_until_done(lambda: show(options, lambda where: _tell(where, options.token, allow_faults)))


def _tell(where: str, token: str, allow_faults: bool) -> None:
    if allow_faults:
        typer.echo(f"{where}/#token={token}")
    else:
        typer.echo(where)
        _note("the page only looks on; --allow-faults gives it buttons")


def _require_packages() -> None:
    try:
        import hypercorn
        import quart_trio
    except ModuleNotFoundError as error:
        raise ClusterError(f"the page needs {error.name}: pip install '.[page]' in a checkout of Barnabas") from None
    del hypercorn, quart_trio


def _note(text: str) -> None:
    typer.echo(text, err=True)
