"""Metrics of what a broker coordinates: groups, how far they are behind, and transactions. Named as Kafka's, but for
the lag of groups, which Kafka does not tell: there the names are those of kafka_exporter, which most dashboards know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from broker.coordinator.coordinator import Coordinator
from broker.coordinator.shard import ShardState
from broker.group_lag import GroupLag
from broker.services import BrokerServices
from broker.transactions.transaction import TransactionState
from runtime.metrics import Family, Labels

LAG_LABELS = ("consumergroup", "topic", "partition")

Samples = list[tuple[Labels, float]]


def group_families(broker: BrokerServices) -> Iterator[Family]:
    states: Counter[tuple[str, str]] = Counter()
    members: Samples = []
    offsets = 0
    for shard in broker.groups.shards:
        if shard.state is not ShardState.ACTIVE:
            continue
        machine = shard.machine
        offsets += len(machine.offsets.committed)
        for group in machine.offsets.all_groups():
            states[group.type.value, group.state_name()] += 1
            members.append(((group.group_id,), len(getattr(group, "members", ()))))
    name, told = "kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups that are coordinated here."
    yield Family("gauge", name, told, ("protocol", "state"), sorted(states.items()))
    told = "Offsets that groups have committed, one for each group and partition."
    yield Family.of("gauge", "kafka_coordinator_group_groupmetadatamanager_numoffsets", told, offsets)
    yield Family("gauge", "kafka_consumergroup_members", "Members of a group.", ("consumergroup",), members)
    events = broker.group_events
    prefix = "kafka_server_groupcoordinatormetrics_"
    for name, told, value in (
        ("offset_commit", "Offsets that were committed, of one partition each.", events.commits),
        ("offset_expiration", "Offsets that were forgotten because they were too old.", events.expired),
        ("offset_deletion", "Offsets that somebody deleted.", events.deleted),
        ("group_completed_rebalance", "Rebalances of classic groups that were completed.", events.rebalances),
        ("consumer_group_rebalance", "New target assignments of consumer groups.", events.consumer_rebalances),
    ):
        yield Family.of("counter", prefix + name, told, value)
    yield from _loads(prefix, broker.groups)


LagValue = Callable[[GroupLag], float | None]


def lag_families(lags: Sequence[GroupLag], now_ms: int) -> Iterator[Family]:
    """How far groups are behind, by the wall clock."""
    values: tuple[tuple[str, str, LagValue], ...] = (
        ("current_offset", "The offset that a group committed last.", lambda lag: lag.offset),
        ("lag", "Offsets from there to the high watermark.", lambda lag: lag.records),
        (
            "lag_read_committed",
            "Offsets from there to the last stable offset, where open transactions hold read_committed readers back.",
            lambda lag: lag.records_read_committed,
        ),
        (
            "lag_seconds",
            "Age of the oldest committed record that a group has not read; 0 if it has read all.",
            lambda lag: lag.seconds(now_ms),
        ),
    )
    for name, told, value in values:
        # Not lists: there may be very many, and others are to have their turns.
        yield Family("gauge", f"kafka_consumergroup_{name}", told, LAG_LABELS, _lag_samples(lags, value))


def _lag_samples(lags: Sequence[GroupLag], value: LagValue) -> Iterator[tuple[Labels, float]]:
    for lag in lags:
        told = value(lag)
        if told is not None:
            yield (lag.group_id, lag.topic, str(lag.partition)), told


def transaction_families(broker: BrokerServices) -> Iterator[Family]:
    states: Counter[TransactionState] = Counter()
    for shard in broker.transactions.shards:
        if shard.state is ShardState.ACTIVE:
            states.update(transaction.state for transaction in shard.machine.transactions)
    name, told = "kafka_coordinator_transaction_numtransactions", "Transactional ids that are coordinated here."
    yield Family("gauge", name, told, ("state",), [((state.label,), count) for state, count in sorted(states.items())])
    prefix = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
    told = "Ended transactions that wait to be told to a broker."
    waiting = [((str(broker_id),), count) for broker_id, count in sorted(broker.markers.waiting.items())]
    yield Family("gauge", prefix + "markerqueuesize", told, ("broker",), waiting)
    told = "Ended transactions that wait for a partition's leader to be known, or to answer."
    yield Family.of("gauge", prefix + "unknowndestinationqueuesize", told, broker.markers.waiting_for_leaders)
    yield from _loads("kafka_server_transactioncoordinatormetrics_", broker.transactions)
    counted = broker.verifier.counted
    prefix = "kafka_server_addpartitionstotxnmanager_"
    told = "Partitions that were found not to be in a transaction, or of which nobody said it."
    yield Family.of("counter", prefix + "verificationfailures", told, counted.failures)
    told = "Milliseconds until a transaction's coordinator had said whether partitions are in it."
    yield Family.of("histogram", prefix + "verificationtimems", told, counted.spread)


def _loads(prefix: str, coordinator: Coordinator[Any]) -> Iterator[Family]:
    shards = coordinator.shards
    states = Counter(shard.state.value for shard in shards)
    told = "Partitions of the internal topic that are led here."
    yield Family("gauge", prefix + "num_partitions", told, ("state",), [((s,), n) for s, n in sorted(states.items())])
    times = [shard.loaded_in_ms for shard in shards if shard.loaded_in_ms is not None]
    told = "Milliseconds that it took to load those that are led here: the longest."
    yield Family.of("gauge", prefix + "partition_load_time_max", told, max(times, default=0))
    told = "Milliseconds that it took to load those that are led here: on average."
    yield Family.of("gauge", prefix + "partition_load_time_avg", told, sum(times) / len(times) if times else 0)
