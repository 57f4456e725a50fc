"""`barnabas storage`: formats log directories before a node's first start."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.check_bucket import check_bucket
from barnabas.cli.first_voters import WantedVoters, first_voters
from barnabas.cli.log_ends import log_ends
from barnabas.cli.node_config import Config, load
from barnabas.cli.option_group import grouped
from barnabas.cli.options import pairs_from
from barnabas.cli.remote_metadata import restore_remote_metadata
from barnabas.cli.storage_backup import backup, restore
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
    from barnabas.settings.node import NodeSettings

app = typer.Typer(help="Format log directories before a node's first start.", rich_markup_mode=None)


@app.command("format")
@grouped
def format_(  # noqa: PLR0913, PLR0917 - each is an option
    config: Config,
    cluster_id: Annotated[str, typer.Option("--cluster-id", "-t", help="Cluster id, the same for every node.")],
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", "-g", help="Skip directories that are formatted already.")
    ] = False,
    release_version: Annotated[
        str | None,
        typer.Option("--release-version", "-r", help="Release whose metadata.version to use, e.g. 4.3."),
    ] = None,
    feature: Annotated[
        list[str] | None, typer.Option("--feature", "-f", metavar="NAME=LEVEL", help="Feature level; repeatable.")
    ] = None,
    no_initial_controllers: Annotated[
        bool, typer.Option("--no-initial-controllers", "-N", help="This controller joins a quorum that exists.")
    ] = False,
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            "--add-scram",
            "-S",
            metavar="MECHANISM=[…]",
            help="First user: SCRAM-SHA-256=[name=alice,password=…]; the same on every controller; repeatable.",
        ),
    ] = None,
    *,
    wanted: WantedVoters,
) -> None:
    """Format the log directories of a node."""
    from barnabas.kraft.first_users import WrongUser, first_users
    from barnabas.kraft.format import FormatError, FormatRequest, format_directories
    from barnabas.kraft.metadata.bootstrap import UnknownLevel, bootstrap_records
    from barnabas.runtime.disk import RealDisk

    if wanted.standalone + (wanted.initial_controllers is not None) + no_initial_controllers > 1:
        raise WrongArgument("--standalone, --initial-controllers and --no-initial-controllers exclude each other")
    settings = load(config)
    try:
        levels = _levels(release_version, feature)
        voters = first_voters(settings, wanted, no_initial_controllers)
        _check_kraft_version(levels, settings)
        features = bootstrap_records(levels)
        users = first_users(add_scram or (), features[0].feature_level, random.SystemRandom())
        request = FormatRequest(
            cluster_id,
            settings.node_id,
            settings.all_log_dirs,
            [*features, *users],
            ignore_formatted,
            settings.metadata_directory,
            voters,
        )
        now_ms = int(time.time() * 1000)
        formatted = format_directories(RealDisk(), request, random.SystemRandom(), now_ms)
    except UnknownLevel as error:
        raise WrongArgument(str(error)) from None
    except WrongUser as error:
        raise WrongArgument(f"--add-scram: {error}") from None
    except FormatError as error:
        raise ClusterError(str(error)) from None
    for directory in formatted:
        typer.echo(f"formatted {directory} for node {settings.node_id} of cluster {cluster_id}")
    if not formatted:
        typer.echo("all log directories are formatted already")


@app.command()
def info(config: Config) -> None:
    """Show cluster id, node id and directory ids of a node's log directories."""
    from barnabas.protocol.primitives import uuid_to_string
    from barnabas.runtime.disk import RealDisk
    from barnabas.storage.log_directory import LogDirectoryError, read_meta_properties

    problems = 0
    for directory in load(config).all_log_dirs:
        try:
            identity = read_meta_properties(RealDisk(), directory)
        except (LogDirectoryError, OSError) as error:
            typer.echo(f"{directory}: {error}")
            problems += 1
            continue
        if identity is None:
            typer.echo(f"{directory}: not formatted")
            problems += 1
        else:
            directory_id = uuid_to_string(identity.directory_id) if identity.directory_id is not None else "none"
            typer.echo(
                f"{directory}: cluster.id={identity.cluster_id} node.id={identity.node_id} directory.id={directory_id}"
            )
    if problems:
        raise typer.Exit(1)


@app.command("random-uuid")
def random_uuid_() -> None:
    """Print a random id for a new cluster."""
    from barnabas.protocol.primitives import uuid_to_string
    from barnabas.runtime.uuids import random_uuid

    typer.echo(uuid_to_string(random_uuid(random.SystemRandom())))


@app.command("version-mapping")
def version_mapping(
    release_version: Annotated[
        str | None, typer.Option("--release-version", "-r", help="Release, e.g. 4.3; default: the newest.")
    ] = None,
) -> None:
    """Show the feature levels of a cluster that is formatted with a release."""
    from barnabas.kraft.metadata.bootstrap import UnknownLevel, metadata_version_level
    from barnabas.kraft.metadata.features import (
        METADATA_VERSION,
        METADATA_VERSION_NAMES,
        SUPPORTED_FEATURES,
        default_levels,
    )

    try:
        chosen = max(METADATA_VERSION_NAMES) if release_version is None else metadata_version_level(release_version)
    except UnknownLevel as error:
        raise WrongArgument(f"--release-version {release_version}: {error}") from None
    typer.echo(f"{METADATA_VERSION}={chosen} ({METADATA_VERSION_NAMES[chosen]})")
    levels = default_levels(chosen)
    for name in sorted(SUPPORTED_FEATURES):
        if name != METADATA_VERSION:
            typer.echo(f"{name}={levels.get(name, 0)}")


@app.command("feature-dependencies")
def feature_dependencies(
    features: Annotated[
        list[str], typer.Option("--feature", "-f", metavar="NAME=LEVEL", help="Feature level; repeatable.")
    ],
) -> None:
    """Show the feature levels that a level depends on."""
    from barnabas.kraft.metadata.bootstrap import UnknownLevel
    from barnabas.kraft.metadata.features import FEATURE_DEPENDENCIES, SUPPORTED_FEATURES, unsupported_reason

    try:
        levels = _levels(None, features)
    except UnknownLevel as error:
        raise WrongArgument(str(error)) from None
    for name, level in levels.items():
        reason = unsupported_reason(name, level) if name in SUPPORTED_FEATURES else "unknown feature"
        if reason is not None:
            raise WrongArgument(f"--feature {name}={level}: {reason}")
        needed = FEATURE_DEPENDENCIES.get((name, level), {})
        dependencies = ", ".join(f"{other}={least}" for other, least in needed.items())
        typer.echo(f"{name}={level} needs {dependencies or 'nothing'}")


def _check_kraft_version(levels: dict[str, int], settings: NodeSettings) -> None:
    """`kraft.version` follows from how the voters are given. Raises `WrongArgument`."""
    level = levels.get("kraft.version")
    is_dynamic = not settings.controller_quorum_voters
    if level is not None and level != int(is_dynamic):
        reason = "controller.quorum.voters is not set" if is_dynamic else "controller.quorum.voters is set"
        raise WrongArgument(f"--feature kraft.version={level}: must be {int(is_dynamic)}, because {reason}")


def _levels(release_version: str | None, features: list[str] | None) -> dict[str, int]:
    """Feature levels from the options. Raises `WrongArgument` or `UnknownLevel`."""
    from barnabas.kraft.metadata.bootstrap import metadata_version_level

    levels = {}
    if release_version is not None:
        levels["metadata.version"] = metadata_version_level(release_version)
    for name, level in pairs_from("--feature", features).items():
        if not level.isascii() or not level.isdigit():
            raise WrongArgument(f"--feature {name}={level}: the level must be a whole number")
        levels[name] = int(level)
    return levels


app.command("backup")(backup)
app.command("log-ends")(log_ends)
app.command("restore")(restore)
app.command("check-bucket")(check_bucket)
app.command("restore-remote-metadata")(restore_remote_metadata)
