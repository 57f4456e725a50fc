"""A replica beside a plain one that keeps its whole history and computes every answer from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.replication.replica import (
    NEVER_MS,
    REFUSED_BACKOFF_MS,
    CommittedIsr,
    Effect,
    Follow,
    FollowerFetch,
    HighWatermarkAdvanced,
    IsrChangeWanted,
    LeadershipLost,
    LeadershipTaken,
    Replica,
    ReplicaSettings,
)
from barnabas.kraft.metadata.image import NO_LEADER, BrokerImage, PartitionImage
from barnabas.protocol.errors import ErrorCode
from tests.broker.replication.test_replica import broker, partition
from tests.examples import examples

SELF, LAG_MS = 1, 1_000
NODES = (1, 2, 3, 4)
REFUSALS = [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA]
STALE = [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID]
PASSING = [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR]


class Fetched(NamedTuple):
    """One fetch of a follower, as the leader saw it."""

    ms: int
    offset: int
    start_offset: int
    broker_epoch: int
    leader_end: int


@dataclass
class PlainFollower:
    """All that a leader saw of one follower in its epoch."""

    began_ms: int | None = None
    """When the epoch began, if it was in the ISR."""
    fetches: list[Fetched] = field(default_factory=list)
    touches: list[int] = field(default_factory=list)
    """Fetches without this partition that found it caught up."""
    not_before_ms: int | None = None
    is_ineligible: bool = False

    @property
    def offset(self) -> int:
        return self.fetches[-1].offset if self.fetches else -1

    @property
    def start_offset(self) -> int:
        return self.fetches[-1].start_offset if self.fetches else -1

    @property
    def caught_up_ms(self) -> int | None:
        times = [] if self.began_ms is None else [self.began_ms]
        times += self.touches
        for place, fetch in enumerate(self.fetches):
            before = self.fetches[:place]
            if fetch.offset >= fetch.leader_end:
                times.append(fetch.ms)
            elif before and fetch.offset >= max(each.leader_end for each in before):
                times.append(before[-1].ms)
        return max(times, default=None)


@dataclass
class Plain:
    """The rules, without any state that could be computed."""

    settings: ReplicaSettings
    brokers: dict[int, BrokerImage]
    last_fetches: dict[int, int] | None
    end: int
    watermark: int
    state: str = "following"
    image: PartitionImage = field(default_factory=lambda: partition(NO_LEADER, leader_epoch=-1, partition_epoch=-1))
    partition_epoch: int = -1
    isr: frozenset[int] = frozenset()
    joining: frozenset[int] = frozenset()
    """Proposed, and not in the committed ISR."""
    pending: IsrChangeWanted | None = None
    epoch_start: int = 0
    followers: dict[int, PlainFollower] = field(default_factory=dict)
    in_sync: bool = True

    @property
    def leads(self) -> bool:
        return self.state == "leading"

    @property
    def min_isr(self) -> int:
        replicas = self.image.replicas if self.image.leader_epoch >= 0 else ()
        return min(self.settings.min_insync_replicas, max(1, len(replicas)))

    def is_caught_up(self, node: int, now_ms: int) -> bool:
        follower = self.followers[node]
        since = follower.caught_up_ms
        return follower.offset == self.end or (since is not None and now_ms - since <= LAG_MS)

    def may_join(self, node: int) -> bool:
        known, fetches = self.brokers.get(node), self.followers[node].fetches
        return (
            known is not None
            and not known.fenced
            and not known.in_controlled_shutdown
            and bool(fetches)
            and fetches[-1].broker_epoch in (-1, known.epoch)
        )

    def advance(self, now_ms: int) -> list[Effect]:
        if not self.leads or (self.settings.hold_below_min_isr and len(self.isr) < self.min_isr):
            return []
        counted = [
            follower.offset
            for node, follower in self.followers.items()
            if node in self.isr | self.joining
            or (not follower.is_ineligible and self.is_caught_up(node, now_ms) and self.may_join(node))
        ]
        reached = min([self.end, *counted])
        if reached <= self.watermark:
            return []
        self.watermark = reached
        return [HighWatermarkAdvanced(reached)]

    def propose(self, members: frozenset[int], because_of: list[int], now_ms: int) -> list[Effect]:
        isr = []
        for node in sorted(members):
            fetches = [] if node == SELF else self.followers[node].fetches
            own = self.brokers.get(SELF)
            epoch = (-1 if own is None else own.epoch) if node == SELF else fetches[-1].broker_epoch if fetches else -1
            isr.append((node, epoch))
        causes = []
        for node in because_of:
            since = self.followers[node].caught_up_ms
            causes.append((node, self.followers[node].offset, None if since is None else now_ms - since))
        self.pending = IsrChangeWanted(
            tuple(isr), self.image.leader_epoch, self.partition_epoch, because_of=tuple(causes)
        )
        self.joining = members - self.isr
        return [self.pending]

    # -- inputs

    def partition_changed(self, image: PartitionImage, end: int, now_ms: int) -> list[Effect]:
        before = self.image
        if image.partition_epoch < self.partition_epoch or image.leader_epoch < before.leader_epoch:
            return []
        known = image.partition_epoch == self.partition_epoch
        new_epoch = image.leader_epoch != before.leader_epoch
        if self.state == "offline":
            self.note(image)
            return []
        if image.leader == SELF:
            if self.leads and not new_epoch and known:
                return []
            self.note(image)
            self.pending, self.joining, self.isr = None, frozenset(), frozenset(image.isr)
            others = [node for node in image.replicas if node != SELF]
            if self.leads and not new_epoch:
                self.followers = {node: self.followers.get(node, PlainFollower()) for node in others}
                return self.advance(now_ms)
            self.followers = {node: PlainFollower(now_ms if node in self.isr else None) for node in others}
            self.state, self.end, self.epoch_start = "leading", end, end
            return [LeadershipTaken(image.leader_epoch, end), *self.advance(now_ms)]
        self.note(image)
        self.in_sync = SELF in image.isr
        if self.state == "following" and image.leader == before.leader and not new_epoch:
            return []
        lost: list[Effect] = [LeadershipLost(ErrorCode.NOT_LEADER_OR_FOLLOWER)] if self.leads else []
        self.state, self.end, self.watermark = "following", end, min(self.watermark, end)
        return [*lost, Follow(image.leader, image.leader_epoch)]

    def note(self, image: PartitionImage) -> None:
        self.image, self.partition_epoch = image, image.partition_epoch

    def go_offline(self) -> list[Effect]:
        before, self.state = self.state, "offline"
        if before == "leading":
            return [LeadershipLost(ErrorCode.KAFKA_STORAGE_ERROR)]
        return [Follow(NO_LEADER, self.image.leader_epoch)] if before == "following" else []

    def appended(self, end: int, now_ms: int) -> list[Effect]:
        if self.leads and self.last_fetches is not None:
            for node, follower in self.followers.items():
                if follower.offset == self.end:
                    follower.touches.append(self.last_fetches[node])
        self.end = end
        return self.advance(now_ms)

    def is_stale(self, node: int, broker_epoch: int) -> bool:
        known = self.brokers.get(node)
        return known is not None and broker_epoch != -1 and broker_epoch < known.epoch

    def fetched(self, fetch: FollowerFetch, leader_end: int, now_ms: int) -> list[Effect]:
        node = fetch.node_id
        if not self.leads or node not in self.followers or self.is_stale(node, fetch.broker_epoch):
            return []
        follower = self.followers[node]
        moved = follower.offset != fetch.fetch_offset
        follower.fetches.append(
            Fetched(now_ms, fetch.fetch_offset, fetch.log_start_offset, fetch.broker_epoch, leader_end)
        )
        effects: list[Effect] = []
        joins = (
            node not in self.isr | self.joining
            and self.pending is None
            and (follower.not_before_ms is None or now_ms >= follower.not_before_ms)
            and follower.offset >= max(self.watermark, self.epoch_start)
            and self.may_join(node)
        )
        if joins:
            follower.is_ineligible = False
            effects = self.propose(self.isr | {node}, [node], now_ms)
        return effects + (self.advance(now_ms) if moved else [])

    def tick(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        if self.leads and self.pending is None:
            late = sorted(node for node in self.followers if node in self.isr and not self.is_caught_up(node, now_ms))
            if late:
                effects = self.propose(self.isr - set(late), late, now_ms)
        return effects + self.advance(now_ms)

    def answered(self, proposal: IsrChangeWanted, answer: CommittedIsr | ErrorCode, now_ms: int) -> list[Effect]:
        if not self.leads or self.pending is None or self.pending != proposal:
            return []
        if isinstance(answer, CommittedIsr):
            if answer.leader_epoch != self.image.leader_epoch or answer.partition_epoch < self.partition_epoch:
                return []
            self.partition_epoch, self.isr = answer.partition_epoch, frozenset(answer.isr)
            self.pending, self.joining = None, frozenset()
            return self.advance(now_ms)
        if answer in REFUSALS:
            self.pending, self.joining = None, frozenset()
            for node in proposal.members - self.isr - {SELF}:
                follower = self.followers[node]
                follower.not_before_ms = now_ms + REFUSED_BACKOFF_MS
                follower.is_ineligible = answer is ErrorCode.INELIGIBLE_REPLICA
            return self.advance(now_ms)
        return [] if answer in STALE else [proposal]

    def follows_to(self, offset: int) -> list[Effect]:
        if self.state != "following" or min(offset, self.end) <= self.watermark:
            return []
        self.watermark = min(offset, self.end)
        return [HighWatermarkAdvanced(self.watermark)]

    # -- what it answers

    def answers(self, node: int, broker_epoch: int, epoch: int, offset: int, now_ms: int) -> dict[str, Any]:
        error = None
        if epoch not in (-1, self.image.leader_epoch):
            older = epoch < self.image.leader_epoch
            error = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        elif self.state == "offline":
            error = ErrorCode.KAFKA_STORAGE_ERROR
        leader_error = error or (None if self.leads else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        follower_error = leader_error
        if follower_error is None and node not in self.followers:
            follower_error = ErrorCode.UNKNOWN_LEADER_EPOCH if epoch != -1 else ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif follower_error is None and self.is_stale(node, broker_epoch):
            follower_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        followers = self.followers.items() if self.leads else []
        small, too_small = len(self.isr) < self.min_isr, len(self.isr | self.joining) < self.min_isr
        ack_error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if self.leads and too_small else None
        enough: Any = (self.watermark >= offset, ack_error if self.watermark >= offset else None)
        not_leading = ErrorCode.KAFKA_STORAGE_ERROR if self.state == "offline" else ErrorCode.NOT_LEADER_OR_FOLLOWER
        behind = [(each, it.offset, it.caught_up_ms) for each, it in followers if each in self.isr]
        starts = {each: it.start_offset for each, it in followers}
        live = [each for each in starts if each in self.brokers and not self.brokers[each].fenced]
        return {
            "replica": error,
            "leader": leader_error,
            "follower": follower_error,
            "append": (ErrorCode.NOT_ENOUGH_REPLICAS if small else None) if self.leads else not_leading,
            "append to one": None if self.leads else not_leading,
            "enough": enough if self.leads else (True, not_leading),
            "ack": ack_error,
            "readable": [
                (each, end, now_ms - (NEVER_MS if since is None else since))
                for each, end, since in behind
                if starts[each] <= offset <= end
            ],
            "low watermark": min([offset, *(starts[each] for each in live)]),
            "is current": self.leads and self.watermark >= self.epoch_start,
            "leader id": {"leading": SELF, "following": self.image.leader}.get(self.state, NO_LEADER),
            "forgotten": self.is_forgotten(now_ms - LAG_MS),
            "trusted": self.state == "following" and not self.in_sync,
        }

    def is_forgotten(self, since_ms: int) -> bool:
        if self.state == "following":
            return True
        if not self.leads or not self.followers:
            return False
        seen = [each.ms for it in self.followers.values() for each in it.fetches]
        seen += [] if self.last_fetches is None else [self.last_fetches[node] for node in self.followers]
        return all(ms < since_ms for ms in seen)


class Pair:
    """Both, and what has happened."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.now_ms = 10_000
        self.brokers = {node: broker(node) for node in NODES[:3]}
        self.last_fetches = draw(st.sampled_from([None, dict.fromkeys(NODES, NEVER_MS)]))
        rules = ReplicaSettings(LAG_MS, draw(st.integers(1, 4)), draw(st.booleans()))
        end = draw(st.integers(0, 6))
        watermark = draw(st.integers(0, end))
        self.real = Replica(SELF, self.brokers.get, rules, end, watermark)
        if self.last_fetches is not None:
            self.real.last_fetch_ms = self.last_fetches.__getitem__
        self.plain = Plain(rules, self.brokers, self.last_fetches, end, watermark)
        self.epochs = (5, 8)
        self.proposals: list[IsrChangeWanted] = []
        self.image: PartitionImage = partition()

    def same(self, real: tuple[Effect, ...], plain: list[Effect]) -> None:
        assert list(real) == plain
        for effect, expected in zip(real, plain, strict=True):
            if isinstance(effect, IsrChangeWanted) and isinstance(expected, IsrChangeWanted):
                assert effect.because_of == expected.because_of
                self.proposals.append(effect)

    def check(self) -> None:
        real, plain = self.real, self.plain
        assert (real.high_watermark, real.log_end_offset) == (plain.watermark, plain.end)
        assert (real.leader_epoch, real.partition_epoch) == (plain.image.leader_epoch, plain.partition_epoch)
        assert real.isr == (plain.isr if plain.leads else frozenset())
        assert real.pending_isr_change == (plain.pending if plain.leads else None)
        node, epoch = self.draw(st.sampled_from(NODES)), self.draw(st.sampled_from([-1, 4, 5, 6, 7]))
        broker_epoch = self.draw(st.sampled_from([-1, 101, 102, 103, 104]))
        offset = self.draw(st.integers(0, 12))
        since_ms = self.now_ms - LAG_MS
        found = {
            "replica": real.replica_error(epoch),
            "leader": real.leader_error(epoch),
            "follower": real.follower_error(node, broker_epoch, epoch),
            "append": real.append_error(-1),
            "append to one": real.append_error(1),
            "enough": real.enough_replicas(offset),
            "ack": real.ack_error(),
            "readable": real.in_sync_followers(offset, self.now_ms),
            "low watermark": real.low_watermark(offset),
            "is current": real.high_watermark_is_current,
            "leader id": real.leader_id,
            "forgotten": real.is_forgotten(since_ms, may_be_fenced=True),
            "trusted": real.is_forgotten(since_ms, may_be_fenced=False),
        }
        assert found == plain.answers(node, broker_epoch, epoch, offset, self.now_ms)

    # -- steps

    def wait(self) -> None:
        self.now_ms += self.draw(st.sampled_from([1, REFUSED_BACKOFF_MS - 1, REFUSED_BACKOFF_MS, LAG_MS, LAG_MS + 1]))

    def append(self) -> None:
        if self.plain.leads:
            end = self.plain.end + self.draw(st.integers(1, 3))
            self.same(self.real.appended(end, self.now_ms), self.plain.appended(end, self.now_ms))

    def fetch(self) -> None:
        node = self.draw(st.sampled_from(NODES[1:]))
        end = self.plain.end
        offset = max(0, end - self.draw(st.sampled_from([0, 0, 1, 2, 4])))
        known = self.brokers.get(node)
        epochs = [-1, 100 + node] if known is None else [-1, known.epoch, known.epoch, known.epoch - 1, known.epoch + 1]
        fetch = FollowerFetch(node, self.draw(st.sampled_from(epochs)), offset, self.draw(st.integers(0, 3)))
        if self.last_fetches is not None:
            self.last_fetches[node] = self.now_ms
        self.same(self.real.follower_fetched(fetch, end, self.now_ms), self.plain.fetched(fetch, end, self.now_ms))

    def fetch_others(self) -> None:
        """A fetch that does not name this partition."""
        if self.last_fetches is not None:
            self.last_fetches[self.draw(st.sampled_from(NODES))] = self.now_ms

    def tick(self) -> None:
        self.same(self.real.tick(self.now_ms), self.plain.tick(self.now_ms))

    def metadata(self) -> None:
        leader_epoch, partition_epoch = self.epochs
        replicas = self.draw(st.sampled_from([(1, 2, 3), (1, 2, 3), (1, 2), (1,), (1, 2, 3, 4), (3, 1)]))
        leader = self.draw(st.sampled_from([SELF, SELF, SELF, 2, NO_LEADER]))
        isr = tuple(node for node in replicas if node == leader or self.draw(st.booleans()))
        same_epoch = leader == self.image.leader and self.draw(st.integers(0, 2)) > 0
        leader_epoch += not same_epoch
        old = self.draw(st.integers(0, 9)) == 0
        image = partition(
            leader,
            replicas=replicas,
            isr=isr,
            leader_epoch=leader_epoch - old * self.draw(st.integers(0, 1)),
            partition_epoch=partition_epoch + (0 if old else 1),
        )
        if not old:
            self.epochs, self.image = (leader_epoch, partition_epoch + 1), image
        else:
            image = replace(self.image, partition_epoch=self.image.partition_epoch - self.draw(st.integers(0, 1)))
        self.apply(image)

    def apply(self, image: PartitionImage) -> None:
        end = self.plain.end
        self.same(
            self.real.partition_changed(image, end, self.now_ms), self.plain.partition_changed(image, end, self.now_ms)
        )

    def brokers_change(self) -> None:
        node = self.draw(st.sampled_from(NODES))
        known = self.brokers.get(node, broker(node))
        how = self.draw(st.sampled_from(["fence", "unfence", "unfence", "restart", "shutdown", "gone"]))
        if how == "gone":
            self.brokers.pop(node, None)
        elif how == "restart":
            self.brokers[node] = replace(known, epoch=known.epoch + 10, fenced=True, in_controlled_shutdown=False)
        elif how == "shutdown":
            self.brokers[node] = replace(known, in_controlled_shutdown=True)
        else:
            self.brokers[node] = replace(known, fenced=how == "fence", in_controlled_shutdown=False)

    def answer(self) -> None:
        if not self.proposals:
            return
        proposal = self.draw(st.sampled_from(self.proposals[-2:]))
        answer: CommittedIsr | ErrorCode
        code = self.draw(st.sampled_from([None, None, *REFUSALS, *STALE, *PASSING]))
        if code is None:
            behind = self.draw(st.sampled_from([1, 1, 1, 0, -1]))
            answer = CommittedIsr(
                proposal.leader_epoch, proposal.partition_epoch + behind, tuple(sorted(proposal.members))
            )
            if proposal.partition_epoch == self.epochs[1] and proposal.leader_epoch == self.epochs[0] and behind == 1:
                self.epochs = (self.epochs[0], self.epochs[1] + 1)
                self.image = replace(self.image, partition_epoch=self.epochs[1], isr=answer.isr)
        else:
            answer = code
        self.same(
            self.real.isr_change_answered(proposal, answer, self.now_ms),
            self.plain.answered(proposal, answer, self.now_ms),
        )
        if code is None and self.draw(st.booleans()):
            self.apply(self.image)

    def follow(self) -> None:
        if self.plain.state != "following":
            return
        how = self.draw(st.sampled_from(["replicated", "truncated", "start"]))
        offset = self.draw(st.integers(0, 12))
        if how == "replicated":
            self.plain.end += self.draw(st.integers(0, 2))
            self.same(self.real.replicated(self.plain.end, offset), self.plain.follows_to(offset))
        elif how == "truncated":
            self.plain.end = min(self.plain.end, offset)
            self.plain.watermark = min(self.plain.watermark, self.plain.end)
            self.real.truncated(self.plain.end)
        else:
            self.same(self.real.log_start_advanced(offset), self.plain.follows_to(offset))

    def disk_fails(self) -> None:
        if self.draw(st.integers(0, 9)) == 0:
            self.same(self.real.go_offline(), self.plain.go_offline())
            assert self.real.describe().startswith("offline")


STEPS = ["wait", "append", "append", "fetch", "fetch", "fetch", "fetch_others", "tick", "metadata", "brokers_change",
         "answer", "answer", "follow", "disk_fails"]  # fmt: skip


@pytest.mark.feature("RE-03", "RE-08", "RE-10", "RE-11")
@settings(max_examples=examples(120), deadline=None)
@given(st.data())
def test_a_replica_decides_as_the_plain_one(data: st.DataObject) -> None:
    pair = Pair(data.draw)
    if data.draw(st.integers(0, 3)):
        pair.apply(replace(pair.image, leader=SELF, isr=(1, 2)))
    for _ in range(data.draw(st.integers(5, 50))):
        getattr(pair, data.draw(st.sampled_from(STEPS)))()
        pair.check()
