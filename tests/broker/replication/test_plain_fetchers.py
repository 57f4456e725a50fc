"""All fetchers of a broker beside plain ones: each partition has what its leader has, soon, and at little cost.

The leaders keep fetch sessions, go away, refuse, and come back; partitions change their leaders all the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.replication.fetcher import NEW_PARTITION_WAIT_MS, Fetchers, FetchSettings
from barnabas.broker.replication.follower import FetchWanted
from barnabas.kraft.metadata.image import NO_LEADER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.runtime.channel import ConnectionFailed
from tests.broker.replication.shells import TrioClock
from tests.examples import examples

Key = tuple[bytes, int]
KEYS: list[Key] = [(bytes(15) + bytes([topic]), index) for topic in (1, 2) for index in range(2)]
LEADERS = (1, 2)
WAIT_MS, LATENCY_SECONDS = 500, 0.001
CALM_SECONDS = 4.0
"""After so long without trouble a leader is reached again, whatever the backoff was."""
NOT_FOUND, WRONG_EPOCH, BUSY = 70, 71, int(ErrorCode.UNKNOWN_SERVER_ERROR)


class Followed:
    """A partition: its log, its follower and its shell."""

    def __init__(self, key: Key) -> None:
        self.key, self.topic, self.index = key, f"t{key[0][-1]}", key[1]
        self.follower = self
        self.retry_at_ms = None
        self.log = SimpleNamespace(log_end_offset=0)
        self.leader_id = NO_LEADER
        self.epoch = 0

    def next(self, now_ms: int) -> FetchWanted | None:
        """Implements the follower."""
        return None if self.leader_id == NO_LEADER else FetchWanted(self.epoch, self.log.log_end_offset, 0, 0)

    def fetched(self, wanted: FetchWanted, data: PartitionData) -> None:
        if wanted == self.next(0):
            self.log.log_end_offset += len(data.records or b"")


@dataclass
class Leader:
    """A broker that answers fetches."""

    node: Node
    number: int
    ends: dict[Key, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))
    view: dict[Key, FetchWanted] = field(default_factory=dict)
    """Partitions of the session."""
    session_id: int = 0
    session_epoch: int = 0
    keeps_sessions: bool = True
    is_up: bool = True
    refusal: int = 0
    news: trio.Event = field(default_factory=trio.Event)
    requests: list[float] = field(default_factory=list)
    troubled_at: float = -CALM_SECONDS
    reported: dict[Key, int] = field(default_factory=dict)
    """The high watermark in the last response about each partition, since it is followed from here."""

    def has_news(self) -> None:
        self.news.set()
        self.news = trio.Event()

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        self.requests.append(trio.current_time())
        assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (9, 109)
        if self.refusal:
            return FetchResponse(error_code=self.refusal)
        if not self.opens(request):
            return FetchResponse(error_code=NOT_FOUND)
        assert 0 <= request.max_wait_ms <= WAIT_MS
        with trio.move_on_after(request.max_wait_ms / 1000):
            while not any(self.ends[key] > wanted.fetch_offset for key, wanted in self.view.items()):
                await self.news.wait()
        return self.answer()

    def opens(self, request: FetchRequest) -> bool:
        """Apply the request to the session. False if there is none."""
        if request.session_epoch == 0:
            self.view, self.session_epoch = {}, 0
            self.session_id = self.session_id + 1 if self.keeps_sessions else 0
        elif (request.session_id, request.session_epoch) != (self.session_id, self.session_epoch + 1):
            return False
        else:
            self.session_epoch += 1
        for topic in request.topics:
            for each in topic.partitions:
                wanted = FetchWanted(
                    each.current_leader_epoch, each.fetch_offset, each.last_fetched_epoch, each.log_start_offset
                )
                self.view[topic.topic_id, each.partition] = wanted
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                del self.view[forgotten.topic_id, index]
        return True

    def answer(self) -> FetchResponse:
        response = FetchResponse(session_id=self.session_id)
        for key, wanted in self.view.items():
            end = self.ends[key]
            records = bytes(max(0, end - wanted.fetch_offset))
            data = PartitionData(partition_index=key[1], high_watermark=end, records=records)
            response.responses.append(FetchableTopicResponse(topic_id=key[0], partitions=[data]))
            if self.node.partitions[key].leader_id == self.number and self.node.is_running:
                self.reported[key] = end
        return response

    @property
    def is_calm(self) -> bool:
        """It has answered for long enough."""
        return self.is_up and not self.refusal and trio.current_time() - self.troubled_at > CALM_SECONDS


@dataclass
class Wire:
    leader: Leader
    is_closed: bool = False

    async def call(self, request: Any, *, timeout_ms: float) -> Any:
        raise NotImplementedError

    async def converse(self, request: Any, answered: Callable[[Any], Any], *, timeout_ms: float) -> None:
        assert timeout_ms == 30_000
        while request is not None:
            await trio.sleep(LATENCY_SECONDS)
            if not self.leader.is_up:
                raise ConnectionFailed("nobody answers")
            response = await self.leader.fetch(request)
            assert not self.is_closed
            request = answered(response)

    def close(self) -> None:
        self.is_closed = True


class Node:
    """The fetchers of broker 9."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], nursery: trio.Nursery) -> None:
        self.draw = draw
        self.leaders = {number: Leader(self, number) for number in LEADERS}
        self.partitions = {key: Followed(key) for key in KEYS}
        self.is_held = False
        self.is_running = True
        self.held_at = -CALM_SECONDS
        world: Any = SimpleNamespace(monotonic=TrioClock())
        settings = FetchSettings(9, fetch_wait_max_ms=WAIT_MS)
        self.real = Fetchers(world, nursery, settings, lambda: 109, self.dial)

    def dial(self, number: int) -> Wire | None:
        leader = self.leaders[number]
        return Wire(leader) if leader.is_up or self.draw(st.booleans()) else None

    # -- what happens

    async def follow(self) -> None:
        partition = self.partitions[self.draw(st.sampled_from(KEYS))]
        before = partition.leader_id
        partition.leader_id = self.draw(st.sampled_from([*LEADERS, NO_LEADER]))
        partition.epoch += 1
        if before not in (NO_LEADER, partition.leader_id):
            self.leaders[before].reported.pop(partition.key, None)
        leader = self.leaders.get(partition.leader_id)
        is_prompt = leader is not None and leader.is_calm and not self.is_held
        self.real.follow(cast(Any, partition), partition.leader_id)
        if is_prompt and leader is not None and trio.current_time() - self.held_at > CALM_SECONDS:
            await trio.sleep((NEW_PARTITION_WAIT_MS + 10) / 1000)
            assert leader.view[partition.key].leader_epoch == partition.epoch

    async def produce(self) -> None:
        leader = self.leaders[self.draw(st.sampled_from(LEADERS))]
        key = self.draw(st.sampled_from(KEYS))
        partition = self.partitions[key]
        is_prompt = leader.is_calm and partition.leader_id == leader.number and not self.is_held
        is_prompt = is_prompt and trio.current_time() - self.held_at > CALM_SECONDS
        if is_prompt:
            await trio.sleep(0.05)  # a restarted fetch is under way again
        leader.ends[key] += self.draw(st.integers(1, 3))
        leader.has_news()
        if is_prompt:
            await trio.sleep(0.01)
            assert partition.log.log_end_offset >= leader.ends[key]

    async def trouble(self) -> None:
        leader = self.leaders[self.draw(st.sampled_from(LEADERS))]
        what = self.draw(st.sampled_from(["down", "up", "up", "refuses", "forgets", "keeps no sessions"]))
        leader.troubled_at = trio.current_time()
        if what == "refuses":
            leader.refusal = self.draw(st.sampled_from([BUSY, NOT_FOUND, WRONG_EPOCH]))
            await trio.sleep(0.3)
            if leader.refusal in (NOT_FOUND, WRONG_EPOCH):
                leader.refusal = 0  # it would be asked again at once, for ever
        elif what == "forgets":
            leader.session_id += 100
        elif what == "keeps no sessions":
            leader.keeps_sessions = not leader.keeps_sessions
        else:
            leader.is_up, leader.refusal = what == "up", 0
            if not leader.is_up:
                leader.has_news()

    async def hold(self) -> None:
        self.is_held = not self.is_held
        self.held_at = trio.current_time()
        (self.real.hold if self.is_held else self.real.release)()

    async def metadata(self) -> None:
        self.real.metadata_changed()

    async def time(self) -> None:
        await trio.sleep(self.draw(st.sampled_from([0.001, 0.03, 0.3, 1.0, 6.0])))

    # -- answers

    def check(self) -> None:
        for key, partition in self.partitions.items():
            lag = self.real.lag(cast(Any, partition))
            if partition.leader_id == NO_LEADER:
                assert lag is None
            else:
                reported = self.leaders[partition.leader_id].reported.get(key, 0)
                assert lag == max(0, reported - partition.log.log_end_offset)

    async def settle(self) -> None:
        """Nothing is in the way any longer."""
        if self.is_held:
            await self.hold()
        for leader in self.leaders.values():
            leader.is_up, leader.refusal, leader.keeps_sessions = True, 0, True
        await trio.sleep(CALM_SECONDS)
        for leader in self.leaders.values():
            wanted = {key: each.next(0) for key, each in self.partitions.items() if each.leader_id == leader.number}
            assert not wanted or leader.view == wanted
            behind = [key for key in wanted if self.partitions[key].log.log_end_offset < leader.ends[key]]
            assert not behind
            leader.requests.clear()
        await trio.sleep(10)
        for leader in self.leaders.values():
            assert len(leader.requests) <= 10_000 // WAIT_MS + 1, "an idle fetch waits at the leader"
        self.check()

    async def stop(self) -> None:
        self.real.stop()
        self.is_running = False
        ends = [each.log.log_end_offset for each in self.partitions.values()]
        for leader in self.leaders.values():
            leader.requests.clear()
            leader.ends = {key: end + 1 for key, end in leader.ends.items()}
            leader.has_news()
        for key in KEYS:
            self.real.follow(cast(Any, self.partitions[key]), 1)
        await trio.sleep(5)
        assert ends == [each.log.log_end_offset for each in self.partitions.values()]
        assert not any(leader.requests for leader in self.leaders.values())


STEPS = ["follow", "follow", "follow", "produce", "produce", "time", "time", "trouble", "hold", "metadata"]


@pytest.mark.feature("RE-02", "RE-14", "RP-05")
@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_partitions_have_what_their_leaders_have(data: st.DataObject) -> None:
    async def life() -> None:
        async with trio.open_nursery() as nursery:
            node = Node(data.draw, nursery)
            for _ in range(data.draw(st.integers(3, 20))):
                await getattr(node, data.draw(st.sampled_from(STEPS)))()
                node.check()
            await node.settle()
            await node.stop()
            nursery.cancel_scope.cancel()

    trio.run(life, clock=trio.testing.MockClock(autojump_threshold=0))
