"""`barnabas storage backup` and `restore`: copies of log directories, and metadata for a quorum that lost its own."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.first_voters import WantedVoters, first_voters
from barnabas.cli.log_ends import LongestLogs
from barnabas.cli.node_config import Config, load
from barnabas.cli.option_group import grouped
from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.protocol.primitives import uuid_to_string

if TYPE_CHECKING:
    from barnabas.kraft.raft.voters import VoterSet
    from barnabas.kraft.restore import FoundMetadata
    from barnabas.settings.node import NodeSettings
    from barnabas.storage.backup import Backup

RAISED_EPOCHS = 1000


def backup(
    config: Config,
    to: Annotated[Path, typer.Option("--to", help="New directory for the copy.")],
) -> None:
    """Copy and check the log directories of a node, which may be running."""
    from barnabas.runtime.disk import RealDisk
    from barnabas.storage.backup import back_up

    settings = load(config)
    if to.exists():
        raise WrongArgument(f"--to {to}: exists already")
    directories = settings.all_log_dirs
    problems = 0
    for number, directory in enumerate(directories):
        target = to if len(directories) == 1 else to / f"log-dir-{number}"
        try:
            *_, done = back_up(RealDisk(), directory, str(target))
        except OSError as error:
            raise ClusterError(f"{directory} cannot be copied to {target}: {error.strerror or error}") from None
        typer.echo(_report(directory, target, done))
        for problem in done.problems:
            typer.echo(problem, err=True)
        problems += len(done.problems)
    if problems:
        raise typer.Exit(1)


@grouped
def restore(
    config: Config,
    source: Annotated[
        Path,
        typer.Option("--from", help="Metadata snapshot (*.checkpoint), or a log directory or its backup.", exists=True),
    ],
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", "-t", help="Cluster id, for directories that are not formatted.")
    ] = None,
    raise_epochs: Annotated[
        int,
        typer.Option("--raise-epochs", min=1, help="Raise epochs by this, above those given out after the snapshot."),
    ] = RAISED_EPOCHS,
    *,
    wanted: WantedVoters,
    longest: LongestLogs,
) -> None:
    """Give a stopped controller the metadata of a snapshot or of another node's copy; the same for all controllers.

    The longest logs lead: give --log-ends of each broker. Without them no partition has a leader until one is elected
    by `topics elect --unclean`.

    Without controller.quorum.voters in the configuration, the voters stay as they are in the metadata, if this
    controller's directory is one of them.
    """
    from barnabas.kraft.format import FormatError, FormatRequest, format_directories
    from barnabas.kraft.restore import RestoreError, described, raised, read_metadata
    from barnabas.kraft.restore import restore as restore_metadata
    from barnabas.runtime.disk import RealDisk
    from barnabas.runtime.uuids import random_uuid
    from barnabas.storage.log_directory import LogDirectoryError, read_meta_properties

    settings, disk, chance = load(config), RealDisk(), random.SystemRandom()
    directory = settings.metadata_directory
    try:
        found = read_metadata(disk, str(source))
        identity = read_meta_properties(disk, directory)
        known_id = cluster_id if cluster_id is not None or identity is None else identity.cluster_id
        settled = longest.decide(found.image, known_id)
        image = raised(settled.image, raise_epochs)
        own_id = None if identity is None else identity.directory_id
        voters = _voters(settings, found, wanted, own_id)
        if cluster_id is not None:
            own = None if voters is None else voters.key(settings.node_id)
            format_directories(
                disk,
                FormatRequest(
                    cluster_id,
                    settings.node_id,
                    settings.all_log_dirs,
                    [],
                    ignore_formatted=True,
                    metadata_directory=directory,
                    metadata_directory_id=None if own is None else own.directory_id,
                ),
                chance,
            )
        elif identity is None:
            raise WrongArgument(f"{directory} is not formatted: --cluster-id must name its cluster")
        unlock = disk.lock(f"{directory}/.lock")
        try:
            restored = restore_metadata(disk, directory, image, random_uuid(chance).hex(), voters)
        finally:
            unlock()
    except BlockingIOError:
        raise ClusterError(f"{directory} is in use: stop the node first") from None
    except (RestoreError, FormatError, LogDirectoryError) as error:
        raise ClusterError(str(error)) from None
    typer.echo(f"{restored.path}: {described(restored.image)}")
    for line in settled.notes:
        typer.echo(line)
    if voters is not None:
        typer.echo(f"voters: {_described(voters)}")
    if restored.put_aside is not None:
        typer.echo(f"the previous metadata log is in {restored.put_aside}")


def _voters(
    settings: NodeSettings,
    found: FoundMetadata,
    wanted: WantedVoters,
    directory_id: bytes | None,
) -> VoterSet | None:
    """The voters of the restored quorum; None if they are in the settings. `directory_id` is that of this node's
    metadata directory if it is formatted.

    Raises `WrongArgument` or `FormatError`."""
    standalone, initial_controllers = wanted.standalone, wanted.initial_controllers
    if settings.controller_quorum_voters or standalone or initial_controllers is not None:
        voters = first_voters(settings, wanted, joins=True, directory_id=directory_id)
        own = None if voters is None else voters.key(settings.node_id)
        if own is not None and directory_id not in (None, own.directory_id):
            raise WrongArgument(
                f"--initial-controllers: the metadata directory of node {settings.node_id} has the id "
                f"{uuid_to_string(directory_id)}, not {uuid_to_string(own.directory_id)}"
            )
        if voters is not None and own is None:
            raise WrongArgument(f"--initial-controllers: node {settings.node_id} is not among them")
        return voters
    if found.voters is None:
        raise WrongArgument(
            "neither controller.quorum.voters nor the metadata name the voters: give --standalone or "
            "--initial-controllers"
        )
    own = found.voters.key(settings.node_id)
    if own is None or own.directory_id != directory_id:
        formatted = "is not formatted" if directory_id is None else f"has the id {uuid_to_string(directory_id)}"
        raise WrongArgument(
            f"the voters in the metadata are {_described(found.voters)}, but the metadata directory of node "
            f"{settings.node_id} {formatted}: give --standalone, and add the other controllers later, or "
            "--initial-controllers"
        )
    return found.voters


def _described(voters: VoterSet) -> str:
    return ", ".join(f"{key.id} in directory {uuid_to_string(key.directory_id)}" for key in voters.keys)


def _report(directory: str, target: Path, done: Backup) -> str:
    return f"{directory}: {done.partitions} partitions, {done.bytes} bytes copied to {target}"
