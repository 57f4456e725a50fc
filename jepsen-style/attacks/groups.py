"""Members and producers that change their minds, each time at the cost of the coordinator."""

from __future__ import annotations

import time

from attacks.scene import Scene
from attacks.target import GROUPS, TRANSACTIONS
from attacks.wire import NONE, frame
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest

GROUP, TOPICS = "restless", ("restless-1", "restless-2")
PARTITIONS, MEMBERS, CHANGES = 500, 300, 300
TRANSACTIONAL_IDS = 10_000
COMING = {14, 15, 16}
"""Errors of a coordinator that is about to be there."""


def restless_member(scene: Scene) -> None:
    """A consumer group of 300 members and 1,000 partitions, one of whom changes its subscription 300 times."""
    for topic in TOPICS:
        scene.target.create_topic(topic, PARTITIONS, copies=1)
    node = scene.target.coordinator(GROUPS, GROUP)
    with scene.peer(node) as peer:
        for number in range(MEMBERS):
            joined = peer.call(_beat(f"member-{number}", 0, list(TOPICS)), 1)
            while joined.error_code in COMING:
                time.sleep(0.1)
                joined = peer.call(_beat(f"member-{number}", 0, list(TOPICS)), 1)
            if joined.error_code != NONE:
                scene.report(f"member {number} cannot join: error {joined.error_code}")
                return
        epoch = joined.member_epoch
        scene.begin(node)
        for number in range(CHANGES):
            scene.send(peer, frame(_beat("member-0", epoch, [TOPICS[number % 2]]), 1))
            epoch = peer.receive(ConsumerGroupHeartbeatRequest, 1).member_epoch or epoch


def many_transactional_ids(scene: Scene) -> None:
    """InitProducerId of 10,000 transactional ids of 1,000 characters."""
    key = "x" * 990
    node = scene.target.coordinator(TRANSACTIONS, key)
    ids = [f"{key}{number}" for number in range(TRANSACTIONAL_IDS)]
    frames = [frame(InitProducerIdRequest(transactional_id=it, transaction_timeout_ms=60_000), 4) for it in ids]
    scene.begin(node)
    with scene.peer() as peer:
        for start in range(0, len(frames), 50):
            for data in frames[start : start + 50]:
                scene.send(peer, data)
            for _ in frames[start : start + 50]:
                peer.swallow()
    time.sleep(1)


def _beat(member_id: str, epoch: int, topics: list[str]) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=topics,
        topic_partitions=[],
    )
