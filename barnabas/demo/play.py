"""Runs a scenario: load, status polling and faults together, and summarises the result."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import trio

from barnabas.client.admin import Admin, ElectionType, NewTopic
from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.cluster.local import LocalCluster
from barnabas.demo.ledger import Ledger, Verdict, Window
from barnabas.demo.scenario import RECOVERY_SECONDS, Scenario, Stage
from barnabas.demo.status_watch import StatusWatch, is_whole
from barnabas.demo.workload import Load, run_load
from barnabas.protocol.errors import ErrorCode, KafkaError

TOPIC = "demo"
PARTITIONS_COUNT = 3
REPLICAS_COUNT = 3
RECORDS_PER_SECOND = 500
_TOPIC_CONFIGS = {"min.insync.replicas": "2"}


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the run's log."""

    at_ms: int
    """Milliseconds since the start of the run."""
    text: str
    fault: bool = False
    """Whether it is an injected fault."""


@dataclass(slots=True)
class Run:
    """State of a run, for display."""

    scenario: Scenario
    ledger: Ledger
    watch: StatusWatch
    now_ms: Callable[[], int]
    """Milliseconds since the start of the run."""
    events: list[Event] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Summary:
    """Result of a run."""

    scenario: str
    seconds: float
    records_per_second: int
    verdict: Verdict
    windows: list[Window]
    began_ms: int
    findings: dict[str, object]

    def to_json(self) -> dict[str, Any]:
        faults = [
            {"at_seconds": (each.began_ms - self.began_ms) / 1000, "what": each.name, "longest_gap_ms": each.gap_ms}
            for each in self.windows
        ]
        return {
            "scenario": self.scenario,
            "seconds": round(self.seconds, 3),
            "records_per_second": self.records_per_second,
            "clean": self.verdict.clean,
            **asdict(self.verdict),
            "gaps": faults,
            **self.findings,
        }


@dataclass(slots=True)
class Audience:
    """Receivers of a run's progress."""

    on_event: Callable[[Event], None]
    on_status: Callable[[Run], None] | None = None
    """Called every `SHOW_SECONDS`."""


SHOW_SECONDS = 0.2


async def play(
    client: Cluster, cluster: LocalCluster, scenario: Scenario, seconds: float, audience: Audience
) -> tuple[Run, Summary]:
    """Plays the scenario on a healthy cluster. The script takes `seconds`; recovery times of the cluster are added."""
    topic_id = await _topic_id(client)
    began_ms = client.now_ms()
    ledger = Ledger(secrets.token_hex(4), PARTITIONS_COUNT, began_ms)

    def report(text: str, *, fault: bool = False) -> None:
        event = Event(client.now_ms() - began_ms, text, fault)
        run.events.append(event)
        audience.on_event(event)

    watch = StatusWatch(cluster, TOPIC, report)
    run = Run(scenario, ledger, watch, lambda: client.now_ms() - began_ms)
    stage = Stage(
        cluster,
        watch,
        ledger,
        topic=TOPIC,
        topic_id=topic_id,
        beat_seconds=seconds / scenario.beats,
        report=report,
        report_fault=lambda text: report(text, fault=True),
        now_ms=client.now_ms,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(watch.run)
        await watch.until("every replica is in sync", is_whole, RECOVERY_SECONDS)
        # After earlier faults one broker may lead all partitions; this restores their preferred leaders.
        partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS_COUNT)]
        await Admin.over(client).elect_leaders(ElectionType.PREFERRED, partitions, raise_errors=False)
        await watch.until("every replica is in sync", is_whole, RECOVERY_SECONDS)
        if audience.on_status is not None:
            nursery.start_soon(_show, run, audience.on_status)
        await _perform(client, scenario, stage)
        nursery.cancel_scope.cancel()
    if audience.on_status is not None:
        audience.on_status(run)
    verdict = ledger.verdict()
    took_seconds = (client.now_ms() - began_ms) / 1000
    return run, Summary(
        scenario.name, took_seconds, RECORDS_PER_SECOND, verdict, ledger.windows, began_ms, _found(stage)
    )


async def _perform(client: Cluster, scenario: Scenario, stage: Stage) -> None:
    stop = trio.Event()
    async with trio.open_nursery() as load:
        writing = Load(TOPIC, RECORDS_PER_SECOND, stage.cluster.bootstrap_servers)
        await load.start(run_load, client, writing, stage.ledger, stop)
        stage.report(f"{RECORDS_PER_SECOND} records/s are produced with acks=all, and consumed")
        await stage.beats(0.5)  # the cost of the first requests is not measured
        stage.ledger.begin_window("before the first fault", stage.now_ms())
        await stage.beats(0.5)
        await scenario.play(stage)
        await stage.beats(1)
        stop.set()
    stage.report("all records are read back")


def _found(stage: Stage) -> dict[str, object]:
    zombie = stage.findings.get("zombie")
    if isinstance(zombie, dict):
        zombie["read"] = stage.ledger.was_read(stage.ledger.value_aside("zombie"))
    return stage.findings


async def _show(run: Run, on_status: Callable[[Run], None]) -> None:
    while True:
        on_status(run)
        await trio.sleep(SHOW_SECONDS)


async def _topic_id(client: Cluster) -> bytes:
    """The topic's id. Creates the topic unless it exists from an earlier run."""
    topic = NewTopic(TOPIC, PARTITIONS_COUNT, REPLICAS_COUNT, configs=_TOPIC_CONFIGS)
    try:
        await Admin.over(client).create_topics(topic)
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    count = await client.partitions_count(TOPIC, timeout_ms=30_000)
    if count != PARTITIONS_COUNT:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {TOPIC} must have {PARTITIONS_COUNT} partitions, has {count}; delete it, or use another --data",
        )
    return client.topic_id(TOPIC)
