"""All that a request handler may use: the parts of one broker, each with one owner.

Built once by `broker/node.py`; handlers get it as their first argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from broker.apis.transactions import add_partitions_here
from broker.auto_topics import AutoTopics
from broker.controller_channel import ControllerChannel
from broker.coordinator.coordinator import Coordinator
from broker.fetch_sessions import FetchSessions, PartitionKey
from broker.forwarding import ForwardingLines
from broker.groups.coordinator import group_coordinator
from broker.groups.machine import GroupMachine
from broker.lifecycle import BrokerLifecycle
from broker.lines import Lines
from broker.log_store import LogStore
from broker.metadata_cache import MetadataCache
from broker.metadata_publisher import MetadataPublisher
from broker.producer_ids import ProducerIds
from broker.purgatory import Purgatory
from broker.replication.fetcher import Fetchers
from broker.replication.partitions import Partitions
from broker.telemetry import REPORTER, ClientTelemetry
from broker.timing_wheel import TimingWheel
from broker.traffic import BytesOut, CleanerWork, Conversions, GroupEvents
from broker.transactions.coordinator import marker_writer, transaction_coordinator
from broker.transactions.machine import TransactionMachine
from broker.transactions.markers import MarkerWriter
from broker.transactions.verification import TransactionVerifier
from runtime.background import Background
from runtime.decisions import Decisions
from runtime.worker import Worker
from runtime.world import World
from settings.broker import BrokerSettings


@dataclass(slots=True)
class BrokerServices:
    """One broker."""

    settings: BrokerSettings
    """As they hold now: what was altered while the broker runs is in."""
    static: Mapping[str, str]
    """What the broker's own file set."""
    world: World
    nursery: trio.Nursery
    """For parts of the broker that live as long as it does."""
    background: Background
    """For work that ends by itself; request handlers use `Call.spawn`."""
    worker: Worker
    """For long work of requests."""
    metadata: MetadataCache
    publisher: MetadataPublisher
    """What brings `metadata` and `partitions` forward."""
    store: LogStore
    partitions: Partitions
    fetchers: Fetchers
    controller: ControllerChannel
    lifecycle: BrokerLifecycle
    wheel: TimingWheel
    fetches: Purgatory[PartitionKey]
    """Fetches that wait for more bytes, by partition."""
    deletions: Purgatory[PartitionKey]
    """DeleteRecords that wait for the followers."""
    sessions: FetchSessions
    producer_ids: ProducerIds
    decisions: Decisions
    bytes_out: BytesOut = field(default_factory=BytesOut)
    slow_admissions: Lines[int] = field(default_factory=Lines)
    """Requests with batches that need time, by the id of the connection: what was sent later is appended later."""
    conversions: Conversions = field(init=False)
    cleaner_work: CleanerWork = field(default_factory=CleanerWork)
    group_events: GroupEvents = field(default_factory=GroupEvents)
    groups: Coordinator[GroupMachine] = field(init=False)
    transactions: Coordinator[TransactionMachine] = field(init=False)
    coordinators: list[Coordinator[Any]] = field(default_factory=list)
    """Everybody who wants to hear which partitions are led here."""
    forwarding: ForwardingLines = field(default_factory=ForwardingLines)
    auto_topics: AutoTopics = field(init=False)
    verifier: TransactionVerifier = field(init=False)
    markers: MarkerWriter = field(init=False)
    telemetry: ClientTelemetry | None = field(init=False)
    """None: clients are not asked for metrics."""

    def __post_init__(self) -> None:
        self.conversions = Conversions(self.world.stopwatch)
        self.telemetry = None
        if REPORTER in re.split(r"\s*,\s*", self.static.get("metric.reporters", "").strip()):
            self.telemetry = ClientTelemetry(self.world.chance, self.settings.telemetry_max_bytes)
        self.auto_topics = AutoTopics(self)
        self.verifier = TransactionVerifier(
            self.world, self.nursery, self.metadata, lambda: self.settings, partial(add_partitions_here, self)
        )
        self.groups = group_coordinator(self)
        self.markers = marker_writer(self)
        self.transactions = transaction_coordinator(self)
        self.coordinators += [self.groups, self.transactions]
