"""The client for asyncio: web frameworks, notebooks, anything on `asyncio` or uvloop.

    from barnabas import aio

    async with aio.Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        await producer.send("flights", b"gate open", key=b"UA1545")

Names, arguments and errors are those of `barnabas`. A client has a trio event loop in its own thread for the length of
its `async with` block, so its heartbeats go on while the application's loop is busy. Serializers, partitioners and
interceptors run in that thread; the callbacks of rebalances and acknowledgements, which may be coroutine functions, run
in the application's loop.
"""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import fields, replace
from functools import partial as bind
from re import Pattern
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from barnabas.asyncio_bridge import Bridge
from barnabas.client.admin import Admin as TrioAdmin
from barnabas.client.consumer.consumer import Consumer as TrioConsumer
from barnabas.client.consumer.listener import OnPartitions, RebalanceListener
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer.future import FutureRecordMetadata
from barnabas.client.producer.producer import Producer as TrioProducer
from barnabas.client.producer.record_metadata import Outcome, RecordMetadata
from barnabas.client.shares.acknowledgements import Acknowledged
from barnabas.client.shares.record import ShareRecord
from barnabas.client.shares.share_consumer import OnAcknowledged
from barnabas.client.shares.share_consumer import ShareConsumer as TrioShareConsumer
from barnabas.sync import HolderInLoop, OutcomeOfRecord, record_to_send

__all__ = ["Admin", "Consumer", "Producer", "RebalanceListener", "ShareConsumer"]


class _Facade:
    """A client behind a bridge."""

    client_class: type[Any]

    def __init__(self, *args: Any, **options: Any) -> None:
        self._client = self.client_class(*args, **options)
        self._bridge = Bridge()
        self._held: AbstractAsyncContextManager[Any] | None = None
        self.settings = self._client.settings

    async def __aenter__(self) -> Self:
        await self._bridge.start()
        held = self._bridge.held(self._client)
        try:
            await held.__aenter__()
        except BaseException:
            await self._bridge.stop()
            raise
        self._held = held
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        held, self._held = self._held, None
        try:
            self._begin_call()
            return None if held is None else await held.__aexit__(kind, error, traceback)
        finally:
            await self._bridge.stop()

    def _begin_call(self) -> None:
        """Called before each method."""


def _on_asyncio(client_class: type[Any]) -> Callable[[type[Any]], type[Any]]:
    """A decorator that adds the public methods and properties of the client which the facade does not define itself."""

    def add(facade: type[Any]) -> type[Any]:
        facade.client_class = client_class
        facade.__name__ = facade.__qualname__ = client_class.__name__
        facade.__doc__ = client_class.__doc__
        for name in dir(client_class):
            if name.startswith("_") or name in _NOT_FOR_USERS:
                continue
            original = inspect.getattr_static(client_class, name)
            if name in facade.__dict__:
                facade.__dict__[name].__doc__ = original.__doc__
            elif isinstance(original, property):
                setattr(facade, name, property(_immediate(original.fget), doc=original.__doc__))
            elif inspect.iscoroutinefunction(original):
                setattr(facade, name, _awaited(original))
            else:
                setattr(facade, name, _immediate(original))
        return facade

    return add


_NOT_FOR_USERS = frozenset({"begin_send", "decided", "membership", "over", "put_back", "split", "take_ahead"})
"""Methods for the client's other parts, or for callers inside of trio."""


def _awaited(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def call(self: _Facade, /, *args: Any, **kwargs: Any) -> Any:
        self._begin_call()
        return await self._bridge.call(method, self._client, *args, **kwargs)

    return call


def _immediate(method: Callable[..., Any] | None) -> Callable[..., Any]:
    assert method is not None

    @functools.wraps(method)
    def call(self: _Facade, /, *args: Any, **kwargs: Any) -> Any:
        self._begin_call()
        return self._bridge.now(method, self._client, *args, **kwargs)

    return call


class Future(OutcomeOfRecord):
    """The outcome of one record: `FutureRecordMetadata` of `barnabas` for asyncio."""

    __slots__ = ("_bridge",)

    def __init__(self, bridge: Bridge, future: FutureRecordMetadata) -> None:
        super().__init__(future)
        self._bridge = bridge

    def result(self) -> RecordMetadata:
        """Topic, partition and offset. Raises the reason of a failure, and IllegalStateException if it is not done."""
        return self._future.result()

    async def outcome(self) -> Outcome:
        """Acked, Failed or Unknown: whether the record is in the log. Raises nothing."""
        return await self._bridge.call(self._future.outcome)

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        if not self._future.done:
            yield from self._bridge.call(self._future.outcome).__await__()
        return self._future.result()


@_on_asyncio(TrioAdmin)
class _Admin(_Facade): ...


@_on_asyncio(TrioProducer)
class _Producer(_Facade):
    async def send(self, topic: str, value: Any = None, **of_record: Any) -> RecordMetadata:
        # One step in the client's loop sends the record, and a callback reports the response: no task is made.
        record = record_to_send(topic, value, **of_record)
        begun = await self._bridge.until_notified(bind(self._client.begin_send, record))
        return begun.result() if isinstance(begun, FutureRecordMetadata) else await self._bridge.call(begun)

    async def enqueue(self, topic: str, value: Any = None, **of_record: Any) -> Future:
        future = await self._bridge.call(self._client.enqueue, topic, value, **of_record)
        return Future(self._bridge, future)

    def send_nowait(self, topic: str, value: Any = None, **of_record: Any) -> Future:
        return Future(self._bridge, self._bridge.now(self._client.send_nowait, topic, value, **of_record))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        async with self._bridge.held(self._client.transaction()):
            yield


@_on_asyncio(TrioConsumer)
class _Consumer(_Facade):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._taken: deque[ConsumerRecord] = deque()
        """Records that iteration has taken from the client, and not returned yet."""

    def _begin_call(self) -> None:
        """Positions and commits count returned records: the client gets the others back."""
        if self._taken:
            taken, self._taken = self._taken, deque()
            self._bridge.now(self._client.put_back, taken)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        if not self._taken:
            self._taken = await self._bridge.call(self._client.take_ahead)
        return self._taken.popleft()

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        self._begin_call()
        if listener is not None:
            listener = replace(
                listener,
                on_assigned=self._in_asyncio(listener.on_assigned),
                on_revoked=self._in_asyncio(listener.on_revoked),
                on_lost=self._in_asyncio(listener.on_lost),
            )
        self._bridge.now(self._client.subscribe, topics, pattern=pattern, listener=listener)

    def _in_asyncio(self, call: OnPartitions | None) -> OnPartitions | None:
        if call is None:
            return None

        async def called(partitions: Sequence[TopicPartition]) -> None:
            await self._bridge.in_asyncio(call, partitions)

        return called


@_on_asyncio(TrioShareConsumer)
class _ShareConsumer(_Facade):
    async def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> list[ShareRecord]:
        records = await self._bridge.call(self._client.poll, timeout_ms, max_records)
        holder = HolderInLoop(self._bridge.portal, records[0].holder) if records else None
        return [
            ShareRecord(**{each.name: getattr(record, each.name) for each in fields(record)} | {"holder": holder})
            for record in records
        ]

    def set_acknowledgement_callback(self, callback: OnAcknowledged | None) -> None:
        if callback is None:
            self._bridge.now(self._client.set_acknowledgement_callback, None)
            return

        async def called(acknowledged: Acknowledged) -> None:
            await self._bridge.in_asyncio(callback, acknowledged)

        self._bridge.now(self._client.set_acknowledgement_callback, called)


if TYPE_CHECKING:
    # What type checkers and editors see: on asyncio the same methods are coroutines as on trio.
    class Admin(TrioAdmin): ...

    class Producer(TrioProducer): ...

    class Consumer(TrioConsumer): ...

    class ShareConsumer(TrioShareConsumer): ...

else:
    Admin, Producer, Consumer, ShareConsumer = _Admin, _Producer, _Consumer, _ShareConsumer
