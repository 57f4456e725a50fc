"""The Spark session of a command: opened, its progress shown, its errors printed in one line, closed."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from barnabas.cli.output import show_json, show_table
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
    from barnabas.cli.pipeline_options import SparkOptions

REFRESH_SECONDS = 0.3
"""How often the progress bar asks Spark for the state of its tasks."""


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Errors of a job become a ClusterError (exit code 1), wrong arguments a WrongArgument (exit code 2)."""
    from barnabas.cli.session import Terminated, refusal
    from barnabas.pipeline.errors import PipelineError, WrongUse
    from barnabas.pipeline.spark_errors import refusal as refusal_of_spark
    from barnabas.pipeline.spark_errors import spark_errors
    from barnabas.protocol.errors import KafkaError

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
    """A session for a command; an active one is used and stays open. Errors as in `errors_in_one_line`."""
    settings = options.settings
    for logger in (None, "py4j", "barnabas"):
        # The command prints each failure once. If a call to Spark is interrupted, py4j would print pages by way of the
        # root logger. An application that wants these messages installs a handler of its own.
        logging.getLogger(logger).addHandler(logging.NullHandler())
    with errors_in_one_line():
        from barnabas.pipeline.session import WORKER_START_TIMEOUT, active_session, open_session, silent_stderr

        settings = {WORKER_START_TIMEOUT: "120s", **settings}
        present = active_session()
        if present is None:
            with silent_stderr():
                session = open_session(options.master or "local[*]", f"barnabas {name}", settings)
        else:
            session = present
        with _bar(session, name, quiet=options.as_json):
            try:
                yield session
            except Exception:
                # Whatever failed, the JVM that this command started must not outlive it.
                _close(session, present)
                raise
        # Not after an interrupt: it may have broken off a call to Spark, and the next call would read that call's
        # answer. The JVM then ends with this process.
        _close(session, present)


def show_result(options: SparkOptions, began: float, account: Mapping[str, Any]) -> None:
    """The account of a job that began at `began` (monotonic seconds)."""
    show_account({**account, "seconds": round(time.monotonic() - began, 2)}, options.as_json)


def show_account(account: Mapping[str, Any], as_json: bool) -> None:
    """One JSON document, or a table of names and values without those that are None."""
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
def _bar(session: Any, name: str, *, quiet: bool) -> Iterator[None]:
    """A progress bar of the active stages' tasks, if standard error is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"))
    over = threading.Event()
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)

        def refresh() -> None:
            while not over.wait(REFRESH_SECONDS):
                done, total = _tasks(session.sparkContext.statusTracker())
                bar.update(task, completed=done, total=total or None)

        watcher = threading.Thread(target=_until_session_ends, args=(refresh,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join(REFRESH_SECONDS * 4)


def _tasks(tracker: Any) -> tuple[int, int]:
    """(completed, total) of the active stages."""
    stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number)) is not None]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)


def _until_session_ends(refresh: Callable[[], None]) -> None:
    """Ignores errors of the session: a progress bar must not fail a command."""
    from py4j.protocol import Py4JError

    try:
        refresh()
    except (Py4JError, OSError):
        return
