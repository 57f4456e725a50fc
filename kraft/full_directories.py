"""Core: the log directories without room, as a broker reports them in its heartbeat.

Kafka has no field for it: a directory is online or it failed. The ids travel in a tagged field, which controllers of
Apache Kafka ignore: they leave the leaders of such replicas in place.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

FULL_DIRECTORIES_TAG = 47_659
_ID_BYTES = 16
MOST_DIRECTORIES = 1_000


def report_full(request: BrokerHeartbeatRequest, directory_ids: Iterable[bytes]) -> None:
    """Put the ids into the request."""
    joined = b"".join(directory_ids)
    if joined:
        request.unknown_tagged_fields = {**(request.unknown_tagged_fields or {}), FULL_DIRECTORIES_TAG: joined}


def reported_full(request: BrokerHeartbeatRequest) -> tuple[bytes, ...]:
    """The ids in the request, sorted; none if the field cannot be a list of ids."""
    joined = bytes((request.unknown_tagged_fields or {}).get(FULL_DIRECTORIES_TAG, b""))
    if len(joined) % _ID_BYTES or len(joined) > MOST_DIRECTORIES * _ID_BYTES:
        return ()
    return tuple(sorted({joined[start : start + _ID_BYTES] for start in range(0, len(joined), _ID_BYTES)}))
