"""`barnabas consume --share-group`: prints records as a member of a share group, and acknowledges what is printed."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.output import complain
from barnabas.cli.progress import progress
from barnabas.cli.reading import POLL_MS, Shown
from barnabas.cluster.errors import WrongArgument
from barnabas.protocol.acknowledge_type import AcknowledgeType

if TYPE_CHECKING:
    from barnabas.client.shares.acknowledgements import Acknowledged
    from barnabas.client.shares.share_consumer import ShareConsumer


@dataclass(frozen=True)
class Sharing:
    """Options for members of share groups."""

    share_group: Annotated[
        str | None,
        typer.Option(
            "--share-group", help="Consume as a member of this share group and accept what is printed.", metavar="ID"
        ),
    ] = None
    release: Annotated[
        bool, typer.Option("--release", help="With --share-group: release the records, for other members.")
    ] = False
    reject: Annotated[
        bool, typer.Option("--reject", help="With --share-group: reject the records, so that nobody gets them again.")
    ] = False
    idle: Annotated[
        float | None,
        typer.Option(
            "--idle", metavar="SECONDS", min=0.1, help="With --share-group: exit if no record arrives for SECONDS."
        ),
    ] = None

    def kind(self) -> AcknowledgeType | None:
        """The acknowledgement of each record; None without a share group. Raises `WrongArgument`."""
        if self.share_group is None:
            for option, given in (("release", self.release), ("reject", self.reject), ("idle", self.idle is not None)):
                if given:
                    raise WrongArgument(f"--{option} needs --share-group")
            return None
        if not self.share_group.strip():
            raise WrongArgument("--share-group must not be blank")
        if self.release and self.reject:
            raise WrongArgument("--release and --reject exclude each other")
        if self.release:
            return AcknowledgeType.RELEASE
        return AcknowledgeType.REJECT if self.reject else AcknowledgeType.ACCEPT


class ShareReader:
    """Polls a share consumer in explicit mode, and acknowledges records once they are printed."""

    def __init__(self, shown: Shown, kind: AcknowledgeType, *, limit: int | None, idle_s: float | None) -> None:
        """`limit`: number of records to print; `idle_s`: stop if none arrives for so many seconds once
        the group has assigned partitions."""
        self.count = 0
        self.began = False
        self._shown = shown
        self._kind = kind
        self._limit = limit
        self._idle_s = math.inf if idle_s is None else idle_s

    async def read(self, consumer: ShareConsumer, *, quiet: bool) -> None:
        """Prints records until a limit is reached. Records that could not be printed are released by `close`."""
        import trio

        from barnabas.cli.stdout import write_out

        self.began = True
        consumer.set_acknowledgement_callback(_report)
        last = trio.current_time()
        # On a terminal the records themselves are the progress.
        with progress("read", self._limit, quiet=quiet or sys.stdout.isatty()) as advance:
            while (left := self._left()) is None or left > 0:
                records = await consumer.poll(timeout_ms=POLL_MS, max_records=left)
                if not records:
                    if not consumer.assignment():
                        last = trio.current_time()
                    elif trio.current_time() - last >= self._idle_s:
                        break
                    continue
                last = trio.current_time()
                await write_out(b"".join([self._shown(record) for record in records]))
                for record in records:
                    consumer.acknowledge(record, self._kind)
                self.count += len(records)
                advance(len(records))
        await consumer.commit()

    def _left(self) -> int | None:
        return None if self._limit is None else self._limit - self.count


def _report(acknowledged: Acknowledged) -> None:
    if acknowledged.error is not None:
        partition, offsets = acknowledged.partition, acknowledged.offsets
        complain(
            f"{partition.topic}-{partition.partition}: {len(offsets)} records from offset {offsets[0]} on are not "
            f"acknowledged: {acknowledged.error}"
        )
