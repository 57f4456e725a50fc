"""The rows of the authorization matrix: requests, and the access control lists with which they are sent.

The same rows go to Apache Kafka (`tests/compat/authorization_matrix.py`, which keeps its answers) and to our broker. A
row names one request. Its cases are access control lists of one principal; one list of the state below is written
`topic t READ`, and several are joined by ` + `.

State: topics t and u with one partition each, groups g and h with a committed offset of each topic, group m with one
member that subscribes to both, share group s likewise, empty share group e with a start offset of each topic, streams
group k with one member that reads both, and transactional id x (`state.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from barnabas.protocol.acls import SUPPORTED_OPERATIONS, AclOperation, AclResourceType
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import EncodeError
from barnabas.protocol.messages.share_fetch import ShareFetchableTopicResponse
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from barnabas.protocol.schema import Message, Struct, decode, encode

Ids = Mapping[str, bytes]
"""Topic ids by name."""

Body = dict[str, Any]

TYPES = {
    "topic": AclResourceType.TOPIC,
    "group": AclResourceType.GROUP,
    "cluster": AclResourceType.CLUSTER,
    "txn": AclResourceType.TRANSACTIONAL_ID,
}

NOBODY = 999_999
"""A producer id that nobody has."""


@dataclass(frozen=True)
class Right:
    """One access control list: it allows its principal one operation on one resource."""

    resource_type: AclResourceType
    name: str
    operation: AclOperation


@dataclass(frozen=True)
class Row:
    name: str
    api: ApiKey
    version: int
    body: Callable[[Ids], Body]
    cases: tuple[str, ...]
    """Texts of access control lists."""
    before: Row | None = None
    """A request that goes first on the same connection; its answer is not compared."""

    def request(self, ids: Ids) -> Message:
        message: Message = API_SPECS[self.api].request_type()()
        _fill(message, self.body(ids))
        return message


def rights_in(case: str) -> list[Right]:
    return [_right(text) for text in case.split(" + ")] if case else []


def _right(text: str) -> Right:
    kind, *name, operation = text.split(" ")
    return Right(TYPES[kind], name[0] if name else "kafka-cluster", AclOperation[operation])


def _fill(struct: Struct, values: Mapping[str, Any]) -> None:
    specs = {spec.name: spec for spec in type(struct).FIELDS}
    for name, value in values.items():
        kind = specs[name].type
        inner = kind.element.struct if kind.element is not None else kind.struct
        if inner is None or value is None:
            setattr(struct, name, value)
        elif isinstance(value, list):
            setattr(struct, name, [_made(inner, each) for each in value])
        else:
            setattr(struct, name, _made(inner, value))


def _made(kind: type[Struct], values: Mapping[str, Any]) -> Struct:
    made = kind()
    _fill(made, values)
    return made


def each(*resources: str) -> list[str]:
    """Every single operation on each of the resources."""
    return [f"{it} {one.name}" for it in resources for one in SUPPORTED_OPERATIONS[TYPES[it.split(" ")[0]]]]


def row(name: str, version: int, body: Body | Callable[[Ids], Body], *cases: str | Sequence[str]) -> Row:
    """A row for the API with this name, which may be followed by a comma and more words. The case without any access
    control list is always there."""
    api = next(key for key in API_SPECS if API_SPECS[key].name == name.split(",", maxsplit=1)[0])
    every = [""]
    for case in cases:
        every += [case] if isinstance(case, str) else case
    made = body if callable(body) else lambda _: body
    return Row(f"{name}, v{version}", api, version, made, tuple(dict.fromkeys(every)))


def batch(**options: Any) -> bytes:
    return build_batch([Record(0, 1_750_000_000_000, None, b"value", ())], **options)


# -- bodies


def _produce(by_id: bool, **more: Any) -> Callable[[Ids], Body]:
    records = batch(producer_id=NOBODY, producer_epoch=0, base_sequence=0, transactional=True) if more else batch()

    def body(ids: Ids) -> Body:
        data = [{"index": 0, "records": records}]
        topics = [{"topic_id": ids[it]} if by_id else {"name": it} for it in "tu"]
        asked = [{**it, "partition_data": data} for it in topics]
        return {"transactional_id": None, "acks": -1, "timeout_ms": 5000, "topic_data": asked, **more}

    return body


def _fetch(by_id: bool, **more: Any) -> Callable[[Ids], Body]:
    def body(ids: Ids) -> Body:
        asked = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
        names = "tuw" if by_id else "tu"
        topics = [{"topic_id": ids[it]} if by_id else {"topic": it} for it in names]
        limits = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 100_000, "session_epoch": -1}
        return {**limits, "topics": [{**it, "partitions": asked} for it in topics], **more}

    return body


def _metadata(*names: str, **more: Any) -> Body:
    asked = {"include_topic_authorized_operations": True, "allow_auto_topic_creation": False}
    return {"topics": [{"name": name} for name in names], **asked, **more}


def _metadata_by_id(ids: Ids) -> Body:
    return _metadata() | {"topics": [{"name": None, "topic_id": ids[it]} for it in "tuw"]}


def _offsets(by_id: bool) -> Callable[[Ids], Body]:
    partitions = [{"partition_index": 0, "committed_offset": 0}]

    def body(ids: Ids) -> Body:
        topics = [{"topic_id": ids[it]} for it in "tuw"] if by_id else [{"name": it} for it in ("t", "u", "none")]
        return {"group_id": "g", "topics": [{**it, "partitions": partitions} for it in topics]}

    return body


def _fetched_offsets(by_id: bool) -> Callable[[Ids], Body]:
    def body(ids: Ids) -> Body:
        topics = [{"topic_id": ids[it]} for it in "tuw"] if by_id else [{"name": it} for it in "tu"]
        return {"groups": [{"group_id": "g", "topics": [{**it, "partition_indexes": [0]} for it in topics]}]}

    return body


def _of_share_sessions(epoch: int, acknowledged: Sequence[Body], **more: Any) -> Callable[[Ids], Body]:
    partitions = [{"partition_index": 0, "acknowledgement_batches": acknowledged}]

    def body(ids: Ids) -> Body:
        # Kafka fails as a whole if it does not know a topic.
        topics = [{"topic_id": ids[it], "partitions": partitions} for it in "tu"]
        return {"group_id": "s", "member_id": "someone", "share_session_epoch": epoch, "topics": topics, **more}

    return body


def _of_share_state(**partition: Any) -> Callable[[Ids], Body]:
    def body(ids: Ids) -> Body:
        return {"group_id": "s", "topics": [{"topic_id": ids["w"], "partitions": [{"partition": 0, **partition}]}]}

    return body


def _share_partition(ids: Ids) -> Body:
    return {"key_type": 2, "coordinator_keys": [f"s:{uuid_to_string(ids['w'])}:0"]}


_NAMED = [{"name": "t", "partitions": [0]}, {"name": "u", "partitions": [0]}]
_PRODUCER = {"transactional_id": "x", "producer_id": NOBODY, "producer_epoch": 0}
_V3_PRODUCER = {
    "v3_and_below_transactional_id": "x",
    "v3_and_below_producer_id": NOBODY,
    "v3_and_below_producer_epoch": 0,
}
_TXN_OFFSETS = [{"name": name, "partitions": [{"partition_index": 0, "committed_offset": 0}]} for name in "tu"]
_MARKER = {
    "producer_id": NOBODY,
    "producer_epoch": 0,
    "transaction_result": False,
    "coordinator_epoch": 0,
    "topics": [{"name": "none", "partition_indexes": [0]}],
}
_HEARTBEAT = {
    "group_id": "new",
    "member_id": "someone",
    "member_epoch": 7,
    "rebalance_timeout_ms": 1000,
    "topic_partitions": [],
}
_SHARE_HEARTBEAT = {"group_id": "absent", "member_id": "someone", "member_epoch": 7}
_STREAMS_HEARTBEAT = {
    "group_id": "absent",
    "member_id": "someone",
    "member_epoch": 0,
    "rebalance_timeout_ms": 1000,
    "process_id": "process",
    "active_tasks": [],
    "standby_tasks": [],
    "warmup_tasks": [],
}
_TOPOLOGY = {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": ["t", "u"]}]}
_SHARE_FETCH = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 100_000, "max_records": 1, "batch_size": 1}
_ACCEPTED = [{"first_offset": 1_000_000, "last_offset": 1_000_000, "acknowledge_types": [1]}]
"""Nobody has acquired it."""
_SHARE_OFFSETS = [{"topic_name": name, "partitions": [0]} for name in ("t", "u", "none")]
_NEW_SHARE_OFFSETS = [{**it, "partitions": [{"partition_index": 0, "start_offset": 0}]} for it in _SHARE_OFFSETS]
_CONFIGS = [
    {"resource_type": 2, "resource_name": "t"},
    {"resource_type": 2, "resource_name": "none"},
    {"resource_type": 4, "resource_name": "1"},
    {"resource_type": 8, "resource_name": "1"},
    {"resource_type": 16, "resource_name": "s"},
    {"resource_type": 32, "resource_name": "g"},
]
_ALTERED = [
    {"resource_type": 2, "resource_name": "t", "configs": [{"name": "retention.ms", "value": "100000"}]},
    {"resource_type": 4, "resource_name": "1", "configs": [{"name": "log.cleaner.threads", "value": "1"}]},
    {"resource_type": 32, "resource_name": "g", "configs": [{"name": "consumer.session.timeout.ms", "value": "50000"}]},
]
_MORE = {"count": 2, "assignments": None}
_NEW_TOPIC = {"name": "none", "num_partitions": 1, "replication_factor": 1}
_ANY_ACL = {
    "resource_type_filter": 2,
    "resource_name_filter": "nothing",
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_NEW_ACL = {
    "resource_type": 2,
    "resource_name": "nothing",
    "resource_pattern_type": 3,
    "principal": "User:nobody",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def _in_time(body: Body) -> Body:
    return {**body, "timeout_ms": 30_000}


BOTH_READ = "topic t READ + topic u READ"
BOTH_DESCRIBE = "topic t DESCRIBE + topic u DESCRIBE"

_OPEN_SHARE_SESSION = row(
    "ShareFetch, nothing",
    1,
    {"group_id": "s", "member_id": "someone", "share_session_epoch": 0, **_SHARE_FETCH, "topics": []},
)

BROKER_ROWS = [
    row("Produce", 9, _produce(False), each("topic t", "cluster"), "topic t WRITE + topic u WRITE"),
    row("Produce, by id", 13, _produce(True), each("topic t"), "topic t WRITE + topic u WRITE"),
    row(
        "Produce, transactional",
        9,
        _produce(False, transactional_id="x"),
        each("topic t", "txn x"),
        "txn x WRITE + topic t WRITE",
    ),
    row("Fetch", 12, _fetch(False), each("topic t", "cluster"), BOTH_READ),
    row("Fetch, by id", 17, _fetch(True), each("topic t"), BOTH_READ),
    row("Fetch, as a follower", 12, _fetch(False, replica_id=7), "topic t READ", each("cluster")),
    row(
        "ListOffsets",
        7,
        {
            "replica_id": -1,
            "topics": [{"name": it, "partitions": [{"partition_index": 0, "timestamp": -1}]} for it in "ut"],
        },
        each("topic t", "cluster"),
        BOTH_DESCRIBE,
    ),
    row(
        "OffsetForLeaderEpoch",
        4,
        {
            "replica_id": -1,
            "topics": [{"topic": it, "partitions": [{"partition": 0, "leader_epoch": 0}]} for it in "ut"],
        },
        each("topic t", "cluster"),
        BOTH_DESCRIBE,
    ),
    row("Metadata", 9, _metadata("t", "u", "none"), each("topic t", "cluster"), BOTH_DESCRIBE, "topic none DESCRIBE"),
    row(
        "Metadata, with the cluster's operations",
        9,
        _metadata("t", include_cluster_authorized_operations=True),
        each("cluster"),
        "cluster DESCRIBE + cluster ALTER + cluster CREATE",
    ),
    row("Metadata, every topic", 12, _metadata() | {"topics": None}, each("topic t", "cluster"), BOTH_DESCRIBE),
    row("Metadata, by id", 12, _metadata_by_id, each("topic t"), BOTH_DESCRIBE),
    row("Metadata, old", 1, {"topics": [{"name": "t"}, {"name": "u"}]}, each("topic t")),
    row(
        "DescribeTopicPartitions",
        0,
        {"topics": [{"name": "t"}, {"name": "u"}, {"name": "none"}]},
        each("topic t", "cluster"),
        BOTH_DESCRIBE,
        "topic none DESCRIBE",
    ),
    row("DescribeTopicPartitions, every topic", 0, {"topics": []}, each("topic t"), BOTH_DESCRIBE),
    row(
        "DescribeCluster",
        1,
        {"include_cluster_authorized_operations": True},
        each("cluster"),
        "cluster DESCRIBE + cluster ALTER_CONFIGS",
    ),
    row("DescribeCluster, without operations", 1, {}, "cluster DESCRIBE"),
    row("FindCoordinator, of groups", 4, {"key_type": 0, "coordinator_keys": ["g", "h"]}, each("group g", "cluster")),
    row("FindCoordinator, of a group", 3, {"key_type": 0, "key": "g"}, each("group g")),
    row("FindCoordinator, of transactions", 4, {"key_type": 1, "coordinator_keys": ["x", "y"]}, each("txn x")),
    row("FindCoordinator, of a transaction", 3, {"key_type": 1, "key": "x"}, each("txn x")),
    row(
        "JoinGroup",
        9,
        {
            "group_id": "new",
            "session_timeout_ms": 10_000,
            "member_id": "someone",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        each("group new", "cluster"),
    ),
    row(
        "SyncGroup",
        5,
        {
            "group_id": "g",
            "generation_id": 3,
            "member_id": "someone",
            "protocol_type": "consumer",
            "protocol_name": "range",
        },
        each("group g"),
    ),
    row("Heartbeat", 4, {"group_id": "g", "generation_id": 3, "member_id": "someone"}, each("group g")),
    row("LeaveGroup", 5, {"group_id": "g", "members": [{"member_id": "someone"}]}, each("group g")),
    row("LeaveGroup, of one", 2, {"group_id": "g", "member_id": "someone"}, each("group g")),
    row(
        "ConsumerGroupHeartbeat",
        1,
        _HEARTBEAT | {"subscribed_topic_names": ["t", "u"]},
        each("group new", "topic t"),
        f"group new READ + {BOTH_DESCRIBE}",
        "group new READ + topic t DESCRIBE",
    ),
    row("ConsumerGroupHeartbeat, without topics", 1, _HEARTBEAT, each("group new")),
    row(
        "ConsumerGroupDescribe",
        1,
        {"group_ids": ["m", "none"], "include_authorized_operations": True},
        each("group m", "cluster", "topic t"),
        f"group m DESCRIBE + {BOTH_DESCRIBE}",
        "group m DESCRIBE + topic t DESCRIBE",
        "group none DESCRIBE",
    ),
    row(
        "DescribeGroups",
        5,
        {"groups": ["g", "none"], "include_authorized_operations": True},
        each("group g", "cluster"),
        "group none READ",
    ),
    row("DescribeGroups, without operations", 5, {"groups": ["g"]}, "group g DESCRIBE"),
    row("ListGroups", 5, {}, each("group g", "cluster"), "group g READ + group m DELETE"),
    row("DeleteGroups", 2, {"groups_names": ["none", "other"]}, each("group none", "cluster")),
    row(
        "OffsetCommit",
        9,
        _offsets(False),
        each("group g", "topic t"),
        "group g READ + topic t READ",
        "group g READ + topic none READ",
        f"group g READ + {BOTH_READ}",
    ),
    row("OffsetCommit, by id", 10, _offsets(True), each("group g"), "group g READ + topic t READ"),
    row(
        "OffsetFetch",
        9,
        _fetched_offsets(False),
        each("group g", "topic t"),
        "group g DESCRIBE + topic t DESCRIBE",
        f"group g READ + {BOTH_READ}",
    ),
    row("OffsetFetch, by id", 10, _fetched_offsets(True), each("group g"), "group g DESCRIBE + topic t DESCRIBE"),
    row(
        "OffsetFetch, everything",
        9,
        {"groups": [{"group_id": "g", "topics": None}, {"group_id": "m", "topics": None}]},
        each("group g"),
        "group g DESCRIBE + topic t DESCRIBE",
        f"group g DESCRIBE + {BOTH_DESCRIBE}",
    ),
    row(
        "OffsetFetch, of one group",
        7,
        {"group_id": "g", "topics": [{"name": it, "partition_indexes": [0]} for it in "tu"]},
        each("group g"),
        "group g DESCRIBE + topic t DESCRIBE",
    ),
    row(
        "OffsetFetch, old",
        1,
        {"group_id": "g", "topics": [{"name": it, "partition_indexes": [0]} for it in "tu"]},
        each("group g"),
        "group g DESCRIBE + topic t DESCRIBE",
    ),
    row(
        "OffsetDelete",
        0,
        {"group_id": "h", "topics": [{"name": it, "partitions": [{"partition_index": 0}]} for it in "tu"]},
        each("group h", "topic t"),
        "group h DELETE + topic t READ",
    ),
    row(
        "InitProducerId",
        4,
        {"transactional_id": None, "transaction_timeout_ms": 1000},
        each("cluster", "topic t", "txn x"),
    ),
    row(
        "InitProducerId, of a transaction",
        4,
        {"transactional_id": "x", "transaction_timeout_ms": 1000},
        each("txn x", "cluster", "topic t"),
    ),
    row(
        "AddPartitionsToTxn",
        3,
        _V3_PRODUCER | {"v3_and_below_topics": _NAMED},
        each("txn x", "topic t", "cluster"),
        "txn x WRITE + topic t WRITE",
        "txn x WRITE + topic t WRITE + topic u WRITE",
    ),
    row(
        "AddPartitionsToTxn, to an internal topic",
        3,
        _V3_PRODUCER | {"v3_and_below_topics": [{"name": "__consumer_offsets", "partitions": [0]}]},
        "txn x WRITE",
        "txn x WRITE + topic __consumer_offsets WRITE",
    ),
    row(
        "AddPartitionsToTxn, of a broker",
        4,
        {"transactions": [{**_PRODUCER, "verify_only": True, "topics": _NAMED}]},
        each("cluster"),
        "txn x WRITE + topic t WRITE",
    ),
    row(
        "AddOffsetsToTxn",
        3,
        _PRODUCER | {"group_id": "g"},
        each("txn x", "group g"),
        "txn x WRITE + group g READ",
        "txn x WRITE + group g DESCRIBE",
    ),
    row("EndTxn", 3, _PRODUCER | {"committed": True}, each("txn x", "cluster")),
    row(
        "TxnOffsetCommit",
        3,
        _PRODUCER | {"group_id": "g", "topics": _TXN_OFFSETS},
        each("txn x", "group g", "topic t"),
        "txn x WRITE + group g READ",
        "txn x WRITE + group g READ + topic t READ",
        f"txn x WRITE + group g READ + {BOTH_READ}",
    ),
    row("WriteTxnMarkers", 1, {"markers": [_MARKER]}, each("cluster")),
    row(
        "DescribeProducers",
        0,
        {"topics": [{"name": it, "partition_indexes": [0]} for it in ("t", "u", "none", "n/n")]},
        each("topic t", "cluster"),
        "topic none READ",
        BOTH_READ,
    ),
    row(
        "DescribeTransactions",
        0,
        {"transactional_ids": ["x", "y"]},
        each("txn x", "cluster"),
        "txn y DESCRIBE",
        "txn x DESCRIBE + topic t DESCRIBE",
    ),
    row("ListTransactions", 1, {}, each("txn x", "cluster"), "txn y DESCRIBE"),
    row(
        "DeleteRecords",
        2,
        {
            "topics": [{"name": it, "partitions": [{"partition_index": 0, "offset": 0}]} for it in "tu"],
            "timeout_ms": 1000,
        },
        each("topic t", "cluster"),
        "topic t DELETE + topic u DELETE",
    ),
    row(
        "DescribeConfigs",
        4,
        {"resources": [{**it, "configuration_keys": []} for it in _CONFIGS]},
        each("topic t", "cluster", "group g"),
        "topic none DESCRIBE_CONFIGS",
        "topic t DESCRIBE_CONFIGS + cluster DESCRIBE_CONFIGS + group g ALTER_CONFIGS",
    ),
    row(
        "IncrementalAlterConfigs, of a logger",
        1,
        {
            "validate_only": True,
            "resources": [
                {
                    "resource_type": 8,
                    "resource_name": "1",
                    "configs": [{"name": "root", "config_operation": 0, "value": "INFO"}],
                }
            ],
        },
        each("cluster"),
    ),
    row("ListConfigResources", 1, {"resource_types": [2]}, each("cluster", "topic t")),
    row("DescribeLogDirs", 4, {"topics": [{"topic": "t", "partitions": [0]}]}, each("cluster", "topic t")),
    row(
        "AlterReplicaLogDirs",
        2,
        {"dirs": [{"path": "/nowhere", "topics": [{"name": "t", "partitions": [0]}]}]},
        each("cluster", "topic t"),
    ),
]
"""Decided by the broker."""

SHARE_ROWS = [
    row("FindCoordinator, of a share partition", 6, _share_partition, each("cluster", "group s")),
    row(
        "ShareGroupHeartbeat",
        1,
        _SHARE_HEARTBEAT | {"subscribed_topic_names": ["t", "u"]},
        each("group absent", "topic t"),
        f"group absent READ + {BOTH_DESCRIBE}",
        "group absent READ + topic t DESCRIBE",
    ),
    row("ShareGroupHeartbeat, without topics", 1, _SHARE_HEARTBEAT, each("group absent")),
    row(
        "ShareGroupDescribe",
        1,
        {"group_ids": ["s", "none"], "include_authorized_operations": True},
        each("group s", "cluster", "topic t"),
        f"group s DESCRIBE + {BOTH_DESCRIBE}",
        "group s DESCRIBE + topic t DESCRIBE",
        "group none DESCRIBE",
    ),
    row(
        "ShareFetch",
        1,
        _of_share_sessions(0, [], **_SHARE_FETCH),
        each("group s", "topic t", "cluster"),
        "group s READ + topic t READ",
        f"group s READ + {BOTH_READ}",
    ),
    replace(
        row(
            "ShareFetch, with acknowledgements",
            1,
            _of_share_sessions(1, _ACCEPTED, **_SHARE_FETCH),
            each("group s"),
            "group s READ + topic t READ",
            f"group s READ + {BOTH_READ}",
        ),
        before=_OPEN_SHARE_SESSION,
    ),
    replace(
        row(
            "ShareAcknowledge",
            1,
            _of_share_sessions(1, _ACCEPTED),
            each("group s", "topic t", "cluster"),
            "group s READ + topic t READ",
            f"group s READ + {BOTH_READ}",
        ),
        before=_OPEN_SHARE_SESSION,
    ),
    *(
        row(name, 0, _of_share_state(), each("cluster", "group s"), "topic t READ")
        for name in (
            "InitializeShareGroupState",
            "ReadShareGroupState",
            "WriteShareGroupState",
            "DeleteShareGroupState",
            "ReadShareGroupStateSummary",
        )
    ),
    row(
        "DescribeShareGroupOffsets",
        0,
        {"groups": [{"group_id": it, "topics": _SHARE_OFFSETS} for it in ("s", "absent")]},
        each("group s", "topic t", "cluster"),
        "group s DESCRIBE + topic t DESCRIBE",
        "group s DESCRIBE + topic none DESCRIBE",
        "group absent DESCRIBE",
        f"group s READ + {BOTH_READ}",
    ),
    row(
        "DescribeShareGroupOffsets, everything",
        0,
        {"groups": [{"group_id": it, "topics": None} for it in ("s", "e")]},
        each("group s"),
        "group s DESCRIBE + topic t DESCRIBE",
        f"group s DESCRIBE + group e DESCRIBE + {BOTH_DESCRIBE}",
    ),
    row(
        "AlterShareGroupOffsets",
        0,
        {"group_id": "e", "topics": _NEW_SHARE_OFFSETS},
        each("group e", "topic t", "cluster"),
        "group e READ + topic t READ",
        "group e READ + topic none READ",
        f"group e READ + {BOTH_READ}",
    ),
    row("AlterShareGroupOffsets, of members", 0, {"group_id": "s", "topics": _NEW_SHARE_OFFSETS}, each("group s")),
    row(
        "DeleteShareGroupOffsets",
        0,
        {"group_id": "e", "topics": [{"topic_name": name} for name in ("t", "u", "none")]},
        each("group e", "topic t", "cluster"),
        "group e DELETE + topic none READ",
        "group e DELETE + topic t READ",
    ),
    row(
        "DeleteShareGroupOffsets, of members",
        0,
        {"group_id": "s", "topics": [{"topic_name": "t"}]},
        each("group s"),
        "group s DELETE + topic t READ",
    ),
]
"""Rights in share groups (KIP-932)."""

STREAMS_ROWS = [
    row(
        "StreamsGroupHeartbeat",
        0,
        _STREAMS_HEARTBEAT | {"group_id": "joined", "topology": _TOPOLOGY},
        each("group joined", "topic t"),
        f"group joined READ + {BOTH_DESCRIBE}",
        "group joined READ + topic t DESCRIBE",
    ),
    row(
        "StreamsGroupHeartbeat, without a topology",
        0,
        _STREAMS_HEARTBEAT | {"member_epoch": 7},
        each("group absent"),
    ),
    row(
        "StreamsGroupDescribe",
        0,
        {"group_ids": ["k", "none"], "include_authorized_operations": True},
        each("group k", "cluster", "topic t"),
        f"group k DESCRIBE + {BOTH_DESCRIBE}",
        "group k DESCRIBE + topic t DESCRIBE",
        "group none DESCRIBE",
    ),
]
"""Rights in streams groups (KIP-1071)."""

CONTROLLER_ROWS = [
    row(
        "CreateTopics",
        7,
        {"validate_only": True, "topics": [_NEW_TOPIC, {**_NEW_TOPIC, "name": "other"}]},
        each("topic none", "cluster"),
        "topic none CREATE + topic none DESCRIBE_CONFIGS",
        "cluster CREATE + topic other DESCRIBE_CONFIGS",
    ),
    row("DeleteTopics", 6, _in_time({"topics": [{"name": "none"}, {"name": "other"}]}), each("topic none", "cluster")),
    row(
        "DeleteTopics, by id",
        6,
        lambda ids: _in_time({"topics": [{"name": None, "topic_id": ids[it]} for it in "tw"]}),
        "topic t DESCRIBE",
        "topic t READ",
    ),
    row("DeleteTopics, that exist", 6, _in_time({"topics": [{"name": "t"}]}), "topic t DESCRIBE", "topic t READ"),
    row(
        "CreatePartitions",
        3,
        _in_time({"validate_only": True, "topics": [{**_MORE, "name": it} for it in ("t", "u", "none")]}),
        each("topic t", "cluster"),
        "topic none ALTER",
    ),
    row(
        "IncrementalAlterConfigs",
        1,
        {"validate_only": True, "resources": _ALTERED},
        each("topic t", "cluster", "group g"),
        "topic t ALTER_CONFIGS + cluster ALTER_CONFIGS + group g ALTER_CONFIGS",
    ),
    row("AlterConfigs", 2, {"validate_only": True, "resources": _ALTERED[:1]}, each("topic t", "cluster")),
    row(
        "ElectLeaders",
        2,
        {"election_type": 0, "topic_partitions": [{"topic": "t", "partitions": [0]}]},
        each("cluster", "topic t"),
    ),
    row(
        "AlterPartitionReassignments",
        0,
        {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "replicas": None}]}]},
        each("cluster", "topic t"),
    ),
    row("ListPartitionReassignments", 0, {"topics": None}, each("cluster", "topic t")),
    row(
        "DescribeQuorum",
        2,
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
        each("cluster"),
    ),
    row("UpdateFeatures", 1, {"validate_only": True, "feature_updates": []}, each("cluster")),
    row("UnregisterBroker", 0, {"broker_id": 77}, each("cluster")),
    row("CreateAcls", 3, {"creations": [_NEW_ACL]}, each("cluster", "topic t")),
    row("DeleteAcls", 3, {"filters": [{**_ANY_ACL, "resource_name_filter": "none of these"}]}, each("cluster")),
    row("DescribeAcls", 3, {**_ANY_ACL, "resource_name_filter": "none of these"}, each("cluster")),
    row("DescribeClientQuotas", 1, {"components": [], "strict": False}, each("cluster")),
    row(
        "AlterClientQuotas",
        1,
        {
            "validate_only": True,
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "a"}],
                    "ops": [{"key": "producer_byte_rate", "value": 5.0}],
                }
            ],
        },
        each("cluster"),
    ),
    row("DescribeUserScramCredentials", 0, {"users": [{"name": "a"}]}, each("cluster")),
    row("AlterUserScramCredentials", 0, {"deletions": [{"name": "a", "mechanism": 1}]}, each("cluster")),
]
"""Decided by the controller, or from what another part of the broker keeps."""

LAST_ROWS = [
    row("Metadata, creating one", 12, _metadata("n1", allow_auto_topic_creation=True), each("topic n1", "cluster")),
    row(
        "Metadata, creating by the right on the topic",
        12,
        _metadata("n2", allow_auto_topic_creation=True),
        "topic n2 DESCRIBE + topic n2 CREATE",
    ),
    row(
        "Metadata, creating by the right on the cluster",
        12,
        _metadata("n3", allow_auto_topic_creation=True),
        "topic n3 DESCRIBE + cluster CREATE",
    ),
]
"""They change what others see."""


# -- answers

_SHOWN = frozenset(
    {
        "error_code",
        "partition_error_code",
        "acknowledge_error_code",
        "topic_config_error_code",
        "name",
        "topic",
        "topic_name",
        "topic_id",
        "group_id",
        "transactional_id",
        "key",
        "resource_name",
        "resource_type",
        "feature",
        "user",
        "index",
        "partition",
        "partition_index",
        "partition_id",
        "is_internal",
        "authorized_operations",
        "topic_authorized_operations",
        "cluster_authorized_operations",
    }
)
_LEFT_OUT = frozenset(
    {"brokers", "node_endpoints", "configs", "nodes", "members", "current_voters", "observers", "acquired_records"}
)


CLOSED = "the connection is closed"
"""Stands for the answer if there is none."""


def seen(answer: Struct, ids: Ids) -> Any:
    """The parts of an answer that depend on rights: errors, names and operations. Lists are sorted. Messages
    count only if they are Kafka's own words for an error about rights."""
    names = {topic_id: name for name, topic_id in ids.items()}
    found: dict[str, Any] = {}
    for spec in type(answer).FIELDS:
        value = getattr(answer, spec.name)
        if spec.name in _LEFT_OUT or value is None:
            continue
        if spec.name == "error_message":
            if value.endswith("authorization failed."):
                found[spec.name] = value
            continue
        if isinstance(value, list) and value and isinstance(value[0], Struct):
            parts = [seen(it, ids) for it in value if not _depends_on_time(it)]
            if parts:
                found[spec.name] = sorted(parts, key=repr)
        elif spec.name == "topic_id":
            if any(value):
                found[spec.name] = names.get(bytes(value), "of another topic")
        elif spec.name in _SHOWN and (value or isinstance(value, str)) and value != spec.default:
            found[spec.name] = int(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return found


def _depends_on_time(part: Struct) -> bool:
    """Whether a partition of ShareFetch has nothing to report: it is there only if its records are read in time."""
    return isinstance(part, ShareFetchableTopicResponse) and not any(
        it.error_code or it.acknowledge_error_code for it in part.partitions
    )


# -- all


def in_other_versions(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows in every other version that can say the same, without rights and with those of their last case."""
    ids = {name: name.encode() * 16 for name in "tuw"}
    for known in rows:
        spec = API_SPECS[known.api]
        words = known.name.removesuffix(f", v{known.version}")
        for version in range(spec.min_version, spec.max_version + 1):
            request = known.request(ids)
            try:
                carried = decode(type(request), encode(request, version), version)
            except EncodeError:
                continue
            if version != known.version and seen(carried, ids) == seen(request, ids):
                yield replace(known, name=f"{words}, v{version}", version=version, cases=("", known.cases[-1]))


ROWS = list({it.name: it for it in (*BROKER_ROWS, *SHARE_ROWS, *STREAMS_ROWS, *CONTROLLER_ROWS)}.values())
ROWS += [it for it in in_other_versions(ROWS) if all(it.name != known.name for known in ROWS)]
ROWS += LAST_ROWS


def cases() -> Iterator[tuple[str, Row, str]]:
    """A principal's name, a row and the text of its access control lists."""
    number = 0
    for each_row in ROWS:
        for case in each_row.cases:
            number += 1
            yield f"u{number}", each_row, case
