"""`barnabas storage backup` and `restore`: copies of log directories, and metadata for a quorum that lost its own."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.node_config import Config, load
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
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
) -> None:
    """Give a stopped controller the metadata of a snapshot or of another node's copy; the same for all controllers."""
    from barnabas.kraft.format import FormatError, FormatRequest, format_directories
    from barnabas.kraft.restore import RestoreError, described, raised, read_metadata
    from barnabas.kraft.restore import restore as restore_metadata
    from barnabas.runtime.disk import RealDisk
    from barnabas.runtime.uuids import random_uuid

    settings, disk, chance = load(config), RealDisk(), random.SystemRandom()
    directory = settings.metadata_directory
    try:
        image = raised(read_metadata(disk, str(source)), raise_epochs)
        if cluster_id is not None:
            request = FormatRequest(cluster_id, settings.node_id, settings.all_log_dirs, [], ignore_formatted=True)
            format_directories(disk, request, chance)
        elif not disk.exists(f"{directory}/meta.properties"):
            raise WrongArgument(f"{directory} is not formatted: --cluster-id must name its cluster")
        unlock = disk.lock(f"{directory}/.lock")
        try:
            restored = restore_metadata(disk, directory, image, random_uuid(chance).hex())
        finally:
            unlock()
    except BlockingIOError:
        raise ClusterError(f"{directory} is in use: stop the node first") from None
    except (RestoreError, FormatError) as error:
        raise ClusterError(str(error)) from None
    typer.echo(f"{restored.path}: {described(restored.image)}")
    if restored.put_aside is not None:
        typer.echo(f"the previous metadata log is in {restored.put_aside}")


def _report(directory: str, target: Path, done: Backup) -> str:
    return f"{directory}: {done.partitions} partitions, {done.bytes} bytes copied to {target}"
