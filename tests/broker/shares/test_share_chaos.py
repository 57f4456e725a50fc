"""Members of a share group while leaders and coordinators die: each record is accepted once, and none is lost.

A record is known by its offset. Members accept, release or keep what they get, and some of them hang up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.channel import ChannelError
from barnabas.runtime.world import Chance
from tests.broker.apis.rig import Rig, batch_of, on_cluster
from tests.broker.shares.share_rig import Member, begin, only, ranges

RECORDS = 60
LOCK_MS = 5_000
ACCEPT, RELEASE = 1, 2
FEW = {
    "share__coordinator__state__topic__num__partitions": "3",
    "share__coordinator__state__topic__min__isr": "2",
    "group__share__min__record__lock__duration__ms": "1000",
    "group__share__record__lock__duration__ms": str(LOCK_MS),
    "group__share__delivery__count__limit": "10",
}


@dataclass(frozen=True)
class Holding:
    """A member has a record, for all that the member knows."""

    member: str
    leader_epoch: int
    until_ms: float


@dataclass
class History:
    """The checks: what members got, and what was confirmed to them."""

    accepted: dict[int, str] = field(default_factory=dict)
    """Offset to member, once the leader has confirmed it."""
    held: dict[int, Holding] = field(default_factory=dict)
    deliveries: int = 0

    def got(self, offset: int, holding: Holding, count: int) -> None:
        self.deliveries += 1
        assert offset not in self.accepted, f"offset {offset} comes again, after {self.accepted[offset]} accepted it"
        before = self.held.get(offset)
        if before is not None and before.leader_epoch == holding.leader_epoch and before.member != holding.member:
            assert before.until_ms <= now_ms(), f"{before.member} and {holding.member} both have offset {offset}"
        assert 1 <= count <= 10
        self.held[offset] = holding


def now_ms() -> float:
    return trio.current_time() * 1000


async def consume(rig: Rig, name: str, topic_id: bytes, history: History, chance: Chance) -> None:
    """Fetch and acknowledge until all records are accepted, over new connections if one is lost."""
    while len(history.accepted) < RECORDS:
        leader = rig.leader("orders")
        member = Member(rig, name, topic_id, node=max(1, leader))
        try:
            while len(history.accepted) < RECORDS:
                await one_round(rig, member, history, chance)
                if chance.randrange(0, 12) == 0:
                    break
        except (ChannelError, Refused):
            pass
        # Whatever it had goes to others now.
        for offset, holding in list(history.held.items()):
            if holding.member == name:
                del history.held[offset]
        member.hang_up()
        await trio.sleep(0.2)


class Refused(Exception):
    """The member has to look for the leader, or to begin a new session."""


async def one_round(rig: Rig, member: Member, history: History, chance: Chance) -> None:
    asked_ms = now_ms()
    response = await member.ask(max_wait_ms=500, max_records=chance.randrange(1, 9), share_acquire_mode=1)
    data = only(response)
    if response.error_code or (data is not None and data.error_code):
        raise Refused
    if data is None or not data.acquired_records:
        return
    up = next(node.broker for node in rig.cluster.brokers if node.broker is not None)
    placed = up.metadata.partition("orders", 0)
    assert placed is not None
    offsets = [(each, count) for first, last, count in ranges(data) for each in range(first, last + 1)]
    for offset, count in offsets:
        # The lock began when the leader answered, at the earliest when it was asked.
        history.got(offset, Holding(member.name, placed.leader_epoch, asked_ms + LOCK_MS), count)
    await trio.sleep(chance.randrange(0, 300) / 1000)
    said = [(offset, chance.randrange(0, 10)) for offset, _ in offsets]
    acks = [(offset, offset, [RELEASE if luck == 0 else ACCEPT]) for offset, luck in said if luck < 9]
    for offset, _, (kind,) in acks:
        if kind == RELEASE:
            del history.held[offset]
    if not acks:
        return
    answer = await member.acknowledge(*acks)
    if answer.error_code:
        raise Refused
    (result,) = answer.responses[0].partitions
    if result.error_code:
        raise Refused
    for offset, _, (kind,) in acks:
        if kind == ACCEPT:
            history.accepted[offset] = member.name
            history.held.pop(offset, None)


async def produce(rig: Rig, chance: Chance) -> None:
    sent = 0
    while sent < RECORDS:
        count = min(chance.randrange(1, 6), RECORDS - sent)
        try:
            answer = await rig.produce("orders", batch_of(*map(str, range(sent, sent + count))))
        except (ChannelError, KeyError):
            await trio.sleep(0.5)
            continue
        if answer.error_code == ErrorCode.NONE:
            sent += count
        await trio.sleep(0.3)


async def kill_leaders(rig: Rig, chance: Chance) -> None:
    for _ in range(3):
        await trio.sleep(3 + chance.randrange(0, 3000) / 1000)
        name = rig.name(rig.leader("orders"))
        rig.cluster.kill(name)
        await trio.sleep(2 + chance.randrange(0, 3000) / 1000)
        rig.cluster.start(name)
        await rig.cluster.wait_ready()


@pytest.mark.feature("CG-17", "CG-18", "FI-07")
@pytest.mark.parametrize("seed", range(4))
def test_records_are_accepted_once_while_leaders_die(seed: int) -> None:
    @on_cluster(brokers=3, seed=seed, **FEW)
    async def story(rig: Rig) -> None:
        chance = rig.world.chance
        topic_id = await rig.create("orders", replicas=3, min_insync_replicas="2")
        await begin(rig, topic_id)
        history = History()
        with trio.fail_after(110):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce, rig, chance)
                nursery.start_soon(kill_leaders, rig, chance)
                for name in ("one", "two", "three"):
                    nursery.start_soon(consume, rig, name, topic_id, history, chance)
        assert len(history.accepted) >= RECORDS
        assert history.deliveries >= RECORDS

    story()
