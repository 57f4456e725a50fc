"""Calls of members of share groups: our share consumer, with every request that it exchanges noted, and a member that
breaks the rules of the protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import trio

from barnabas import Admin
from barnabas.client.admin import ConfigResource, ResourceType
from barnabas.client.cluster import Cluster
from barnabas.client.metadata import TopicPartition
from barnabas.client.shares.acknowledgements import Acknowledged
from barnabas.client.shares.record import ShareRecord
from barnabas.client.shares.share_consumer import ShareConsumer
from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import share_acknowledge as acknowledging
from barnabas.protocol.messages import share_fetch as fetching
from barnabas.runtime.channel import ChannelError
from barnabas.runtime.world import World
from clients import barnabas_settings
from clients.barnabas_errors import definite_errors, errors_of_change, name_of
from clients.client import ClientError, ClientSettings, ShareMode
from clients.rule_breaker import BREACHES, RuleBreaker
from operations import Place
from share_exchanges import answered, begun, failed

CLOSE_MS = 3_000
NowNs = Callable[[], int]


class NotedShareConsumer(ShareConsumer):
    """Our share consumer. Every share request and its response are noted, with their times."""

    def __init__(self, now_ns: NowNs, *, world: World, **options: Any) -> None:
        super().__init__(world=world, **options)
        self.exchanges: list[dict[str, Any]] = []
        self._now_ns = now_ns

    def _begin(self) -> None:
        setattr(self._cluster, "call", noted(self._cluster, self._cluster.call, self.exchanges, self._now_ns))  # noqa: B010
        super()._begin()

    @property
    def member_id(self) -> str:
        """ "" before the first subscription."""
        return "" if self._membership is None else self._membership.participant.member.member_id


def noted(
    cluster: Cluster, call: Callable[..., Awaitable[Any]], exchanges: list[dict[str, Any]], now_ns: NowNs
) -> Callable[..., Awaitable[Any]]:
    """`Cluster.call`; share requests are noted in `exchanges`."""

    async def noting(node_id: int, request: Any, *arguments: Any, **keywords: Any) -> Any:
        if not isinstance(request, fetching.ShareFetchRequest | acknowledging.ShareAcknowledgeRequest):
            return await call(node_id, request, *arguments, **keywords)
        exchange = begun(request, node_id, cluster.topic_name, now_ns())
        exchanges.append(exchange)
        try:
            response = await call(node_id, request, *arguments, **keywords)
        except (KafkaError, ChannelError):
            failed(exchange, now_ns())
            raise
        answered(exchange, response, cluster.topic_name, now_ns())
        return response

    return noting


class ShareCalls:
    """The `Sharing` of one client. One call at a time."""

    def __init__(
        self, world: World, nursery: trio.Nursery, settings: ClientSettings, admins: tuple[Admin, Admin], now_ns: NowNs
    ) -> None:
        """`admins`: one that retries, and one that asks once."""
        self._world = world
        self._nursery = nursery
        self._settings = settings
        self._admin, self._changing = admins
        self._now_ns = now_ns
        self._consumer: NotedShareConsumer | None = None
        self._done = trio.Event()
        self._closed = trio.Event()
        self._reported: list[list[Any]] = []
        self._known: dict[tuple[Place, int], ShareRecord] = {}
        """Records that were polled, by place and offset: the newest of each."""

    # ---- administrator

    async def configure(self, group: str, configs: Mapping[str, str]) -> None:
        with errors_of_change():
            await self._changing.incremental_alter_configs({ConfigResource(ResourceType.GROUP, group): dict(configs)})

    async def start_offsets(self, group: str, places: Sequence[Place]) -> Mapping[Place, tuple[int, int | None]]:
        with definite_errors():
            partitions = [TopicPartition(*place) for place in places]
            found = (await self._admin.list_share_group_offsets({group: partitions}))[group]
        return {Place(*each): (it.start_offset, it.lag) for each, it in found.items() if it is not None}

    # ---- a member

    @property
    def member_id(self) -> str:
        return "" if self._consumer is None else self._consumer.member_id

    async def join(self, topics: Sequence[str], mode: ShareMode) -> None:
        if self._consumer is None:
            self._consumer = await self._nursery.start(self._hold, mode)
        if self._consumer.subscription() != tuple(sorted(topics)):
            self._consumer.subscribe(topics)

    async def _hold(self, mode: ShareMode, *, task_status: trio.TaskStatus[NotedShareConsumer]) -> None:
        options = barnabas_settings.share_consumer(self._settings, mode)
        try:
            async with NotedShareConsumer(self._now_ns, world=self._world, **options) as consumer:
                consumer.set_acknowledgement_callback(self._acknowledged)
                task_status.started(consumer)
                await self._done.wait()
        finally:
            self._closed.set()

    def _acknowledged(self, result: Acknowledged) -> None:
        error = None if result.error is None else name_of(result.error)
        self._reported.append([*result.partition, list(result.offsets), error])

    async def poll(self, timeout_ms: int, most: int) -> list[list[Any]]:
        assert self._consumer is not None
        with _errors():
            records = await self._consumer.poll(timeout_ms, most)
        for record in records:
            self._known[Place(record.topic, record.partition), record.offset] = record
        return [
            [it.topic, it.partition, it.offset, it.delivery_count, (it.value or b"").decode(errors="replace")]
            for it in records
        ]

    def decide(self, place: Place, offset: int, kind: AcknowledgeType) -> None:
        assert self._consumer is not None
        record = self._known.get((place, offset))
        if record is None:
            return
        with _errors():
            self._consumer.acknowledge(record, kind)
        if kind is not AcknowledgeType.RENEW:
            del self._known[place, offset]

    async def commit(self, timeout_ms: int) -> None:
        """Results are in `take_reported`."""
        assert self._consumer is not None
        with _errors():
            await self._consumer.commit(timeout_ms)

    def take_exchanges(self, *, all_of_them: bool = False) -> list[dict[str, Any]]:
        if self._consumer is None:
            return []
        exchanges = self._consumer.exchanges
        taken = [each for each in exchanges if all_of_them or each["at"] is not None]
        exchanges[:] = [each for each in exchanges if not all_of_them and each["at"] is None]
        return taken

    def take_reported(self) -> list[list[Any]]:
        taken, self._reported = self._reported, []
        return taken

    async def leave(self, patience_ms: int = CLOSE_MS) -> None:
        if self._consumer is None:
            return
        await self._consumer.close(patience_ms)
        self._done.set()
        await self._closed.wait()

    # ---- a member that breaks the rules

    async def break_rules(self, group: str, member_id: str, place: Place, breach: str) -> list[dict[str, Any]]:
        way = self._admin._way
        assert way is not None
        cluster, exchanges = way.cluster, list[dict[str, Any]]()
        call = noted(cluster, cluster.call, exchanges, self._now_ns)
        member = RuleBreaker(cluster, call, exchanges, group, member_id, self._settings.request_timeout_ms)
        with definite_errors():
            await member.break_rules(place, BREACHES[breach])
        return exchanges


@contextmanager
def _errors() -> Iterator[None]:
    """Errors of a member: which records were acknowledged is in the exchanges."""
    try:
        yield
    except KafkaError as error:
        raise ClientError(name_of(error), str(error), definite=True) from error
