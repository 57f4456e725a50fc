"""Requests that succeed and do harm afterwards: poisoned batches, forged log lines, lost order."""

from __future__ import annotations

import time

from attacks.costs import ZSTD, produce_error
from attacks.scene import Scene
from attacks.target import GROUPS
from attacks.wire import NONE, batch, frame
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

FORGED = "2026-01-01T00:00:00.000Z ERROR   broker.node: FORGED LINE"
TOPIC_RESOURCE = 2
ORDER_TRIALS = 20
COMMIT_TRIALS = 3
COMMITS = 1_000
LAST_COMMIT = 5_000
LOOKS = 20
LOOK_SECONDS = 0.25


def poison(scene: Scene) -> None:
    """Batches with a valid head and CRC: 30 bytes 0xff, a "zstd" that is none, an offset 2^30 beyond its batch."""
    scene.target.create_topic("poison")
    leader = scene.target.leaders("poison")[0]
    far = b"\x14\x00\x00\x80\x80\x80\x80\x08\x01\x01\x00"
    batches = {
        "30 bytes 0xff": batch(b"\xff" * 30, 2),
        "no zstd": batch(b"this is no zstd", 1, codec=ZSTD),
        "a far offset": batch(far, 1),
        "fewer records than it says": batch(b"\x0c\x00\x00\x00\x01\x01\x00", 2),
    }
    scene.begin(leader)
    with scene.peer() as peer:
        for what, data in batches.items():
            scene.outcome.bytes_sent += len(data)
            if produce_error(peer, "poison", data) == NONE:
                scene.report(f"{what}: acknowledged")


def forged_log_lines(scene: Scene) -> None:
    """Line ends in a topic name, a group id and the reason of a LeaveGroup."""
    group = "g\n" + FORGED
    node = scene.target.coordinator(GROUPS, group)
    scene.begin(node)
    with scene.peer() as peer:
        topic = CreatableTopic(name="x\n" + FORGED, num_partitions=1, replication_factor=1)
        peer.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        # Version 3: the first answer bears a member; later ones ask for a second request.
        member_id = peer.call(join, 3).member_id
        leaving = MemberIdentity(member_id=member_id, reason="bye\n" + FORGED)
        peer.call(LeaveGroupRequest(group_id=group, members=[leaving]), 5)
    layout = scene.target.cluster.layout
    forged = [
        node.name
        for node in layout.nodes
        if any(line == FORGED for line in layout.log_file(node).read_text(errors="replace").splitlines())
    ]
    if forged:
        scene.report(f"forged lines in the logs of {', '.join(forged)}")


def order_of_forwarded_requests(scene: Scene) -> None:
    """Four IncrementalAlterConfigs of one key, pipelined on one connection: the last one must hold."""
    scene.target.create_topic("order")
    scene.begin()
    wrong = 0
    with scene.peer() as peer:
        for trial in range(ORDER_TRIALS):
            values = [1_000_000 + 10 * trial + number for number in range(4)]
            scene.send(peer, b"".join(frame(_retention(value), 1) for value in values))
            for _ in values:
                peer.receive(IncrementalAlterConfigsRequest, 1)
            time.sleep(0.05)
            asked = DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name="order", configuration_keys=["retention.ms"]
            )
            answer = peer.call(DescribeConfigsRequest(resources=[asked]), 4)
            wrong += int(answer.results[0].configs[0].value) != values[-1]
    if wrong:
        scene.report(f"{wrong} of {ORDER_TRIALS} times another request than the last held")


def commit_goes_back(scene: Scene) -> None:
    """A connection pipelines 1,000 OffsetCommits and is closed; what the next connection commits must stay."""
    scene.target.create_topic("back")
    group = "back-and-forth"
    node = scene.target.coordinator(GROUPS, group)
    data = b"".join(frame(_commit(group, offset), 7) for offset in range(COMMITS))
    scene.begin(node)
    undone = compared = 0
    for _ in range(COMMIT_TRIALS):
        with scene.peer() as closed:
            scene.outcome.bytes_sent += closed.send_for(data, 0.2)
            has_arrived = closed.wait_arrived(1.0)
        with scene.peer() as peer:
            answer = peer.call(_commit(group, LAST_COMMIT), 7)
            if answer.topics[0].partitions[0].error_code != NONE or not has_arrived:
                continue
            compared += 1
            for _ in range(LOOKS):
                topics = [OffsetFetchRequestTopic(name="back", partition_indexes=[0])]
                found = peer.call(OffsetFetchRequest(group_id=group, topics=topics), 7)
                if found.topics[0].partitions[0].committed_offset != LAST_COMMIT:
                    undone += 1
                    break
                time.sleep(LOOK_SECONDS)
    if undone:
        scene.report(f"{undone} of {COMMIT_TRIALS} times an acknowledged commit was undone")
    if not compared:
        scene.report("the commits of the closed connection never arrived")


def _retention(value: int) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name="retention.ms", config_operation=0, value=str(value))
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="order", configs=[config])
    return IncrementalAlterConfigsRequest(resources=[resource])


def _commit(group: str, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name="back", partitions=[partition])]
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
