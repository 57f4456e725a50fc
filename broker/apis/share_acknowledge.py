"""ShareAcknowledge (79): members of share groups acknowledge records, apart from fetching (KIP-932)."""

from __future__ import annotations

from barnabas.broker.apis.fetch import leader_endpoints
from barnabas.broker.apis.share_calls import Acknowledging, SharePorts, check_request
from barnabas.broker.fetch_session import FINAL_EPOCH, INITIAL_EPOCH
from barnabas.broker.shares.sessions import ShareSession
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from barnabas.runtime.dispatch import Call
from barnabas.runtime.server import Steps


def share_acknowledge(ports: SharePorts, call: Call) -> Steps | None:
    try:
        check_request(ports, call)
        session = _session(ports, call.message)
    except KafkaError as error:
        call.answer(ShareAcknowledgeResponse(error_code=error.code))
        return None
    return _acknowledge(ports, call, session)


def _session(ports: SharePorts, request: ShareAcknowledgeRequest) -> ShareSession:
    sessions, epoch = ports.shares.sessions, request.share_session_epoch
    assert request.group_id is not None and request.member_id is not None
    key = (request.group_id, request.member_id)
    if epoch == INITIAL_EPOCH:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    return sessions.closing(key) if epoch == FINAL_EPOCH else sessions.resume(key, epoch)


def _acknowledge(ports: SharePorts, call: Call, session: ShareSession) -> Steps:
    request: ShareAcknowledgeRequest = call.message
    acknowledging = Acknowledging(ports, call)

    def answer() -> None:
        if request.share_session_epoch == FINAL_EPOCH:
            ports.shares.close_session(session)
        call.answer(_response(ports, call, acknowledging))

    yield from acknowledging.beginning()
    acknowledging.when_done(call.guarded(answer))


def _response(ports: SharePorts, call: Call, acknowledging: Acknowledging) -> ShareAcknowledgeResponse:
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    leaders: dict[int, None] = {}
    for (topic_id, index), error in acknowledging.results.items():
        data = PartitionData(partition_index=index)
        if error is not None:
            data.error_code, data.error_message = error.code, error.message
            if error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
                leader_id, leader_epoch = ports.lookup.known_leader(topic_id, index)
                data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
                leaders[leader_id] = None
        if topic_id not in topics:
            topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_id)
        topics[topic_id].partitions.append(data)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=ports.configs(call.message.group_id).terms.lock_ms,
        responses=list(topics.values()),
        node_endpoints=[
            NodeEndpoint(node_id=it.node_id, host=it.host, port=it.port, rack=it.rack)
            for it in leader_endpoints(ports.metadata, call, leaders)
        ],
    )
