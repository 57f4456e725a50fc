"""One run of a scenario: the load, the watch and the story together, and a summary of how it ended."""

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
from barnabas.demo.scenario import PATIENCE_SECONDS, Scenario, Stage
from barnabas.demo.watch import Watch, is_whole
from barnabas.demo.workload import Load, run_load
from protocol.errors import ErrorCode, KafkaError

TOPIC = "demo"
PARTITIONS_COUNT = 3
REPLICAS_COUNT = 3
RECORDS_PER_SECOND = 500
_TOPIC_CONFIGS = {"min.insync.replicas": "2"}


@dataclass(frozen=True, slots=True)
class Event:
    """Something to tell."""

    at_ms: int
    """Since the run began."""
    text: str
    fault: bool = False
    """It was done to the cluster on purpose."""


@dataclass(slots=True)
class Run:
    """Everything that can be shown of a run, as it is now."""

    scenario: Scenario
    ledger: Ledger
    watch: Watch
    now_ms: Callable[[], int]
    """Since the run began."""
    events: list[Event] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Summary:
    """How a run ended."""

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
    """Who looks on; both may be told nothing."""

    hears: Callable[[Event], None]
    sees: Callable[[Run], None] | None = None
    """Called a few times a second."""


SHOW_SECONDS = 0.2


async def play(
    client: Cluster, cluster: LocalCluster, scenario: Scenario, seconds: float, audience: Audience
) -> tuple[Run, Summary]:
    """Plays the scenario on a cluster that is whole; takes about `seconds`, and what the cluster needs on top."""
    topic_id = await _topic_id(client)
    began_ms = client.now_ms()
    ledger = Ledger(secrets.token_hex(4), PARTITIONS_COUNT, began_ms)

    def tell(text: str, *, fault: bool = False) -> None:
        event = Event(client.now_ms() - began_ms, text, fault)
        run.events.append(event)
        audience.hears(event)

    watch = Watch(cluster, TOPIC, tell)
    run = Run(scenario, ledger, watch, lambda: client.now_ms() - began_ms)
    stage = Stage(
        cluster,
        watch,
        ledger,
        topic=TOPIC,
        topic_id=topic_id,
        beat_seconds=seconds / scenario.beats,
        tell=tell,
        tell_fault=lambda text: tell(text, fault=True),
        now_ms=client.now_ms,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(watch.run)
        await watch.until("every replica is in sync", is_whole, PATIENCE_SECONDS)
        # After earlier faults one broker may lead everything; each partition goes back to its first replica.
        partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS_COUNT)]
        await Admin.over(client).elect_leaders(ElectionType.PREFERRED, partitions, raise_errors=False)
        await watch.until("every replica is in sync", is_whole, PATIENCE_SECONDS)
        if audience.sees is not None:
            nursery.start_soon(_show, run, audience.sees)
        await _perform(client, scenario, stage)
        nursery.cancel_scope.cancel()
    if audience.sees is not None:
        audience.sees(run)
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
        stage.tell(f"{RECORDS_PER_SECOND} records/s are written with acks=all, and read")
        await stage.beats(0.5)  # what a first request costs is of no interest here
        stage.ledger.begin_window("before anything was done", stage.now_ms())
        await stage.beats(0.5)
        await scenario.play(stage)
        await stage.beats(1)
        stop.set()
    stage.tell("everything that was written has been read back")


def _found(stage: Stage) -> dict[str, object]:
    zombie = stage.findings.get("zombie")
    if isinstance(zombie, dict):
        zombie["read"] = stage.ledger.was_read(stage.ledger.value_aside("zombie"))
    return stage.findings


async def _show(run: Run, sees: Callable[[Run], None]) -> None:
    while True:
        sees(run)
        await trio.sleep(SHOW_SECONDS)


async def _topic_id(client: Cluster) -> bytes:
    """Of the topic, which is made unless an earlier run has left it."""
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
            f"topic {TOPIC} has {count} partitions, not {PARTITIONS_COUNT}; delete it, or use another --data",
        )
    return client.topic_id(TOPIC)
