"""Runs in a simulated cluster: see `simulation.cluster`.

Broken promises and the coverage table are written to `promises.json` and `coverage.json` of the run directory.
"""

from __future__ import annotations

import gc
import json
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.layout import LOCAL_SHAPE
from barnabas.cluster.simulated import current_node
from barnabas.runtime.simulated import Universe, run_simulation
from barnabas.runtime.simulated.determinism import SimulationStuck
from barnabas.testing.cluster import QUICK_GROUPS
from histories.whole import write_whole
from plants.catalogue import find
from plants.plant import planted
from simulation.cluster import SimCluster, SimSettings, wall_ms_of
from simulation.moving_logs import LOG_DIRS, watching_moves
from simulation.watch import NodeLog, watching
from worlds.world_options import WorldOptions

T = TypeVar("T")

VOTERS = "controller.quorum.voters="
TRACE = "trace.txt"
"""The last events before the first promise was broken."""


class _NodeLog(NodeLog):
    """Also keeps the log lines of each node, in the form of a real node's log."""

    def __init__(self, universe: Universe) -> None:
        super().__init__(universe)
        self.by_node: dict[str, list[str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        moment = datetime.fromtimestamp(wall_ms_of(self._universe) / 1000.0, UTC).isoformat(timespec="milliseconds")
        line = f"{moment.removesuffix('+00:00')}Z {record.levelname:<7} {record.name}: {record.getMessage()}"
        self.by_node.setdefault(current_node.get(), []).append(line)


def settings_of(options: WorldOptions) -> SimSettings:
    with_messages = not options.conditions.secure and (options.faults is None or "message" in options.faults)
    directories = {"log.dirs": LOG_DIRS} if options.conditions.log_dirs > 1 else {}
    settings = {**QUICK_GROUPS, **directories, **options.settings}
    return SimSettings(settings, _shape(options), options.conditions, with_messages)


def _shape(options: WorldOptions) -> Path:
    """The folder of the nodes' settings: the usual one, or a copy with fewer nodes."""
    if not options.without_nodes:
        return LOCAL_SHAPE
    folder = options.directory / "shape"
    folder.mkdir(parents=True, exist_ok=True)
    gone = [name.rpartition("-")[2] for name in options.without_nodes if "controller" in name]
    for path in sorted(LOCAL_SHAPE.glob("*.properties")):
        if path.stem in options.without_nodes:
            continue
        text = path.read_text(encoding="utf-8")
        [line] = [each for each in text.splitlines() if each.startswith(VOTERS)]
        voters = [each for each in line.removeprefix(VOTERS).split(",") if each.partition("@")[0] not in gone]
        (folder / path.name).write_text(text.replace(line, VOTERS + ",".join(voters)), encoding="utf-8")
    return folder


def run_in(options: WorldOptions, main: Callable[[SimCluster], Awaitable[T]]) -> T:
    """See `worlds.world_options.run_in`."""
    began = time.process_time()
    outcome: list[T] = []
    # Objects that the collector ends while a run goes on would end at another moment in the next.
    gc.collect()
    # Modules stay: the next collection need not visit them.
    gc.freeze()
    gc.disable()
    try:
        with planted(find(options.plant)):
            run_simulation(options.seed, _story, options, main, outcome, began)
    except SimulationStuck as error:
        raise ClusterError(str(error)) from error
    finally:
        gc.enable()
    return outcome[0]


async def _story(
    universe: Universe,
    options: WorldOptions,
    main: Callable[[SimCluster], Awaitable[T]],
    outcome: list[T],
    began: float,
) -> None:
    failure: BaseException | None = None
    node_log = _NodeLog(universe)
    async with trio.open_nursery() as nursery:
        cluster = SimCluster(universe, nursery, settings_of(options))
        moves = options.conditions.log_dirs > 1
        with (
            watching(cluster.watch, node_log, logging.INFO),
            watching_moves(cluster.watch, cluster.findings) if moves else nullcontext(),
        ):
            cluster.cluster.up()
            try:
                await cluster.wait_ready()
                cluster.began = universe.time.now
                outcome.append(await main(cluster))
            except trio.Cancelled:
                raise
            except BaseException as error:
                failure = error
            nursery.cancel_scope.cancel()
    cluster.judge_log(node_log)
    _write_down(options.directory, cluster, node_log, time.process_time() - began)
    if failure is not None:
        raise failure


def _write_down(directory: Path, cluster: SimCluster, node_log: _NodeLog, cpu_seconds: float) -> None:
    findings, universe = cluster.findings, cluster.universe
    struck = sum(cluster.coverage.struck.values())
    promises: dict[str, Any] = {
        "kept": not findings.broken,
        "broken": findings.broken,
        "counts": dict(sorted(findings.counts.items())),
        "digest": universe.digest(),
        "simulated_seconds": round(universe.time.now, 3),
        "nodes_struck": struck,
        "cpu_seconds": round(cpu_seconds, 2),
        "simulated_seconds_per_cpu_second": round(universe.time.now / max(cpu_seconds, 1e-9), 1),
        "nodes_struck_per_cpu_second": round(struck / max(cpu_seconds, 1e-9), 2),
    }
    logs = {name: "".join(f"{line}\n" for line in node_log.by_node.get(name, ())) for name in cluster.cluster.nodes}
    try:
        (directory / "logs").mkdir(parents=True, exist_ok=True)
        write_whole(directory / "promises.json", json.dumps(promises, indent=2) + "\n")
        write_whole(directory / "coverage.json", json.dumps(cluster.coverage.table()) + "\n")
        if cluster.trace:
            write_whole(directory / TRACE, "".join(f"{line}\n" for line in cluster.trace))
        for name, lines in logs.items():
            write_whole(directory / "logs" / f"{name}.log", lines)
    except OSError as error:
        raise ClusterError(f"{directory}: {error.strerror}: some files of the run are missing") from error
