"""Core: a value for each field of a request: of what is known of the cluster, and of the edges of the field's type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.cluster.hostile.aims import OWN_PREFIX, Aim
from barnabas.cluster.hostile.knowledge import Knowledge, Names
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import FieldSpec
from barnabas.runtime.simulated.chance import Stream

INT_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
STRANGE_IDS = (-2, 9_999, 0x7FFF_FFFF, -0x8000_0000)
"""No node has one of them."""
STRANGE_PRODUCERS = (-2, 1 << 40, 0x7FFF_FFFF_FFFF_FFFF, -0x8000_0000_0000_0000)
BROKERS = (1, 2, 3)
LONG_STRING = "l" * 32_767
"""The longest that a classic string can be."""
TOO_LONG_STRING = "m" * 40_000
"""Length that only compact strings can have."""
ODD_STRINGS = ("", ".", "..", "a/b", "\n", "\x00", "é" * 130, "n" * 250, OWN_PREFIX + "o" * 300)
"""No topic can have such a name."""
TOPIC_CONFIGS = (
    ("cleanup.policy", ("compact", "delete", "compact,delete", "")),
    ("segment.bytes", ("1048576", "-1", "x")),
    ("segment.ms", ("1", "1000", "9223372036854775807")),
    ("retention.ms", ("-1", "1", "100000")),
    ("retention.bytes", ("-1", "1", "1000")),
    ("min.insync.replicas", ("1", "3", "0", "2147483647")),
    ("max.message.bytes", ("0", "100", "2147483647")),
    ("message.timestamp.type", ("CreateTime", "LogAppendTime", "")),
    ("compression.type", ("gzip", "zstd", "lz4", "producer", "none")),
    ("no.such.config", ("", "1")),
)


@dataclass(frozen=True, slots=True)
class Place:
    """A field of a request."""

    aim: Aim
    struct: str
    """The name of the struct that it is in."""
    spec: FieldSpec
    is_flexible: bool
    """Strings may be longer than 32,767 bytes."""
    wire_type: str
    """Type of the field, or of the elements of its array."""


class Arguments:
    """Draws values."""

    def __init__(self, chance: Stream, knowledge: Knowledge) -> None:
        self._chance = chance
        self._knowledge = knowledge
        self._config: tuple[str, Sequence[str]] = TOPIC_CONFIGS[0]
        self._producer = (-1, -1)

    def value(self, place: Place) -> Any:
        """A value that can be encoded there. Null is its caller's."""
        named = _BY_NAME.get(place.spec.name)
        if named is not None:
            value = named(self, place)
            if value is not None:
                return value
        return self._of_type(place)

    def producer(self) -> tuple[int, int]:
        """An own one, or nobody's."""
        own = self._knowledge.own_producers.values
        if own and self._chance.random() < 0.7:
            producer_id, epoch = self._one(own)
            return producer_id, self._one((epoch, epoch, epoch, 0, epoch + 1 if epoch < 0x7FFF else 0, -1))
        return self._one((-1, *STRANGE_PRODUCERS)), self._one((-1, 0, 1, 0x7FFF, -0x8000))

    # ---- by type

    def _of_type(self, place: Place) -> Any:
        match place.wire_type:
            case "bool":
                return self._chance.random() < 0.5
            case "string":
                return self._text(place)
            case "bytes" | "records":
                return self._chance.randbytes(self._one((0, 1, 16, 300)))
            case "uuid":
                return self._one((ZERO_UUID, self._chance.randbytes(16)))
            case "uint16":
                return self._one((0, 1, 9092, 0xFFFF))
            case "uint32":
                return self._one((0, 1, 0xFFFF_FFFF))
            case "float64":
                return self._one((0.0, -1.0, 1e308, float("inf"), float("nan")))
        return self._int(place)

    def _int(self, place: Place) -> int:
        most = (1 << (INT_BITS[place.wire_type] - 1)) - 1
        return int(self._one((0, 0, 1, 1, 2, 3, -1, -2, 10, 100, most, -most - 1)))

    def _text(self, place: Place) -> str:
        if self._chance.random() < 0.02:
            return self._long(place)
        return str(self._one((*ODD_STRINGS, OWN_PREFIX + "z")))

    def _long(self, place: Place) -> str:
        return str(self._one((LONG_STRING, TOO_LONG_STRING))) if place.is_flexible else LONG_STRING

    def _one(self, values: Sequence[Any]) -> Any:
        return self._chance.choice(values)

    # ---- by meaning

    def _name(self, place: Place, names: Names, *, everybody: bool) -> str:
        if self._chance.random() < 0.12:
            return self._text(place)
        return str(self._one((names.all if everybody else names.own).values))

    def topic(self, place: Place) -> str:
        return self._name(place, self._knowledge.topics, everybody=place.aim is not Aim.OWN)

    def group(self, place: Place) -> str:
        return self._name(place, self._knowledge.groups, everybody=place.aim is not Aim.OWN)

    def transactional_id(self, place: Place) -> str:
        return self._name(place, self._knowledge.transactional_ids, everybody=place.aim is not Aim.OWN)

    def coordinator_key(self, place: Place) -> str:
        return self.group(place) if self._chance.random() < 0.5 else self.transactional_id(place)

    def name(self, place: Place) -> str | None:
        """A field with this bare name is a topic's, but in a few structs."""
        if "Config" in place.struct:
            self._config = self._one(TOPIC_CONFIGS)
            return self._config[0]
        if any(word in place.struct for word in ("Protocol", "Listener", "Feature", "Assignor", "User", "Scram")):
            return None
        return self.topic(place)

    def config_value(self, place: Place) -> str | None:
        return str(self._one(self._config[1])) if "Config" in place.struct and place.wire_type == "string" else None

    def topic_id(self, place: Place) -> bytes:
        pool = self._knowledge.own_topic_ids if place.aim is Aim.OWN else self._knowledge.topic_ids
        return bytes(self._one((*pool.values, ZERO_UUID, self._chance.randbytes(16))))

    def member(self, place: Place) -> str:
        if place.aim is Aim.STRANGER:
            return OWN_PREFIX + "nobody"
        if self._chance.random() < 0.9:
            return str(self._one((*self._knowledge.own_members.values, "", "")))
        return self._text(place)

    def instance(self, _place: Place) -> str:
        return OWN_PREFIX + str(self._one(("i0", "i1")))

    def producer_id(self, _place: Place) -> int:
        self._producer = self.producer()
        return self._producer[0]

    def producer_epoch(self, _place: Place) -> int:
        return self._producer[1]

    def strange_producer_id(self, place: Place) -> int:
        if place.aim is Aim.STRANGER:
            self._producer = (self._one(STRANGE_PRODUCERS), 0)
            return self._producer[0]
        return self.producer_id(place)

    def strange_id(self, _place: Place) -> int:
        return int(self._one(STRANGE_IDS))

    def replica_id(self, _place: Place) -> int:
        return int(self._one((-1, -1, -1, -2, 9_999)))

    def broker(self, place: Place) -> int:
        return int(self._one((*BROKERS, *BROKERS, *STRANGE_IDS))) if place.aim is Aim.OWN else self.strange_id(place)

    def strange_cluster(self, _place: Place) -> str:
        return OWN_PREFIX + "cluster"

    def partition(self, _place: Place) -> int:
        return int(self._one((0, 0, 0, 0, 0, 0, 1, 1, 2, 3, -1, 0x7FFF_FFFF)))

    def epoch(self, place: Place) -> int:
        if place.wire_type == "int16":
            return self._int(place)
        return int(self._one((-1, *self._knowledge.epochs.values, 0x7FFF_FFFF)))

    def offset(self, place: Place) -> int:
        return int(self._one((*self._knowledge.offsets.values, -1, -2, -3, 0x7FFF_FFFF_FFFF_FFFF)))

    def session_id(self, _place: Place) -> int:
        return int(self._one((*self._knowledge.sessions.values, 1, -1)))

    def client_instance(self, _place: Place) -> bytes:
        return bytes(self._one((*self._knowledge.client_instances.values, ZERO_UUID, self._chance.randbytes(16))))

    def few(self, _place: Place) -> int:
        """Partitions, replicas: as many as are made must fit into a simulation."""
        return int(self._one((-2, -1, 0, 1, 1, 2, 3)))

    def partitions(self, _place: Place) -> int:
        return int(self._one((-2, -1, 0, 1, 1, 2, 3, 0x7FFF_FFFF)))

    def wait_ms(self, _place: Place) -> int:
        return int(self._one((0, 1, 100, 500, 500, -1)))

    def timeout_ms(self, _place: Place) -> int:
        return int(self._one((6_000, 6_000, 6_000, 30_000, 30_000, 0, 1_000, -1, 0x7FFF_FFFF)))

    def resource_type(self, place: Place) -> int:
        """Neither brokers nor their loggers: what is set there is everybody's."""
        return int(self._one((2, 2, 2, 16, 32, 0, 1, 127, -1) if place.aim is Aim.OWN else (2, 4, 8, 16, 32, 0, -1)))

    def key(self, place: Place) -> str | None:
        return self.coordinator_key(place) if place.struct == "FindCoordinatorRequest" else None

    def election(self, _place: Place) -> int:
        return int(self._one((0, 1, 2, -1)))

    def acks(self, _place: Place) -> int:
        return int(self._one((-1, -1, 1, 0, 2)))

    def protocol(self, _place: Place) -> str:
        return str(self._one(("consumer", "consumer", "", "connect")))


Draw = Callable[[Arguments, Place], Any]
"""None: by the field's type."""


def _named(draw: Draw, *names: str) -> dict[str, Draw]:
    return dict.fromkeys(names, draw)


_BY_NAME: Mapping[str, Draw] = {
    **_named(Arguments.topic, "topic", "topic_name", "topic_names", "subscribed_topic_names", "resource_name"),
    **_named(Arguments.topic, "source_topics", "repartition_sink_topics", "resource_name_filter"),
    **_named(Arguments.group, "group_id", "group_ids", "groups", "groups_names"),
    **_named(Arguments.transactional_id, "transactional_id", "transactional_ids", "v3_and_below_transactional_id"),
    **_named(Arguments.coordinator_key, "coordinator_keys"),
    **_named(Arguments.name, "name"),
    **_named(Arguments.config_value, "value"),
    **_named(Arguments.key, "key"),
    **_named(Arguments.topic_id, "topic_id"),
    **_named(Arguments.member, "member_id"),
    **_named(Arguments.instance, "group_instance_id", "instance_id"),
    **_named(Arguments.strange_producer_id, "producer_id", "v3_and_below_producer_id"),
    **_named(Arguments.producer_epoch, "producer_epoch", "v3_and_below_producer_epoch"),
    **_named(Arguments.strange_id, "broker_id", "voter_id", "candidate_id", "leader_id", "controller_id"),
    **_named(Arguments.strange_id, "preferred_successors", "new_isr"),
    **_named(Arguments.replica_id, "replica_id"),
    **_named(Arguments.broker, "broker_ids", "replicas"),
    **_named(Arguments.strange_cluster, "cluster_id"),
    **_named(Arguments.partition, "partition", "partition_index", "partition_indexes", "partitions", "index"),
    **_named(Arguments.epoch, "current_leader_epoch", "leader_epoch", "last_fetched_epoch", "member_epoch", "epoch"),
    **_named(Arguments.epoch, "generation_id", "generation_id_or_member_epoch", "session_epoch", "last_offset_epoch"),
    **_named(Arguments.offset, "fetch_offset", "offset", "committed_offset", "first_offset", "last_offset"),
    **_named(Arguments.offset, "start_offset", "end_offset", "high_watermark"),
    **_named(Arguments.session_id, "session_id"),
    **_named(Arguments.client_instance, "client_instance_id"),
    **_named(Arguments.few, "replication_factor"),
    **_named(Arguments.partitions, "num_partitions", "count"),
    **_named(Arguments.wait_ms, "max_wait_ms"),
    **_named(
        Arguments.timeout_ms, "timeout_ms", "session_timeout_ms", "rebalance_timeout_ms", "transaction_timeout_ms"
    ),
    **_named(Arguments.resource_type, "resource_type"),
    **_named(Arguments.election, "election_type"),
    **_named(Arguments.acks, "acks"),
    **_named(Arguments.protocol, "protocol_type"),
}
