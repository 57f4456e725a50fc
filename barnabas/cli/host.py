"""`barnabas host`: several brokers on one machine, a core each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnabas.cluster.errors import WrongArgument


def host(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", exists=True, dir_okay=False, help="The first broker's .properties file.")
    ],
    cells: Annotated[int, typer.Option("--cells", metavar="N", help="Brokers, each a process; one for each core.")],
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="For logs and pid files; default: the first of log.dirs."),
    ] = None,
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", metavar="ID", help="Format new log directories for this cluster.")
    ] = None,
) -> None:
    """Run the brokers of this machine until SIGTERM; SIGHUP restarts them one by one.

    A broker that ends by itself is restarted. If this process is killed the brokers go on, and the next one keeps them.
    """
    import os
    import socket

    from barnabas.cluster.host_keeper import HostFiles, HostKeeper
    from barnabas.cluster.host_plan import Machine, cells_of
    from barnabas.cluster.layout import read_shape

    values = read_shape(config)
    machine = Machine(socket.gethostname(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    planned = cells_of(values, cells, machine, str(config))
    first = (values.get("log.dirs") or values["log.dir"]).partition(",")[0].strip()
    files = HostFiles((directory or Path(first)).absolute())
    left_out = files.others(planned)
    if left_out:
        typer.echo(
            f"warning: --cells {cells} leaves out {', '.join(left_out)}; `barnabas cluster drain` moves replicas away "
            "before a broker is left out",
            err=True,
        )
    try:
        keeper = HostKeeper(files, planned, cluster_id)
    except OSError as error:
        raise WrongArgument(f"{files.directory}: {error.strerror}") from None
    keeper.run()
