"""Shell: changes of the voters on a controller's listener: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (KIP-853).

The Raft core decides. Its answer to the first two may come much later, when the change has committed.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.kraft.metadata.features import KRAFT_VERSION
from barnabas.kraft.quorum_messages import QuorumMessages, RefusedRequest
from barnabas.kraft.raft.messages import VoterChangeAnswer
from barnabas.kraft.raft.ready import ProbeVoter, VoterChangeDone
from barnabas.kraft.voter_messages import read_add, read_remove, read_update, refusal, write_update_answer
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.client_exchange import CLIENT_SOFTWARE_VERSION
from barnabas.protocol.errors import ErrorCode, error_code
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.update_raft_voter import UpdateRaftVoterResponse
from barnabas.runtime.channel import CLIENT_SOFTWARE_NAME, Channel, ChannelError
from barnabas.runtime.dispatch import Call, Handler
from barnabas.runtime.world import World

if TYPE_CHECKING:
    from barnabas.kraft.metadata_replica import MetadataReplica, Reply

log = logging.getLogger(__name__)


class VoterRequests:
    """The handlers of one replica."""

    def __init__(self, replica: MetadataReplica, messages: QuorumMessages, world: World) -> None:
        self._replica = replica
        self._messages = messages
        self._world = world
        self._last_ticket = 0
        self._calls: dict[int, Call] = {}
        """Requests that are not answered yet, by their tickets: the core keeps one, and refuses the others at once."""

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.ADD_RAFT_VOTER: self._change,
            ApiKey.REMOVE_RAFT_VOTER: self._change,
            ApiKey.UPDATE_RAFT_VOTER: self._update,
        }

    def _change(self, call: Call) -> None:
        replica, message = self._replica, call.message
        cluster_id = self._messages.cluster_id
        if message.cluster_id is not None and message.cluster_id != cluster_id:
            text = f'The given id "{message.cluster_id}" doesn\'t match the cluster id "{cluster_id}"'
            call.answer(refusal(message, ErrorCode.INCONSISTENT_CLUSTER_ID, text))
            return
        self._last_ticket += 1
        ticket = self._last_ticket
        self._calls[ticket] = call

        def decide() -> None:
            core, now_ms = replica.core, replica.now_ms()
            if call.request.api_key == ApiKey.ADD_RAFT_VOTER:
                core.handle_add_voter(read_add(message), ticket, now_ms)
            else:
                core.handle_remove_voter(read_remove(message), ticket, now_ms)

        replica.step(decide)

    def finish(self, done: VoterChangeDone) -> None:
        """The core has answered a change."""
        call = self._calls.pop(done.ticket)
        answer = done.answer
        log.info("change of the voters by %s: %s %s", call.request.peer_host, answer.error.name, answer.message or "")
        call.answer(refusal(call.message, answer.error, answer.message))

    def _update(self, call: Call) -> None:
        replica = self._replica
        try:
            self._messages.check_cluster(call.message.cluster_id)
        except RefusedRequest as refused:
            call.answer(self._write_update(VoterChangeAnswer(error=refused.code)))
            return

        def decide() -> Reply:
            answer = replica.core.handle_update_voter(read_update(call.message), replica.now_ms())
            return lambda: call.answer(self._write_update(answer))

        replica.step(decide)

    def _write_update(self, answer: VoterChangeAnswer) -> UpdateRaftVoterResponse:
        """The leader is named in every answer."""
        core = self._replica.core
        address = None if core.leader_id is None else self._replica.calls.address_of(core.leader_id)
        return write_update_answer(replace(answer, leader_id=core.leader_id, epoch=core.epoch), address)

    async def probe(self, probe: ProbeVoter) -> None:
        """Ask a replica that is about to become a voter for its range of `kraft.version`."""
        config = self._replica.config
        endpoint = probe.voter.endpoint(config.listener_name)
        assert endpoint is not None, "the core has checked the listeners"
        error, versions = ErrorCode.NONE, None
        async with trio.open_nursery() as nursery:
            channel = Channel(
                self._world,
                nursery,
                endpoint.host,
                endpoint.port,
                client_id=f"raft-client-{config.node_id}",
                security=config.security,
            )
            request = ApiVersionsRequest(
                client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION
            )
            try:
                response: ApiVersionsResponse = await channel.call(request, timeout_ms=config.request_timeout_ms)
            except ChannelError as failure:
                log.info("controller %d cannot be added: %s", probe.voter.id, failure)
                error = ErrorCode.REQUEST_TIMED_OUT
            else:
                error = error_code(response.error_code)
                versions = next(
                    (
                        (feature.min_version, feature.max_version)
                        for feature in response.supported_features
                        if feature.name == KRAFT_VERSION
                    ),
                    None,
                )
            finally:
                channel.close()
            nursery.cancel_scope.cancel()
        self._replica.step(partial(self._probed, probe.ticket, error, versions))

    def _probed(self, ticket: int, error: ErrorCode, versions: tuple[int, int] | None) -> None:
        self._replica.core.voter_probed(ticket, error, versions, self._replica.now_ms())
