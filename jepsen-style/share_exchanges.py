"""Core: requests of members of share groups and their responses, as a history has them.

An exchange is a JSON object:
`node`, `epoch`   the broker, and the epoch of the share session in the request
`sent`, `at`   nanoseconds of the run: when the request left, and when its response, or its failure, came
`fetches`   true if the request may acquire records
`error`   Kafka's name of the error of the whole request; null if there was none; LOST without a response
`got`   acquired ranges: `[topic, partition, first offset, last offset, delivery count]`
`acks`   acknowledged ranges: `[topic, partition, first offset, last offset, types, error]`; the error is null if the
broker reported success
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.protocol.errors import ErrorCode, error_code
from barnabas.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from barnabas.protocol.messages.share_fetch import PartitionData as FetchedPartition
from barnabas.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

LOST = "lost"
"""Error of a request without a response: it may have taken effect."""
FORBIDDEN = ("too-many-types", "unknown-type", "epoch-jumps")
"""Breaches of `clients.rule_breaker` of which no acknowledgement may succeed."""
LIMIT = 5
"""Maximum delivery count, unless the run has another."""
LOCK_MS = 2_000
"""Duration of acquisition locks, unless the run has another."""
UNANSWERED = "unanswered"
"""Error of an acknowledgement that the response does not mention."""

NameOf = Callable[[bytes], str | None]
"""From a topic id."""
Request = ShareFetchRequest | ShareAcknowledgeRequest


def begun(request: Request, node: int, name_of: NameOf, sent_ns: int) -> dict[str, Any]:
    """The exchange of a request that leaves now. Without a response it stays LOST."""
    return {
        "node": node,
        "epoch": request.share_session_epoch,
        "sent": sent_ns,
        "at": None,
        "fetches": isinstance(request, ShareFetchRequest) and request.max_records > 0,
        "error": LOST,
        "got": [],
        "acks": [
            [
                name_of(topic.topic_id),
                partition.partition_index,
                batch.first_offset,
                batch.last_offset,
                list(batch.acknowledge_types),
                LOST,
            ]
            for topic in request.topics
            for partition in topic.partitions
            for batch in partition.acknowledgement_batches
        ],
    }


def answered(
    exchange: dict[str, Any], response: ShareFetchResponse | ShareAcknowledgeResponse, name_of: NameOf, now_ns: int
) -> None:
    """The response has come."""
    code = error_code(response.error_code)
    exchange["at"] = now_ns
    exchange["error"] = None if code is ErrorCode.NONE else code.name
    errors: dict[tuple[str | None, int], str | None] = {}
    for topic in response.responses:
        name = name_of(topic.topic_id)
        for data in topic.partitions:
            fetched = data if isinstance(data, FetchedPartition) else None
            ack_code = error_code(data.error_code if fetched is None else fetched.acknowledge_error_code)
            errors[name, data.partition_index] = None if ack_code is ErrorCode.NONE else ack_code.name
            if fetched is not None:
                exchange["got"] += [
                    [name, data.partition_index, it.first_offset, it.last_offset, it.delivery_count]
                    for it in fetched.acquired_records
                ]
    for ack in exchange["acks"]:
        ack[-1] = exchange["error"] or errors.get((ack[0], ack[1]), UNANSWERED)


def failed(exchange: dict[str, Any], now_ns: int) -> None:
    """There will be no response."""
    exchange["at"] = now_ns
