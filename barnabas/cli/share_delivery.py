"""The part of `barnabas why` about share groups: which records they get, and what holds the others back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli import completion
from barnabas.cli.session import run_until_done
from barnabas.cli.times import iso_time
from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.why.node_addresses import NodeAddress

_PARTITION = re.compile(r"(.+)-(\d{1,9})", re.ASCII)
_GROUP = "group "


@dataclass(frozen=True, slots=True)
class Delivery:
    """A question about a share group; about a partition, or one record of it."""

    group_id: str
    topic: str | None = None
    partition: int = -1
    offset: int | None = None

    def query(self) -> dict[str, str]:
        """Parameters of the page `/shares`."""
        query = {"group": self.group_id}
        if self.topic is not None:
            query |= {"topic": self.topic, "partition": str(self.partition)}
        if self.offset is not None:
            query["offset"] = str(self.offset)
        return query


@dataclass(frozen=True)
class Shared:
    """Options for the state of a share group."""

    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="GROUP",
            autocompletion=completion.groups,
            help="Share group: explain which records of the partition SUBJECT it gets now.",
        ),
    ] = None
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, metavar="N", help="With --group: explain only the record N.")
    ] = None

    def question(self, subject: str) -> Delivery | None:
        """None without --group. Raises `WrongArgument`."""
        if self.group is None:
            if self.offset is not None:
                raise WrongArgument("--offset needs --group GROUP")
            return None
        found = _PARTITION.fullmatch(subject)
        if found is None:
            raise WrongArgument(f"--group needs a partition such as flights-3; got {subject}")
        return Delivery(self.group, found[1], int(found[2]), self.offset)


def groups_among(subjects: Iterable[str]) -> list[Delivery]:
    """A question about each group among the subjects; it may be no share group."""
    return [Delivery(it.removeprefix(_GROUP)) for it in subjects if it.startswith(_GROUP)]


def lines_now(addresses: Sequence[NodeAddress], asked: Delivery, timeout_seconds: float) -> list[str]:
    """Answers to the question; none if there is no share group of this name."""
    from barnabas.runtime.real import real_world
    from barnabas.why.node_queries import ask_shares
    from barnabas.why.share_delivery import why_group, why_partition, why_record
    from barnabas.why.shares_view import read_shares

    answers = run_until_done(lambda: ask_shares(real_world().network, addresses, asked.query(), timeout_seconds))
    view = read_shares(asked.group_id, answers)
    if not view.exists:
        return []
    if asked.topic is None:
        return why_group(view, iso_time)
    if asked.offset is None:
        return why_partition(view, asked.topic, asked.partition, iso_time)
    return why_record(view, asked.topic, asked.partition, asked.offset, iso_time)
