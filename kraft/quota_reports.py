"""Core: the use of quotas of the whole cluster in a broker's heartbeat, and its parts in the answer.

Both travel in a tagged field that Kafka does not have: its controllers ignore it and answer without parts, and a broker
without parts keeps to limit / brokers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.runtime.quotas.parts import LEAST_WINDOW_MS, MOST_REPORTED, MOST_WINDOW_MS, ClientUse, UseReport

QUOTA_PARTS_TAG = 47_660
_REPORT = struct.Struct(">qid")
"""Sequence number, time between reports in ms, part of other clients; then the clients of the report."""
_USE = struct.Struct(">16sdd?")
"""Key, use, part, held back."""
_SEQUENCE = struct.Struct(">q")
"""Sequence number of the answered report; then its parts, as doubles."""
_PART_BYTES = 8
MOST_USE = 1e9
"""Uses above it cannot be true: a burst of ten seconds' worth is 1."""


def report_use(request: BrokerHeartbeatRequest, report: UseReport) -> None:
    """Put a report into the request."""
    packed = _REPORT.pack(*report[:3]) + b"".join(_USE.pack(*it) for it in report.uses)
    request.unknown_tagged_fields = {**(request.unknown_tagged_fields or {}), QUOTA_PARTS_TAG: packed}


def reported_use(request: BrokerHeartbeatRequest) -> UseReport | None:
    """The report in the request; None without one, or if anything in it cannot be true."""
    packed = (request.unknown_tagged_fields or {}).get(QUOTA_PARTS_TAG)
    if packed is None or len(packed) > _REPORT.size + MOST_REPORTED * _USE.size:
        return None
    if len(packed) < _REPORT.size or (len(packed) - _REPORT.size) % _USE.size:
        return None
    sequence, window_ms, other_part = _REPORT.unpack_from(packed)
    uses = tuple(map(ClientUse._make, _USE.iter_unpack(packed[_REPORT.size :])))
    if sequence < 0 or not LEAST_WINDOW_MS <= window_ms <= MOST_WINDOW_MS:
        return None
    if len({it.key for it in uses}) < len(uses):
        return None
    # NaN is within no bounds.
    may_be_true = 0 <= other_part <= 1 and all(0 <= it.use <= MOST_USE and 0 <= it.part <= 1 for it in uses)
    return UseReport(sequence, window_ms, other_part, uses) if may_be_true else None


def answer_parts(response: BrokerHeartbeatResponse, sequence: int, parts: Sequence[float]) -> None:
    """Put the parts of a report's clients into the response."""
    packed = _SEQUENCE.pack(sequence) + struct.pack(f">{len(parts)}d", *parts)
    response.unknown_tagged_fields = {QUOTA_PARTS_TAG: packed}


def answered_parts(response: BrokerHeartbeatResponse) -> tuple[int, tuple[float, ...]] | None:
    """Sequence number and parts; None without them, or if they cannot be true."""
    packed = (response.unknown_tagged_fields or {}).get(QUOTA_PARTS_TAG, b"")
    count, left = divmod(len(packed) - _SEQUENCE.size, _PART_BYTES)
    if count < 0 or left or count > MOST_REPORTED:
        return None
    sequence, *parts = struct.unpack(f">q{count}d", packed)
    if not all(math.isfinite(part) and 0 <= part <= 1 for part in parts):
        return None
    return sequence, tuple(parts)
