"""`barnabas cluster add controller` and `remove controller-104`: voters of the local cluster's metadata log (KIP-853).

Each step may be the last one of a command that is interrupted; the same command goes on from there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.cli.connection import Connection
from barnabas.cli.output import show_text
from barnabas.cli.session import with_admin
from barnabas.cli.voters import add_voter, raise_kraft_version, remove_voter
from barnabas.cluster.errors import ClusterError

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, QuorumInfo
    from barnabas.cluster.local import LocalCluster

LOCALHOST = "127.0.0.1"


def add_controller(data: Path, timeout: float) -> None:
    """Start a controller that observes, and make it a voter when it has caught up."""
    from barnabas.cluster.local import LocalCluster
    from barnabas.cluster.membership import Members

    connection = Connection(data=data, timeout=timeout)
    _let_voters_change(data, connection)
    cluster = LocalCluster(data, restarts=True)
    name = _observer(cluster, _quorum(connection))
    if name is None:
        members, controller_id = Members.read(data).with_controller(node.id for node in cluster.layout.controllers)
        members.write(data)
        cluster = LocalCluster(data, restarts=True)
        _name_controllers(cluster)
        name = f"controller-{controller_id}"
    if name not in _running(cluster):
        cluster.start(name)
    node = cluster.layout.node(name)
    with_admin(connection, lambda admin: add_voter(admin, node.id, (LOCALHOST, node.port), timeout))
    show_text(f"{name} is a voter of the metadata log: {_voters(_quorum(connection))}")


def remove_controller(data: Path, name: str, timeout: float) -> None:
    """Remove a voter, then stop it. Raises `ClusterError` if too few of the others run."""
    from barnabas.cluster.local import LocalCluster
    from barnabas.cluster.membership import Members

    connection = Connection(data=data, timeout=timeout)
    _let_voters_change(data, connection)
    cluster = LocalCluster(data)
    node = cluster.layout.node(name)
    _check_majority(cluster, name, _quorum(connection))
    with_admin(connection, lambda admin: remove_voter(admin, node.id, timeout))
    show_text(f"{name} is no voter any longer")
    if name in _running(cluster):
        cluster.stop(name, timeout)
    Members.read(data).without(name).write(data)
    _name_controllers(LocalCluster(data))
    show_text(f"{name} is stopped; its data is in {cluster.layout.data / name}")


def _check_majority(cluster: LocalCluster, name: str, quorum: QuorumInfo) -> None:
    """The active controller checks it, too, and takes a controller that died a moment ago for present."""
    left = [each for each in (f"controller-{voter.replica_id}" for voter in quorum.voters) if each != name]
    present = [each for each in left if each in _running(cluster)]
    if left and len(present) <= len(left) // 2:
        raise ClusterError(
            f"{name} stays: of the voters that would remain ({', '.join(left)}) only {', '.join(present) or 'none'} "
            "run, which is no majority"
        )


def _let_voters_change(data: Path, connection: Connection) -> None:
    """From now on the voters are those of the log, not those of the files. There is no way back."""
    from barnabas.cluster.local import LocalCluster
    from barnabas.cluster.membership import Members

    cluster = LocalCluster(data)
    if not cluster.processes() or cluster.not_ready():
        raise ClusterError(f"the cluster must be in order first: {cluster.not_ready()}")
    members = Members.read(data)
    if members.has_living_voters:
        return
    with_admin(connection, lambda admin: raise_kraft_version(admin, connection.timeout))
    replace(members, has_living_voters=True).write(data)
    _name_controllers(LocalCluster(data))


def _name_controllers(cluster: LocalCluster) -> None:
    """Every node that is restarted finds the present controllers."""
    for node in cluster.nodes:
        cluster.layout.name_controllers(node)


def _quorum(connection: Connection) -> QuorumInfo:
    async def describe(admin: Admin) -> QuorumInfo:
        return await admin.describe_metadata_quorum()

    return with_admin(connection, describe)


def _observer(cluster: LocalCluster, quorum: QuorumInfo) -> str | None:
    """The name of a controller of the cluster that is no voter: of a command that was interrupted."""
    voters = {voter.replica_id for voter in quorum.voters}
    return next((node.name for node in cluster.layout.controllers if node.id not in voters), None)


def _voters(quorum: QuorumInfo) -> str:
    return ", ".join(f"controller-{voter.replica_id}" for voter in quorum.voters)


def _running(cluster: LocalCluster) -> set[str]:
    return {each.name for each in cluster.processes() if each.state in ("running", "paused")}
