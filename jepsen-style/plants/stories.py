"""Stories for bugs that random faults rarely reveal: the exact order of faults in which they must show.

Each runs in a world with or without a plant, and returns the findings: none if the node is right.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import trio

from barnabas import Admin, Consumer, ConsumerGroupMetadata, NewTopic, OffsetAndMetadata, Producer
from barnabas.client.cluster import TopicPartition
from barnabas.cluster.errors import ClusterError
from barnabas.fault_proxy.rules import MessageRule
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import KafkaError
from checkers.verdict import Finding
from operations import Place
from plants.catalogue import find
from plants.plant import planted
from scenarios.catalogue import SCENARIOS
from scenarios.stage import Violation
from worlds.cluster import ClusterUnderTest
from worlds.world_options import WorldOptions, run_in

TOPIC = "story"
PLACE = Place(TOPIC, 0)
GROUP = "readers"
WRITES = 40
ABORTED = 3
"""Transactions."""
PATIENCE_SECONDS = 40.0
LOOK_SECONDS = 0.1
LEADER_KNOWN_SECONDS = 3.0
"""Time in which every reachable node learns of a new leader."""

Story = Callable[[Any], Awaitable[list[Finding]]]


class AsksVoters(ClusterUnderTest, Protocol):
    """A world whose controllers can be asked one by one."""

    async def quorum_claims(self) -> Mapping[str, tuple[int, str]]:
        """By controller: the epoch that it knows, and its leader ("" if unknown)."""


async def leaders_die_in_turn(cluster: ClusterUnderTest) -> list[Finding]:
    """KIP-101. The third replica acknowledges a record, and is cut off before it learns that this made it committed.
    The leader dies, the second replica leads, and dies as well: the third must have kept the record.
    """
    await _create_topic(cluster)
    first, second, third = await _replicas(cluster)
    acknowledged: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_write, cluster, acknowledged)
        await _until("some records are acknowledged", lambda: _is(len(acknowledged) >= WRITES))
        for other in (first, second):
            await cluster.cut(other, third)
        await cluster.kill(first)
        await _until(f"{second} leads", lambda: _leads(cluster, second))
        await trio.sleep(LEADER_KNOWN_SECONDS)
        await cluster.kill(second)
        await _until(f"{third} leads", lambda: _leads(cluster, third))
        await cluster.heal()
        await cluster.start(first, second)
        await cluster.wait_ready()
        nursery.cancel_scope.cancel()
    read = await _read(cluster)
    lost = [value for value in acknowledged if value not in read]
    text = f"{lost} of {len(acknowledged)} were acknowledged, and are not in the log of {third}, which led at last."
    return [Finding("lost-write", str(PLACE), (), text)] if lost else []


async def voter_comes_again(cluster: AsksVoters) -> list[Finding]:
    """A voter elects a controller, and is killed before it gets a record of the new epoch. Started again, it must not
    vote for another leader in the same epoch.
    """
    active = await cluster.active_controller()
    late = next(name for name in cluster.controllers if name != active)
    pair = [name for name in cluster.controllers if name != late]
    rules = [
        await cluster.add_rule(MessageRule(ApiKey.FETCH, "response", "drop", source=one, target=other))
        for one, other in (pair, pair[::-1])
    ]
    for name in pair:
        await _cut_both(cluster, name, late)
    before = await _newest(cluster)
    await cluster.kill(*pair)
    await cluster.start(*pair)
    elected: list[tuple[int, str]] = []

    async def has_a_leader() -> bool:
        epoch, leader = await _newest(cluster)
        elected[:] = [(epoch, leader)]
        return epoch > before[0] and leader in pair

    await _until("the two controllers have elected one", has_a_leader)
    [(epoch, leader)] = elected
    [voter] = [name for name in pair if name != leader]
    await cluster.kill(voter)
    await _cut_both(cluster, leader, voter)
    for number in rules:
        await cluster.clear_rule(number)
    for one, other in ((voter, late), (late, voter)):
        await cluster.mend(one, other)
    await cluster.start(voter)
    again: list[tuple[int, str]] = []

    async def the_others_elected() -> bool:
        claims = await cluster.quorum_claims()
        again[:] = [claim for name, claim in claims.items() if name in (voter, late) and claim[1] in (voter, late)]
        return bool(again)

    await _until("the other two have elected one", the_others_elected)
    await cluster.heal()
    other_epoch, other_leader = again[0]
    text = f"In epoch {epoch} {leader} was elected by {voter}, which then elected {other_leader} in {other_epoch}."
    return [Finding("two-leaders", "the quorum", (), text)] if other_epoch == epoch else []


async def offsets_of_an_abort(cluster: ClusterUnderTest) -> list[Finding]:
    """A transaction that is aborted takes a group's offsets with it, and they do not come back with the next
    coordinator of the group.
    """
    await _create_topic(cluster)
    offsets = {TopicPartition(*PLACE): OffsetAndMetadata(ABORTED)}
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, world=cluster.world("transformer"), transactional_id="transformer"
    ) as producer:
        for number in range(ABORTED):
            producer.begin_transaction()
            await producer.send(TOPIC, value=b"%d" % number, partition=0)
            await producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(GROUP))
            await producer.abort_transaction()
    seen = {"while its coordinator lives": await _committed(cluster)}
    coordinator = await cluster.coordinator_of("group", GROUP)
    assert coordinator is not None
    await cluster.kill(coordinator)
    await cluster.start(coordinator)
    await cluster.wait_ready()
    seen["after its coordinator died"] = await _committed(cluster)
    text = "All transactions with offsets of the group were aborted, and it stands at {} {}."
    return [
        Finding("aborted-offsets", f"{GROUP} {PLACE}", (), text.format(offset, when))
        for when, offset in seen.items()
        if offset is not None
    ]


STORIES: Mapping[str, Story] = {
    "offsets-of-an-abort": offsets_of_an_abort,
    "leaders-die-in-turn": leaders_die_in_turn,
    "voter-comes-again": voter_comes_again,
}


class Scene(NamedTuple):
    """An act of a regression scenario with the same name."""

    scenario: str
    act: str
    anomaly: str


SCENES = {"voter-comes-again": Scene("quorum", "vote_before_a_power_cut", "two-leaders")}
"""In place of stories that simulated links cannot carry."""


def play(name: str, options: WorldOptions) -> list[Finding]:
    """Run a story in a cluster of its own; `verdict.json` in the directory has the same findings. Raises ClusterError
    if the situation did not come about.
    """
    scene = SCENES.get(name) if options.world == "sim" else None
    found = run_in(options, STORIES[name]) if scene is None else _play(scene, options)
    options.directory.mkdir(parents=True, exist_ok=True)
    verdict: dict[str, Any] = {"valid": "false" if found else "true", "findings": [asdict(each) for each in found]}
    (Path(options.directory) / "verdict.json").write_text(json.dumps(verdict, indent=2) + "\n")
    return found


def _play(scene: Scene, options: WorldOptions) -> list[Finding]:
    [act] = [act for act in SCENARIOS[scene.scenario].acts if act.name == scene.act]
    try:
        with planted(find(options.plant)):
            act.play(options.seed)
    except (Violation, BaseExceptionGroup) as raised:
        error: BaseException = raised
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if not isinstance(error, Violation):
            raise
        return [Finding(scene.anomaly, scene.act, (), str(error))]
    return []


# ---- what stories are made of


async def _is(holds: bool) -> bool:
    return holds


async def _until(what: str, holds: Callable[[], Awaitable[bool]]) -> None:
    with trio.move_on_after(PATIENCE_SECONDS):
        while not await holds():
            await trio.sleep(LOOK_SECONDS)
        return
    raise ClusterError(f"it did not come about within {PATIENCE_SECONDS:.0f} s that {what}")


async def _leads(cluster: ClusterUnderTest, name: str) -> bool:
    return await cluster.leader_of(PLACE) == name


async def _newest(cluster: AsksVoters) -> tuple[int, str]:
    """The highest epoch that a controller knows to be led, and who leads it."""
    claims = await cluster.quorum_claims()
    return max((claim for claim in claims.values() if claim[1]), default=(-1, ""))


async def _cut_both(cluster: ClusterUnderTest, one: str, other: str) -> None:
    await cluster.cut(one, other)
    await cluster.cut(other, one)


async def _create_topic(cluster: ClusterUnderTest) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world("admin")) as admin:
        await admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=3)])

    async def is_led() -> bool:
        return await cluster.leader_of(PLACE) is not None and len(await cluster.memberships()) >= len(cluster.brokers)

    await _until("the topic is led", is_led)


async def _replicas(cluster: ClusterUnderTest) -> tuple[str, str, str]:
    """The leader, who leads after it, and the last."""
    leader = await cluster.leader_of(PLACE)
    members = next(each.replicas for each in await cluster.memberships() if each.place == PLACE)
    second, third = [name for name in members if name != leader]
    assert leader is not None
    return leader, second, third


async def _write(cluster: ClusterUnderTest, acknowledged: list[int]) -> None:
    """One record after the other, each with the next number."""
    number = 0
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        world=cluster.world("producer"),
        request_timeout_ms=3_000,
        delivery_timeout_ms=5_000,
    ) as producer:
        while True:
            try:
                await producer.send(TOPIC, value=b"%d" % number, partition=0)
            except KafkaError:
                pass
            else:
                acknowledged.append(number)
            number += 1


async def _committed(cluster: ClusterUnderTest) -> int | None:
    """Committed offset of the group."""
    partition = TopicPartition(*PLACE)
    async with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, world=cluster.world("member"), group_id=GROUP
    ) as consumer:
        committed = (await consumer.committed([partition]))[partition]
    return None if committed is None else committed.offset


async def _read(cluster: ClusterUnderTest) -> set[int]:
    """All values that there are."""
    partition, read = TopicPartition(*PLACE), set()
    async with Consumer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world("consumer")) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        with trio.move_on_after(PATIENCE_SECONDS):
            while await consumer.position(partition) < end:
                for record in await consumer.poll(500):
                    read.add(int(record.value or b"-1"))
    return read
