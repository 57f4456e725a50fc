"""Questions about streams groups, one for each API (KIP-1071)."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from barnabas.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from tests.broker.apis.coordinator_questions import MEMBER, TOPIC, Asking, always

GROUP = "counting"

OF_STREAMS_GROUPS: dict[ApiKey, Asking] = {
    ApiKey.STREAMS_GROUP_HEARTBEAT: always(
        StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=MEMBER,
            rebalance_timeout_ms=10_000,
            topology=Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[TOPIC])]),
            process_id="p",
        )
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: always(StreamsGroupDescribeRequest(group_ids=[GROUP])),
}
