"""`barnabas storage log-ends`, and the options of `storage restore` that use its output."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.node_config import Config, load
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
    from barnabas.kraft.metadata.image import MetadataImage
    from barnabas.kraft.restored_replicas import Decided
    from barnabas.storage.log_ends import BrokerLogEnds


def log_ends(
    config: Config,
    to: Annotated[Path, typer.Option("--to", help="New file for the list.")],
) -> None:
    """Recover the logs of a stopped broker, and list where each ends, for `storage restore --log-ends`."""
    from barnabas.broker.log_ends import list_log_ends
    from barnabas.runtime.disk import RealDisk
    from barnabas.storage.log_directory import LogDirectoryError
    from barnabas.storage.log_ends import format_log_ends

    if to.exists():
        raise WrongArgument(f"--to {to}: exists already")
    try:
        ends = list_log_ends(RealDisk(), load(config), random.SystemRandom(), int(time.time() * 1000))
        to.write_text(format_log_ends(ends), encoding="utf-8")
    except LogDirectoryError as error:
        raise ClusterError(str(error)) from None
    except OSError as error:
        raise ClusterError(f"{to} cannot be written: {error.strerror or error}") from None
    typer.echo(f"{to}: the ends of {len(ends.logs)} logs of broker {ends.broker_id}")


@dataclass(frozen=True)
class LongestLogs:
    """Options that decide which replicas may lead in restored metadata."""

    log_ends: Annotated[
        list[Path] | None,
        typer.Option("--log-ends", metavar="FILE", help="Output of `storage log-ends` of a broker; repeatable."),
    ] = None
    without: Annotated[
        list[int] | None, typer.Option("--without", metavar="ID", help="Broker that never returns; repeatable.")
    ] = None

    def decide(self, image: MetadataImage, cluster_id: str | None) -> Decided:
        """The metadata with leaders, or with none if no option is given. Raises `WrongArgument`."""
        from barnabas.kraft.restored_replicas import Decided, IncompleteLogEnds, decided, undecided

        ends = [_read(path, cluster_id) for path in self.log_ends or ()]
        if ends or self.without:
            try:
                return decided(image, ends, self.without or ())
            except IncompleteLogEnds as error:
                raise WrongArgument(f"--log-ends, --without: {error}") from None
        count = sum(len(topic.partitions) for topic in image.topics.by_name.values())
        note = (
            f"{count} partitions have no leader: restore again with --log-ends of each broker, or elect one with "
            "`topics elect --unclean`, which may lose records"
        )
        return Decided(undecided(image), [note] if count else [])


def _read(path: Path, cluster_id: str | None) -> BrokerLogEnds:
    from barnabas.storage.log_ends import MalformedLogEnds, parse_log_ends

    try:
        ends = parse_log_ends(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise WrongArgument(f"--log-ends {path}: {error.strerror or error}") from None
    except (MalformedLogEnds, UnicodeDecodeError) as error:
        raise WrongArgument(f"--log-ends {error}") from None
    if cluster_id not in (None, ends.cluster_id):
        raise WrongArgument(f"--log-ends {path}: is of cluster {ends.cluster_id}, not {cluster_id}")
    return ends
