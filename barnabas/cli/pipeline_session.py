"""Runs what a command asks of Spark: opens the session, shows how far it is, tells refusals in one line."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from barnabas.cli.output import show_json, show_table
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
    from barnabas.cli.pipeline_options import SparkOptions

PATIENCE = "spark.python.authenticate.socketTimeout"
"""How long Spark waits for a Python worker that starts; its own 15 s are few on a machine that is busy."""
LOOK_SECONDS = 0.3
"""How often the bar asks Spark how far it is."""


@contextmanager
def told() -> Iterator[None]:
    """What a job refuses ends the command with 1, what was typed wrong with 2, each in one line."""
    from barnabas.cli.session import Terminated, refusal
    from barnabas.pipeline.errors import PipelineError, WrongUse
    from barnabas.pipeline.refusals import refusal as refusal_of_spark
    from barnabas.pipeline.refusals import spark_errors
    from protocol.errors import KafkaError

    def terminate(_number: int, _frame: Any) -> None:
        raise Terminated

    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, terminate) if in_main else None
    try:
        yield
    except WrongUse as error:
        raise WrongArgument(error.line) from None
    except PipelineError as error:
        raise ClusterError(error.line) from None
    except KafkaError as error:
        raise refusal(error) from None
    except spark_errors() as error:
        raise ClusterError(refusal_of_spark(error).line) from None
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


@contextmanager
def spark_session(options: SparkOptions, name: str) -> Iterator[Any]:
    """A session for a command; one that was there before stays open. Refusals are `told`."""
    settings = {PATIENCE: "120s", **options.settings}
    for logger in (None, "py4j", "barnabas"):
        # A failure is told once, by us; whoever wants to hear more gives logging a handler. Of an interrupt within a
        # call to Spark its library tells pages, by the root logger.
        logging.getLogger(logger).addHandler(logging.NullHandler())
    with told():
        from barnabas.pipeline.session import active_session, open_session

        present = active_session()
        if present is None:
            with hushed():
                session = open_session(options.master or "local[*]", f"barnabas {name}", settings)
        else:
            session = present
        with _bar(session, name, quiet=options.as_json):
            try:
                yield session
            except Exception:
                # Of whatever kind: a JVM of ours does not outlive the command.
                _close(session, present)
                raise
        # Who was interrupted may have been so within a call to Spark, whose answer the next call would take for its
        # own: then nobody calls any more, and the JVM ends with us.
        _close(session, present)


def tell(account: Mapping[str, Any], as_json: bool) -> None:
    """What a job did: one JSON document, or a table of names and values."""
    if as_json:
        show_json(dict(account))
        return
    rows = [(name.replace("_", " "), _shown(value)) for name, value in account.items() if value is not None]
    show_table(("what", "value"), rows)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_shown(each)}" for name, each in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "-"
    return str(value)


def _close(session: Any, present: Any | None) -> None:
    if present is None:
        session.stop()


@contextmanager
def hushed() -> Iterator[None]:
    """A JVM that starts within the block says nothing on our standard error: not how it logs, and no page of a trace.
    What goes wrong we are told as an exception.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@contextmanager
def _bar(session: Any, name: str, *, quiet: bool) -> Iterator[None]:
    """On standard error, if somebody looks on: the tasks of the stages that run now."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"))
    over = threading.Event()
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)

        def look() -> None:
            while not over.wait(LOOK_SECONDS):
                done, total = _tasks(session.sparkContext.statusTracker())
                bar.update(task, completed=done, total=total or None)

        watcher = threading.Thread(target=_while_there, args=(look,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join(LOOK_SECONDS * 4)


def _tasks(tracker: Any) -> tuple[int, int]:
    """(done, all) of the stages that run now."""
    stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number)) is not None]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)


def _while_there(look: Callable[[], None]) -> None:
    """A bar is no reason to fail: without its session it stands still."""
    from py4j.protocol import Py4JError

    try:
        look()
    except (Py4JError, OSError):
        return
