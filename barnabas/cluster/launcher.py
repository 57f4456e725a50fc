"""Starts nodes as processes of their own: imports their code once, then forks once for each.

`python -P -m barnabas.cluster.launcher` reads a plan as JSON from standard input. Mistakes in settings,
directories of another cluster and the like are reported in one line before anything is started (exit code 2).
Nodes share the memory of the imports; each leads a session of its own. When the launcher has ended nobody waits for
them, or a keeper does (`keeping.py`) that starts those again that end by themselves.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from barnabas.cluster.keeping import Keeper, Kept
from barnabas.cluster.plan import LAUNCHER_REFUSES, Plan, Start
from barnabas.cluster.processes import ProcessId
from barnabas.kraft.format import FormatError, FormatRequest, format_directories
from barnabas.kraft.metadata.bootstrap import bootstrap_records
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.process import ArgumentError, Program, name_process, read_config, run_program
from barnabas.settings.errors import SettingsError


def main() -> int:
    plan = Plan.from_json(sys.stdin.read())
    try:
        programs = [load_program(start) for start in plan.starts]
        for start in plan.starts:
            format_node(start, plan.cluster_id)
    except (ArgumentError, FormatError, SettingsError, OSError) as error:
        print(error, file=sys.stderr)
        return LAUNCHER_REFUSES
    gc.collect()
    # The collector writes into every object it looks at, which would unshare their pages.
    gc.freeze()
    if plan.restarts:
        return _fork_keeper(plan.starts, programs)
    for start, program in zip(plan.starts, programs, strict=True):
        fork_node(start, program)
    return 0


def _fork_keeper(starts: Sequence[Start], programs: Sequence[Program]) -> int:
    """Returns when all nodes have been started."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork():
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            return 0 if pipe.read(1) else 1
    code = 1
    try:
        os.setsid()
        os.close(reading)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        name_process("keeper")
        pairs = zip(starts, programs, strict=True)
        keeper = Keeper([Kept(start, partial(fork_node, start, program)) for start, program in pairs])
        keeper.start_all(writing)
        os.write(writing, b"!")
        os.close(writing)
        keeper.run()
        code = 0
    finally:
        os._exit(code)


def load_program(start: Start) -> Program:
    """Raises `ArgumentError`, `SettingsError`."""
    module = import_module(start.module)
    program: Program = module.load(read_config(start.config_file), start.config_file, {})
    return program


def format_node(start: Start, cluster_id: str) -> None:
    """Format its log directories that are new. Raises `FormatError`, OSError."""
    records = bootstrap_records()
    request = FormatRequest(cluster_id, start.node_id, start.log_directories, records, ignore_formatted=True)
    format_directories(RealDisk(), request, random.SystemRandom())


def fork_node(start: Start, program: Program, inherited: Sequence[int] = ()) -> int:
    """The number of the process, which closes the descriptors in `inherited`."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        process = ProcessId.of(pid)
        if process is not None:
            process.write(Path(start.pid_file))
        return pid
    code = 1
    try:
        os.setsid()
        for descriptor in inherited:
            os.close(descriptor)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.close(null)
        Path(start.log_file).parent.mkdir(parents=True, exist_ok=True)
        code = run_program(program, start.log_file)
        if code == 0:
            # It ended in good order: no command needs to look for this process.
            Path(start.pid_file).unlink(missing_ok=True)
    finally:
        logging.shutdown()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
