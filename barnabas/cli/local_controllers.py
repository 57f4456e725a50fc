"""`barnabas cluster add controller` and `remove controller-104`: voters of the local cluster's metadata log (KIP-853).

Each step may be the last one of a command that is interrupted; the same command goes on from there.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.cli.connection import Connection
from barnabas.cli.output import show_text
from barnabas.cli.session import with_admin
from barnabas.cluster.errors import ClusterError

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, QuorumInfo
    from barnabas.cluster.local import LocalCluster

KRAFT_VERSION = "kraft.version"
POLL_SECONDS = 0.2


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
    with_admin(connection, lambda admin: _add_voter(admin, node.id, node.port, timeout))
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
    with_admin(connection, lambda admin: _remove_voter(admin, node.id, timeout))
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
            f"{name} stays: of the voters that would remain ({', '.join(left)}) only {', '.join(present) or 'none'} run, "
            "which is no majority"
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
    with_admin(connection, lambda admin: _raise_level(admin, connection.timeout))
    replace(members, has_living_voters=True).write(data)
    _name_controllers(LocalCluster(data))


def _name_controllers(cluster: LocalCluster) -> None:
    """Every node that is restarted finds the present controllers."""
    for node in cluster.nodes:
        cluster.layout.name_controllers(node)


async def _raise_level(admin: Admin, timeout: float) -> None:
    import trio

    from barnabas.client.admin import FeatureUpdate
    from barnabas.client.errors import InvalidUpdateVersionException

    deadline = time.monotonic() + timeout
    while (level := (await admin.describe_features()).finalized_features.get(KRAFT_VERSION)) is None or (
        level.max_version_level < 1
    ):
        try:
            await admin.update_features({KRAFT_VERSION: FeatureUpdate(1)})
        except InvalidUpdateVersionException as error:
            # A new leader does not know yet what the other voters support.
            if time.monotonic() > deadline:
                raise ClusterError(f"the voters cannot be made to change: {error}") from None
        await trio.sleep(POLL_SECONDS)


async def _add_voter(admin: Admin, node_id: int, port: int, timeout: float) -> None:
    import trio

    from barnabas.client.admin import Endpoint
    from barnabas.client.errors import DuplicateVoterException
    from barnabas.protocol.errors import KafkaError

    deadline, reason = time.monotonic() + timeout, "it does not fetch the metadata log"
    while time.monotonic() < deadline:
        quorum = await admin.describe_metadata_quorum()
        if any(voter.replica_id == node_id for voter in quorum.voters):
            return
        for replica in quorum.observers:
            if replica.replica_id == node_id and replica.replica_directory_id is not None:
                names = {endpoint.name for endpoints in quorum.nodes.values() for endpoint in endpoints}
                endpoints = [Endpoint(each, "127.0.0.1", port) for each in sorted(names)]
                try:
                    await admin.add_raft_voter(node_id, replica.replica_directory_id, endpoints)
                except DuplicateVoterException:
                    return
                except KafkaError as error:
                    reason = str(error)
        await trio.sleep(POLL_SECONDS)
    raise ClusterError(f"controller-{node_id} runs and is no voter yet: {reason}; the same command tries again")


async def _remove_voter(admin: Admin, node_id: int, timeout: float) -> None:
    import trio

    from barnabas.client.errors import TimeoutException, VoterNotFoundException

    deadline = time.monotonic() + timeout
    while True:
        quorum = await admin.describe_metadata_quorum()
        voter = next((each for each in quorum.voters if each.replica_id == node_id), None)
        if voter is None or voter.replica_directory_id is None:
            return
        if len(quorum.voters) == 1:
            raise ClusterError(f"controller-{node_id} is the last voter of the metadata log: add another one first")
        try:
            await admin.remove_raft_voter(node_id, voter.replica_directory_id)
        except VoterNotFoundException:
            continue
        except TimeoutException:
            if time.monotonic() > deadline:
                raise
        await trio.sleep(POLL_SECONDS)


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
