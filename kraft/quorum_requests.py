"""Requests of others to a replica of the metadata log: fetches, votes, changes of the leader, snapshots,
DescribeQuorum.

Each handler turns a request into one step of the replica; the answer leaves when the effects of the step are carried
out. A fetch for which there is nothing new is parked until there is.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.kraft.metadata_log import MAX_BATCH_BYTES
from barnabas.kraft.node_address import NodeAddress
from barnabas.kraft.parked_fetches import ParkedFetch, ParkedFetches
from barnabas.kraft.quorum_description import Clocks, asks_for_metadata, describe_others, describe_quorum
from barnabas.kraft.quorum_messages import QuorumMessages, RefusedRequest
from barnabas.kraft.raft.fetch_answers import must_wait
from barnabas.kraft.raft.messages import Fetch, FetchAnswer
from barnabas.kraft.raft.roles import Follower
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import EncodeError, ErrorCode
from barnabas.protocol.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from barnabas.protocol.messages.end_quorum_epoch import EndQuorumEpochResponse
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.vote import VoteResponse
from barnabas.protocol.schema import Message
from barnabas.runtime.dispatch import Call, Handler
from barnabas.runtime.meter import Meter
from barnabas.runtime.steps import Steps

if TYPE_CHECKING:
    from barnabas.kraft.metadata_replica import MetadataReplica, Reply, Step

log = logging.getLogger(__name__)


class QuorumRequests:
    """The handlers of one replica."""

    def __init__(self, replica: MetadataReplica, messages: QuorumMessages) -> None:
        self._replica = replica
        self._messages = messages
        self._parked = ParkedFetches()

    def handlers(self) -> dict[ApiKey, Handler]:
        """Handlers for a controller's listener."""
        return {key: partial(self._handle, handler) for key, handler in self._handlers().items()}

    def _handle(self, handler: Handler, call: Call) -> Steps | None:
        """A replica that waits for disk space does not answer, so that its peers look for another one."""
        if self._replica.is_short:
            call.answer_nothing()
            return None
        return handler(call)

    def _handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.FETCH: self.handle_fetch,
            ApiKey.VOTE: self.handle_vote,
            ApiKey.BEGIN_QUORUM_EPOCH: self.handle_begin_quorum_epoch,
            ApiKey.END_QUORUM_EPOCH: self.handle_end_quorum_epoch,
            ApiKey.DESCRIBE_QUORUM: self.handle_describe_quorum,
            ApiKey.FETCH_SNAPSHOT: self.handle_fetch_snapshot,
        }

    def handle_vote(self, call: Call) -> None:
        """Vote and pre-vote. Before a pre-vote is refused because of a live leader, that leader is
        dialled."""
        replica = self._replica
        try:
            request = self._messages.read_vote(call.message)
        except RefusedRequest as refused:
            _answer(call, VoteResponse(error_code=refused.code))
            return

        def decide() -> Reply:
            answer = replica.core.handle_vote(request, replica.now_ms())
            hint = self._hint(answer.leader_id)
            return lambda: _answer(call, self._messages.write_vote_answer(answer, hint, call.version))

        role = replica.core.role
        if isinstance(role, Follower) and replica.core.wants_leader_check(request):
            replica.spawn(partial(self._decide_after_probe, role.leader_id, role.epoch, decide))
        else:
            replica.step(decide)

    async def _decide_after_probe(self, leader_id: int, epoch: int, decide: Step) -> None:
        await self._replica.calls.probe_leader(leader_id, epoch)
        self._replica.step(decide)

    def handle_begin_quorum_epoch(self, call: Call) -> None:
        replica = self._replica
        try:
            request = self._messages.read_begin(call.message)
        except RefusedRequest as refused:
            _answer(call, BeginQuorumEpochResponse(error_code=refused.code))
            return
        if not self._knows_address(request.leader_id, call.message.leader_endpoints):
            _answer(call, BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST))
            return

        def follow() -> Reply:
            answer = replica.core.handle_begin_quorum_epoch(request, replica.now_ms())
            hint = self._hint(answer.leader_id)
            return lambda: _answer(call, self._messages.write_begin_answer(answer, hint, call.version))

        replica.step(follow)

    def handle_end_quorum_epoch(self, call: Call) -> None:
        replica = self._replica
        try:
            request = self._messages.read_end(call.message)
        except RefusedRequest as refused:
            _answer(call, EndQuorumEpochResponse(error_code=refused.code))
            return
        if not self._knows_address(request.leader_id, call.message.leader_endpoints):
            _answer(call, EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST))
            return

        def stand() -> Reply:
            answer = replica.core.handle_end_quorum_epoch(request, replica.now_ms())
            hint = self._hint(answer.leader_id)
            return lambda: _answer(call, self._messages.write_end_answer(answer, hint, call.version))

        replica.step(stand)

    def handle_fetch(self, call: Call) -> None:
        """Fetches of the metadata partition; answered when there is something new or `max.wait` is over."""
        replica = self._replica
        try:
            request = self._messages.read_fetch(call.message)
        except RefusedRequest as refused:
            _answer(call, FetchResponse(error_code=refused.code))
            return

        def fetch() -> Reply | None:
            answer = replica.core.handle_fetch(request, replica.now_ms())
            if not self._is_news(request, answer):
                self._parked.add(ParkedFetch(call, request, replica.now_ms() + request.max_wait_ms))
                return None
            return lambda: self._answer_fetch(call, answer)

        replica.step(fetch)

    def _answer_fetch(self, call: Call, answer: FetchAnswer) -> None:
        replica = self._replica
        data = b""
        if answer.readable is not None:
            first, end = answer.readable
            max_bytes = min(call.message.max_bytes, MAX_BATCH_BYTES)
            data = replica.log.read(first, max(max_bytes, 1), end)
        hint = self._hint(answer.leader_id)
        _answer(call, self._messages.write_fetch_answer(answer, data, hint, call.version))

    @property
    def next_deadline_ms(self) -> int | None:
        """Time at which `answer_expired` is due."""
        return self._parked.next_deadline_ms

    def answer_woken(self) -> None:
        """The log, the high watermark or the leader changed: answer the fetches for which that is new."""
        core = self._replica.core
        for parked in self._parked.take(lambda fetch: self._is_news(fetch, core.answer_fetch(fetch))):
            self._answer_fetch(parked.call, core.answer_fetch(parked.fetch))

    def _is_news(self, fetch: Fetch, answer: FetchAnswer) -> bool:
        if must_wait(fetch, answer):
            return False
        known = fetch.high_watermark
        if answer.high_watermark is None or known is None or known < self._replica.awaited_end_offset:
            return True
        # A higher watermark alone is not worth an answer here.
        return not must_wait(fetch, replace(answer, high_watermark=known))

    def answer_expired(self) -> None:
        """Answer the fetches that have waited long enough."""
        for parked in self._parked.take_expired(self._replica.now_ms()):
            self._answer_fetch(parked.call, self._replica.core.answer_fetch(parked.fetch))

    def handle_fetch_snapshot(self, call: Call) -> None:
        replica = self._replica
        try:
            request = self._messages.read_fetch_snapshot(call.message)
        except RefusedRequest as refused:
            _answer(call, self._messages.refuse_fetch_snapshot(call.message, refused.code))
            return

        def send_chunk() -> Reply:
            size = replica.log.snapshots.size_bytes(request.snapshot)
            bounded = replace(request, max_bytes=min(request.max_bytes, MAX_BATCH_BYTES))
            answer = replica.core.handle_fetch_snapshot(bounded, size, replica.now_ms())
            data = b""
            if answer.count:
                data = replica.log.snapshots.read(request.snapshot, answer.position, answer.count)
            hint = self._hint(answer.leader_id)
            return lambda: _answer(call, self._messages.write_fetch_snapshot_answer(answer, data, hint, call.version))

        replica.step(send_chunk)

    def handle_describe_quorum(self, call: Call) -> Steps:
        if not asks_for_metadata(call.message):
            call.answer((yield from describe_others(call.message, Meter(call))))
            return
        replica = self._replica

        def describe() -> Reply:
            now_ms = replica.now_ms()
            clocks = Clocks(now_ms, replica.wall_ms() - now_ms)
            response = describe_quorum(replica.core, call.version, replica.config, clocks)
            return lambda: _answer(call, response)

        replica.step(describe)

    def _hint(self, leader_id: int | None) -> NodeAddress | None:
        return None if leader_id is None else self._replica.calls.address_of(leader_id)

    def _knows_address(self, leader_id: int, endpoints: Sequence[Any]) -> bool:
        """True if this node could fetch from this leader, after learning the address in its request."""
        self._replica.calls.learn_addresses(self._messages.read_endpoints(leader_id, endpoints))
        return self._replica.calls.address_of(leader_id) is not None


def _answer(call: Call, response: Message) -> None:
    """Answer; a response that the requested version cannot carry costs the peer its connection, and never stops
    this node."""
    try:
        call.answer(response)
    except EncodeError as error:
        log.error("%s cannot be sent in version %d: %s", type(response).__name__, call.version, error)
        call.abort("internal error")
