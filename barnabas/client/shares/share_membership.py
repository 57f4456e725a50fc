"""One membership in a share group, from `subscribe` to `unsubscribe`: the member, and its sessions with the leaders."""

from __future__ import annotations

from collections.abc import Callable

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.groups.coordinators import CoordinatorLink, CoordinatorType
from barnabas.client.groups.participant import Participant, Wanted
from barnabas.client.life import CLOSE_TIMEOUT_MS
from barnabas.client.shares.deliveries import Deliveries
from barnabas.client.shares.meters import ShareMeters
from barnabas.client.shares.settings import ShareConsumerSettings
from barnabas.client.shares.share_fetcher import ShareFetcher
from barnabas.client.shares.share_session import Result


class ShareMembership:
    def __init__(
        self,
        cluster: Cluster,
        nursery: trio.Nursery,
        settings: ShareConsumerSettings,
        wanted: Wanted,
        deliveries: Deliveries,
        meters: ShareMeters,
    ) -> None:
        self._cluster = cluster
        self._meters = meters
        coordinator = CoordinatorLink(cluster, CoordinatorType.GROUP, settings.group_id)
        self._on_news: Callable[[], None] = lambda: None
        self.participant = Participant(cluster, coordinator, settings.group, wanted, self._changed)
        self.participant.on_heartbeat = lambda sent_ms: meters.heartbeat_answered(sent_ms, cluster.now_ms())
        self.fetcher = ShareFetcher(cluster, nursery, settings, self.participant.member.member_id, deliveries, meters)

    def start(
        self, nursery: trio.Nursery, on_result: Callable[[Result], None], on_news: Callable[[], None]
    ) -> None:
        """Join the group. `on_news` is called when records, errors or another assignment have come."""
        self._on_news = self.fetcher.on_news = on_news
        self.fetcher.on_result = on_result
        nursery.start_soon(self.participant.run)

    def _changed(self) -> None:
        """Several members may have a partition: changes of the assignment are carried out at once."""
        while (change := self.participant.change) is not None:
            self.participant.changed(change)
            self._meters.rebalanced(self._cluster.now_ms())
        self.fetcher.assign(self.participant.member.owned)
        self._on_news()

    async def close(self) -> None:
        """Send what is decided, release the rest, leave the group. The caller bounds the time."""
        self.participant.stop()
        try:
            await self.fetcher.close()
        finally:
            await self.participant.leave(reason="the consumer is being closed")

    async def close_in_background(self) -> None:
        with trio.move_on_after(CLOSE_TIMEOUT_MS / 1000):
            await self.close()
