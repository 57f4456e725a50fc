"""`barnabas cluster`: six nodes on this machine."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli import draining, inspection, membership, replica_move, voters
from barnabas.cli.balance import balance
from barnabas.cli.local_users import publish_users
from barnabas.cli.option_group import grouped
from barnabas.cli.options import DEFAULT_DATA, Data, LocalOptions, overrides_from, program
from barnabas.security.addresses import SASL_PLAINTEXT_ABOVE, SASL_SSL_ABOVE, SSL_ABOVE
from barnabas.security.users import ADMIN, FIRST_USERS

if TYPE_CHECKING:
    from barnabas.cluster.local import LocalCluster
    from barnabas.cluster.status import ClusterStatus

app = typer.Typer(help="Run six nodes on this machine; describe any cluster.", rich_markup_mode=None)

NodeName = Annotated[
    str, typer.Argument(metavar="NODE", help="broker-1 to broker-3, controller-101 to controller-103.")
]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="Time limit.")]
Restarts = Annotated[bool, typer.Option(help="Restart nodes that exit by themselves.")]


@dataclass(frozen=True)
class Size:
    """Options for the number of brokers."""

    brokers: Annotated[
        int | None, typer.Option("--brokers", metavar="N", min=1, max=99, help="Number of brokers; default: 3.")
    ] = None
    cells: Annotated[
        int | None,
        typer.Option("--cells", metavar="N", min=1, max=99, help="Brokers that share a host; default: 1."),
    ] = None


@dataclass(frozen=True)
class Additions:
    """Options for what the cluster has besides its nodes."""

    secure: Annotated[
        bool, typer.Option("--secure", help="Add TLS, users and ACLs; files for clients go to DIR/security.")
    ] = False
    s3: Annotated[bool, typer.Option("--s3", help="Add an S3 server (versitygw), and tiered storage on it.")] = False


def _cluster(
    data: Path, base_port: int | None = None, settings: list[str] | None = None, *, restarts: bool = True
) -> LocalCluster:
    from barnabas.cluster.local import LocalCluster

    return LocalCluster(data, base_port, overrides_from(settings), restarts=restarts)


@app.command()
@grouped
def up(
    timeout: Timeout = 60.0,
    wait: Annotated[bool, typer.Option(help="Return when the cluster accepts writes.")] = True,
    restarts: Restarts = True,
    *,
    additions: Additions,
    size: Size,
    local: LocalOptions,
) -> None:
    """Start the nodes that are not running. Existing data is kept."""
    began = time.monotonic()
    data = local.data
    cluster = _cluster(data, local.base_port, local.settings, restarts=restarts)
    if additions.secure:
        cluster.make_secure()
    if additions.s3:
        cluster.add_s3()
    if size.brokers is not None or size.cells is not None:
        cluster.make_larger(size.brokers, size.cells)
    _warn_of_ports(cluster)
    started = cluster.up()
    if not started:
        typer.echo(f"all {len(cluster.nodes)} nodes are running already: {cluster.bootstrap_servers}")
    if wait:
        cluster.wait_ready(timeout)
        if cluster.security is not None:
            publish_users(data)
        seconds = time.monotonic() - began
        typer.echo(f"ready after {seconds:.1f} s: bootstrap.servers={cluster.bootstrap_servers}")
        if cluster.security is not None:
            typer.echo(_secure_steps(data, cluster.layout.base_port))
        if cluster.s3 is not None:
            typer.echo(_s3_steps(data, cluster.s3.endpoint))
        typer.echo(_first_steps(data))
    elif started:
        typer.echo(f"started {', '.join(started)}")


@app.command()
def down(data: Data = DEFAULT_DATA, timeout: Timeout = 30.0) -> None:
    """Stop the brokers, then the controllers. The data stays."""
    began = time.monotonic()
    killed = _cluster(data).down(timeout)
    typer.echo(f"down after {time.monotonic() - began:.1f} s")
    if killed:
        typer.echo(f"killed, because they did not stop within {timeout:.0f} s: {', '.join(killed)}", err=True)
        raise typer.Exit(1)


@app.command()
def status(
    data: Data = DEFAULT_DATA,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show nodes, quorum and partitions as the nodes report them."""
    found = _cluster(data).status()
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        _print_status(found)


@app.command()
def kill(node: NodeName, data: Data = DEFAULT_DATA) -> None:
    """Kill a node (SIGKILL)."""
    _cluster(data).kill(node)


@app.command()
def stop(node: NodeName, data: Data = DEFAULT_DATA, timeout: Timeout = 30.0) -> None:
    """Shut a node down cleanly (SIGTERM)."""
    if not _cluster(data).stop(node, timeout):
        typer.echo(f"{node} did not stop within {timeout:.0f} s and was killed", err=True)
        raise typer.Exit(1)


@app.command()
def start(node: NodeName, data: Data = DEFAULT_DATA, restarts: Restarts = True) -> None:
    """Start a node with its previous configuration."""
    _cluster(data, restarts=restarts).start(node)


@app.command()
def pause(node: NodeName, data: Data = DEFAULT_DATA) -> None:
    """Freeze a node (SIGSTOP)."""
    _cluster(data).pause(node)


@app.command()
def resume(node: NodeName, data: Data = DEFAULT_DATA) -> None:
    """Resume a frozen node (SIGCONT)."""
    _cluster(data).resume(node)


@app.command()
def logs(
    node: NodeName,
    data: Data = DEFAULT_DATA,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Number of last lines to print.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines.")] = False,
) -> None:
    """Print a node's log."""
    layout = _cluster(data).layout
    path = layout.log_file(layout.node(node))
    if not path.exists():
        typer.echo(f"{node} has no log yet ({path})", err=True)
        raise typer.Exit(1)
    with path.open(errors="replace") as file:
        for line in file.readlines()[-lines:] if lines else []:
            sys.stdout.write(line)
        while follow:
            sys.stdout.write(file.read())
            sys.stdout.flush()
            time.sleep(0.2)


for _name, _command in (
    ("describe", inspection.describe),
    ("quorum", inspection.quorum),
    ("features", inspection.features),
    ("log-dirs", inspection.log_dirs),
    ("api-versions", inspection.api_versions),
    ("unregister", inspection.unregister),
    ("drain", draining.drain),
    ("move-replica", replica_move.move_replica),
    ("add-voter", voters.add),
    ("remove-voter", voters.remove),
    ("add", membership.add),
    ("remove", membership.remove),
    ("roll", membership.roll),
):
    app.command(_name)(_command)
app.command("balance")(balance)


def _warn_of_ports(cluster: LocalCluster) -> None:
    from barnabas.cluster.ports import is_for_outgoing

    needed = sorted(port for node in cluster.nodes for port in (node.port, node.http_port) if port is not None)
    taken = is_for_outgoing(needed)
    if taken is not None:
        typer.echo(
            f"warning: this machine gives ports such as {taken} to outgoing connections, too: "
            "it may be taken when a node starts",
            err=True,
        )


def _first_steps(data: Path) -> str:
    """Commands to try on a cluster that is up, ready to be typed."""
    where = "" if data == DEFAULT_DATA else f" --data {data}"
    steps = (
        f"{program()} topics create events --partitions 3{where}",
        f"echo hello | {program()} produce events{where}",
        f"{program()} consume events --from-beginning --max-messages 1{where}",
        f"{program()} cluster kill broker-1{where}; {program()} cluster status{where}",
    )
    return "\n".join(["try:", *(f"  {step}" for step in steps), f"logs are in {data / 'logs'}"])


def _s3_steps(data: Path, endpoint: str) -> str:
    """The S3 server, and a topic that uses it."""
    where = "" if data == DEFAULT_DATA else f" --data {data}"
    configs = "--config remote.storage.enable=true --config local.retention.ms=60000"
    step = f"{program()} topics create archive {configs}{where}"
    return f"S3 server {endpoint}, files in {data / 's3' / 'files'}\n  {step}"


def _secure_steps(data: Path, port: int) -> str:
    """The listeners of a secure cluster, and where its users are."""
    lines = [
        f"SASL_PLAINTEXT from port {port + SASL_PLAINTEXT_ABOVE}, SASL_SSL from {port + SASL_SSL_ABOVE},"
        f" SSL with client certificates from {port + SSL_ABOVE}; users are {', '.join(FIRST_USERS)}",
        f"client files are in {data / 'security'}/USER: client.properties, client-ssl.properties, librdkafka.conf,"
        " kcat.conf, first_record.py",
        f"{ADMIN} may do everything, alice and bob what is named after them (alice-…); more rights:"
        f" {program()} security acl add alice read write --topic events",
    ]
    return "\n".join(lines)


def _print_status(found: ClusterStatus) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    colours = {"running": "green", "paused": "yellow", "dead": "red", "stopped": "dim"}
    nodes = Table("node", "state", "port", "process", "restarts", box=None)
    for node in found.nodes:
        colour = colours[node.state]
        state = f"[{colour}]{node.state}[/{colour}]"
        nodes.add_row(node.name, state, str(node.port), str(node.pid or ""), str(node.restarts))
    console.print(nodes)
    if found.quorum is None:
        console.print("no active controller responds")
    else:
        quorum = found.quorum
        console.print(
            f"active controller {quorum.leader}, epoch {quorum.epoch}, "
            f"metadata committed up to offset {quorum.high_watermark}, voters {', '.join(map(str, quorum.voters))}"
        )
    console.print(f"brokers in service: {', '.join(map(str, found.brokers)) or 'none'}")
    if found.reassigned:
        console.print(f"partitions that move to other brokers: {found.reassigned}")
    if not found.partitions:
        return
    partitions = Table("topic", "partition", "leader", "epoch", "replicas", "in sync", "high watermark", box=None)
    for each in found.partitions:
        in_sync = ",".join(map(str, each.isr))
        short = len(each.isr) < len(each.replicas)
        partitions.add_row(
            each.topic,
            str(each.partition),
            str(each.leader) if each.leader >= 0 else "[red]none[/red]",
            str(each.epoch),
            ",".join(map(str, each.replicas)),
            f"[yellow]{in_sync}[/yellow]" if short else in_sync,
            "?" if each.high_watermark is None else str(each.high_watermark),
        )
    console.print(partitions)
