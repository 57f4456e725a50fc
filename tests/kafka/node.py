"""A node of a test's cluster: a process that is forked from one which has imported it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from barnabas.cluster.plan import MODULES
from barnabas.runtime.process import ArgumentError, Program, read_config, run_program
from barnabas.settings.errors import SettingsError
from tests.kafka.peers import HARNESS, NOBODY, Denial, Peers, deny, name_peers
from tests.kafka.tier_events import note_events

_POLL_SECONDS = 0.02
_PR_SET_PDEATHSIG = 1

Settings = dict[str, str]
REMOTE_STORAGE = "remote.log.storage.manager.class.name"


class Refused(Exception):
    """The cluster does not accept the settings or the feature levels of the test."""


@dataclass(slots=True)
class Node:
    """One broker or controller of the cluster."""

    id: int
    role: str
    settings: Settings
    log_dirs: list[str]
    ports: dict[str, int]
    """By name of the listener."""
    folder: Path
    peers: Peers = NOBODY
    denial: Denial | None = None
    pid: int | None = None
    asked_to_end: bool = False
    ended_by_itself: bool = False

    @property
    def name(self) -> str:
        return f"{self.role}-{self.id}"

    @property
    def port(self) -> int:
        return next(iter(self.ports.values()))

    @property
    def plaintext_port(self) -> int:
        """The listener where a broker answers everything: HARNESS, or that of other brokers if it is in plain text."""
        protocols = self.settings.get("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT").split(",")
        pairs = [each.partition(":") for each in protocols]
        plaintext = {name.strip() for name, _, protocol in pairs if protocol == "PLAINTEXT"} & self.ports.keys()
        between = self.settings.get("inter.broker.listener.name", "")
        return next(self.ports[name] for name in (HARNESS, between, *self.ports) if name in plaintext)

    @property
    def settings_file(self) -> Path:
        return self.folder / f"{self.name}.properties"

    @property
    def tier_events(self) -> Path:
        return self.folder / f"{self.name}.tier-events"

    def load(self) -> Program:
        module = import_module(MODULES[self.role])
        try:
            program: Program = module.load(read_config(str(self.settings_file)), str(self.settings_file), {})
        except (ArgumentError, SettingsError, OSError) as error:
            raise Refused(f"{type(error).__name__}: {error}") from None
        return program

    def start(self, program: Program) -> None:
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            self.pid = pid
            self.asked_to_end = False
            return
        code = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setsid()
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
            if self.peers.by_listener:
                name_peers(self.peers, self.folder)
            if self.denial is not None:
                deny(self.denial)
            if self.settings.get(REMOTE_STORAGE, "").endswith(".LocalTieredStorage"):
                note_events(self.tier_events)
            code = run_program(program, str(self.folder / f"{self.name}.log"))
        finally:
            os._exit(code)

    def runs(self) -> bool:
        if self.pid is not None and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.pid = None
            self.ended_by_itself |= not self.asked_to_end
        return self.pid is not None

    def end(self, number: signal.Signals, seconds: float) -> bool:
        """Sends the signal; reports whether the process ended in time."""
        if not self.runs() or self.pid is None:
            return True
        self.asked_to_end = True
        os.kill(self.pid, number)
        return comes_true(lambda: not self.runs(), seconds)

    def last_words(self) -> str:
        log = self.folder / f"{self.name}.log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return " | ".join(lines[-3:])[-1500:]


def comes_true(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_SECONDS)
    return True
