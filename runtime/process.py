"""The process around a node: arguments, log, signals, memory, exit code.

`python -m barnabas.broker` and `python -m barnabas.kraft` call `run_process`; the launcher of a local cluster loads
programs itself and calls `run_program` after it forked. Knows no node: it runs a `Program` that the `load` of the role
made.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import trio

from barnabas.runtime.late import Late
from barnabas.runtime.request_times import request_log
from barnabas.runtime.visible import visible
from barnabas.runtime.watchdog import Watchdog
from barnabas.settings.errors import SettingsError

log = logging.getLogger("process")

EXIT_WELL = 0
EXIT_FAILED = 1
EXIT_WRONG_ARGUMENT = 2

GC_THRESHOLDS = (10_000, 1, 2_500)
"""Measured: with the objects of start-up frozen, a collection of the two young generations, at most 30,000 objects,
takes some milliseconds. With (10_000, 50, 100) it took 55 ms while large requests were decoded."""

SWITCH_SECONDS = 0.0005
"""Time that a thread waits for the interpreter when it returns from the disk while the event loop is busy. It has
little to do, and with Python's default each of its system calls would cost 5 ms."""

_PR_SET_NAME = 15


class Run(Protocol):
    """Runs a node until `stop` is set; calls `task_status.started()` once the node serves."""

    async def __call__(self, stop: trio.Event, *, task_status: trio.TaskStatus[Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Program:
    """A node whose settings are loaded and checked."""

    name: str
    """`broker-1`: the name of its process and in its log."""
    run: Run
    warnings: Sequence[str] = ()
    """Logged when it starts."""


Load = Callable[[str, str, Mapping[str, str]], Program]
"""Takes the text of a configuration file, its name, and overrides. Raises `SettingsError`."""


class CannotRun(Exception):
    """The node cannot run in this environment. The message gives the reason in one line; it needs no traceback."""


class ArgumentError(Exception):
    """A mistake on the command line; the message is one line."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """`CONFIG [--set KEY=VALUE]... [--log-file PATH]`"""

    config: str
    overrides: Mapping[str, str]
    log_file: str | None

    @classmethod
    def parse(cls, role: str, argv: Sequence[str]) -> Arguments:
        """Raises `ArgumentError`."""
        usage = f"usage: python -m barnabas.{role} CONFIG [--set KEY=VALUE]... [--log-file PATH]"
        config: str | None = None
        overrides: dict[str, str] = {}
        log_file: str | None = None
        words = iter(argv)
        for word in words:
            option, equals, value = word.partition("=")
            if option in ("--set", "--log-file"):
                value = value if equals else next(words, "")
                if not value:
                    raise ArgumentError(f"{option} needs a value; {usage}")
                if option == "--log-file":
                    log_file = value
                else:
                    key, text = split_override(value)
                    overrides[key] = text
            elif word.startswith("-") or config is not None:
                raise ArgumentError(f"unknown argument {word}; {usage}")
            else:
                config = word
        if config is None:
            raise ArgumentError(usage)
        return cls(config, overrides, log_file)


def split_override(text: str) -> tuple[str, str]:
    """`KEY=VALUE` as (key, value). Raises `ArgumentError`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ArgumentError(f"--set must be KEY=VALUE, for example num.partitions=3; got {text!r}")
    return key.strip(), value.strip()


def run_process(role: str, argv: Sequence[str], load: Load) -> int:
    """Run the process of a node; returns its exit code. A mistake of the user is reported in one line, with exit code
    2.
    """
    try:
        arguments = Arguments.parse(role, argv)
        program = load(read_config(arguments.config), arguments.config, arguments.overrides)
    except (ArgumentError, SettingsError) as error:
        print(error, file=sys.stderr)
        return EXIT_WRONG_ARGUMENT
    return run_program(program, arguments.log_file)


def read_config(path: str) -> str:
    """The text of a configuration file. Raises `ArgumentError`."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise ArgumentError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from None


def run_program(program: Program, log_file: str | None = None) -> int:
    """Run a node until SIGTERM or SIGINT; returns the exit code. Logs to `log_file`, rotated, or to stderr."""
    started_at = time.monotonic()
    start_logging(log_file)
    prepare_process(program.name)
    for warning in program.warnings:
        log.warning("%s", warning)

    def served(_: object) -> None:
        log.info("%s is up after %d ms", program.name, (time.monotonic() - started_at) * 1000)

    try:
        trio.run(run_until_signal, program.run, served, instruments=[Watchdog()])
    except (SettingsError, CannotRun, OSError) as error:
        # If the machine refuses something (a port, a directory), a traceback would not help.
        log.error("%s cannot run: %s", program.name, error, exc_info=log.isEnabledFor(logging.DEBUG))
        return EXIT_FAILED
    except BaseExceptionGroup as group:
        log.error("%s failed: %s", program.name, _leaves(group), exc_info=_unexpected(group))
        return EXIT_FAILED
    except Exception as error:
        # A mistake of ours: operators look for it in the log, and the exit code reports the failure.
        log.exception("%s failed: %s", program.name, error)
        return EXIT_FAILED
    log.info("%s stopped", program.name)
    return EXIT_WELL


def prepare_process(name: str) -> None:
    """Make this process fit for a node; `name` is shown by `ps`."""
    name_process(name)
    allow_many_files()
    sys.setswitchinterval(SWITCH_SECONDS)
    # What a node makes at its start stays. The default would look through all of it again and again.
    gc.set_threshold(*GC_THRESHOLDS)


async def run_until_signal(run: Run, served: Callable[[Any], None]) -> None:
    """Run a node until SIGTERM or SIGINT. `served` is called with the value that the node starts with."""
    stop, serving = trio.Event(), trio.Event()
    async with trio.open_nursery() as nursery:
        # Before the node starts: an earlier signal would end the process silently.
        await nursery.start(_listen_for_signals, stop, serving, nursery.cancel_scope)
        async with trio.open_nursery() as node:
            value = await node.start(run, stop)
            serving.set()
            served(value)
            settle_memory()
        nursery.cancel_scope.cancel()


async def _listen_for_signals(
    stop: trio.Event,
    serving: trio.Event,
    everything: trio.CancelScope,
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    """The first signal shuts the node down cleanly, the second ends it at once.

    A node that does not serve yet has nothing to hand over, and may be waiting for others: it ends at the first.
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            name = signal.Signals(number).name
            if stop.is_set():
                log.warning("%s again: stopping at once", name)
                everything.cancel()
            elif not serving.is_set():
                log.info("%s before serving: stopping at once", name)
                everything.cancel()
            else:
                log.info("%s: stopping", name)
            stop.set()


def settle_memory() -> None:
    """Freeze the objects of start-up: the collector need not visit them again. Switches it on if it was off."""
    gc.enable()
    # The old generation is what the node holds. With thousands of partitions it takes a second to look through.
    gc.collect(1)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def name_process(name: str) -> None:
    """Set the name that `ps -o comm` and `top` show; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def allow_many_files() -> None:
    """Raise the limit of open files as far as allowed: each partition takes a few, each client one."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # the present limit has to do
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def host_name() -> str:
    """The name of this machine: advertised if a listener has no host."""
    return socket.gethostname()


class OneLine(logging.Formatter):
    """One line for each message: time in UTC, level, logger, text. A traceback or a stack after it is indented, so that
    no text of a client can look like another message.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(f"    {visible(line)}" for line in text.split("\n"))


def start_logging(log_file: str | None) -> None:
    """Log to the file, or to standard error."""
    handler: logging.Handler = logging.StreamHandler()
    if log_file:
        handler = Late[logging.Handler]("barnabas.runtime.rotating_log:RotatingLog", log_file).get()
    handler.setFormatter(OneLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    for name, level in wanted_levels(os.environ.get("BARNABAS_LOG_LEVEL", "")).items():
        logging.getLogger(name).setLevel(level)


def wanted_levels(text: str) -> dict[str, int]:
    """Levels by logger from `INFO,kafka.request.logger=DEBUG`; the name "" stands for all loggers. Unknown words are
    ignored, so that they never prevent a start.
    """
    known = logging.getLevelNamesMapping() | {"WARN": logging.WARNING, "TRACE": logging.DEBUG}
    # DEBUG for all loggers does not include a line for each request.
    levels = {"": logging.INFO, request_log.name: logging.WARNING}
    for part in text.split(","):
        name, _, level = part.rpartition("=")
        if level.strip().upper() in known:
            levels[name.strip()] = known[level.strip().upper()]
    return levels


def _leaves(group: BaseExceptionGroup[BaseException]) -> str:
    """The errors inside a group, in one line."""
    return "; ".join(
        _leaves(error) if isinstance(error, BaseExceptionGroup) else f"{type(error).__name__}: {error}"
        for error in group.exceptions
    )


def _unexpected(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """The errors of the group that need a traceback: all but refusals of the machine and mistakes of the user."""
    return group.split((SettingsError, CannotRun, OSError))[1]
