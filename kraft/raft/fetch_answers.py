"""What a leader answers to a fetch: records, where the logs part, or a snapshot (KIP-595, KIP-630).

Functions of the request and the leader's log; whether the replica asked may answer at all is `Raft`'s business.
"""

from __future__ import annotations

from dataclasses import replace

from kraft.raft.messages import Fetch, FetchAnswer
from kraft.raft.own_log import OwnLog
from protocol.errors import ErrorCode


def is_well_formed(request: Fetch, local_id: int) -> bool:
    return (
        request.max_wait_ms >= 0
        and request.fetch_offset >= 0
        and 0 <= request.last_fetched_epoch <= request.epoch
        and request.replica.id != local_id
    )


def with_what_comes_next(answer: FetchAnswer, request: Fetch, log: OwnLog) -> FetchAnswer:
    """`answer`, and what the replica needs next: a snapshot, the place to cut at, or records if there are any."""
    history = log.history
    if log.latest_snapshot is not None and (
        request.fetch_offset == 0 or history.needs_snapshot(request.fetch_offset, request.last_fetched_epoch)
    ):
        return replace(answer, snapshot=log.latest_snapshot)
    diverging = history.divergence(request.fetch_offset, request.last_fetched_epoch)
    if diverging is not None:
        return replace(answer, diverging=diverging)
    if request.fetch_offset < history.end_offset:
        return replace(answer, readable=(request.fetch_offset, history.end_offset))
    return answer


def must_wait(request: Fetch, answer: FetchAnswer) -> bool:
    """Nothing in the answer is news to the replica: keep it until there is, or until `max_wait_ms` passed."""
    knows_high_watermark = (
        request.high_watermark is None
        or answer.high_watermark is None
        or answer.high_watermark <= request.high_watermark
    )
    return (
        answer.error is ErrorCode.NONE
        and answer.readable is None
        and answer.diverging is None
        and answer.snapshot is None
        and request.max_wait_ms > 0
        and knows_high_watermark
    )
