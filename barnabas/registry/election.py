"""The task of a registry's membership in its group."""

from __future__ import annotations

import logging

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.groups.coordinators import STALE_COORDINATOR, CoordinatorLink, CoordinatorType
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.schema import Message
from barnabas.registry.candidate import Candidate, CandidateState, ElectionSettings, Identity
from barnabas.runtime.channel import ChannelError

log = logging.getLogger(__name__)

LEAVE_SECONDS = 2.0
SETTLE_SECONDS = 5.0
"""A write waits for so long for an election that is going on."""


class Election:
    """Takes part in the election while it runs."""

    def __init__(self, cluster: Cluster, settings: ElectionSettings, identity: Identity) -> None:
        self.group_id = settings.group_id
        self._cluster = cluster
        self._candidate = Candidate(settings, identity)
        self._identity = identity
        self._coordinator = CoordinatorLink(cluster, CoordinatorType.GROUP, settings.group_id)
        self._reported = ""
        self._changed = trio.Event()

    @property
    def leads(self) -> bool:
        """True if this registry may write."""
        return self._candidate.leads(self._cluster.now_ms())

    @property
    def generation(self) -> int:
        return self._candidate.generation

    @property
    def leader_url(self) -> str | None:
        """Where to pass writes on; None if nobody leads, or this registry does."""
        leader = self._candidate.leader
        return None if leader is None or self._identity.is_same(leader) else leader.url

    async def settle(self) -> None:
        """Wait until somebody leads, for `SETTLE_SECONDS` at most."""
        with trio.move_on_after(SETTLE_SECONDS):
            while not self.leads and self.leader_url is None:
                await self._changed.wait()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; started when the first election is over."""
        is_started = False
        try:
            while True:
                request = self._candidate.next_request(self._cluster.now_ms())
                if request is None:
                    wake_at_ms = self._candidate.wake_at_ms() or 0
                    await trio.sleep(max(1, wake_at_ms - self._cluster.now_ms()) / 1000)
                    continue
                await self._call(request)
                self._report()
                self._changed.set()
                self._changed = trio.Event()
                if not is_started and self._candidate.state is CandidateState.STABLE:
                    is_started = True
                    task_status.started()
        finally:
            with trio.move_on_after(LEAVE_SECONDS, shield=True):
                await self._leave()

    async def _call(self, request: Message) -> None:
        sent_ms = self._cluster.now_ms()
        try:
            response = await self._coordinator.call(request, self._candidate.timeout_ms(request))
        except (ChannelError, KafkaError) as error:
            log.debug("election: %s", error)
            self._candidate.unanswered(self._cluster.now_ms())
            return
        if self._candidate.answered(response, sent_ms, self._cluster.now_ms()) in STALE_COORDINATOR:
            self._coordinator.forget()

    def _report(self) -> None:
        if self._candidate.error != self._reported:
            self._reported = self._candidate.error
            if self._reported:
                log.error("registry group %s: %s", self.group_id, self._reported)

    async def _leave(self) -> None:
        request = self._candidate.leave()
        if request is not None:
            try:
                await self._coordinator.call(request)
            except (ChannelError, KafkaError) as error:
                log.debug("election: leaving failed: %s", error)
