"""Starts nodes as processes of their own: imports their code once, then forks once for each.

`python -P -m barnabas.cluster.launcher` reads a plan as JSON from standard input. Mistakes in settings,
directories of another cluster and the like are told in one line before anything is started (exit code 2).
Nodes share the memory of the imports; each leads a session of its own, and when the launcher has ended nobody
waits for it.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import sys
from importlib import import_module
from pathlib import Path

from barnabas.cluster.plan import LAUNCHER_REFUSES, Plan, Start
from barnabas.cluster.processes import ProcessId
from kraft.format import FormatError, FormatRequest, format_directories
from kraft.metadata.bootstrap import bootstrap_records
from runtime.disk import RealDisk
from runtime.process import ArgumentError, Program, read_config, run_program
from settings.errors import SettingsError


def main() -> int:
    plan = Plan.from_json(sys.stdin.read())
    try:
        programs = [_load(start) for start in plan.starts]
        for start in plan.starts:
            _format(start, plan.cluster_id)
    except (ArgumentError, FormatError, SettingsError, OSError) as error:
        print(error, file=sys.stderr)
        return LAUNCHER_REFUSES
    gc.collect()
    # The collector writes into every object it looks at, which would unshare their pages.
    gc.freeze()
    for start, program in zip(plan.starts, programs, strict=True):
        _fork(start, program)
    return 0


def _load(start: Start) -> Program:
    module = import_module(start.module)
    program: Program = module.load(read_config(start.config_file), start.config_file, {})
    return program


def _format(start: Start, cluster_id: str) -> None:
    records = bootstrap_records()
    request = FormatRequest(cluster_id, start.node_id, start.log_directories, records, ignore_formatted=True)
    format_directories(RealDisk(), request, random.SystemRandom())


def _fork(start: Start, program: Program) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        process = ProcessId.of(pid)
        if process is not None:
            process.write(Path(start.pid_file))
        return
    code = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.close(null)
        Path(start.log_file).parent.mkdir(parents=True, exist_ok=True)
        code = run_program(program, start.log_file)
        if code == 0:
            # Left in good order: nobody needs to look for this process any more.
            Path(start.pid_file).unlink(missing_ok=True)
    finally:
        logging.shutdown()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
