"""Records of streams groups, byte for byte as Kafka 4.3.1's StreamsCoordinatorRecordHelpers writes them (KIP-1071)."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinator.outcome import CoordinatorRecord
from barnabas.broker.groups.group_keys import StreamsGroupKey
from barnabas.broker.groups.streams import records
from barnabas.broker.groups.streams.member import Endpoint, MemberState, StreamsMember
from barnabas.broker.groups.streams.streams_group import StreamsGroup
from barnabas.broker.groups.streams.tasks import HeldTasks, TaskSet
from barnabas.broker.groups.streams.topology import received_topology
from barnabas.protocol.messages.streams_group_heartbeat import KeyValue, TopicInfo
from barnabas.protocol.records.coordinator import decode_key, decode_versioned, encode_key, encode_versioned
from barnabas.runtime.at_once import at_once
from tests.broker.groups.machine_bench import TYPES
from tests.broker.groups.streams_rig import subtopology, topology

pytestmark = pytest.mark.feature("CG-20")

MEMBER = StreamsMember(
    "m-1",
    epoch=7,
    previous_epoch=5,
    state=MemberState.UNREVOKED_TASKS,
    rack_id="r1",
    client_id="c",
    client_host="/127.0.0.1",
    rebalance_timeout_ms=60_000,
    topology_epoch=3,
    process_id="p-1",
    endpoint=Endpoint("h", 65_000),
    client_tags={"zone": "a", "area": "b"},
    assigned=HeldTasks({"1": {2: 7, 0: 5}, "0": {3: 7}}, {"0": frozenset({1, 0})}),
    revoking=HeldTasks({"0": {9: 4}}, {"1": frozenset({5})}),
)
TARGET = TaskSet({"1": frozenset({2, 0}), "0": frozenset({3})}, {"0": frozenset({1})})


def sent_topology() -> CoordinatorRecord:
    compacted = [KeyValue(key="cleanup.policy", value="compact")]
    log = TopicInfo(name="app-log", replication_factor=2, topic_configs=compacted)
    second = subtopology("1", ["other"], repartitions={"app-rep": 4}, copartitioned=[([0], [0])])
    second.state_changelog_topics = [log]
    sent = topology(subtopology("0", ["in"], sinks=["app-rep"]), second, epoch=3)
    return records.topology("g", at_once(received_topology(sent)).value)


GOLDEN = [
    pytest.param(
        records.member_metadata("g", MEMBER),
        "001300016700036d2d31",
        (
            "00000003723102630b2f3132372e302e302e310000ea600000000304702d31010268fde800030561726561026200057a6f6e"
            "6502610000"
        ),
        id="member",
    ),
    pytest.param(
        records.current_assignment("g", MEMBER),
        "001600016700036d2d31",
        (
            "0000000000070000000502030230020000000301000502000000070231030000000000000002010009030000000500000007"
            "0202300300000000000000010001020230020000000901000502000000040202310200000005000100"
        ),
        id="current",
    ),
    pytest.param(
        records.group_epoch("g", 8, 123456789012345, 3, {"num.standby.replicas": "1"}),
        "0011000167",
        (
            "00000000000800007048860ddf7902000400000003011902156e756d2e7374616e6462792e7265706c69636173023100"
        ),
        id="epoch",
    ),
    pytest.param(
        records.group_epoch("g", 8, 0, -1, {"num.standby.replicas": "0"}),
        "0011000167",
        "000000000008000000000000000001011902156e756d2e7374616e6462792e7265706c69636173023000",
        id="epoch-unvalidated",
    ),
    pytest.param(
        records.target_assignment("g", "m-1", TARGET),
        "001500016700036d2d31",
        "00000302300200000003000231030000000000000002000202300200000001000100",
        id="target",
    ),
    pytest.param(
        records.target_epoch("g", 8, 1750000000000),
        "0014000167",
        "000000000008010008000001977420dc00",
        id="target-epoch",
    ),
    pytest.param(
        sent_topology(),
        "0017000167",
        (
            "0000000000030302300203696e010102086170702d726570010100023102066f746865720102086170702d6c6f6700000000"
            "0002020f636c65616e75702e706f6c69637908636f6d7061637400000102086170702d726570000000040000010002020000"
            "01020000000000"
        ),
        id="topology",
    ),
    pytest.param(
        records.member_tombstones("g", "m-1")[-1],
        "001300016700036d2d31",
        None,
        id="member-gone",
    ),
    pytest.param(
        records.group_tombstones("g")[-1],
        "0017000167",
        None,
        id="topology-gone",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_a_record_has_kafkas_bytes(record: CoordinatorRecord, key: str, value: str | None) -> None:
    assert encode_key(record.key).hex() == key
    written = None if record.value is None else encode_versioned(record.value, record.version).hex()
    assert written == value


def test_records_of_kafka_are_read() -> None:
    group = StreamsGroup("g")
    for param in GOLDEN[:7]:
        _, key_text, value_text = param.values
        key = decode_key(TYPES, bytes.fromhex(str(key_text)))
        assert isinstance(key, StreamsGroupKey)
        value, _ = decode_versioned(TYPES[key.API_KEY].value, bytes.fromhex(str(value_text)))
        group.replay(key, value)
    assert group.members == {"m-1": MEMBER}
    assert group.targets == {"m-1": TARGET}
    assert (group.epoch, group.assignment_epoch, group.assignment_timestamp_ms) == (8, 8, 1750000000000)
    assert group.topology is not None
    assert (group.topology.epoch, group.topology.required) == (3, ("app-log", "app-rep", "in", "other"))
