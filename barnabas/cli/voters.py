"""`barnabas cluster add-voter` and `remove-voter`: voters of the metadata log of any cluster (KIP-853)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.connection import Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.output import show_text
from barnabas.cli.session import with_admin
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import Admin

KRAFT_VERSION = "kraft.version"
POLL_SECONDS = 0.2

Controller = Annotated[int, typer.Argument(metavar="ID", min=0, help="Id of the controller.")]


@grouped
def add(
    controller: Controller,
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Its listener for controllers.")],
    *,
    connection: Connection,
) -> None:
    """Make a controller that observes a voter of the metadata log, once it has caught up.

    Needs kraft.version 1: `barnabas cluster features --upgrade kraft.version=1`.
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()):
        raise WrongArgument(f"{address}: must be HOST:PORT, e.g. 10.0.0.4:9093")
    place = host.strip("[]"), int(port)
    with_admin(connection, lambda admin: add_voter(admin, controller, place, connection.timeout))
    show_text(f"controller {controller} is a voter")


@grouped
def remove(controller: Controller, *, connection: Connection) -> None:
    """Remove a controller from the voters of the metadata log. It goes on as an observer until you stop it."""
    with_admin(connection, lambda admin: remove_voter(admin, controller, connection.timeout))
    show_text(f"controller {controller} is no voter")


async def raise_kraft_version(admin: Admin, timeout: float) -> None:
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


async def add_voter(admin: Admin, node_id: int, address: tuple[str, int], timeout: float) -> None:
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
                endpoints = [Endpoint(each, *address) for each in sorted(names)]
                try:
                    await admin.add_raft_voter(node_id, replica.replica_directory_id, endpoints)
                except DuplicateVoterException:
                    return
                except KafkaError as error:
                    reason = str(error)
        await trio.sleep(POLL_SECONDS)
    raise ClusterError(f"controller {node_id} is no voter yet: {reason}; the same command tries again")


async def remove_voter(admin: Admin, node_id: int, timeout: float) -> None:
    import trio

    from barnabas.client.errors import TimeoutException, VoterNotFoundException

    deadline = time.monotonic() + timeout
    while True:
        quorum = await admin.describe_metadata_quorum()
        voter = next((each for each in quorum.voters if each.replica_id == node_id), None)
        if voter is None or voter.replica_directory_id is None:
            return
        if len(quorum.voters) == 1:
            raise ClusterError(f"controller {node_id} is the last voter of the metadata log: add another one first")
        try:
            await admin.remove_raft_voter(node_id, voter.replica_directory_id)
        except VoterNotFoundException:
            continue
        except TimeoutException:
            if time.monotonic() > deadline:
                raise
        await trio.sleep(POLL_SECONDS)
