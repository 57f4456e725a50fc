"""`barnabas cluster add`, `remove` and `roll`: nodes of the local cluster come, go, and restart one by one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from barnabas.cli.connection import Connection
from barnabas.cli.drain_plan import harmed, not_in_sync
from barnabas.cli.draining import check_is_broker, drain_broker, partition_health
from barnabas.cli.local_controllers import add_controller, remove_controller
from barnabas.cli.options import DEFAULT_DATA, Data
from barnabas.cli.output import Account, show_text
from barnabas.cli.partition_choice import by_name
from barnabas.cli.session import with_admin
from barnabas.cluster.errors import ClusterError

if TYPE_CHECKING:
    from barnabas.cli.drain_plan import PartitionHealth
    from barnabas.client.admin import Admin
    from barnabas.cluster.local import LocalCluster

POLL_SECONDS = 0.2
SHOWN = 3
"""Partitions that an error names."""

RollTimeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="Time limit for each node.")]


Role = Annotated[Literal["broker", "controller"], typer.Argument(help="Role of the node.")]


def add(role: Role = "broker", data: Data = DEFAULT_DATA, timeout: RollTimeout = 60.0) -> None:
    """Add a broker or a controller to the local cluster and start it.

    The first controller that is added, or removed, raises kraft.version to 1: from then on the metadata log keeps its
    voters. There is no way back.
    """
    if role == "controller":
        add_controller(data, timeout)
        return
    from barnabas.cluster.local import LocalCluster
    from barnabas.cluster.membership import Members

    cluster = LocalCluster(data)
    if not cluster.processes() or cluster.not_ready():
        raise ClusterError(f"the cluster must be in order first: {cluster.not_ready()}")
    members, broker_id = Members.read(cluster.layout.data).with_broker(node.id for node in cluster.layout.brokers)
    members.write(cluster.layout.data)
    cluster = LocalCluster(data, restarts=True)
    cluster.start(f"broker-{broker_id}")
    cluster.wait_ready(timeout)
    show_text(f"broker-{broker_id} is in service: {cluster.bootstrap_servers}")


def remove(
    node: Annotated[str, typer.Argument(metavar="NODE", help="E.g. broker-4 or controller-104.")],
    data: Data = DEFAULT_DATA,
    timeout: RollTimeout = 60.0,
) -> None:
    """Remove a node of the local cluster and stop it; its directory stays.

    A broker is drained before and unregistered afterwards. A controller is removed from the voters of the metadata log.
    """
    from barnabas.cluster.local import LocalCluster
    from barnabas.cluster.membership import Members

    cluster = LocalCluster(data)
    if not cluster.layout.node(node).is_broker:
        remove_controller(data, node, timeout)
        return
    broker_id = check_is_broker(node)
    connection = Connection(data=data, timeout=timeout)
    results = with_admin(connection, lambda admin: drain_broker(admin, broker_id, cordon=True))
    if results is not None and results.errors:
        account = Account()
        account.failures(by_name(results.errors))
        account.close()
        raise ClusterError(f"{node} has replicas that cannot be moved")
    show_text(f"{node} has no replicas")
    cluster.stop(node, timeout)
    # From now on this cluster is the others.
    Members.read(cluster.layout.data).without(node).write(cluster.layout.data)

    async def unregister(admin: Admin) -> None:
        await admin.unregister_broker(broker_id)

    with_admin(connection, unregister)
    show_text(f"{node} is stopped and unregistered; its data is in {cluster.layout.data / node}")


def roll(
    nodes: Annotated[list[str] | None, typer.Argument(metavar="[NODE]...", help="Default: all.")] = None,
    data: Data = DEFAULT_DATA,
    timeout: RollTimeout = 120.0,
) -> None:
    """Restart the nodes of the local cluster one by one, each when all replicas are in sync."""
    from barnabas.cluster.local import LocalCluster

    cluster = LocalCluster(data, restarts=True)
    layout = cluster.layout
    names = nodes or [each.name for each in (*layout.controllers, *layout.brokers)]
    for name in names:
        layout.node(name)
    connection = Connection(data=data, timeout=timeout)
    for name in names:
        node = layout.node(name)
        cluster.wait_ready(timeout)
        health = _until_in_sync(connection, timeout)
        if node.is_broker and (lines := harmed(health, node.id)):
            raise ClusterError(f"{name} is not restarted: {_some(lines)}")
        began = time.monotonic()
        if not cluster.stop(name, timeout):
            raise ClusterError(f"{name} did not stop within {timeout:.0f} s and was killed")
        cluster.start(name)
        _until_ready(cluster, timeout)
        _until_in_sync(connection, timeout)
        show_text(f"{name} was restarted in {time.monotonic() - began:.1f} s")


def _until_ready(cluster: LocalCluster, timeout: float) -> None:
    cluster.wait_ready(timeout)
    controllers = len(cluster.layout.controllers)
    cluster.wait_until(lambda: "" if _caught_up(cluster) == controllers else "a controller is behind", timeout)


def _caught_up(cluster: LocalCluster) -> int:
    """Number of controllers whose process runs and whom the leader of the quorum counts among its voters."""
    quorum = cluster.status(()).quorum
    running = {node.name for node in cluster.processes() if node.state == "running"}
    return sum(f"controller-{voter}" in running for voter in (quorum.voters if quorum else ()))


def _until_in_sync(connection: Connection, timeout: float) -> list[PartitionHealth]:
    """Wait until the ISR of each partition has all its replicas. Raises `ClusterError`."""
    deadline = time.monotonic() + timeout
    while True:
        health = with_admin(connection, partition_health)
        lines = not_in_sync(health)
        if not lines:
            return health
        if time.monotonic() > deadline:
            raise ClusterError(f"not all replicas are in sync: {_some(lines)}")
        time.sleep(POLL_SECONDS)


def _some(lines: list[str]) -> str:
    more = f"; and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    return "; ".join(lines[:SHOWN]) + more
