"""An honest Kafka in memory, with transactions and groups, that lies on request.

Time is trio's (use an autojumping clock). Calls may time out; their effect then happens, does not
happen, or happens later. A real cluster may do all of this to a client; it must not do what a lie does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import trio

from clients.client import ClientError
from operations import Place

T = TypeVar("T")

SESSION_S = 6.0
TRANSACTION_S = 1.0


def refusal(name: str, *, fatal: bool = False) -> ClientError:
    return ClientError(name, "said the fake", definite=True, fatal=fatal)


@dataclass
class Txn:
    """Open, or decided."""

    session: int
    began_s: float
    state: str = "open"
    touched: dict[Place, int] = field(default_factory=dict)
    """Its first offset in each partition."""
    offsets: dict[tuple[str, Place], int] = field(default_factory=dict)
    lied_about: dict[Place, str] = field(default_factory=dict)
    """Partitions that see another end of it."""

    def at(self, place: Place) -> str:
        return self.lied_about.get(place, self.state)


@dataclass
class Entry:
    """One offset of a partition."""

    key: bytes | None
    value: bytes | None
    transaction: Txn | None = None
    marker: bool = False


@dataclass
class Producer:
    """State of a transactional id at its coordinator."""

    session: int = 0
    txn: Txn | None = None


@dataclass
class Member:
    name: str
    instance: str | None
    topics: list[str]
    seen_s: float

    @property
    def identity(self) -> str:
        return self.instance or self.name


@dataclass
class Group:
    generation: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    """By instance id where there is one."""
    owners: dict[Place, str] = field(default_factory=dict)


@dataclass
class Topic:
    partitions: int
    configs: dict[str, str]


class FakeKafka:
    """`lies`: probability by kind."""

    def __init__(self, seed: int, *, timeouts: float = 0.0, lies: Mapping[str, float] | None = None) -> None:
        self.random = random.Random(seed)
        self.timeouts = timeouts
        self.lies = dict(lies or {})
        self.lies_so_far = 0
        self.topics: dict[str, Topic] = {}
        self.logs: dict[Place, list[Entry]] = {}
        self.producers: dict[str, Producer] = {}
        self.groups: dict[str, Group] = {}
        self.committed: dict[tuple[str, Place], int] = {}
        self._sessions = 0
        self._late: list[tuple[float, Callable[[], object]]] = []

    def lies_now(self, kind: str) -> bool:
        lies = kind in self.lies and self.random.random() < self.lies[kind]
        self.lies_so_far += lies
        return lies

    async def call(self, effect: Callable[[], T], *, reads: bool = False) -> T:
        """Over the wire and back."""
        await trio.sleep(self.random.random() * 0.01)
        self.settle()
        fate = self.random.random()
        if fate < self.timeouts:
            if fate < self.timeouts / 3:
                effect()
            elif fate < self.timeouts * 2 / 3 and not reads:
                self._late.append((trio.current_time() + self.random.random(), effect))
            raise ClientError("TimeoutException", "no answer", definite=False)
        result = effect()
        await trio.sleep(self.random.random() * 0.01)
        return result

    def settle(self) -> None:
        """Applies delayed effects that are due."""
        now_s = trio.current_time()
        self._late.sort(key=lambda each: each[0])
        due = [effect for when, effect in self._late if when <= now_s]
        self._late = [(when, effect) for when, effect in self._late if when > now_s]
        for effect in due:
            try:
                effect()
            except ClientError:
                pass  # its caller has given up waiting
        for producer in self.producers.values():
            if producer.txn and producer.txn.began_s + TRANSACTION_S < now_s:
                self.end(producer, producer.txn, "aborted")
        for group in self.groups.values():
            gone = [name for name, member in group.members.items() if member.seen_s + SESSION_S < now_s]
            for name in gone:
                del group.members[name]
            if gone:
                self.rebalance(group)

    # Topics

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        if name in self.topics:
            raise refusal("TopicExistsException")
        if self.lies_now("forget-topic"):
            return
        self.topics[name] = Topic(partitions, dict(configs))
        self._make_logs(name)

    def _make_logs(self, name: str) -> None:
        for partition in range(self.topics[name].partitions):
            self.logs.setdefault(Place(name, partition), [])

    def topic(self, name: str) -> Topic:
        if name not in self.topics:
            raise refusal("UnknownTopicOrPartitionException")
        return self.topics[name]

    def delete_topic(self, name: str) -> None:
        topic = self.topic(name)
        if self.lies_now("keep-topic"):
            return
        del self.topics[name]
        for partition in range(topic.partitions):
            self.logs.pop(Place(name, partition), None)

    def create_partitions(self, name: str, total: int) -> None:
        if self.topic(name).partitions >= total:
            raise refusal("InvalidPartitionsException")
        if not self.lies_now("forget-partitions"):
            self.topics[name].partitions = total
            self._make_logs(name)

    def alter_config(self, topic: str, name: str, value: str) -> None:
        configs = self.topic(topic).configs
        if not self.lies_now("forget-config"):
            configs[name] = value

    # Records

    def append(self, place: Place, key: bytes | None, value: bytes, txn: Txn | None) -> int:
        if place not in self.logs:
            raise refusal("UnknownTopicOrPartitionException")
        log = self.logs[place]
        if self.lies_now("lose"):
            return len(log)
        if txn and txn.state == "open":
            txn.touched.setdefault(place, len(log))
        offset = len(log)
        log.append(Entry(key, value, txn))
        if self.lies_now("duplicate"):
            log.append(Entry(key, value, txn))
        return offset

    def append_at(self, place: Place, value: bytes, due_s: float) -> None:
        """Deliver it at this time, or now if that is over."""
        if place not in self.logs:
            raise refusal("UnknownTopicOrPartitionException")
        if due_s <= trio.current_time() or self.lies_now("early"):
            self.append(place, None, value, None)
        else:
            self._late.append((due_s, lambda: self.append(place, None, value, None)))

    def init(self, transactional_id: str) -> int:
        producer = self.producers.setdefault(transactional_id, Producer())
        if producer.txn and not self.lies_now("init-keeps-transaction"):
            self.end(producer, producer.txn, "aborted")
        self._sessions += 1
        producer.session = self._sessions
        return producer.session

    def end(self, producer: Producer, txn: Txn, state: str) -> None:
        if self.lies_now("other-end"):
            state = "aborted" if state == "committed" else "committed"
        txn.state = state
        if producer.txn is txn:
            producer.txn = None
        for place in txn.touched:
            if self.lies_now("tear"):
                txn.lied_about[place] = "aborted" if state == "committed" else "committed"
            if place in self.logs:
                self.logs[place].append(Entry(None, None, txn, marker=True))
        if state == "committed" and not self.lies_now("forget-offsets-of-transactions"):
            self.committed.update(txn.offsets)

    def stable_end(self, place: Place) -> int:
        opened = [
            producer.txn.touched[place]
            for producer in self.producers.values()
            if producer.txn and place in producer.txn.touched
        ]
        return min([len(self.logs[place]), *opened])

    def is_stable(self, group: str, place: Place) -> bool:
        return not any(each.txn and (group, place) in each.txn.offsets for each in self.producers.values())

    # Groups

    def rebalance(self, group: Group) -> None:
        group.generation += 1
        group.owners = {}
        for topic in dict.fromkeys(topic for member in group.members.values() for topic in member.topics):
            names = [name for name, member in group.members.items() if topic in member.topics]
            for partition in range(self.topics[topic].partitions if topic in self.topics else 0):
                group.owners[Place(topic, partition)] = names[partition % len(names)]

    def commit(self, group: str, positions: Mapping[Place, int]) -> None:
        if not self.lies_now("forget-offsets"):
            self.committed.update({(group, place): offset for place, offset in positions.items()})

    def offsets(self, group: str) -> dict[Place, int]:
        found = {place: offset for (name, place), offset in self.committed.items() if name == group}
        if self.lies_now("stale-offsets"):
            return {place: max(0, offset - 1) for place, offset in found.items()}
        return found
