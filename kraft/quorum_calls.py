"""Shell: requests of one replica of the metadata log to its peers, and their outcomes as inputs of the Raft core."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from barnabas.kraft.node_address import NodeAddress
from barnabas.kraft.quorum_messages import AnotherCluster, QuorumMessages, ReadAnswer, UnusableAnswer
from barnabas.kraft.quorum_peers import QuorumPeers
from barnabas.kraft.raft.messages import Fetch, FetchSnapshot
from barnabas.kraft.raft.ready import Send
from barnabas.protocol.errors import EncodeError
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import ChannelError
from barnabas.runtime.world import World

if TYPE_CHECKING:
    from barnabas.kraft.metadata_replica import MetadataReplica

log = logging.getLogger(__name__)


class QuorumCalls:
    """Owned by one replica."""

    def __init__(self, replica: MetadataReplica, messages: QuorumMessages, world: World) -> None:
        self._replica = replica
        self._messages = messages
        self._world = world
        self._peers: QuorumPeers | None = None
        self.obstacle = ""
        """Reason why controllers refuse this node, in one line; empty if none did."""

    def start(self, nursery: trio.Nursery) -> None:
        """Connections live in this nursery."""
        config = self._replica.config
        client_id = f"raft-client-{config.node_id}"
        self._peers = QuorumPeers(
            self._world, nursery, config.addresses, client_id, self._connection_changed, config.security
        )

    def ask(self, send: Send) -> None:
        """One request to a peer. Its outcome is the input of a later step."""
        peers, request, config = self._peers, send.request, self._replica.config
        assert peers is not None
        max_bytes, timeout_ms = config.fetch_max_bytes, config.request_timeout_ms
        if isinstance(request, FetchSnapshot):
            max_bytes = config.fetch_snapshot_max_bytes
        elif isinstance(request, Fetch):
            timeout_ms += request.max_wait_ms
        try:
            message = self._messages.write_request(request, max_bytes)
            if not peers.ask(send.peer_id, request, message, timeout_ms, partial(self._answered, send)):
                self._replica.spawn(partial(self._connect_and_call, send, message, timeout_ms))
        except (ChannelError, EncodeError) as error:
            self._replica.spawn(partial(self._take_outcome_later, send, error))

    async def _connect_and_call(self, send: Send, message: Message, timeout_ms: int) -> None:
        assert self._peers is not None
        try:
            answer = await self._peers.call(send.peer_id, send.request, message, timeout_ms)
        except (ChannelError, EncodeError) as error:
            self._take_outcome(send, error)
        else:
            self._take_outcome(send, answer)

    def _answered(self, send: Send, answer: Any) -> None:
        """Take the outcome at once, unless a step is under way: the loss of a connection may be noticed in the middle
        of one."""
        if self._replica.is_stepping:
            self._replica.spawn(partial(self._take_outcome_later, send, answer))
            return
        try:
            self._take_outcome(send, answer)
        except Exception as error:
            self._replica.fail(error)

    async def _take_outcome_later(self, send: Send, answer: Any) -> None:
        self._take_outcome(send, answer)

    def _take_outcome(self, send: Send, answer: Any) -> None:
        """Take a response, or the exception instead of one."""
        try:
            if isinstance(answer, Exception):
                raise answer
            read = self._messages.read_answer(answer)
        except (ChannelError, UnusableAnswer, EncodeError) as error:
            log.debug("%s: %s", send, error)
            if isinstance(error, AnotherCluster):
                self._note_another_cluster()
            self._replica.step(
                lambda: self._replica.core.request_failed(send.peer_id, send.request_id, self._replica.now_ms())
            )
            return
        self._replica.step(lambda: self._take_answer(send, read), read.data)

    def _note_another_cluster(self) -> None:
        if self.obstacle:
            return
        cluster_id = self._replica.config.cluster_id
        self.obstacle = f"the controllers belong to another cluster than this node's log directories, {cluster_id}"
        log.error("%s: INCONSISTENT_CLUSTER_ID", self.obstacle)

    def _request_failed(self, send: Send) -> None:
        self._replica.core.request_failed(send.peer_id, send.request_id, self._replica.now_ms())

    def _take_answer(self, send: Send, read: ReadAnswer) -> None:
        assert self._peers is not None
        self._peers.learn(read.addresses)
        answer = read.answer
        if answer.leader_id is not None and self._peers.address(answer.leader_id) is None:
            answer = replace(answer, leader_id=None)  # there is no address to fetch from
        self._replica.core.handle_answer(send.peer_id, send.request_id, answer, self._replica.now_ms())

    def _connection_changed(self, peer_id: int, refused: bool) -> None:
        """A connection ended, or a new one was refused. If it was the leader's, its process may be gone."""
        core = self._replica.core
        if core.leader_id != peer_id or not core.is_voter:
            return
        epoch = core.epoch
        if refused:
            self._replica.step(lambda: core.leader_process_gone(peer_id, epoch, self._replica.now_ms()))
        else:
            self._replica.spawn(partial(self.probe_leader, peer_id, epoch))

    async def probe_leader(self, leader_id: int, epoch: int) -> None:
        """Dial the leader of `epoch`, and report to the core if the connection is refused."""
        assert self._peers is not None
        if await self._peers.is_gone(leader_id):
            core = self._replica.core
            self._replica.step(lambda: core.leader_process_gone(leader_id, epoch, self._replica.now_ms()))

    def address_of(self, node_id: int) -> NodeAddress | None:
        """The address of a replica's quorum listener, if it is known."""
        if node_id == self._replica.config.node_id:
            return self._replica.config.address
        return None if self._peers is None else self._peers.address(node_id)

    def voters_are(self, addresses: Mapping[int, NodeAddress]) -> None:
        """The voter set changed: these addresses take precedence over what peers say."""
        if self._peers is not None:
            self._peers.voters_are(addresses)

    def learn_addresses(self, addresses: Mapping[int, NodeAddress]) -> None:
        """Take over addresses from a peer. Those of the configuration take precedence."""
        if self._peers is not None:
            self._peers.learn(addresses)
