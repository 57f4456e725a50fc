"""The plan of one seed: settings of its cluster, topics, clients, network and faults. Each seed draws its own, so that
rare pairs meet. A plan is a value that can be printed and changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from barnabas.runtime.simulated.chance import Stream

FAULT_PHASE_SECONDS = 50.0
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
)
"""Kinds that some seeds have on top."""
CUT_OFF = "cut-off"
"""Half of the seeds have it on top."""
SWARM_FAULTS = (*USUAL_FAULTS, *RARER_FAULTS, CUT_OFF)

LAST_SEQUENCE = 2**31 - 1
"""Last sequence of a producer; the next is 0."""
HOSTILE_PROBABILITY = 0.3
"""Share of seeds with hostile clients."""

SIZES = ((3, 3), (3, 3), (3, 3), (3, 3), (3, 3), (1, 1), (2, 1), (1, 3), (3, 1), (4, 3), (5, 3), (3, 5))
"""(brokers, controllers) of a cluster."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group and its members."""

    group_id: str
    protocol: str
    """`classic`, `consumer`, or `mixed`: each life of a member draws its own, and the group is migrated to and fro."""
    assignors: tuple[str, ...]
    """Assignors of a classic group."""
    members: int
    session_timeout_ms: int
    static: bool = False
    """Members have a group.instance.id, and come again under it."""
    max_poll_interval_ms: int = 30_000
    api_timeout_ms: int = 4_000
    """Timeout of a commit. Longer than a session, so that a member may be out of the group when its commit arrives."""
    mean_life_seconds: float = 20.0
    """Until a member is killed."""
    mean_stay_seconds: float = 30.0
    """Until a member leaves."""


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """Writers of transactions over many partitions, and a group that reads a topic and writes another, exactly once."""

    transform: GroupPlan
    writers: int
    pairs: str = "pairs"
    """The topic of the writers; `output` is that of the group."""
    output: str = "output"
    pairs_partitions: int = 3
    output_partitions: int = 2
    timeout_ms: int = 6_000
    """transaction.timeout.ms."""
    max_block_ms: int = 8_000
    """Timeout of the end of a transaction. Longer than a session, so that the member may be out of the group
    meanwhile."""
    abort_probability: float = 0.2
    pause_seconds: float = 0.5
    """Mean time between the transactions of one writer."""


@dataclass(frozen=True, slots=True)
class HostilePlan:
    """Clients that send whatever they can (`barnabas.cluster.hostile`)."""

    clients: int = 1
    pause_seconds: float = 0.1
    """Mean time between two requests of one of them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One seed's draw. Rates are per simulated second."""

    settings: Mapping[str, str]
    """Settings of every node."""
    topics: tuple[TopicPlan, ...]
    latency_ms: tuple[float, float]
    """Least, and mean of what comes on top."""
    blocking_ms: tuple[float, float]
    """The same for fsync and its like."""
    fault_weights: Mapping[str, int] = field(default_factory=dict)
    """Number of times that each kind of fault is in the bag from which the nemesis draws."""
    fault_pause_seconds: float = 2.0
    """Mean time between faults."""
    fault_length_seconds: float = 4.0
    """Mean time until one is undone."""
    faults_at_once: int = 2
    producers: int = 2
    send_pause_seconds: float = 0.4
    """Mean time between the bursts of one producer."""
    burst_records: int = 6
    """Maximum number of records at once."""
    record_bytes: int = 100
    """At most."""
    delivery_timeout_ms: int = 20_000
    phase_seconds: float = FAULT_PHASE_SECONDS
    groups: tuple[GroupPlan, ...] = ()
    transactions: TransactionPlan | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    """Levels other than the production ones."""
    brokers: int = 3
    controllers: int = 3
    core_probability: float = 0.35
    """Probability that only a core is healed first and has to work without the rest."""
    hostile: HostilePlan | None = None
    inner: Mapping[str, int] = field(default_factory=dict)
    """Inner constants of nodes that differ from the code: see `World.tuned`."""
    aims: bool = False
    """Some faults wait for nodes in rare states and strike those."""
    first_sequence: int = 0
    """First sequence of producers in a partition."""
    passing_topics_pause_seconds: float | None = None
    """Mean time between two acts of an administrator of topics that come and go; None: there is none."""


PLAIN: Mapping[str, object] = {
    "inner": {},
    "aims": False,
    "first_sequence": 0,
    "passing_topics_pause_seconds": None,
    "hostile": None,
}
"""Changes that take the extras out of a plan: short turns, edges of numbers, passing topics, hostile clients."""


def draw_plan(stream: Callable[[str], Stream], *, hostile: bool | None = None) -> Plan:
    """The plan of a seed; `stream` gives chance for a purpose. `hostile` says whether it has hostile clients; None: as
    drawn."""
    chance = stream("plan")
    plan = _draw_clients(chance)
    rarer = {kind: 1 for kind in RARER_FAULTS if chance.random() < 0.3}
    plan = replace(plan, fault_weights={**plan.fault_weights, **rarer})
    brokers, controllers = chance.choice(SIZES)
    if plan.groups or plan.transactions is not None:
        brokers = max(brokers, 3)  # coordinators' logs have three replicas
    plan = replace(plan, brokers=brokers, controllers=controllers, topics=_fitting(plan.topics, brokers, chance))
    if chance.random() < 0.5:
        plan = replace(plan, fault_weights={**plan.fault_weights, CUT_OFF: 1})
    plan = _with_edges(_with_slow_loading(plan, chance), chance)
    return _with_hostile(plan, stream("hostile plan"), hostile)


def _with_edges(plan: Plan, chance: Stream) -> Plan:
    """Dense indexes, sequences that wrap, topics that come and go."""
    settings = dict(plan.settings)
    if chance.random() < 0.5:
        settings["log.index.interval.bytes"] = str(chance.choice((0, 1, 50, 200)))
    if chance.random() < 0.3:
        plan = replace(plan, first_sequence=LAST_SEQUENCE - chance.randrange(200))
    if chance.random() < 0.25:
        settings.setdefault("min.insync.replicas", "1")
        plan = replace(plan, passing_topics_pause_seconds=chance.choice((0.5, 1.0, 3.0)))
    return replace(plan, settings=settings)


def _with_hostile(plan: Plan, chance: Stream, wanted: bool | None) -> Plan:
    """The same plan with hostile clients in some seeds. It has a stream of its own, so that the rest of a seed is the
    same with and without them."""
    is_drawn = chance.random() < HOSTILE_PROBABILITY
    hostile = HostilePlan(clients=chance.choice((1, 1, 2)), pause_seconds=chance.choice((0.02, 0.05, 0.2)))
    coordinators = _draw_coordinators(chance)
    if not (is_drawn if wanted is None else wanted):
        return plan
    # They make coordinators work, whether or not other clients do.
    return replace(plan, hostile=hostile, settings={**coordinators, **plan.settings})


def _with_slow_loading(plan: Plan, chance: Stream) -> Plan:
    """Coordinators and snapshots that are loaded in many turns, and faults that wait for them."""
    if chance.random() < 0.5:
        return plan
    inner = {
        "coordinator.load.stretch.bytes": chance.choice((300, 2_000)),
        "coordinator.load.pause.ms": chance.choice((5, 30, 100)),
    }
    snapshots = {
        "controller.quorum.fetch.snapshot.max.bytes": str(chance.choice((100, 1_000))),
        "metadata.log.max.record.bytes.between.snapshots": str(chance.choice((1_000, 3_000))),
    }
    return replace(plan, inner=inner, aims=True, settings={**plan.settings, **snapshots})


def _fitting(topics: tuple[TopicPlan, ...], brokers: int, chance: Stream) -> tuple[TopicPlan, ...]:
    """The same topics with as many replicas as there can be; with more brokers some have more."""

    def fit(topic: TopicPlan) -> TopicPlan:
        replication_factor, min_isr = topic.replication_factor, int(topic.configs["min.insync.replicas"])
        if brokers > replication_factor == 3 and chance.random() < 0.4:
            replication_factor, min_isr = brokers, chance.choice((2, 3))
        replication_factor = min(replication_factor, brokers)
        configs = {**topic.configs, "min.insync.replicas": str(min(min_isr, replication_factor))}
        return replace(topic, replication_factor=replication_factor, configs=configs)

    return topics if brokers == 3 else tuple(map(fit, topics))


def _draw_clients(chance: Stream) -> Plan:
    """A quarter has a group, too, and another quarter transactions."""
    plan = _draw_records(chance)
    kind = chance.choice(("records", "records", "groups", "transactions"))
    if kind == "records":
        return plan
    plan = replace(plan, settings={**plan.settings, **_draw_coordinators(chance)})
    if kind == "groups":
        group = _draw_group(chance, "readers")
        kind_of_members = chance.choice(("dynamic", "dynamic", "static", "mixed"))
        if kind_of_members == "mixed":
            group = replace(group, protocol="mixed", assignors=group.assignors or ("range",))
        plan = replace(plan, groups=(replace(group, static=kind_of_members == "static"),))
        return _with_cleaning(plan, chance)
    features = chance.choice(({}, {}, {"transaction.version": 1}))
    transactions = _draw_transactions(chance)
    plan = replace(plan, transactions=transactions, features=features, producers=1)
    plan = replace(plan, send_pause_seconds=1.2, burst_records=12)
    return _with_cleaning(plan, chance)


def _with_cleaning(plan: Plan, chance: Stream) -> Plan:
    """Some coordinators' logs roll so often that they are cleaned while they are written and loaded."""
    if chance.random() < 0.6:
        return plan
    cleaning = {
        "log.roll.ms": str(chance.choice((1_000, 5_000))),
        "log.cleaner.backoff.ms": str(chance.choice((1_000, 3_000))),
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.cleaner.delete.retention.ms": str(chance.choice((1_000, 86_400_000))),
    }
    return replace(plan, settings={**plan.settings, **cleaning})


def _draw_transactions(chance: Stream) -> TransactionPlan:
    return TransactionPlan(
        transform=_draw_group(chance, "transform"),
        writers=chance.randint(1, 2),
        pairs_partitions=chance.randint(2, 3),
        output_partitions=chance.randint(1, 2),
        timeout_ms=chance.choice((3_000, 6_000, 15_000)),
        max_block_ms=chance.choice((8_000, 30_000)),
        pause_seconds=chance.choice((0.5, 1.0, 3.0)),
    )


def _draw_coordinators(chance: Stream) -> dict[str, str]:
    """Settings of coordinators."""
    return {
        "min.insync.replicas": "2",
        "offsets.topic.num.partitions": str(chance.choice((1, 2, 3))),
        "transaction.state.log.num.partitions": str(chance.choice((1, 2, 3))),
        "group.initial.rebalance.delay.ms": str(chance.choice((0, 300, 3_000))),
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.heartbeat.interval.ms": str(SESSION_TIMEOUT_MS // 4),
        "group.consumer.assignment.interval.ms": str(chance.choice((0, 500))),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(chance.choice((500, 3_000))),
    }


def _draw_group(chance: Stream, group_id: str) -> GroupPlan:
    protocol, assignors = chance.choice(
        (
            ("classic", ("range",)),
            ("classic", ("cooperative-sticky",)),
            ("classic", ("range", "cooperative-sticky")),
            ("consumer", ()),
            ("consumer", ()),
            ("consumer", ()),
        )
    )
    return GroupPlan(
        group_id,
        protocol,
        assignors,
        members=chance.randint(2, 3),
        session_timeout_ms=SESSION_TIMEOUT_MS,
        api_timeout_ms=chance.choice((4_000, 20_000)),
        mean_life_seconds=chance.choice((8.0, 20.0, 60.0)),
        mean_stay_seconds=chance.choice((8.0, 30.0, 100.0)),
    )


def _draw_records(chance: Stream) -> Plan:
    """The part of the plan that every seed has."""
    weights = {kind: chance.choice((1, 1, 1, 3)) * FORMS.get(kind, 1) for kind in USUAL_FAULTS if chance.random() < 0.6}
    if not weights:
        weights = {"kill": 1}
    session_ms = chance.choice((1500, 3000, 6000))
    # Few bursts of many records are as many records as many bursts of few, and less work.
    pause_seconds, burst_records = chance.choice(((0.5, 5), (1.0, 10), (2.0, 20)))
    settings = {
        "broker.session.timeout.ms": str(session_ms),
        "broker.heartbeat.interval.ms": str(session_ms // chance.choice((2, 3))),
        "replica.lag.time.max.ms": str(chance.choice((1500, 3000, 8000))),
        "replica.fetch.wait.max.ms": str(chance.choice((500, 1_000, 1_200))),
        "replica.fetch.max.bytes": str(chance.choice((500, 4_000, 1_048_576))),
        "replica.socket.timeout.ms": str(chance.choice((1500, 4000))),
        "replica.high.watermark.checkpoint.interval.ms": str(chance.choice((500, 2000, 5000))),
        "controller.quorum.election.timeout.ms": str(chance.choice((500, 1000))),
        "controller.quorum.fetch.timeout.ms": str(chance.choice((1000, 2000))),
        "controller.quorum.request.timeout.ms": str(chance.choice((1000, 2000))),
        "metadata.log.max.record.bytes.between.snapshots": str(chance.choice((3_000, 10_000, 1_000_000))),
        "metadata.max.idle.interval.ms": str(chance.choice((1_000, 5_000, 20_000))),
        "metadata.log.segment.bytes": "8388608",
        "initial.broker.registration.timeout.ms": "1000000",
        "auto.create.topics.enable": "false",
        "leader.imbalance.check.interval.seconds": str(chance.choice((5, 300))),
    }
    # Where a topic is kept on one broker, or acknowledged by one, nothing may be lost: see `loss_budget`.
    durable = chance.random() < 0.6
    topics = tuple(_draw_topic(chance, f"topic-{index}", durable) for index in range(chance.randint(2, 4)))
    return Plan(
        settings=settings,
        topics=topics,
        latency_ms=chance.choice(((0.1, 0.2), (0.3, 1.0), (1.0, 5.0), (5.0, 10.0))),
        blocking_ms=chance.choice(((0.2, 1.0), (1.0, 4.0), (5.0, 20.0))),
        fault_weights=weights,
        fault_pause_seconds=chance.choice((0.7, 2.0, 4.0)),
        fault_length_seconds=chance.choice((1.5, 4.0, 8.0)),
        faults_at_once=chance.choice((1, 2, 3)),
        producers=chance.randint(1, 2),
        send_pause_seconds=pause_seconds,
        burst_records=burst_records,
        record_bytes=chance.choice((50, 200, 600)),
        delivery_timeout_ms=chance.choice((8_000, 20_000, 60_000)),
    )


def _draw_topic(chance: Stream, name: str, durable: bool) -> TopicPlan:
    shapes = ((3, 2), (3, 2), (3, 2), (2, 2)) if durable else ((3, 2), (3, 1), (2, 2), (2, 1), (1, 1))
    replication_factor, min_isr = (3, 2) if name == "topic-0" else chance.choice(shapes)
    configs = {"min.insync.replicas": str(min_isr)}
    if chance.random() < 0.2:
        configs["message.timestamp.type"] = "LogAppendTime"
    if chance.random() < 0.5:
        configs["segment.ms"] = str(chance.choice((500, 2_000, 10_000)))
    if chance.random() < 0.5:
        configs["internal.segment.bytes"] = str(chance.choice((2_500, 10_000)))
    if chance.random() < 0.2:
        configs["flush.messages"] = str(chance.choice((1, 10)))
    return TopicPlan(name, chance.choice((1, 1, 2, 3)), replication_factor, configs)
