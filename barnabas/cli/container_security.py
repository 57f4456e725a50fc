"""`barnabas security container-files` and `container-users`: for the profile `secure` of docker-compose.yml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.output import show_text
from barnabas.cluster.errors import WrongArgument

Volume = Annotated[Path, typer.Option("--volume", metavar="DIR", help="Volume that all containers mount.")]
Shape = Annotated[Path, typer.Option("--shape", metavar="DIR", help="Settings of the nodes without security.")]


def container_files(
    volume: Volume,
    shape: Shape,
    sasl_ssl_ports: Annotated[
        str, typer.Option("--sasl-ssl-ports", metavar="PORT,…", help="Published ports of the brokers, by their ids.")
    ],
    ssl_ports: Annotated[
        str, typer.Option("--ssl-ports", metavar="PORT,…", help="The same for clients with certificates.")
    ],
) -> None:
    """Make certificates, users and settings for nodes in containers. What is there is kept."""
    from barnabas.security.addresses import ContainerAddresses
    from barnabas.security.containers import ContainerFiles

    addresses = ContainerAddresses(
        _by_broker("--sasl-ssl-ports", sasl_ssl_ports, shape), _by_broker("--ssl-ports", ssl_ports, shape)
    )
    ContainerFiles(volume).ensure(shape, addresses)
    show_text(f"{volume} has certificates, users and settings of the nodes")


def container_users(volume: Volume) -> None:
    """Give the users their passwords and rights, unless the cluster has them."""
    from barnabas.cli.connection import Connection
    from barnabas.cli.local_users import publish
    from barnabas.security.containers import ContainerFiles

    files = ContainerFiles(volume)
    passwords = files.passwords()
    publish(passwords, Connection(data=volume, client_config=files.internal_file))
    show_text(f"users are {', '.join(passwords)}")


def _by_broker(option: str, text: str, shape: Path) -> dict[int, int]:
    """Ports by broker id. Raises `WrongArgument`."""
    from barnabas.cluster.layout import Layout

    brokers = Layout.open(shape, shape=shape).brokers
    ports = [int(each) for each in text.split(",") if each.isdigit() and 0 < int(each) < 65536]
    if len(ports) != len(brokers):
        names = ", ".join(it.name for it in brokers)
        raise WrongArgument(f"{option} {text}: one port for each of {names}, separated by commas")
    return {broker.id: port for broker, port in zip(brokers, ports, strict=True)}
