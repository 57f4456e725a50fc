"""Metrics of coordinators: groups, their lag, and transactions. Names are Kafka's, except for the lag of groups, which
Kafka does not report: those are kafka_exporter's, which most dashboards know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.broker.coordinator.coordinator import Coordinator
from barnabas.broker.coordinator.shard import ShardState
from barnabas.broker.group_lag import GroupLag
from barnabas.broker.internal_topics import SHARE_TOPIC
from barnabas.broker.traffic import GroupEvents, ShareStateWrites, Verifications
from barnabas.runtime.families import Family, Labels

if TYPE_CHECKING:
    from barnabas.broker.coordination import Coordination
    from barnabas.broker.groups.machine import GroupMachine
    from barnabas.broker.shares.state_machine import ShareStateMachine
    from barnabas.broker.transactions.machine import TransactionMachine
    from barnabas.broker.transactions.markers import MarkerWriter
    from barnabas.broker.transactions.transaction import TransactionState

LAG_LABELS = ("consumergroup", "topic", "partition")

Samples = list[tuple[Labels, float]]


def coordination_families(coordination: Coordination) -> list[Callable[[], Iterator[Family]]]:
    """The metrics of all coordinators of a broker."""
    parts = coordination.late_transactions.get()
    return [
        partial(group_families, coordination.groups, coordination.group_events),
        partial(share_state_families, coordination.shares, coordination.share_writes),
        partial(transaction_families, coordination.transactions, parts.markers, parts.verifier.counted),
    ]


def group_families(groups: Coordinator[GroupMachine], events: GroupEvents) -> Iterator[Family]:
    states: Counter[tuple[str, str]] = Counter()
    members: Samples = []
    offsets = held_bytes = 0
    for shard in groups.shards:
        if shard.state is not ShardState.ACTIVE:
            continue
        machine = shard.machine
        offsets += len(machine.offsets.committed)
        for group in machine.offsets.all_groups():
            states[group.type.value, group.state_name()] += 1
            members.append(((group.group_id,), len(getattr(group, "members", ()))))
            held_bytes += group.held.size_bytes
    name, text = "kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups that this broker coordinates."
    yield Family("gauge", name, text, ("protocol", "state"), sorted(states.items()))
    text = "Committed offsets, one for each group and partition."
    yield Family.of("gauge", "kafka_coordinator_group_groupmetadatamanager_numoffsets", text, offsets)
    yield Family("gauge", "kafka_consumergroup_members", "Members of a group.", ("consumergroup",), members)
    text = "Memory of what members sent to the groups of this broker."
    yield Family.of("gauge", "barnabas_group_memory_bytes", text, held_bytes)
    prefix = "kafka_server_groupcoordinatormetrics_"
    for name, text, value in (
        ("offset_commit", "Offsets that were committed, of one partition each.", events.commits),
        ("offset_expiration", "Offsets that expired.", events.expired),
        ("offset_deletion", "Offsets that were deleted by request.", events.deleted),
        ("group_completed_rebalance", "Completed rebalances of classic groups.", events.rebalances),
        ("consumer_group_rebalance", "New target assignments of consumer groups.", events.consumer_rebalances),
        ("streams_group_rebalance", "New epochs of streams groups.", events.streams_rebalances),
        ("share_group_rebalance", "New target assignments of share groups.", events.share_rebalances),
    ):
        yield Family.of("counter", prefix + name, text, value)
    shared = [((state,), count) for (kind, state), count in sorted(states.items()) if kind == "share"]
    yield Family("gauge", prefix + "share_group_count", "Share groups by state.", ("state",), shared)
    streams = [((state,), count) for (kind, state), count in sorted(states.items()) if kind == "streams"]
    yield Family("gauge", prefix + "streams_group_count", "Streams groups by state.", ("state",), streams)
    yield from _loads(prefix, groups)


def share_state_families(shares: Coordinator[ShareStateMachine], writes: ShareStateWrites) -> Iterator[Family]:
    prefix = "kafka_server_sharecoordinatormetrics_"
    yield Family.of("counter", prefix + "write", "Written states of share partitions.", writes.count)
    text = "Milliseconds until the states of a WriteShareGroupState request were replicated."
    yield Family.of("histogram", prefix + "write_latency", text, writes.spread)
    pruned = [
        ((SHARE_TOPIC, str(shard.partition.index)), shard.machine.deleted_before)
        for shard in shares.shards
        if shard.state is ShardState.ACTIVE and shard.machine.deleted_before
    ]
    text = "Offset before which a partition of __share_group_state was last pruned."
    yield Family("gauge", prefix + "last_pruned_offset", text, ("topic", "partition"), pruned)
    yield from _loads(prefix, shares)


LagValue = Callable[[GroupLag], float | None]


def lag_families(lags: Sequence[GroupLag], now_ms: int) -> Iterator[Family]:
    """`now_ms` is by the wall clock."""
    values: tuple[tuple[str, str, LagValue], ...] = (
        ("current_offset", "The committed offset of a group.", lambda lag: lag.offset),
        ("lag", "Offsets from the committed offset to the high watermark.", lambda lag: lag.records),
        (
            "lag_read_committed",
            "Offsets from the committed offset to the last stable offset, while open transactions hold read_committed "
            "consumers back.",
            lambda lag: lag.records_read_committed,
        ),
        (
            "lag_seconds",
            "Age of the oldest committed record that a group has not read; 0 if it has read all.",
            lambda lag: lag.seconds(now_ms),
        ),
    )
    for name, text, value in values:
        # Not lists: there may be very many, and the event loop runs while they are rendered.
        yield Family("gauge", f"kafka_consumergroup_{name}", text, LAG_LABELS, _lag_samples(lags, value))


def _lag_samples(lags: Sequence[GroupLag], value: LagValue) -> Iterator[tuple[Labels, float]]:
    for lag in lags:
        sample = value(lag)
        if sample is not None:
            yield (lag.group_id, lag.topic, str(lag.partition)), sample


def transaction_families(
    transactions: Coordinator[TransactionMachine], markers: MarkerWriter, counted: Verifications
) -> Iterator[Family]:
    states: Counter[TransactionState] = Counter()
    for shard in transactions.shards:
        if shard.state is ShardState.ACTIVE:
            states.update(transaction.state for transaction in shard.machine.transactions)
    name, text = "kafka_coordinator_transaction_numtransactions", "Transactional ids that this broker coordinates."
    yield Family("gauge", name, text, ("state",), [((state.label,), count) for state, count in sorted(states.items())])
    prefix = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
    text = "Ended transactions whose markers wait to be sent to a broker."
    waiting = [((str(broker_id),), count) for broker_id, count in sorted(markers.waiting.items())]
    yield Family("gauge", prefix + "markerqueuesize", text, ("broker",), waiting)
    text = "Ended transactions that wait for a partition's leader to be known, or to answer."
    yield Family.of("gauge", prefix + "unknowndestinationqueuesize", text, markers.waiting_for_leaders)
    yield from _loads("kafka_server_transactioncoordinatormetrics_", transactions)
    prefix = "kafka_server_addpartitionstotxnmanager_"
    text = "Partitions that were not in their transaction, or could not be verified."
    yield Family.of("counter", prefix + "verificationfailures", text, counted.failures)
    text = "Milliseconds until a transaction coordinator answered whether partitions are in a transaction."
    yield Family.of("histogram", prefix + "verificationtimems", text, counted.spread)


def _loads(prefix: str, coordinator: Coordinator[Any]) -> Iterator[Family]:
    shards = coordinator.shards
    states = Counter(shard.state.value for shard in shards)
    text = "Partitions of the internal topic that this broker leads."
    yield Family("gauge", prefix + "num_partitions", text, ("state",), [((s,), n) for s, n in sorted(states.items())])
    times = [shard.loaded_in_ms for shard in shards if shard.loaded_in_ms is not None]
    text = "Maximum milliseconds that loading one of these partitions took."
    yield Family.of("gauge", prefix + "partition_load_time_max", text, max(times, default=0))
    text = "Average milliseconds that loading one of these partitions took."
    yield Family.of("gauge", prefix + "partition_load_time_avg", text, sum(times) / len(times) if times else 0)
