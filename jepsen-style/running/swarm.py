"""The plan of a seed: workload, cluster, settings, network, disks, clients and faults. Each seed draws its own, so that
rare pairs meet. The plan is one that `run` takes, so that its `replay` runs the seed again.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from running.plan import Plan
from simulation.conditions import Conditions, shown
from simulation.passing_topics import RETENTION_CHECK_MS

WORKLOADS = {
    "queue": 4,
    "group": 4,
    "txn-eos": 3,
    "set": 2,
    "bank": 1,
    "list-append": 1,
    "offsets": 1,
    "metadata": 1,
    "fences": 1,
}
"""How often each is drawn."""
RIGHTS_SHARE = 0.06
"""Share of seeds that have the workload `rights`."""
SHARE_SHARE = 0.08
"""Share of seeds that have the workload `share`."""
DELAYED_SHARE = 0.05
"""Share of seeds that have the workload `delayed`."""
TIERED_SHARE = 0.05
"""Share of seeds that have the workload `tiered`."""
TABLE_SHARE = 0.04
"""Share of seeds that have the workload `table`."""
TWO_PHASE_SHARE = 0.04
"""Share of seeds that have the workload `two-phase`."""
PHASE_SECONDS = 40.0
SESSION_TIMEOUT_MS = 6_000
"""Session timeout of members of groups."""

USUAL_FAULTS = (
    "kill",
    "power",
    "kill-at",
    "kill-at-write",
    "stop",
    "restart-all",
    "pause",
    "partition",
    "cut-client",
    "slow",
    "clock",
    "disk-error",
    "disk-full",
    "wipe",
)
"""Kinds of faults that may happen in every seed."""
FORMS = {"partition": 4, "kill-at": 2, "kill-at-write": 2}
"""Kinds with several forms come more often."""
RARER_FAULTS = (
    "stall",
    "lossy",
    "half-open",
    "reconnect-storm",
    "dribble",
    "names-gone",
    "slow-disk",
    "torn-power",
    "pause-at",
    "hostile",
)
"""Kinds that some seeds have on top."""
CUT_OFF = "cut-off"
"""Half of the seeds have it on top."""
ROTATE = ("rotate",) * 3
"""Kinds that only seeds with certificates have on top: one for each of its forms."""
SWARM_FAULTS = (*USUAL_FAULTS, *RARER_FAULTS, CUT_OFF)

LAST_SEQUENCE = 2**31 - 1
"""Last sequence of a producer; the next is 0."""
SIZES = ((3, 3), (3, 3), (3, 3), (3, 3), (3, 3), (1, 1), (2, 1), (1, 3), (3, 1), (4, 3), (5, 3), (3, 5))
"""(brokers, controllers) of a cluster."""
NEED_THREE = (
    "group",
    "txn-eos",
    "bank",
    "list-append",
    "offsets",
    "fences",
    "queue",
    "share",
    "two-phase",
    "tiered",
    "table",
)
"""Workloads with coordinators, whose logs have three replicas."""
COUNTED_SHARE = 0.1
"""Share of seeds in which the work of every step of a request is counted."""
SECURE_SHARE = 0.15
"""Share of seeds whose nodes talk over TLS and SASL."""
CORE_SHARE = 0.35
LIVING_SHARE = 0.2
"""Share of seeds whose voters can change. The core is not tried there: it would have to be a majority of them."""
CHANGES_SHARE = 0.3
"""Share of seeds in which replicas move and feature levels change."""
CELLS_SHARE = 0.1
"""Share of seeds in which brokers share hosts, two on each of three, which all fail together."""
MOVED_LOGS_SHARE = 0.15
"""Share of seeds whose brokers have two log directories, between which replicas move. The core is not tried there: what
one disk has is then in two places."""
LIVING_SIZES = ((4, 3), (5, 4), (4, 1), (5, 3))
"""(controllers, first voters). With three voters or more a leader that dies has a successor."""


def draw_plan(seed: int, workload: str = "") -> Plan:
    """The same plan each time; of this workload, if one is given."""
    chance = Random(f"{seed}/plan")
    drawn = chance.choices(list(WORKLOADS), list(WORKLOADS.values()))[0]
    if Random(f"{seed}/rights").random() < RIGHTS_SHARE:
        drawn = "rights"
    elif Random(f"{seed}/share").random() < SHARE_SHARE:
        drawn = "share"
    elif Random(f"{seed}/delayed").random() < DELAYED_SHARE:
        drawn = "delayed"
    elif Random(f"{seed}/two-phase").random() < TWO_PHASE_SHARE:
        drawn = "two-phase"
    elif Random(f"{seed}/tiered").random() < TIERED_SHARE:
        drawn = "tiered"
    elif Random(f"{seed}/table").random() < TABLE_SHARE:
        drawn = "table"
    workload = workload or drawn
    conditions = _draw_conditions(chance, workload)
    if Random(f"{seed}/secure").random() < SECURE_SHARE:
        conditions = replace(conditions, secure=True)
    conditions, changes = _draw_changes(Random(f"{seed}/changes"), conditions)
    conditions, moves = _draw_moves(Random(f"{seed}/log-dirs"), conditions)
    conditions, hosts = _draw_cells(Random(f"{seed}/cells"), conditions)
    has_producers_without_transactions = workload in ("queue", "set", "group", "tiered", "table")
    plan = Plan(
        workload,
        seed=seed,
        cluster="sim",
        nemesis=_draw_faults(chance) + (ROTATE if conditions.secure else ()) + changes + moves + hosts,
        time=PHASE_SECONDS,
        rate=chance.choice((6.0, 10.0, 16.0)),
        concurrency=4 if workload == "fences" else chance.choice((3, 3, 4)),
        interval=chance.choice((2.0, 4.0, 8.0)) * conditions.faults_at_once,
        settings=tuple(f"{key}={value}" for key, value in _draw_settings(chance, conditions).items()),
        topic_config=tuple(f"{key}={value}" for key, value in _draw_topic_configs(chance, conditions.hosts).items()),
        client_config=tuple(f"{key}={value}" for key, value in _draw_client_configs(chance).items()),
        condition=tuple(shown(conditions)),
        option=(f"replicas={min(conditions.hosts, chance.choice((3, 3, 5)))}",),
        group_protocol=chance.choice(("classic", "classic", "consumer", "consumer", "mixed")),
        no_transactions=has_producers_without_transactions and chance.random() < 0.3,
        keys=chance.choice((2, 4, 8)),
        max_writes=chance.choice((64, 1_024)),
        abort_probability=chance.choice((0.0, 0.1, 0.2)),
        crash_every=chance.choice((8.0, 20.0, 60.0)),
        quiet=3.0,
    )
    if workload == "share":
        return _with_shares(plan, Random(f"{seed}/share/plan"))
    if workload == "tiered":
        return _with_tiers(plan, Random(f"{seed}/tiered/plan"), conditions)
    if workload == "table":
        return _with_table(_with_tiers(plan, Random(f"{seed}/table/plan"), conditions), Random(f"{seed}/table/more"))
    return _with_two_phases(plan, conditions) if workload == "two-phase" else plan


def _with_tiers(plan: Plan, chance: Random, conditions: Conditions) -> Plan:
    """Small segments that leave the disks soon, few readers, small caches, and a store that fails."""
    settings = {
        "remote.log.storage.system.enable": "true",
        "barnabas.remote.store.url": "file:///store",
        "barnabas.remote.store.timeout.ms": chance.choice((1_000, 5_000)),
        "remote.log.manager.task.interval.ms": chance.choice((200, 1_000, 3_000)),
        "remote.log.reader.threads": chance.choice((1, 2, 10)),
        "remote.log.reader.max.pending.tasks": chance.choice((2, 100)),
        "remote.fetch.max.wait.ms": chance.choice((100, 500, 3_000)),
        "remote.log.index.file.cache.total.size.bytes": chance.choice((2_000, 1 << 20)),
        "follower.fetch.last.tiered.offset.enable": chance.choice(("false", "true")),
        "rlmm.config.remote.log.metadata.topic.num.partitions": chance.choice((1, 3)),
        "rlmm.config.remote.log.metadata.topic.replication.factor": min(3, conditions.brokers),
        "rlmm.config.remote.log.metadata.topic.min.isr": min(2, conditions.brokers),
        "log.retention.check.interval.ms": chance.choice((300, 1_000)),
    }
    topic_configs = {
        "internal.segment.bytes": chance.choice((700, 1_500, 4_000)),
        "segment.ms": chance.choice((500, 2_000, 10_000)),
        "local.retention.ms": chance.choice((1, 500, 3_000)),
    }
    kept = [pair for pair in plan.topic_config if pair.partition("=")[0] not in topic_configs]
    return replace(
        plan,
        settings=(*plan.settings, *(f"{key}={value}" for key, value in settings.items())),
        topic_config=(*kept, *(f"{key}={value}" for key, value in topic_configs.items())),
        nemesis=(*plan.nemesis, *("store",) * chance.choice((1, 3))),
        rate=chance.choice((10.0, 16.0, 24.0)),
    )


def _with_table(plan: Plan, chance: Random) -> Plan:
    """Cleaners that are never far behind, and few keys. In half of them the topic is tiered only later."""
    cleaner = {
        "barnabas.remote.storage.compacted.enable": "true",
        "log.cleaner.backoff.ms": chance.choice((200, 500, 1_500)),
        "log.cleaner.delete.retention.ms": 6_000,
    }
    kept = [pair for pair in plan.settings if pair.partition("=")[0] not in cleaner]
    topic_configs = {
        "segment.ms": chance.choice((500, 1_000, 2_000)),
        "local.retention.ms": chance.choice((1, 500, 5_000)),
        "min.cleanable.dirty.ratio": chance.choice(("0.01", "0.3")),
    }
    kept_configs = [pair for pair in plan.topic_config if pair.partition("=")[0] not in topic_configs]
    plan = replace(
        plan,
        settings=(*kept, *(f"{key}={value}" for key, value in cleaner.items())),
        topic_config=(*kept_configs, *(f"{key}={value}" for key, value in topic_configs.items())),
        keys=chance.choice((3, 6, 12)),
    )
    tiered_after = chance.choice((0, 0, 20, 60))
    return replace(plan, option=(*plan.option, f"tiered_after={tiered_after}")) if tiered_after else plan


def _with_two_phases(plan: Plan, conditions: Conditions) -> Plan:
    """A prepared transaction can be found only while transaction.version is 2 or more."""
    features = {name: level for name, level in conditions.features.items() if name != "transaction.version"}
    return replace(
        plan,
        condition=tuple(shown(replace(conditions, features=features))),
        nemesis=tuple(kind for kind in plan.nemesis if kind != "feature"),
    )


def _with_shares(plan: Plan, chance: Random) -> Plan:
    """More members, short locks, and snapshots of share states that come often."""
    settings = {
        "share.coordinator.state.topic.num.partitions": chance.choice((1, 2, 3)),
        "share.coordinator.snapshot.update.records.per.snapshot": chance.choice((2, 5, 30)),
        "share.coordinator.state.topic.prune.interval.ms": chance.choice((2_000, 10_000)),
        "share.coordinator.cold.partition.snapshot.interval.ms": chance.choice((3_000, 20_000)),
        "share.coordinator.write.timeout.ms": chance.choice((1_000, 5_000)),
        "group.share.assignment.interval.ms": chance.choice((0, 500)),
    }
    return replace(
        plan,
        settings=(*plan.settings, *(f"{key}={value}" for key, value in settings.items())),
        option=(
            *plan.option,
            f"lock_ms={chance.choice((1_000, 2_000, 6_000))}",
            f"limit={chance.choice((2, 3, 5, 10))}",
        ),
        isolation=chance.choice(("read_committed", "read_uncommitted")),
        concurrency=chance.choice((4, 5, 6)),
        rate=chance.choice((10.0, 16.0, 24.0)),
    )


def _draw_faults(chance: Random) -> tuple[str, ...]:
    weights = {kind: chance.choice((1, 1, 1, 3)) * FORMS.get(kind, 1) for kind in USUAL_FAULTS if chance.random() < 0.6}
    weights = weights or {"kill": 1}
    weights |= {kind: 1 for kind in RARER_FAULTS if chance.random() < 0.3}
    if chance.random() < 0.5:
        weights[CUT_OFF] = 1
    return tuple(kind for kind, weight in weights.items() for _ in range(weight))


def _draw_changes(chance: Random, conditions: Conditions) -> tuple[Conditions, tuple[str, ...]]:
    """Conditions and faults of a cluster that changes while it lives."""
    changes: tuple[str, ...] = ()
    if chance.random() < LIVING_SHARE:
        controllers, voters = chance.choice(LIVING_SIZES)
        conditions = replace(conditions, size=(conditions.brokers, controllers), voters=voters, core=False)
        changes += ("voters",) * chance.choice((2, 6))
    if chance.random() < CHANGES_SHARE:
        changes += ("reassign",) * chance.choice((1, 4)) + ("feature",)
    return conditions, changes


def _draw_moves(chance: Random, conditions: Conditions) -> tuple[Conditions, tuple[str, ...]]:
    """Conditions and faults of a cluster whose replicas move between log directories."""
    if chance.random() >= MOVED_LOGS_SHARE:
        return conditions, ()
    return replace(conditions, log_dirs=2, core=False), ("move-log",) * chance.choice((2, 5))


def _draw_cells(chance: Random, conditions: Conditions) -> tuple[Conditions, tuple[str, ...]]:
    """Conditions and faults of a cluster whose brokers share hosts."""
    if chance.random() >= CELLS_SHARE or conditions.brokers != 3:
        return conditions, ()
    controllers = 3 if conditions.size is None else conditions.size[1]
    return replace(conditions, size=(6, controllers), cells=2, core=False), ("host",) * chance.choice((3, 6))


def _draw_conditions(chance: Random, workload: str) -> Conditions:
    brokers, controllers = chance.choice(SIZES)
    if workload in NEED_THREE:
        brokers = max(brokers, 3)
    conditions = Conditions(
        size=(brokers, controllers),
        latency_ms=chance.choice(((0.1, 0.2), (0.3, 1.0), (1.0, 5.0), (5.0, 10.0))),
        disk_ms=chance.choice(((0.2, 1.0), (1.0, 4.0), (5.0, 20.0))),
        faults_at_once=chance.choice((1, 2, 3)),
        fault_seconds=chance.choice((1.5, 4.0, 8.0)),
        core=chance.random() < CORE_SHARE,
        until_broken=True,
        count_work=chance.random() < COUNTED_SHARE,
        features=chance.choice(({}, {}, {}, {"transaction.version": 1})),
    )
    if chance.random() < 0.5:
        # Coordinators and snapshots are loaded in many turns, and faults wait for that.
        inner = {
            "coordinator.load.stretch.bytes": chance.choice((300, 2_000)),
            "coordinator.load.pause.ms": chance.choice((5, 30, 100)),
            "log.open.files": 3,
        }
        conditions = replace(conditions, tuned=inner, aims=True)
    if chance.random() < 0.3:
        conditions = replace(conditions, first_sequence=LAST_SEQUENCE - chance.randrange(200))
    if chance.random() < 0.25:
        conditions = replace(conditions, passing_topics=chance.choice((0.5, 1.0, 3.0)))
    return conditions


def _draw_settings(chance: Random, conditions: Conditions) -> dict[str, object]:
    session_ms = chance.choice((1500, 3000, 6000))
    settings: dict[str, object] = {
        "broker.session.timeout.ms": session_ms,
        "broker.heartbeat.interval.ms": session_ms // chance.choice((2, 3)),
        "replica.lag.time.max.ms": chance.choice((1500, 3000, 8000)),
        "replica.fetch.wait.max.ms": chance.choice((500, 1_000, 1_200)),
        "replica.fetch.max.bytes": chance.choice((500, 4_000, 1_048_576)),
        "replica.socket.timeout.ms": chance.choice((1500, 4000)),
        "replica.high.watermark.checkpoint.interval.ms": chance.choice((500, 2000, 5000)),
        "controller.quorum.election.timeout.ms": chance.choice((500, 1000)),
        "controller.quorum.fetch.timeout.ms": chance.choice((1000, 2000)),
        "controller.quorum.request.timeout.ms": chance.choice((1000, 2000)),
        "metadata.log.max.record.bytes.between.snapshots": chance.choice((3_000, 10_000, 1_000_000)),
        "metadata.max.idle.interval.ms": chance.choice((1_000, 5_000, 20_000)),
        "metadata.log.segment.bytes": 8_388_608,
        "initial.broker.registration.timeout.ms": 1_000_000,
        "auto.create.topics.enable": "false",
        "leader.imbalance.check.interval.seconds": chance.choice((5, 300)),
        "min.insync.replicas": min(2, conditions.hosts),
        "offsets.topic.num.partitions": chance.choice((1, 2, 3)),
        "transaction.state.log.num.partitions": chance.choice((1, 2, 3)),
        "group.initial.rebalance.delay.ms": chance.choice((0, 300, 3_000)),
        "group.min.session.timeout.ms": 1_000,
        "group.consumer.min.session.timeout.ms": 1_000,
        "group.consumer.session.timeout.ms": SESSION_TIMEOUT_MS,
        "group.consumer.min.heartbeat.interval.ms": 500,
        "group.consumer.heartbeat.interval.ms": SESSION_TIMEOUT_MS // 4,
        "group.consumer.assignment.interval.ms": chance.choice((0, 500)),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": chance.choice((500, 3_000)),
    }
    if chance.random() < 0.5:
        settings["log.index.interval.bytes"] = chance.choice((0, 1, 50, 200))
    if conditions.passing_topics is not None:
        settings["log.retention.check.interval.ms"] = RETENTION_CHECK_MS
    if conditions.aims:
        settings["controller.quorum.fetch.snapshot.max.bytes"] = chance.choice((100, 1_000))
        settings["metadata.log.max.record.bytes.between.snapshots"] = chance.choice((1_000, 3_000))
    if chance.random() < 0.4:
        # Coordinators' logs roll so often that they are cleaned while they are written and loaded.
        settings["log.roll.ms"] = chance.choice((1_000, 5_000))
        settings["log.cleaner.backoff.ms"] = chance.choice((1_000, 3_000))
        settings["log.cleaner.min.cleanable.ratio"] = 0.01
        settings["log.cleaner.delete.retention.ms"] = chance.choice((1_000, 86_400_000))
    return settings


def _draw_topic_configs(chance: Random, brokers: int) -> dict[str, object]:
    configs: dict[str, object] = {"min.insync.replicas": min(brokers, chance.choice((1, 2, 2, 2)))}
    if chance.random() < 0.2:
        configs["message.timestamp.type"] = "LogAppendTime"
    if chance.random() < 0.5:
        configs["segment.ms"] = chance.choice((500, 2_000, 10_000))
    if chance.random() < 0.5:
        configs["internal.segment.bytes"] = chance.choice((1_000, 4_000))
    if chance.random() < 0.2:
        configs["flush.messages"] = chance.choice((1, 10))
    return configs


def _draw_client_configs(chance: Random) -> dict[str, object]:
    configs: dict[str, object] = {
        "delivery_timeout_ms": chance.choice((8_000, 20_000, 60_000)),
        "max_block_ms": chance.choice((8_000, 30_000)),
        "transaction_timeout_ms": chance.choice((4_000, 8_000)),
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "heartbeat_interval_ms": SESSION_TIMEOUT_MS // 4,
        "fetch_max_wait_ms": 1_000,
        "linger_ms": chance.choice((0, 5)),
    }
    assignors = chance.choice(("", "range", "cooperative-sticky", "range/cooperative-sticky"))
    return configs | ({"assignors": assignors} if assignors else {})
