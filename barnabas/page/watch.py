"""Polls the nodes twice a second while a browser is connected, and not otherwise.

Each node is polled once per topic that is open in any browser. Each has a task of its own, so a slow node delays no
other; the events are computed from the last answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

import trio

from barnabas.cluster.node_page import NoAnswer, NodePage, Refused
from barnabas.page.event_groups import grouped
from barnabas.page.feed import Feed
from barnabas.page.node_state import NodeName, NodeState, NotAState, read_state
from barnabas.page.sight import Sight, cluster_event, partitions_event
from barnabas.runtime.http_token import HttpToken
from barnabas.runtime.world import World
from barnabas.why.node_addresses import NodeAddress
from barnabas.why.node_queries import ask_all, ask_denials, ask_shares
from barnabas.why.story import story

INTERVAL_SECONDS = 0.5
ANSWER_SECONDS = 1.5
"""Time limit for an answer; shorter than its validity, else a slow node would alternate with unreachable."""
FIRST_ANSWERS_SECONDS = 0.5
FIRST_DISCOVERY_SECONDS = 3.0
"""Time limit for the first answers; before them a new reader would see an unreachable cluster."""
STORY_LENGTH = 200
"""Number of a node's earlier decisions that the first reader gets."""
MOST_DECISIONS = 1000
"""Limit of decisions in one answer."""

_POLL_SECONDS = 0.02

Processes = Callable[[], Mapping[str, str]]
"""State of each node's process: running, paused, dead, stopped. Empty if unknown."""


@dataclass(frozen=True, slots=True)
class Address:
    """A node and its HTTP listener."""

    node: NodeName
    host: str
    http_port: int
    token: HttpToken | None = None
    """Sent with each question."""


@dataclass(slots=True)
class _Polled:
    """A node with its connection and the position in its decisions."""

    sight: Sight
    page: NodePage
    last_number: int | None = None
    """Number of its last published decision; None if not polled yet."""
    last: Mapping[str, Any] | None = None
    """Its last published decision. If the node has another one under this number, it was restarted."""


class Discovery(Protocol):
    """Another way to find and poll nodes."""

    async def run(self, watch: Watch) -> None:
        """Runs until cancelled."""

    async def poll_once(self, watch: Watch, topic: str) -> None: ...


@dataclass
class Watch:
    """The polling for all readers."""

    world: World
    feed: Feed
    addresses: Sequence[Address]
    processes: Processes = dict
    cut: Callable[[], Sequence[tuple[str, str]]] = list
    """Returns the cut links."""
    at_each_poll: list[Callable[[], None]] = field(default_factory=list)
    """Called twice a second while a browser is connected, to publish further events."""
    discovery: Discovery | None = None
    """Runs while a browser is connected, and updates `sights`."""

    def __post_init__(self) -> None:
        self._changed = trio.Event()
        self._asked: dict[str, _Polled] = {}
        self._news: list[tuple[str, Mapping[str, Any]]] = []
        """(node, decision) since the last poll."""
        self.sights: dict[str, Sight] = {}
        """By node name."""
        self.feed.on_readers = self.readers_changed
        self.set_addresses(self.addresses)

    @property
    def topics(self) -> list[str]:
        """Topics known to the brokers; internal ones last."""
        names = {name: None for sight in self.sights.values() if sight.state is not None for name in sight.state.topics}
        return sorted(names, key=lambda name: (name.startswith("__"), name))

    def set_addresses(self, addresses: Sequence[Address]) -> None:
        """Sets the nodes to poll; known ones keep their state."""
        self.addresses = addresses
        for each in addresses:
            known = self._asked.get(each.node.name)
            if known is not None and (known.page.host, known.page.port) == (each.host, each.http_port):
                continue
            sight = self.sights.setdefault(each.node.name, Sight(each.node))
            page = NodePage(self.world.network, each.host, each.http_port, each.token)
            self._asked[each.node.name] = _Polled(sight, page)
        self.readers_changed()

    def sight_of(self, node: NodeName) -> Sight:
        """The sight of a node that may have no HTTP listener."""
        return self.sights.setdefault(node.name, Sight(node))

    def fresh_states(self) -> list[tuple[str, NodeState]]:
        """The newest states of the nodes that answer, by name."""
        now_ms = self.now_ms()
        return [
            (name, sight.state)
            for name, sight in sorted(self.sights.items())
            if sight.state is not None and sight.is_fresh(now_ms)
        ]

    def readers_changed(self) -> None:
        """Readers or addresses changed."""
        self._changed.set()

    def now_ms(self) -> int:
        return self.world.monotonic.now_ms()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            self._changed = trio.Event()
            if self.feed.is_read:
                await self._while_read()
            else:
                await self._changed.wait()

    async def _while_read(self) -> None:
        async with trio.open_nursery() as nursery:
            if self.discovery is not None:
                nursery.start_soon(self.discovery.run, self)
            asking: dict[str, _Polled] = {}
            next_at = trio.current_time()
            begun = False
            while self.feed.is_read:
                for name, asked in self._asked.items():
                    if asking.get(name) is not asked:
                        asking[name] = asked
                        nursery.start_soon(self._poll_node, name, asked)
                if not begun:
                    begun = True
                    await self._first_answers()
                self._publish()
                next_at = max(next_at + INTERVAL_SECONDS, trio.current_time() + INTERVAL_SECONDS / 5)
                await self._sleep_until(next_at)
            nursery.cancel_scope.cancel()
        for asked in self._asked.values():
            asked.page.close()

    async def _first_answers(self) -> None:
        """Waits until all nodes have answered or refused, or the time limit."""
        seconds = FIRST_ANSWERS_SECONDS if self.discovery is None else FIRST_DISCOVERY_SECONDS
        with trio.move_on_after(seconds):
            while True:
                await trio.sleep(_POLL_SECONDS)
                known = [sight.is_fresh(self.now_ms()) or sight.refused for sight in self.sights.values()]
                if known and all(known):
                    return

    async def _sleep_until(self, moment: float) -> None:
        """Returns early when the last reader leaves."""
        while True:
            with trio.move_on_at(moment) as waiting:
                await self._changed.wait()
            if waiting.cancelled_caught or not self.feed.is_read:
                return
            self._changed = trio.Event()

    def _publish(self) -> None:
        now_ms, at_ms = self.now_ms(), self.world.wall_clock.now_ms()
        self.feed.drop_stalled(now_ms)
        self._publish_decisions()
        for publish in self.at_each_poll:
            publish()
        event = self.cluster_event(at_ms)
        self.feed.cluster(event)
        for topic in self.feed.topics:
            self.feed.partitions(partitions_event(self._in_order(), topic, now_ms, at_ms))

    def _publish_decisions(self) -> None:
        news, self._news = self._news, []
        for event in grouped(sorted(news, key=lambda each: int(each[1]["at_ms"]))):
            decision = event.decision
            self.feed.mark(
                str(decision["kind"]),
                event.subject,
                event.text,
                at_ms=int(decision["at_ms"]),
                node=event.node,
                decision=decision,
            )

    def cluster_event(self, at_ms: int) -> dict[str, Any]:
        """The event `cluster` as of now."""
        for name, process in self.processes().items():
            if name in self.sights:
                self.sights[name].process = process
        return cluster_event(self._in_order(), self.now_ms(), at_ms, self.cut())

    def _in_order(self) -> list[Sight]:
        """Brokers first, each kind by id."""
        return sorted(self.sights.values(), key=lambda sight: (sight.node.role, sight.node.id))

    # One node

    async def _poll_node(self, name: str, asked: _Polled) -> None:
        next_at = trio.current_time()
        while self._asked.get(name) is asked:
            await self._ask(asked, self.feed.topics)
            next_at = max(next_at + INTERVAL_SECONDS, trio.current_time() + INTERVAL_SECONDS / 5)
            await trio.sleep_until(next_at)

    async def _ask(self, asked: _Polled, topics: Sequence[str]) -> None:
        """One poll of one node, limited to `ANSWER_SECONDS`."""
        node = asked.sight.node
        if node.role != "broker":
            topics = ()
        with trio.move_on_after(ANSWER_SECONDS) as patience:
            try:
                for topic in topics or (None,):
                    path = "/state" if topic is None else f"/state?topic={quote(topic, safe='')}"
                    state = read_state(await asked.page.get(path))
                    if (state.role, state.id) != (node.role, node.id):
                        raise NotAState(f"{state.role}-{state.id} answers in its place")
                    asked.sight.answered(state, topic, self.now_ms())
                await self._fetch_decisions(asked, state)
            except (NoAnswer, NotAState) as error:
                asked.sight.not_answered(str(error), refused=isinstance(error, Refused))
        if patience.cancelled_caught:
            asked.sight.not_answered(f"no answer within {ANSWER_SECONDS} s", refused=False)

    async def _fetch_decisions(self, asked: _Polled, state: NodeState) -> None:
        """Queues the node's decisions since the last poll."""
        newest = state.next_decision - 1
        if newest == asked.last_number:
            return
        if asked.last_number is None or newest - asked.last_number > STORY_LENGTH:
            # The first poll, or the first for a long time.
            asked.last_number, asked.last = max(0, newest - STORY_LENGTH), None
        # The last known decision is fetched again, to detect a restarted node, which counts from 1.
        after = max(0, asked.last_number - 1)
        found = await decisions_of(asked.page, f"after={after}")
        if not found or (asked.last is not None and found[0]["number"] == asked.last_number and found[0] != asked.last):
            found = await decisions_of(asked.page, "after=0")
        elif found[0] == asked.last:
            found = found[1:]
        for decision in found:
            asked.last_number, asked.last = int(decision["number"]), decision
            if not decision["facts"].get("hearsay"):
                self._news.append((asked.sight.node.name, decision))

    # Single requests

    async def poll_once(self, topic: str) -> dict[str, Any]:
        """The events `cluster` and `partitions` as of now; polls the nodes unless the topic is polled anyway."""
        if topic not in self.feed.topics:
            if self.discovery is not None:
                await self.discovery.poll_once(self, topic)
            async with trio.open_nursery() as nursery:
                for asked in self._asked.values():
                    nursery.start_soon(self._poll_separately, _Polled(asked.sight, asked.page.another()), topic)
        at_ms = self.world.wall_clock.now_ms()
        return {
            "cluster": self.cluster_event(at_ms),
            "partitions": partitions_event(self._in_order(), topic, self.now_ms(), at_ms),
        }

    async def _poll_separately(self, asked: _Polled, topic: str) -> None:
        """Polls a node's state without its decisions."""
        node = asked.sight.node
        path = f"/state?topic={quote(topic, safe='')}" if node.role == "broker" else "/state"
        try:
            with trio.move_on_after(ANSWER_SECONDS) as patience:
                asked.sight.answered(read_state(await asked.page.get(path)), topic, self.now_ms())
            if patience.cancelled_caught:
                asked.sight.not_answered(f"no answer within {ANSWER_SECONDS} s", refused=False)
        except (NoAnswer, NotAState) as error:
            asked.sight.not_answered(str(error), refused=isinstance(error, Refused))
        finally:
            asked.page.close()

    async def story_of(self, subject: str) -> list[Mapping[str, Any]]:
        """The merged decisions of all nodes about a subject."""
        answers = await ask_all(self.world.network, self._node_addresses(), subject, ANSWER_SECONDS)
        return [event.to_json() for event in story(answers.decisions)]

    async def denials(self) -> list[Mapping[str, Any]]:
        """The denials that the nodes have noted, the newest first."""
        return await ask_denials(self.world.network, self._node_addresses(), ANSWER_SECONDS)

    async def shares(self, group_id: str) -> list[object]:
        """Answers of the nodes about the share partitions of a group; none from nodes of Apache Kafka."""
        return await ask_shares(self.world.network, self._node_addresses(), {"group": group_id}, ANSWER_SECONDS)

    def _node_addresses(self) -> list[NodeAddress]:
        return [NodeAddress(each.node.name, each.host, each.http_port, each.token) for each in self.addresses]


async def decisions_of(page: NodePage, query: str) -> list[Mapping[str, Any]]:
    """Raises `NoAnswer`."""
    answer = await page.get(f"/decisions?{query}&limit={MOST_DECISIONS}")
    try:
        found = list(answer["decisions"])
        for each in found:
            int(each["number"]), int(each["at_ms"]), str(each["node"]), each["kind"], each["subject"], each["told"]
            each["facts"].get("hearsay")
    except (AttributeError, KeyError, TypeError, ValueError):
        raise NoAnswer("its /decisions has an unknown format; is it of another version?") from None
    return found
