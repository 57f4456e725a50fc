"""A client of the fake Kafka, and the world that the real runner needs around it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from barnabas.runtime.simulated import run_simulation
from clients.client import ClientSettings, Read, Sent, WorkClient
from histories.history import History
from histories.recorder import Recorder
from operations import Place
from running.runner import Run, RunOptions
from tests.jepsen.fake_kafka import FakeKafka, Group, Member, Producer, Txn, refusal
from workloads.workload import Workload

MOST_IN_A_POLL = 10


class FakeLibrary:
    """Library of clients that share one fake."""

    name = "fake"

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka
        self._opened = 0

    @asynccontextmanager
    async def open(self, settings: ClientSettings, host: str) -> AsyncIterator[WorkClient]:
        self._opened += 1
        client = FakeClient(self._kafka, settings, f"{host}/{self._opened}")
        yield client
        if not client.gone:
            client.leave()


class FakeClient:
    """A `WorkClient`."""

    def __init__(self, kafka: FakeKafka, settings: ClientSettings, name: str) -> None:
        self.gone = False
        self._kafka = kafka
        self._settings = settings
        self._name = name
        self._session = 0
        self._txn: Txn | None = None
        self._positions: dict[Place, int | None] = {}
        self._topics: list[str] | None = None
        self._member: Member | None = None
        self._generation = -1
        self._rebalances: list[dict[str, Any]] = []

    @property
    def _group(self) -> str:
        assert self._settings.group_id is not None
        return self._settings.group_id

    # Administrator

    async def create_topic(
        self, name: str, partitions: int, replicas: int, configs: Mapping[str, str] | None = None
    ) -> None:
        await self._kafka.call(lambda: self._kafka.create_topic(name, partitions, configs or {}))

    async def delete_topic(self, name: str) -> None:
        await self._kafka.call(lambda: self._kafka.delete_topic(name))

    async def create_partitions(self, name: str, total: int) -> None:
        await self._kafka.call(lambda: self._kafka.create_partitions(name, total))

    async def list_topics(self) -> Mapping[str, int]:
        topics = self._kafka.topics
        return await self._kafka.call(lambda: {name: topics[name].partitions for name in topics}, reads=True)

    async def alter_config(self, topic: str, name: str, value: str) -> None:
        await self._kafka.call(lambda: self._kafka.alter_config(topic, name, value))

    async def describe_config(self, topic: str, name: str) -> str:
        return await self._kafka.call(lambda: self._kafka.topic(topic).configs.get(name, ""), reads=True)

    def answered_by(self) -> str | None:
        return "broker-1"

    # Producer

    async def send(self, place: Place, key: bytes | None, value: bytes) -> Sent:
        txn = self._txn
        return Sent(await self._kafka.call(lambda: self._append(place, key, value, txn)))

    async def send_later(self, place: Place, value: bytes, delay_ms: int | None, by: str) -> None:
        delay_s, called_s = (delay_ms or 0) / 1000, trio.current_time()

        def effect() -> None:
            began_s = called_s if by == "at" else trio.current_time()
            self._kafka.append_at(place, value, began_s + delay_s)

        await self._kafka.call(effect)

    def _append(self, place: Place, key: bytes | None, value: bytes, txn: Txn | None) -> int:
        if self._settings.transactional_id is not None:
            assert txn is not None, "a transactional producer sends outside of a transaction"
            if not self._kafka.lies_now("zombies-append"):
                self._producer(txn)
        return self._kafka.append(place, key, value, txn)

    def _producer(self, txn: Txn) -> Producer:
        """Fails if this client is fenced or its transaction is not open."""
        assert self._settings.transactional_id is not None
        producer = self._kafka.producers.setdefault(self._settings.transactional_id, Producer())
        if txn.session != producer.session:
            raise refusal("ProducerFencedException", fatal=True)
        if txn.state != "open":
            raise refusal("InvalidTxnStateException", fatal=True)
        producer.txn = txn
        return producer

    async def init_transactions(self) -> None:
        id_ = self._settings.transactional_id
        assert id_ is not None
        self._session = await self._kafka.call(lambda: self._kafka.init(id_))

    async def begin(self) -> None:
        await trio.lowlevel.checkpoint()
        self._txn = Txn(self._session, trio.current_time())

    async def send_offsets(self, offsets: Mapping[Place, int]) -> None:
        txn, member, generation = self._txn, self._member, self._generation
        assert txn is not None

        def effect() -> None:
            self._producer(txn)
            self._check_generation(member, generation)
            txn.offsets.update({(self._group, place): offset for place, offset in offsets.items()})

        await self._kafka.call(effect)

    async def commit_transaction(self) -> None:
        await self._end("committed")

    async def abort_transaction(self) -> None:
        await self._end("aborted")

    async def _end(self, state: str) -> None:
        txn, self._txn = self._txn, None
        if txn is None:
            raise refusal("IllegalStateException", fatal=True)
        id_ = self._settings.transactional_id
        assert id_ is not None

        def effect() -> None:
            if txn.session == 0 or (state == "committed" and self._kafka.lies_now("zombies-commit")):
                self._kafka.end(self._kafka.producers[id_], txn, state)
            else:
                self._kafka.end(self._producer(txn), txn, state)

        await self._kafka.call(effect)

    # Consumer

    async def assign(self, places: Sequence[Place], *, from_beginning: bool) -> None:
        await trio.lowlevel.checkpoint()
        self.leave()
        self._topics = None
        self._positions = {place: 0 if from_beginning else self._positions.get(place) for place in places}

    async def subscribe(self, topics: Sequence[str]) -> None:
        await trio.lowlevel.checkpoint()
        self._topics = list(topics)
        self._positions = {}

    async def seek(self, place: Place, offset: int) -> None:
        await trio.lowlevel.checkpoint()
        self._positions[place] = offset

    async def poll(self, timeout_ms: int) -> list[Read]:
        await self._kafka.call(lambda: None, reads=True)
        if self._topics is not None:
            self._join()
        read = self._fetch()
        if not read:
            await trio.sleep(timeout_ms / 1000)
        return read

    def _fetch(self) -> list[Read]:
        found: list[Read] = []
        kafka = self._kafka
        committed = self._settings.isolation == "read_committed" and not kafka.lies_now("dirty-reads")
        for place in self._positions:
            position = self._position(place)
            if position is None or place not in kafka.logs:
                continue
            log = kafka.logs[place]
            end = kafka.stable_end(place) if committed else len(log)
            while position < end and len(found) < MOST_IN_A_POLL:
                entry = log[position]
                hidden = entry.marker or (committed and entry.transaction and entry.transaction.at(place) == "aborted")
                if not hidden and not kafka.lies_now("skip"):
                    assert entry.value is not None
                    found.append(Read(place, position, entry.key, entry.value, 0))
                position += 1
            self._positions[place] = position
        return found

    def _position(self, place: Place) -> int | None:
        if self._positions.get(place) is None:
            if self._settings.group_id is None:
                self._positions[place] = 0
            elif self._kafka.is_stable(self._group, place) or self._kafka.lies_now("unstable-offsets"):
                self._positions[place] = self._kafka.offsets(self._group).get(place, 0)
        return self._positions.get(place)

    async def position(self, place: Place) -> int | None:
        await trio.lowlevel.checkpoint()
        return self._positions.get(place)

    async def commit_offsets(self) -> Mapping[Place, int]:
        positions = {place: at for place, at in self._positions.items() if at is not None}
        member, generation = self._member, self._generation

        def effect() -> None:
            self._check_generation(member, generation)
            self._kafka.commit(self._group, positions)

        await self._kafka.call(effect)
        return positions

    async def committed(self, places: Sequence[Place]) -> Mapping[Place, int]:
        offsets = await self._kafka.call(lambda: self._kafka.offsets(self._group), reads=True)
        return {place: offsets[place] for place in places if place in offsets}

    async def committed_by_one(self, places: Sequence[Place], turn: int) -> Mapping[Place, int]:
        return await self.committed(places)

    async def end_offsets(self, places: Sequence[Place]) -> Mapping[Place, int]:
        committed = self._settings.isolation == "read_committed"

        def effect() -> dict[Place, int]:
            there = [place for place in places if place in self._kafka.logs]
            return {
                place: self._kafka.stable_end(place) if committed else len(self._kafka.logs[place]) for place in there
            }

        return await self._kafka.call(effect, reads=True)

    def assignment(self) -> list[Place]:
        return list(self._positions)

    def take_rebalances(self) -> list[dict[str, Any]]:
        taken, self._rebalances = self._rebalances, []
        return taken

    # The member of a group

    def _join(self) -> None:
        assert self._topics is not None
        group = self._kafka.groups.setdefault(self._group, Group())
        identity = self._settings.group_instance_id or self._name
        known = group.members.get(identity)
        if known is None or self._member is None:
            # A member that was removed joins again; a static member takes over from its predecessor.
            self._member = Member(self._name, self._settings.group_instance_id, self._topics, 0)
            group.members[identity] = self._member
            if known is None:
                self._kafka.rebalance(group)
        elif known is not self._member:
            raise refusal("FencedInstanceIdException", fatal=True)
        self._member.seen_s = trio.current_time()
        if group.generation != self._generation:
            self._follow(group, identity)

    def _follow(self, group: Group, identity: str) -> None:
        if self._positions:
            self._report("revoked", list(self._positions), self._generation)
        self._generation = group.generation
        owned = [place for place, owner in group.owners.items() if owner == identity]
        if self._kafka.lies_now("two-owners"):
            owned = list(group.owners)
        self._positions = dict.fromkeys(owned)
        self._report("assigned", owned, self._generation)

    def _report(self, kind: str, places: Sequence[Place], generation: int) -> None:
        now_ns = int(trio.current_time() * 1e9)
        rebalance = {"kind": kind, "places": [[*place] for place in places], "generation": generation, "t_ns": now_ns}
        self._rebalances.append(rebalance)

    def _check_generation(self, member: Member | None, generation: int) -> None:
        if member is None or self._kafka.lies_now("any-generation"):
            return
        group = self._kafka.groups[self._group]
        known = group.members.get(member.identity)
        if known is not member and known is not None:
            raise refusal("FencedInstanceIdException", fatal=True)
        if known is None or generation != group.generation:
            raise refusal("CommitFailedException")

    def leave(self) -> None:
        if self._member is None:
            return
        group = self._kafka.groups[self._group]
        if group.members.get(self._member.identity) is self._member and self._member.instance is None:
            del group.members[self._member.identity]
            self._kafka.rebalance(group)
        self._member = None
        self._generation = -1

    async def crash(self) -> None:
        await trio.lowlevel.checkpoint()
        self.gone = True


class FakeWorld:
    """The part of a cluster that the runner needs. After the last repair nothing times out."""

    name = "fake"
    bootstrap_servers = "fake:1"

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def now_ns(self) -> int:
        return int(trio.current_time() * 1e9)

    def wall_ms(self) -> int:
        return int(trio.current_time() * 1e3)

    async def views(self) -> list[Any]:
        await trio.lowlevel.checkpoint()
        return []

    async def states(self) -> dict[str, str]:
        await trio.lowlevel.checkpoint()
        return {}

    async def active_controller(self) -> None:
        await trio.lowlevel.checkpoint()

    async def wait_ready(self, timeout_seconds: float = 60.0) -> None:
        await trio.lowlevel.checkpoint()
        self._kafka.timeouts = 0.0


class _Mender:
    """Lets the faults of the fake begin and end."""

    def __init__(self, kafka: FakeKafka, timeouts: float) -> None:
        self._kafka = kafka
        self._timeouts = timeouts

    async def run(self, report: Any) -> None:
        self._kafka.timeouts = self._timeouts
        await trio.sleep_forever()

    async def undo(self, report: Any) -> None:
        await trio.lowlevel.checkpoint()
        self._kafka.timeouts = 0.0


def run_over(
    kafka: FakeKafka, workload: Workload, directory: Path, *, processes: int, seconds: float = 5.0, seed: int = 1
) -> History:
    """Runs the real runner over the fake until the final phase is over."""
    mender = _Mender(kafka, kafka.timeouts)
    kafka.timeouts = 0.0
    options = RunOptions(seconds, rate=100.0, concurrency=processes, quiet_seconds=3.0)
    run = Run(
        options,
        workload,
        [FakeLibrary(kafka)],
        chance_of=lambda purpose: random.Random(f"{seed} {purpose}"),
        nemesis=mender,
    )

    async def main() -> None:
        with Recorder(directory, {"name": "fake", "workload": workload.name}) as recorder:
            ended = await run.run(FakeWorld(kafka), recorder)  # type: ignore[arg-type]
            assert ended.failure is None and ended.final_done, ended

    run_simulation(seed, lambda universe: main())
    return History.load(directory)
