"""Shell of `push_session.py`: sends its requests over connections that the client has anyway."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import trio

from barnabas.client.cluster import Cluster, NoBrokerAvailable
from barnabas.client.errors import IllegalStateException
from barnabas.client.telemetry.push_session import PushSession, PushState
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.otlp import Sample
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import ChannelError

log = logging.getLogger(__name__)

LAST_PUSH_MS = 1_000
"""Time for the terminating push of a client that closes."""


class MetricsPush:
    """The push of one client's metrics; `run` is its task."""

    def __init__(
        self,
        cluster: Cluster,
        collect: Callable[[int], Iterable[Sample]],
        resource: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`collect` takes the monotonic time in milliseconds; `resource` describes the client."""
        self._cluster = cluster
        self._collect = collect
        self._resource = resource
        self._session = PushSession(cluster.world.chance, cluster.now_ms(), cluster.world.wall_clock.now_ms())
        self._identified = trio.Event()
        self._running = trio.CancelScope()

    async def run(self) -> None:
        """Until no push is possible any more, or `close`. Waits for the client's own first connection."""
        with self._running:
            await self._run()

    async def _run(self) -> None:
        cluster, session = self._cluster, self._session
        await cluster.connected_once.wait()
        if not cluster.offers(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS):
            session.end()
        while session.state is not PushState.ENDED:
            await trio.sleep(max(0, session.due_ms - cluster.now_ms()) / 1000)
            if session.state is PushState.SUBSCRIPTION_NEEDED:
                await self._subscribe()
            else:
                await self._push()
        cluster.meters.is_measuring = False
        self._identified.set()

    async def _subscribe(self) -> None:
        session = self._session
        response = await self._call(session.subscription_request())
        if response is not None:
            session.subscribed(response, self._cluster.now_ms())
            if session.subscription is not None:
                self._cluster.meters.is_measuring = bool(session.subscription.prefixes)
                self._identified.set()

    async def _push(self, *, terminating: bool = False) -> None:
        cluster = self._cluster
        samples = self._collect(cluster.now_ms())
        request = self._session.push_request(
            samples, self._resource(), cluster.world.wall_clock.now_ms(), terminating=terminating
        )
        response = await self._call(request)
        if response is not None:
            self._session.pushed(response, cluster.now_ms())

    async def _call(self, request: Message) -> Any:
        """The response; None if there is none."""
        try:
            response = await self._cluster.call_connected(request)
        except (ChannelError, NoBrokerAvailable) as error:
            log.debug("metrics are not pushed now: %s", error)
            self._session.unanswered(self._cluster.now_ms())
        except KafkaError as error:
            log.debug("metrics are not pushed any more: %s", error)
            self._session.end()
        else:
            return response
        return None

    async def close(self) -> None:
        """End `run`, and send the terminating push if a broker asked for metrics; bounded in time."""
        self._running.cancel()
        if self._session.state is PushState.PUSH_NEEDED:
            with trio.move_on_after(LAST_PUSH_MS / 1000):
                await self._push(terminating=True)
        self._session.end()
        self._identified.set()

    async def client_instance_id(self, timeout_ms: int) -> str:
        """The id that brokers know this client by, in base64 as Kafka's tools print it. TimeoutException after
        `timeout_ms`; UnsupportedVersionException if the brokers do not take metrics.
        """
        backoff = self._cluster.backoff()
        with trio.move_on_after(timeout_ms / 1000):
            while not self._cluster.connected_once.is_set() and not await self._cluster.refresh():
                await trio.sleep(backoff.next_ms() / 1000)
            await self._identified.wait()
        if self._session.subscription is not None:
            return uuid_to_string(self._session.instance_id)
        if self._identified.is_set():
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the brokers do not take metrics of clients (KIP-714)")
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no broker gave an instance id within {timeout_ms} ms")


def pushing(push: MetricsPush | None) -> MetricsPush:
    """IllegalStateException if the client does not push."""
    if push is None:
        raise IllegalStateException("enable_metrics_push is False: this client has no instance id")
    return push
