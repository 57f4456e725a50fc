"""One run from its plan to its verdict: directory, world, clients, nemesis, history, checkers, report.

Whatever goes wrong on the way, what was recorded until then is kept and judged.
"""

from __future__ import annotations

import errno
import random
import shutil
import signal
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.runtime.world import Chance
from barnabas.settings.errors import SettingsError
from barnabas.testing.cluster import QUICK_GROUPS
from checkers.verdict import Verdict
from clients.library_missing import LibraryMissing
from histories.history import History
from histories.recorder import HistoryError, Recorder
from nemeses.kinds import OFF
from nemeses.messages import wish_of
from nemeses.nemesis import Nemesis, NemesisOptions
from operations import NEMESIS, Completion, Moment
from running import settling_time
from running.judging import judge, write
from running.libraries import check_libraries, open_libraries
from running.plan import Plan, ranges_of
from running.runner import Ended, Run, RunOptions
from simulation.cluster import SimCluster
from simulation.probing import Probes
from simulation.witness import Tally, Testimony, WitnessLibrary
from workloads.catalogue import make_workload
from workloads.lives import MIXED
from workloads.workload import Workload
from worlds.bootstrap import BootstrapCluster
from worlds.breakable import BreakableCluster
from worlds.cluster import ClusterUnderTest
from worlds.world_options import WorldOptions, run_in

NODE_SETTINGS = {
    **QUICK_GROUPS,
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.two.phase.commit.enable": "true",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "3000",
    "group.share.session.timeout.ms": "5000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}
"""Nodes that notice soon what happened to them: with Kafka's own numbers a run would mostly wait."""
VALID, ANOMALY, COULD_NOT_RUN = 0, 1, 2
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
FAILURE = "failure.txt"
"""The file with the traceback of a run that ended by a mistake of the suite."""

Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a plan."""

    directory: Path
    verdict: Verdict | None
    """None: nothing was recorded that could be judged."""
    exit_code: int
    summary: str
    """One line: the verdict, or why there is none."""


def carry_out(plan: Plan, log: Log, *, directory: Path | None = None, page: bool = True) -> Outcome:
    """Carries out a plan. `log` is called with each line about what is going on; `directory` is a new one in the store
    unless given. Without `page` a valid run has no page."""
    directory = directory or new_directory(plan)
    try:
        versions = check_libraries(plan.clients)
        with Recorder(directory, _described(plan, directory, versions)) as recorder:
            failure = _record(plan, recorder, log)
    except (HistoryError, LibraryMissing, ClusterError) as error:
        return Outcome(directory, None, COULD_NOT_RUN, str(error))
    if not recorder.operations:
        return Outcome(directory, None, COULD_NOT_RUN, failure or "nothing was recorded")
    if failure is not None:
        log(f"the run ended early: {failure}")
    outcome = judged(directory, failure, log, page=page)
    if outcome.exit_code == VALID and not plan.keep:
        # The log lines of the nodes are in logs; their data are needed only where something is wrong.
        shutil.rmtree(directory / "nodes", ignore_errors=True)
    return outcome


def _record(plan: Plan, recorder: Recorder, log: Log) -> str | None:
    """Reason why the run ended early; None if it did not."""
    failure, final_done, stopped, thought_of = None, False, False, 0
    try:
        ended = run_in(_world_options(plan, recorder.directory), lambda cluster: _run(plan, cluster, recorder, log))
        failure, final_done, stopped = ended.failure, ended.final_done, ended.stopped
        thought_of = ended.thought_of
    except ClusterError as error:
        failure = str(error)
    except Exception as error:
        failure = _describe_failure(error, recorder.directory / FAILURE)
    except BaseException as error:
        if not isinstance(_innermost(error), KeyboardInterrupt):
            raise
        stopped = True
        log("interrupted")
    with suppress(HistoryError):
        ended_by = failure or ("interrupted" if stopped else "in good order")
        recorder.amend(final_done=final_done, ended=ended_by, thought_of=thought_of)
    return failure


def _describe_failure(error: Exception, path: Path) -> str:
    """Settings that do not fit together, or a disk that takes nothing more; or a mistake of the suite, or of a client:
    that is written in full, and what was recorded is judged all the same."""
    innermost = _innermost(error)
    if isinstance(innermost, SettingsError):
        return str(innermost)
    if isinstance(innermost, OSError) and innermost.errno in NO_ROOM:
        return f"{path.parent}: {innermost.strerror}: name another directory with --store"
    with suppress(OSError):
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return f"{innermost!r}; more in {path}"


async def _run(plan: Plan, cluster: ClusterUnderTest, recorder: Recorder, log: Log) -> Ended:
    off = {kind: cluster.cannot[kind] for kind in plan.nemesis if kind in cluster.cannot}
    recorder.amend(cannot=off)
    for kind, why in off.items():
        log(f"{kind}{OFF}{why}")
    settings, client = await _settings_of(cluster, plan), plan.client_settings()
    if isinstance(cluster, SimCluster) and cluster.login:
        login = cast(Mapping[str, str], cluster.login)
        client = replace(client, bootstrap_servers=cluster.login_servers, security=login)
    if isinstance(cluster, BreakableCluster):
        client = replace(client, security={**cluster.client_security, **client.security})
    workload_options = replace(
        plan.workload_options(_prefix(recorder.directory, plan)),
        session_seconds=settling_time.session_seconds(plan.group_protocol, settings, client),
    )
    recorder.amend(settings=settings, options=asdict(workload_options))
    workload = make_workload(plan.workload, workload_options)
    options = RunOptions(
        time_seconds=plan.time,
        rate=plan.rate,
        concurrency=plan.concurrency,
        quiet_seconds=settling_time.quiet_seconds(plan.quiet, settings, client),
        final_seconds=plan.final,
        resting=[int(number) for number in plan.without_processes],
        left_out=ranges_of(plan.without_operations),
        settings=client,
    )
    nemesis: Nemesis | None = None
    if plan.nemesis or plan.condition:
        conditions = plan.conditions()
        more = NemesisOptions(
            beyond_budget=plan.beyond_budget,
            budget=cluster.budget if isinstance(cluster, SimCluster) else None,
            coordinated=getattr(workload, "coordinated", ()),
            session_seconds=int((NODE_SETTINGS | plan.node_settings())["broker.session.timeout.ms"]) / 1000,
            wishes=[wish_of(text) for text in plan.message],
            only=[int(number) for number in plan.only_faults],
            at_once=conditions.faults_at_once,
            mean_seconds=conditions.fault_seconds,
            aims=conditions.aims,
            hostile_pause_seconds=conditions.hostile_pause,
        )
        nemesis = Nemesis(cluster, plan.nemesis, _chance(plan.seed, "nemesis"), plan.interval, options=more)
    if isinstance(cluster, SimCluster):
        return await _run_watched(plan, cluster, recorder, (options, workload, nemesis))
    libraries = open_libraries(plan.clients, cluster)
    run = Run(options, workload, libraries, chance_of=lambda name: _chance(plan.seed, name), nemesis=nemesis)
    async with trio.open_nursery() as nursery:
        await nursery.start(_listen, run, log)
        ended = await run.run(cluster, recorder)
        nursery.cancel_scope.cancel()
    return ended


async def _run_watched(
    plan: Plan, cluster: SimCluster, recorder: Recorder, parts: tuple[RunOptions, Workload, Nemesis | None]
) -> Ended:
    """In a simulation clients are witnesses, and probes run beside the nemesis. Signals come from outside of the
    simulation: they end it where it is."""
    options, workload, nemesis = parts
    conditions, tally = plan.conditions(), Tally()
    testimony = Testimony(cluster, tally, conditions.first_sequence, is_mixed=plan.group_protocol == MIXED)
    probes = None
    if nemesis is not None:
        hosts = [f"client-{thread}" for thread in range(plan.concurrency)]
        groups = [id_ for kind, id_ in nemesis.options.coordinated if kind == "group"]
        probes = Probes(cluster, nemesis, conditions, hosts, groups, tally)
    libraries = [WitnessLibrary(testimony)]
    run = Run(options, workload, libraries, chance_of=lambda name: _chance(plan.seed, name), nemesis=probes)

    def on_broken(promise: str) -> None:
        _note_broken(cluster, recorder, promise)
        if conditions.until_broken:
            run.end(promise)

    cluster.on_broken = on_broken
    ended = await run.run(cluster, recorder)
    if ended.failure is None and probes is not None:
        await probes.check_rest()
    return ended


async def _settings_of(cluster: ClusterUnderTest, plan: Plan) -> dict[str, str]:
    """Settings of its nodes, as far as they are known."""
    if isinstance(cluster, BootstrapCluster):
        await cluster.ask_settings(settling_time.KEYS)
        return dict(cluster.settings)
    return NODE_SETTINGS | plan.node_settings()


def _note_broken(cluster: SimCluster, recorder: Recorder, promise: str) -> None:
    """A promise was found broken inside of the simulation, whatever clients see of it."""
    # A history that can no longer be written ends the run at its next line; here the error would hit a node.
    with suppress(HistoryError):
        at = Moment(cluster.now_ns(), cluster.wall_ms())
        recorder.write(at, NEMESIS, "info", "broken-promise", Completion("info", {"told": promise}))


async def _listen(run: Run, log: Log, *, task_status: trio.TaskStatus[None]) -> None:
    """Ctrl-C ends the run in good order; a second one ends it at once."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _signal in signals:
            first = not run.ended.stopped
            run.stop()
            if first:
                log("interrupted: the cluster is mended and everything read once more; again ends it at once")


def judged(directory: Path, failure: str | None, log: Log, *, page: bool = True) -> Outcome:
    """Judges the directory of a run; `failure` is the reason why the run ended early. Writes the report again, or
    without `page` only if the run is not valid."""
    try:
        # Loaded once for all: a long one takes a while.
        history = History.load(directory)
        verdict = judge(directory, history)
    except HistoryError as error:
        return Outcome(directory, None, COULD_NOT_RUN, str(error))
    if page or failure is not None or verdict.valid != "true":
        _keep(directory, history, verdict, log)
    bad = [finding for finding in verdict.findings if not finding.legal]
    if verdict.valid == "false":
        names = ", ".join(dict.fromkeys(finding.anomaly for finding in bad))
        return Outcome(directory, verdict, ANOMALY, f"INVALID: {names}")
    if failure is not None:
        return Outcome(directory, verdict, COULD_NOT_RUN, f"COULD NOT RUN: {failure}")
    if verdict.valid == "unknown":
        return Outcome(directory, verdict, ANOMALY, f"UNKNOWN: {verdict.unknown_because}")
    return Outcome(directory, verdict, VALID, "VALID")


def _keep(directory: Path, history: History, verdict: Verdict, log: Log) -> None:
    """Verdict and report. If the disk is full, the verdict is still printed."""
    from reports import page
    from reports.facts import ReportError

    try:
        write(directory, verdict)
        log(f"report: {page.write(directory, history)}")
    except OSError as error:
        log(f"{directory}: {error.strerror}: not everything could be kept")
    except (HistoryError, ReportError) as error:
        log(str(error))


# ---- what a run is called, and made of


def new_directory(plan: Plan) -> Path:
    """The directory of the next run of this plan; it does not exist yet."""
    began = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    name = f"{plan.workload}-{plan.cluster}-{plan.seed}-{began}"
    directory, count = plan.store / name, 1
    while directory.exists():
        count += 1
        directory = plan.store / f"{name}-{count}"
    return directory


def _described(plan: Plan, directory: Path, versions: Mapping[str, str]) -> dict[str, object]:
    return {
        "name": directory.name,
        "workload": plan.workload,
        "world": plan.cluster,
        "seed": plan.seed,
        "time_seconds": plan.time,
        "rate": plan.rate,
        "concurrency": plan.concurrency,
        "nemesis": list(plan.nemesis),
        "interval_seconds": plan.interval,
        "beyond_budget": plan.beyond_budget,
        "clients": list(plan.clients),
        "plant": plan.plant,
        "options": asdict(plan.workload_options(_prefix(directory, plan))),
        "settings": {} if plan.cluster == "bootstrap" else NODE_SETTINGS | plan.node_settings(),
        "versions": dict(versions),
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "cannot": {},
        # Until it is: a run that is killed, or whose disk is full, cannot write it any longer.
        "final_done": False,
        "budgets": plan.budgets(),
        "replay": plan.replay(),
    }


def _prefix(directory: Path, plan: Plan) -> str:
    """In a cluster that others use, and other runs have used, a run has names of its own."""
    return f"{directory.name}-" if plan.cluster == "bootstrap" else ""


def _world_options(plan: Plan, directory: Path) -> WorldOptions:
    settings = NODE_SETTINGS | plan.node_settings()
    return WorldOptions(
        plan.cluster,
        plan.seed,
        directory,
        settings,
        plan.plant,
        plan.bootstrap,
        plan.nemesis,
        plan.without_nodes,
        plan.conditions(),
        plan.secure,
    )


def _chance(seed: int, purpose: str) -> Chance:
    return random.Random(f"{seed}/jepsen/{purpose}")


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
