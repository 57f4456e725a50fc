"""A hostile client: it opens one connection after the other and misbehaves on them, by chance.

It reports what no node may do to anybody: acknowledge poison, answer nonsense, mix up the order of requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import trio

from barnabas.cluster.hostile.aims import OWN_PREFIX
from barnabas.cluster.hostile.connection import HostileConnection, Nonsense
from barnabas.cluster.hostile.knowledge import Knowledge
from barnabas.cluster.hostile.promises import order_is_kept
from barnabas.cluster.hostile.requests import Drawn, Requests
from barnabas.cluster.hostile.transacting import transact
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.runtime.simulated.chance import Stream
from barnabas.runtime.world import ConnectionLost, DialFailed, World

DIAL_SECONDS = 2.0
PATIENCE_SECONDS = 5.0
"""For one answer: some wait for others."""
PIPELINE = (2, 5, 20, 70)
"""Requests at once; a connection has up to 64 under way in a node."""
RECORDED = 50

Address = tuple[str, int]


@dataclass(slots=True)
class HostileClient:
    """Badly behaved, within what `aims` allows."""

    world: World
    chance: Stream
    nodes: Mapping[str, Sequence[Address]]
    """By listener: "broker" and "controller"."""
    report: Callable[[str], None]
    """Called with each broken promise."""
    pause_seconds: float = 0.1
    """Mean time between two requests."""
    counts: Counter[str] = field(default_factory=Counter)
    knowledge: Knowledge = field(default_factory=Knowledge)
    requests: Requests = field(init=False)
    _recorded: list[tuple[str, Drawn]] = field(default_factory=list)
    """With the listener that it was for."""

    def __post_init__(self) -> None:
        self.requests = Requests(self.chance, self.knowledge, self.world.wall_clock.now_ms)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.session()

    async def session(self) -> None:
        """One connection, from its opening to its end."""
        listeners = [listener for listener, addresses in self.nodes.items() if addresses]
        listener = "controller" if "controller" in listeners and self.chance.random() < 0.15 else "broker"
        behave = self.chance.choices(list(_BEHAVIOURS), list(_BEHAVIOURS.values()))[0]
        self.counts["connections"] += 1
        try:
            connection = await self.dial(listener)
        except (DialFailed, trio.TooSlowError):
            await self.pause()
            return
        try:
            if listener not in self.knowledge.served:
                versions = Drawn.of(ApiVersionsRequest(), 0)
                with trio.fail_after(PATIENCE_SECONDS):
                    self.knowledge.learn_versions(listener, await connection.call(versions))
            await behave(self, connection, listener)
        except (ConnectionLost, DialFailed, trio.TooSlowError):
            self.counts["connections that ended early"] += 1
        except Nonsense as error:
            self.report(str(error))
        finally:
            connection.close()
        await self.pause()

    async def dial(self, listener: str = "broker") -> HostileConnection:
        """To any of its nodes. Raises DialFailed, TooSlowError."""
        return await self.dial_at(self.chance.choice(list(self.nodes[listener])))

    async def dial_at(self, address: Address) -> HostileConnection:
        with trio.fail_after(DIAL_SECONDS):
            return HostileConnection(await self.world.network.dial(*address))

    async def pause(self, times: float = 1.0) -> None:
        await trio.sleep(self.chance.expovariate(1.0 / self.pause_seconds) * times)

    def draw(self, listener: str, api: ApiKey | None = None) -> Drawn:
        """A new request, or an old one, as it was or with other values."""
        same = [drawn for of, drawn in self._recorded if of == listener]
        if api is None and same and self.chance.random() < 0.3:
            drawn = self.chance.choice(same)
            drawn = self.requests.changed(drawn) if self.chance.random() < 0.7 else drawn
        else:
            drawn = self.requests.draw(listener, api)
        self._recorded.append((listener, drawn))
        del self._recorded[:-RECORDED]
        self.counts["requests"] += 1
        return drawn

    async def take_answer(self, connection: HostileConnection, drawn: Drawn) -> None:
        """The answer to it, if it has one."""
        if drawn.api is ApiKey.PRODUCE and getattr(drawn.message, "acks", -1) == 0:
            connection.expects_nothing()
            return
        with trio.fail_after(PATIENCE_SECONDS):
            answer = await connection.answer(drawn)
        self.counts["answers"] += 1
        self.knowledge.learn(drawn.api, answer)
        if getattr(answer, "error_code", 0) == ErrorCode.UNKNOWN_SERVER_ERROR:
            self.report(f"{drawn} was answered UNKNOWN_SERVER_ERROR: {drawn.message!r:.2000}")
        if drawn.is_poison:
            self._judge_poison(drawn, answer)

    def _judge_poison(self, drawn: Drawn, answer: object) -> None:
        for topic in getattr(answer, "responses", ()):
            for partition in topic.partition_responses:
                if partition.error_code == ErrorCode.NONE:
                    self.report(f"a batch that nobody can read was acknowledged at offset {partition.base_offset}")
        self.counts["poison"] += 1

    # ---- behaviours

    async def ask(self, connection: HostileConnection, listener: str) -> None:
        """One request after the other."""
        for _ in range(self.chance.choice((1, 5, 30))):
            drawn = self.draw(listener)
            await connection.send(connection.frame(drawn))
            await self.take_answer(connection, drawn)
            await self.pause()

    async def learn(self, connection: HostileConnection, listener: str) -> None:
        """Makes sure of own topics and of coordinators, and asks what there is."""
        known = [self.draw(listener, api) for api in _LEARNED_FROM[listener]]
        for drawn in [*(_foundations(self.knowledge) if listener == "broker" else ()), *known]:
            await connection.send(connection.frame(drawn))
            await self.take_answer(connection, drawn)
            await self.pause()

    async def pipeline(self, connection: HostileConnection, listener: str) -> None:
        """Many at once; the answers are read in order."""
        drawn = [self.draw(listener) for _ in range(self.chance.choice(PIPELINE))]
        await connection.pipeline(drawn)
        for each in drawn:
            await self.take_answer(connection, each)

    async def repeat(self, connection: HostileConnection, listener: str) -> None:
        """One request, the same again, and then others that contradict it."""
        first = self.draw(listener)
        drawn = [first, first, *(self.requests.changed(first) for _ in range(3))]
        self.counts["requests"] += len(drawn) - 1
        await connection.pipeline(drawn)
        for each in drawn:
            await self.take_answer(connection, each)

    async def abandon(self, connection: HostileConnection, listener: str) -> None:
        """Many at once, and the connection is closed."""
        await connection.pipeline([self.draw(listener) for _ in range(self.chance.choice(PIPELINE))])
        if self.chance.random() < 0.5:
            await self.pause()

    async def never_read(self, connection: HostileConnection, listener: str) -> None:
        """Many at once; nobody reads the answers."""
        with trio.move_on_after(PATIENCE_SECONDS):
            await connection.pipeline([self.draw(listener) for _ in range(self.chance.choice(PIPELINE))])
            await trio.sleep_forever()

    async def half_a_frame(self, connection: HostileConnection, listener: str) -> None:
        """A frame is announced, and not all of it comes."""
        frame = connection.frame(self.draw(listener))
        if self.chance.random() < 0.3:
            frame = self.chance.choice((100_000_000, 5, 0x7FFF_FFFF)).to_bytes(4, "big") + frame[4:]
        await connection.send(frame[: self.chance.randrange(len(frame))])
        await self.pause(10.0)

    async def slowly(self, connection: HostileConnection, listener: str) -> None:
        """A request in small pieces."""
        drawn = self.draw(listener)
        frame = connection.frame(drawn)
        step = max(1, len(frame) // 20)
        for start in range(0, len(frame), step):
            await connection.send(frame[start : start + step])
            await self.pause(0.3)
        await self.take_answer(connection, drawn)

    async def say_nothing(self, _connection: HostileConnection, _listener: str) -> None:
        await self.pause(20.0)

    async def transact(self, _connection: HostileConnection, _listener: str) -> None:
        await transact(self)

    async def reorder(self, connection: HostileConnection, listener: str) -> None:
        if listener == "broker":
            await order_is_kept(self, connection)


def _foundations(knowledge: Knowledge) -> list[Drawn]:
    """Good requests, without which most of the others would come to nothing."""
    topics = [
        CreatableTopic(name=name, num_partitions=2, replication_factor=1 + number % 3)
        for number, name in enumerate(knowledge.topics.own.values[:4])
    ]
    return [
        Drawn.of(CreateTopicsRequest(topics=topics, timeout_ms=5_000), 5),
        *(Drawn.of(FindCoordinatorRequest(key=OWN_PREFIX, key_type=kind), 3) for kind in (0, 1)),
        Drawn.of(MetadataRequest(topics=None), 12),
        Drawn.of(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=6_000), 4),
    ]


_LEARNED_FROM: Mapping[str, Sequence[ApiKey]] = {
    "broker": (
        ApiKey.LIST_GROUPS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.JOIN_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.DESCRIBE_PRODUCERS,
    ),
    "controller": (ApiKey.DESCRIBE_QUORUM, ApiKey.DESCRIBE_CLUSTER),
}

Behaviour = Callable[[HostileClient, HostileConnection, str], Awaitable[None]]

_BEHAVIOURS: Mapping[Behaviour, float] = {
    HostileClient.ask: 4.0,
    HostileClient.learn: 1.0,
    HostileClient.pipeline: 3.0,
    HostileClient.repeat: 2.0,
    HostileClient.abandon: 2.0,
    HostileClient.never_read: 0.3,
    HostileClient.half_a_frame: 0.5,
    HostileClient.slowly: 0.5,
    HostileClient.say_nothing: 0.2,
    HostileClient.reorder: 0.3,
    HostileClient.transact: 1.0,
}
"""Weight of each."""
