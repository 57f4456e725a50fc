"""Sends requests for many items to the brokers responsible, and retries until each item has an outcome.

Knows no API: a `Question` makes requests and reads responses, a route (`routes.py`) finds the broker for each item.
Items of one broker share a request; brokers are called concurrently; only items without a final outcome are retried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import trio

from barnabas.client.admin.results import Results
from barnabas.client.cluster import Cluster, NoBrokerAvailable
from barnabas.client.errors import IllegalStateException
from barnabas.protocol.errors import EncodeError, ErrorCode, KafkaError
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import ChannelError

K = TypeVar("K")
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)

LATE_BROKER_MS = 5_000
"""Time to retry lookups of unknown topics and brokers: the broker that was asked may lag behind. So a missing one is
reported within seconds, where Kafka's own client retries until default.api.timeout.ms."""


@dataclass(frozen=True, slots=True)
class Nowhere:
    """An item for which no broker can be called now; or ever, if `final`."""

    error: KafkaError
    final: bool = False


Place = int | None | Nowhere
"""Broker id, or None for any broker that can be reached."""


class Route(Protocol[K_contra]):
    """Finds the broker for each item. Called again in each round, so that a wrong result is not used twice."""

    async def places(self, keys: Sequence[K_contra], timeout_ms: int) -> list[Place]:
        """The place of each of `keys`. Raises as `Cluster.call_any`."""


@dataclass(frozen=True)
class Question(Generic[K, V]):
    """One API, called for some items."""

    what: str
    """Kind of an item, for error messages: "topic", "group"."""
    ask: Callable[[list[K], int], Message]
    """(items, remaining ms) to a request."""
    read: Callable[[Any, list[K]], Iterable[tuple[K, V | KafkaError]]]
    """(response, items of the request) to the outcome of each."""
    final: frozenset[ErrorCode] = frozenset()
    """Retriable errors that are final for this API."""
    at_most: int | None = None
    """Highest version of the request; only for requests to certain brokers."""
    one_by_one: bool = False
    """A request has room for one item only."""

    def name(self, key: K) -> str:
        return f"{self.what} {key}".strip()


class Anywhere:
    """Any broker can answer, or forwards to the controller."""

    async def places(self, keys: Sequence[object], timeout_ms: int) -> list[Place]:
        return [None] * len(keys)


@dataclass(slots=True)
class _Round(Generic[K, V]):
    """Outcomes after one round of requests."""

    settled: dict[K, V | KafkaError]
    retriable: dict[K, KafkaError]

    def take(self, key: K, outcome: V | KafkaError, *, final: bool) -> None:
        if isinstance(outcome, KafkaError) and not final:
            self.retriable[key] = outcome
        else:
            self.settled[key] = outcome

    def fail(self, keys: Iterable[K], error: Exception, what: str) -> None:
        for key in keys:
            failure = _as_kafka_error(error, what)
            self.take(key, failure, final=not failure.retriable)


class Calls:
    """The requests of one administrator. May be used by many tasks at once."""

    def __init__(self, cluster: Cluster, default_api_timeout_ms: int) -> None:
        self.cluster = cluster
        self._timeout_ms = default_api_timeout_ms
        self._deadline_ms: int | None = None
        self._made: dict[str, int] = {}

    def together(self) -> Calls:
        """The same with one deadline, from now, for all of its requests: for methods with several steps."""
        steps = copy(self)
        steps._deadline_ms = self._deadline()
        return steps

    def _deadline(self) -> int:
        return self.cluster.now_ms() + self._timeout_ms if self._deadline_ms is None else self._deadline_ms

    def created_topic(self, name: str) -> None:
        """This client just created the topic: brokers that do not know it lag behind."""
        for old in [known for known in self._made if not self.is_new(known)]:
            del self._made[old]
        self._made[name] = self.cluster.now_ms() + LATE_BROKER_MS

    def removed_topic(self, name: str) -> None:
        self._made.pop(name, None)

    def is_new(self, topic: str) -> bool:
        """Whether this client created it a moment ago."""
        return self._made.get(topic, -1) > self.cluster.now_ms()

    async def ask(self, keys: Iterable[K], route: Route[K], question: Question[K, V]) -> Results[K, V]:
        """The outcome of each item. Takes up to default.api.timeout.ms for all of them together."""
        cluster = self.cluster
        deadline_ms = self._deadline()
        backoff = cluster.backoff()
        wanted = list(dict.fromkeys(keys))
        so_far = _Round[K, V]({}, {})
        pending = wanted
        if not pending:
            await trio.lowlevel.checkpoint()
        while pending:
            left_ms = max(1, deadline_ms - cluster.now_ms())
            with trio.move_on_after(left_ms / 1000):
                await self._go_round(pending, route, question, so_far, left_ms)
            pending = [key for key in pending if key not in so_far.settled]
            if not pending:
                break
            wait_ms = backoff.next_ms()
            if cluster.now_ms() + wait_ms >= deadline_ms:
                for key in pending:
                    so_far.settled[key] = self._too_late(question.name(key), so_far.retriable.get(key))
                break
            await trio.sleep(wait_ms / 1000)
        return Results({key: so_far.settled[key] for key in wanted})

    async def one(
        self,
        what: str,
        ask: Callable[[int], Message],
        read: Callable[[Any], V | KafkaError],
        final: frozenset[ErrorCode] = frozenset(),
    ) -> V:
        """The response of any broker, as `read` reads it. Raises its KafkaError, or REQUEST_TIMED_OUT."""
        question = Question[str, V](
            "", lambda _, timeout_ms: ask(timeout_ms), lambda response, _: [(what, read(response))], final
        )
        return (await self.ask([what], Anywhere(), question))[what]

    # ---- inside

    async def _go_round(
        self, keys: list[K], route: Route[K], question: Question[K, V], found: _Round[K, V], left_ms: int
    ) -> None:
        timeout_ms = min(left_ms, self.cluster.settings.request_timeout_ms)
        try:
            places = await route.places(keys, timeout_ms)
        except _FAILURES as error:
            found.fail(keys, error, "looking up the broker to call")
            return
        groups: dict[tuple[int | None, K | None], list[K]] = {}
        for key, place in zip(keys, places, strict=True):
            if isinstance(place, Nowhere):
                found.take(key, place.error, final=place.final)
            else:
                groups.setdefault((place, key if question.one_by_one else None), []).append(key)

        async def ask(node_id: int | None, some: list[K]) -> None:
            try:
                request = question.ask(some, timeout_ms)
                response = await self._call(node_id, request, timeout_ms, question.at_most)
            except _FAILURES as error:
                found.fail(some, error, question.name(some[0]))
                return
            answers = dict(question.read(response, some))
            if node_id is None and any(getattr(each, "code", None) in _NOT_HERE for each in answers.values()):
                # Controllers are asked directly, and this one is not the active one.
                self.cluster.prefer_others()
            for key in some:
                outcome = answers[key] if key in answers else _left_out(question.name(key))
                final = isinstance(outcome, KafkaError) and (not outcome.retriable or outcome.code in question.final)
                found.take(key, outcome, final=final)

        async with trio.open_nursery() as nursery:
            for (node_id, _), some in groups.items():
                nursery.start_soon(ask, node_id, some)

    async def _call(self, node_id: int | None, request: Message, timeout_ms: int, at_most: int | None) -> Any:
        if node_id is not None:
            return await self.cluster.call(node_id, request, timeout_ms, at_most=at_most)
        assert at_most is None
        return await self.cluster.call_any(request, timeout_ms)

    def _too_late(self, what: str, last: KafkaError | None) -> KafkaError:
        reason = f"; last error: {last}" if last is not None else ""
        error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{what}: no result within {self._timeout_ms} ms{reason}")
        error.__cause__ = last
        return error


_NOT_HERE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER})
_FAILURES = (KafkaError, ChannelError, NoBrokerAvailable, EncodeError)


def _as_kafka_error(error: Exception, what: str) -> KafkaError:
    """The error of a call as a KafkaError."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, EncodeError):
        return KafkaError(ErrorCode.INVALID_REQUEST, f"{what}: {error}")
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{what}: {error}")


def _left_out(what: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: the broker's response lacks it")


class Part:
    """Base of all parts of the administrator: access to the cluster while it is open."""

    _way: Calls | None = None

    @property
    def _calls(self) -> Calls:
        if self._way is None:
            raise IllegalStateException("this administrator is not open: use it in an `async with` block")
        return self._way
