"""The controllers and their metadata log: scenario 24."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import trio

from barnabas.broker.parts import BrokerParts
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.runtime.channel import ChannelError
from scenarios.intercepted_messages import Letter
from scenarios.stage import Stage, came_about, holds


def _vote_asked(letter: Letter) -> tuple[int, int, bool]:
    """(candidate, epoch, pre-vote)"""
    [topic] = letter.message.topics
    [partition] = topic.partitions
    return partition.replica_id, partition.replica_epoch, partition.pre_vote


def _vote_granted(letter: Letter) -> bool:
    return any(each.vote_granted for topic in letter.message.topics for each in topic.partitions)


def _topic_request(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=3)], timeout_ms=5_000
    )


async def _create(stage: Stage, name: str) -> None:
    """Again and again, from whichever brokers: the quorum must take it."""
    with trio.move_on_after(40) as scope:
        while True:
            for broker in stage.brokers:
                with suppress(ChannelError):
                    answer = await stage.ask(broker, _topic_request(name), host="admin", timeout_ms=6_000)
                    if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                        return
            await trio.sleep(0.2)
    holds(not scope.cancelled_caught, f"nobody creates {name}: the quorum stands still")


async def _all_know(stage: Stage, *topics: str) -> None:
    for name in stage.brokers:
        await stage.must(partial(_knows, stage.broker(name), topics), f"{name} knows {', '.join(topics)}")


def _knows(broker: BrokerParts, topics: tuple[str, ...]) -> bool:
    return all(topic in broker.metadata.image.topics.by_name for topic in topics)


async def vote_before_a_power_cut(stage: Stage) -> None:
    """A voter grants its vote, and loses its power before its answer leaves: it must not vote again in that epoch."""
    await stage.create_topic("before")
    active = await stage.quorum_leader()
    others = [name for name in stage.controllers if name != active]
    votes: dict[tuple[str, int], list[int]] = {}
    asked = stage.mail.read(ApiKey.VOTE, when=lambda letter: not _vote_asked(letter)[2])
    # No vote arrives until the power of a voter that granted one was cut.
    answers = stage.mail.keep(ApiKey.VOTE, "response", when=lambda letter: _real_grant(asked.letters, letter))
    stage.kill(active)
    [grant] = await answers.caught()
    voter, candidate = grant.sender, grant.receiver
    epoch = _vote_asked(asked.letters[-1])[1]
    came_about(sorted((voter, candidate)) == others, "one of the two that are left votes for the other")
    # In the worst case: nothing that was not synced is there again.
    for _, inode in stage.universe.disk(voter).files(f"/{voter}/data"):
        inode.cached[:] = inode.durable
        inode.dirty.clear()
    stage.power_cut(voter)
    stage.kill(candidate)
    answers.release()
    grants = stage.mail.read(ApiKey.VOTE, "response", when=_vote_granted)
    again = stage.mail.read(ApiKey.VOTE, when=lambda letter: not _vote_asked(letter)[2])
    await trio.sleep(0.5)
    stage.start(voter, active)
    new = await stage.quorum_leader()
    votes[voter, epoch] = [stage.id_of(candidate)]
    for letter in again.letters:
        who, in_epoch, _ = _vote_asked(letter)
        if in_epoch == epoch and letter.sender == voter:
            votes[voter, epoch].append(who)
        if in_epoch == epoch and letter.receiver == voter and _is_granted(grants.letters, letter):
            votes[voter, epoch].append(who)
    given = votes[voter, epoch]
    holds(len(set(given)) == 1, f"{voter} voted for {given} in epoch {epoch}")
    came_about(again.letters, "there was another election")
    stage.start(candidate)
    await stage.wait_ready()
    await _create(stage, "after")
    await _all_know(stage, "before", "after")
    came_about(new, "somebody leads")


def _real_grant(asked: list[Letter], answer: Letter) -> bool:
    """A vote, not a pre-vote."""
    return _vote_granted(answer) and any(
        letter.sender == answer.receiver and letter.receiver == answer.sender for letter in asked
    )


def _is_granted(grants: list[Letter], request: Letter) -> bool:
    return any(
        grant.sender == request.receiver and grant.receiver == request.sender and grant.sent_at >= request.sent_at
        for grant in grants
    )


async def returning_controller(stage: Stage) -> None:
    """A controller that was cut off for long comes back: asking for pre-votes, it deposes nobody."""
    await stage.create_topic("before")
    active = await stage.quorum_leader()
    before = await stage.leader_by(active)
    away = next(name for name in stage.controllers if name != active)
    fetches = stage.mail.read(ApiKey.FETCH, "response", sender=active, receiver=away)
    candidates = stage.mail.read(ApiKey.VOTE, when=lambda letter: not _vote_asked(letter)[2])
    stage.isolate(away)
    await trio.sleep(2)
    received = len(fetches.letters)
    for number in range(3):
        await trio.sleep(4)
        await _create(stage, f"meanwhile-{number}")
    came_about(len(fetches.letters) == received, "it received nothing for longer than its timeout")
    stage.mend()
    await trio.sleep(6)
    holds(not candidates.letters, f"{[letter.sender for letter in candidates.letters]} asked for votes")
    after = await stage.leader_by(active)
    holds(after == before, f"{before} was deposed: {after}")
    came_about(len(fetches.letters) > received, "it is back")
    await _create(stage, "after")
    await _all_know(stage, "before", "after")


async def ring_and_bridge(stage: Stage) -> None:
    """Some wires between three controllers are cut, and a majority always reaches each other: one leads, and stays."""
    await stage.create_topic("before")
    wires = stage.universe.wires
    active = await stage.quorum_leader()
    before = await stage.leader_by(active)
    middle, end = (name for name in stage.controllers if name != active)
    pre_votes = stage.mail.read(ApiKey.VOTE, sender=end, receiver=middle)
    # A bridge: one end does not reach the active one, and would like to be elected.
    wires.cut_between([active], [end])
    for number in range(3):
        await trio.sleep(3)
        await _create(stage, f"bridge-{number}")
    came_about(pre_votes.letters, "the end wants to be elected")
    after = await stage.leader_by(active)
    holds(after == before, f"{before} had a majority and was deposed: {after}")
    wires.heal()
    await trio.sleep(3)
    # A ring of one-way links: each receives from one of the others, and reaches the other one.
    for source, target in ((active, middle), (middle, end), (end, active)):
        wires.cut(source, target)
    await trio.sleep(5)
    wires.heal()
    await _create(stage, "after")
    await _all_know(stage, "before", "bridge-2", "after")
    leaders = [name for name in stage.controllers if (await stage.leader_by(name))[1] == name]
    holds(len(leaders) == 1, f"{leaders} are active at the same time")


async def full_disk(stage: Stage) -> None:
    """The active controller has no room for the next record: it gives up, and another decides."""
    await stage.create_topic("before")
    active = await stage.quorum_leader()
    stage.may_fail[active] = None
    disk = stage.universe.disk(active)
    capacity, disk.capacity_bytes = disk.capacity_bytes, disk.used_bytes
    refused = disk.refused
    await _create(stage, "from-the-reserve")
    disk.capacity_bytes = disk.used_bytes
    await _create(stage, "without-room")
    came_about(disk.refused > refused, "there was no room")
    new = await stage.quorum_leader(other_than=active)
    holds(new != active, "it leads on without room")
    await _create(stage, "meanwhile")
    disk.capacity_bytes = capacity
    if not stage.node(active).running:
        stage.start(active)
    else:
        await stage.stop(active)
        stage.start(active)
    await stage.wait_ready()
    await _create(stage, "after")
    await _all_know(stage, "before", "without-room", "meanwhile", "after")


async def cut_off_controller_decides_nothing(stage: Stage) -> None:
    """An active controller loses the others in the moment of a decision: a decision that no majority has is not
    answered."""
    await stage.create_topic("before")
    old = await stage.quorum_leader()
    others = [name for name in stage.controllers if name != old]
    hello = await stage.ask(old, _topic_request("hello"))
    came_about(hello.topics[0].error_code == ErrorCode.NONE, "it decides")
    stage.universe.wires.cut_between([old], others)
    codes: list[ErrorCode] = []

    async def decide() -> None:
        with suppress(ChannelError):
            answer = await stage.ask(old, _topic_request("alone"), timeout_ms=30_000)
            codes.append(ErrorCode(answer.topics[0].error_code))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(decide)
        new = await stage.quorum_leader(among=others)
        came_about(new != old, "another is elected")
        await _create(stage, "by-the-new")
        holds(ErrorCode.NONE not in codes, "a decision that no majority has was acknowledged")
        stage.mend()
    await trio.sleep(3)
    there = {name: "alone" in stage.broker(name).metadata.image.topics.by_name for name in stage.brokers}
    holds(len(set(there.values())) == 1, f"brokers do not agree: {there}")
    holds(ErrorCode.NONE not in codes or all(there.values()), "acknowledged, and gone")
    await _create(stage, "after")
    await _all_know(stage, "before", "hello", "by-the-new", "after")


SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "2000", "metadata.log.segment.bytes": "8388608"}


async def snapshots_and_cuts(stage: Stage) -> None:
    """Controllers die while they write snapshots, and one is away for longer than the log goes back."""
    await stage.create_topic("first")
    coverage = stage.universe.coverage
    active = await stage.quorum_leader()
    away, third = (name for name in stage.controllers if name != active)
    stage.kill(away)
    number = 0

    async def again_once_dead(name: str) -> None:
        # Two are needed.
        await stage.until(lambda: not stage.universe.is_alive(name), f"{name} dies", 300)
        await trio.sleep(1)
        stage.start(name)

    for name, point in ((third, "raft.snapshot.written"), (active, "raft.snapshot.published")):
        deaths = stage.universe.hosts[name].lives
        stage.universe.kill_at(name, point, power_cut=name == third)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(again_once_dead, name)
            while stage.universe.hosts[name].lives == deaths:
                await _create(stage, f"t{number}")
                number += 1
                came_about(number < 80, f"{name} writes no snapshot")
    await _create(stage, "last")
    stage.start(away)
    await stage.wait_ready()
    came_about(coverage["raft.snapshot.published"] >= 2, "snapshots were taken")
    # The one that was away must now be able to carry on with each of the others alone.
    for name in (active, third):
        stage.kill(name)
        await _create(stage, f"without-{name}")
        stage.start(name)
        await stage.wait_ready()
    topics = ["first", "last", *(f"t{index}" for index in range(number))]
    await _all_know(stage, *topics)
    images = {name: sorted(stage.broker(name).metadata.image.topics.by_name) for name in stage.brokers}
    holds(len({str(each) for each in images.values()}) == 1, f"brokers differ: {images}")
