"""`barnabas check`: run an application under faults, and judge what it promises."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.connection import ClientConfig, Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.options import DEFAULT_DATA
from barnabas.cli.output import complain, show_text
from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.check.schedule import Fault

PASS_ON = {"allow_interspersed_args": False}
"""The options of the application are not ours."""
CANNOT_RUN = 2


@dataclass(frozen=True)
class Input:
    """Options on the records that are fed."""

    rate: Annotated[float, typer.Option("--rate", metavar="N", min=0.1, max=5000, help="Records per second.")] = 50.0
    keys: Annotated[int, typer.Option("--keys", metavar="N", min=1, help="Number of keys.")] = 20
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=1, max=100, help="Partitions of the topics.")
    ] = 6


@dataclass(frozen=True)
class Where:
    """Options on the cluster and the names in it."""

    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT,…", help="Another cluster than one of our own."),
    ] = None
    client_config: ClientConfig = None
    input_topic: Annotated[str, typer.Option("--input", metavar="TOPIC", help="Input topic.")] = "input"
    output_topic: Annotated[str, typer.Option("--output", metavar="TOPIC", help="Output topic.")] = "output"
    group: Annotated[str, typer.Option("--group", metavar="ID", help="Group of the application.")] = "app"

    def client(self) -> dict[str, Any] | None:
        """Settings of clients of another cluster; None: one of our own. Raises `WrongArgument`."""
        if self.bootstrap is None:
            return None
        from barnabas.client.security_settings import SecuritySettings

        connection = Connection(self.bootstrap, DEFAULT_DATA, self.client_config)
        return connection.settings(SecuritySettings.model_fields, client_id="barnabas-check")


@dataclass(frozen=True)
class Judging:
    """Options on the verdict."""

    promise: Annotated[
        list[str] | None,
        typer.Option(
            "--promise",
            metavar="LEVEL",
            help="at-least-once, exactly-once, ordered; repeatable. Default: at-least-once.",
        ),
    ] = None
    stuck: Annotated[
        float,
        typer.Option(
            "--stuck", metavar="SECONDS", min=1, help="Time without a fault after which inputs that wait are stuck."
        ),
    ] = 60.0
    sink: Annotated[
        str, typer.Option("--sink", metavar="SINK", help="Where outputs arrive: topic, file, http, or FILE.py:CLASS.")
    ] = "topic"
    map_file: Annotated[
        Path | None, typer.Option("--map", metavar="FILE.py", help="Defines outputs(record) and identify(key, value).")
    ] = None


@dataclass(frozen=True)
class Course:
    """Options on the course of the run."""

    instances: Annotated[int, typer.Option("--instances", metavar="N", min=1, max=20, help="Number of instances.")] = 3
    minutes: Annotated[float, typer.Option("--minutes", metavar="N", min=0.05, help="Time with faults.")] = 2.0
    faults: Annotated[
        str, typer.Option("--faults", metavar="KIND,…", help="Kinds of faults; all: every kind that is possible.")
    ] = "all"
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Repeats the choices of an earlier run.")] = (
        None
    )
    start: Annotated[float, typer.Option("--start-timeout", metavar="SECONDS", min=1, help="Time for it to begin.")] = (
        45.0
    )
    grace: Annotated[float, typer.Option("--grace", metavar="SECONDS", min=0.1, help="Time to end after SIGTERM.")] = (
        10.0
    )
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory of logs, report and cluster.")] = Path(
        "barnabas-check"
    )


@grouped
def check(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The application and its arguments.")],
    *,
    course: Course,
    judging: Judging,
    feed: Input,
    where: Where,
) -> None:
    """Run an application between two topics while it, the brokers and the links fail, and judge what it promises.

    Exit code 0: the promise holds, 1: it is broken, 2: there is no verdict.
    """
    from barnabas.check.errors import CannotRun
    from barnabas.check.options import CheckOptions, Load, Names, Times
    from barnabas.check.promises import Promise, UnknownPromise
    from barnabas.check.whole import run_check

    try:
        options = CheckOptions(
            command=command,
            directory=str(course.out),
            seed=random.SystemRandom().randrange(1, 1_000_000) if course.seed is None else course.seed,
            promise=Promise.parse(judging.promise or ["at-least-once"]),
            instances=course.instances,
            faults=_faults(course.faults),
            load=Load(feed.rate, feed.keys, partitions=feed.partitions),
            names=Names(where.input_topic, where.output_topic, where.group),
            times=Times(course.minutes * 60, judging.stuck, course.start, course.grace),
            sink=judging.sink,
            map_file=None if judging.map_file is None else str(judging.map_file),
            client=where.client(),
        )
        result = run_check(options, complain)
    except (CannotRun, UnknownPromise, WrongArgument) as error:
        complain(f"cannot run: {error}")
        raise typer.Exit(CANNOT_RUN) from None
    for line in result.lines:
        show_text(line)
    sys.stdout.flush()
    raise typer.Exit(result.verdict.exit_code)


def _faults(text: str) -> frozenset[Fault]:
    """Raises `CannotRun` for an unknown kind."""
    from barnabas.check.errors import CannotRun
    from barnabas.check.schedule import Fault

    if text == "all":
        return frozenset(Fault)
    known = {it.value: it for it in Fault}
    given = [word.strip() for word in text.split(",") if word.strip()] if text != "none" else []
    for word in given:
        if word not in known:
            raise CannotRun(f"--faults must be all, none, or some of {', '.join(known)}; got {word!r}")
    return frozenset(known[word] for word in given)
