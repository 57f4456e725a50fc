"""The watch: asks the nodes how they are, twice a second, as long as somebody looks; asks nothing when nobody does.

However many look, each node is asked once for each topic that is looked at. A node that is slow to answer holds up
nobody: each has a task of its own, and what is shown is made of what they told last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

import trio

from barnabas.cluster.node_page import NoAnswer, NodePage, Refused
from barnabas.page.feed import Feed
from barnabas.page.node_state import NodeName, NodeState, NotAState, read_state
from barnabas.page.seeing import Sight, cluster_seen, partitions_seen
from barnabas.why.node_addresses import NodeAddress
from barnabas.why.node_queries import ask_all
from barnabas.why.story import story
from runtime.world import World

INTERVAL_SECONDS = 0.5
ANSWER_SECONDS = 1.5
"""How long a node may take. Longer than an answer is good for would show a slow node as unreachable, and then not."""
FIRST_ANSWERS_SECONDS = 0.5
FIRST_DISCOVERY_SECONDS = 3.0
"""Nothing is told before, unless a node has answered: nobody shall see a cluster gone that was not asked yet."""
STORY_LENGTH = 200
"""How many of a node's earlier decisions are told to the first who looks."""
MOST_DECISIONS = 1000
"""Of one node in one answer."""

_POLL_SECONDS = 0.02

Processes = Callable[[], Mapping[str, str]]
"""By node, how its process is: running, paused, dead, stopped. Empty if nobody can know."""


@dataclass(frozen=True, slots=True)
class Address:
    """A node, and where it tells of itself."""

    node: NodeName
    host: str
    http_port: int


@dataclass(slots=True)
class _Asked:
    """One node, as it is asked."""

    sight: Sight
    page: NodePage
    heard_of: int | None = None
    """The number of its last decision that was told; None: not asked yet."""
    last: Mapping[str, Any] | None = None
    """That decision. If it is another one by now, the node has begun anew."""


class Beside(Protocol):
    """Somebody who looks at the cluster by other ways."""

    async def run(self, watch: Watch) -> None:
        """Until cancelled."""

    async def look_once(self, watch: Watch, topic: str) -> None: ...


@dataclass
class Watch:
    """One for all who look."""

    world: World
    feed: Feed
    addresses: Sequence[Address]
    processes: Processes = dict
    cut: Callable[[], Sequence[tuple[str, str]]] = list
    """Links that are cut."""
    at_each_look: list[Callable[[], None]] = field(default_factory=list)
    """Called twice a second while somebody looks: others may have something to tell as well."""
    beside: Beside | None = None
    """Who else looks, as long as somebody does; what it finds goes to `sights`."""

    def __post_init__(self) -> None:
        self._changed = trio.Event()
        self._asked: dict[str, _Asked] = {}
        self._news: list[tuple[str, Mapping[str, Any]]] = []
        """Decisions that were heard of since the last look, and of whom."""
        self.sights: dict[str, Sight] = {}
        """By name of the node."""
        self.feed.on_readers = self.readers_changed
        self.look_at(self.addresses)

    @property
    def topics(self) -> list[str]:
        """That the brokers told of last; Kafka's own behind all others."""
        names = {name: None for sight in self.sights.values() if sight.state is not None for name in sight.state.topics}
        return sorted(names, key=lambda name: (name.startswith("__"), name))

    def look_at(self, addresses: Sequence[Address]) -> None:
        """These are the nodes with pages from now on; those that were known stay."""
        self.addresses = addresses
        for each in addresses:
            known = self._asked.get(each.node.name)
            if known is not None and (known.page.host, known.page.port) == (each.host, each.http_port):
                continue
            sight = self.sights.setdefault(each.node.name, Sight(each.node))
            self._asked[each.node.name] = _Asked(sight, NodePage(self.world.network, each.host, each.http_port))
        self.readers_changed()

    def sight_of(self, node: NodeName) -> Sight:
        """Of a node that may have no page: somebody else tells how it is."""
        return self.sights.setdefault(node.name, Sight(node))

    def readers_changed(self) -> None:
        """Somebody came or went, or there are other nodes."""
        self._changed.set()

    def now_ms(self) -> int:
        return self.world.monotonic.now_ms()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._changed = trio.Event()
            if self.feed.is_read:
                await self._while_read()
            else:
                await self._changed.wait()

    async def _while_read(self) -> None:
        async with trio.open_nursery() as nursery:
            if self.beside is not None:
                nursery.start_soon(self.beside.run, self)
            asking: dict[str, _Asked] = {}
            next_at = trio.current_time()
            begun = False
            while self.feed.is_read:
                for name, asked in self._asked.items():
                    if asking.get(name) is not asked:
                        asking[name] = asked
                        nursery.start_soon(self._ask_again_and_again, name, asked)
                if not begun:
                    begun = True
                    await self._first_answers()
                self._tell()
                next_at = max(next_at + INTERVAL_SECONDS, trio.current_time() + INTERVAL_SECONDS / 5)
                await self._sleep_until(next_at)
            nursery.cancel_scope.cancel()
        for asked in self._asked.values():
            asked.page.close()

    async def _first_answers(self) -> None:
        """Until most nodes have answered, or time is over."""
        seconds = FIRST_ANSWERS_SECONDS if self.beside is None else FIRST_DISCOVERY_SECONDS
        with trio.move_on_after(seconds):
            while True:
                await trio.sleep(_POLL_SECONDS)
                known = [sight.is_fresh(self.now_ms()) or sight.refused for sight in self.sights.values()]
                if known and all(known):
                    return

    async def _sleep_until(self, moment: float) -> None:
        """Or until the last reader has gone."""
        while True:
            with trio.move_on_at(moment) as waiting:
                await self._changed.wait()
            if waiting.cancelled_caught or not self.feed.is_read:
                return
            self._changed = trio.Event()

    def _tell(self) -> None:
        now_ms, at_ms = self.now_ms(), self.world.wall_clock.now_ms()
        self.feed.drop_stalled(now_ms)
        self._tell_news()
        for look in self.at_each_look:
            look()
        event = self.cluster_event(at_ms)
        self.feed.cluster(event)
        for topic in self.feed.topics:
            self.feed.partitions(partitions_seen(self._in_order(), topic, now_ms, at_ms))

    def _tell_news(self) -> None:
        news, self._news = self._news, []
        for node, decision in sorted(news, key=lambda each: int(each[1]["at_ms"])):
            self.feed.mark(
                str(decision["kind"]),
                str(decision["subject"]),
                str(decision["told"]),
                at_ms=int(decision["at_ms"]),
                node=node,
                decision=decision,
            )

    def cluster_event(self, at_ms: int) -> dict[str, Any]:
        """As it is known now."""
        for name, process in self.processes().items():
            if name in self.sights:
                self.sights[name].process = process
        return cluster_seen(self._in_order(), self.now_ms(), at_ms, self.cut())

    def _in_order(self) -> list[Sight]:
        """Brokers first, each kind by id."""
        return sorted(self.sights.values(), key=lambda sight: (sight.node.role, sight.node.id))

    # One node

    async def _ask_again_and_again(self, name: str, asked: _Asked) -> None:
        next_at = trio.current_time()
        while self._asked.get(name) is asked:
            await self._ask(asked, self.feed.topics)
            next_at = max(next_at + INTERVAL_SECONDS, trio.current_time() + INTERVAL_SECONDS / 5)
            await trio.sleep_until(next_at)

    async def _ask(self, asked: _Asked, topics: Sequence[str]) -> None:
        """One look at one node; ends within some seconds, whatever the node does."""
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
                    asked.sight.heard(state, topic, self.now_ms())
                await self._hear_decisions(asked, state)
            except (NoAnswer, NotAState) as error:
                asked.sight.not_heard(str(error), refused=isinstance(error, Refused))
        if patience.cancelled_caught:
            asked.sight.not_heard(f"no answer within {ANSWER_SECONDS} s", refused=False)

    async def _hear_decisions(self, asked: _Asked, state: NodeState) -> None:
        """Tells of what the node has decided since it was asked last."""
        newest = state.next_decision - 1
        if newest == asked.heard_of:
            return
        if asked.heard_of is None or newest - asked.heard_of > STORY_LENGTH:
            # Nobody has looked for long, or ever.
            asked.heard_of, asked.last = max(0, newest - STORY_LENGTH), None
        # The last one that is known is asked for again: a node that was started anew counts from 1.
        after = max(0, asked.heard_of - 1)
        found = await decisions_of(asked.page, f"after={after}")
        if not found or (asked.last is not None and found[0]["number"] == asked.heard_of and found[0] != asked.last):
            found = await decisions_of(asked.page, "after=0")
        elif found[0] == asked.last:
            found = found[1:]
        for decision in found:
            asked.heard_of, asked.last = int(decision["number"]), decision
            if not decision["facts"].get("hearsay"):
                self._news.append((asked.sight.node.name, decision))

    # When somebody asks once

    async def look_once(self, topic: str) -> dict[str, Any]:
        """The events `cluster` and `partitions` as they are now; asks the nodes unless that is done already."""
        if topic not in self.feed.topics:
            if self.beside is not None:
                await self.beside.look_once(self, topic)
            async with trio.open_nursery() as nursery:
                for asked in self._asked.values():
                    page = NodePage(self.world.network, asked.page.host, asked.page.port)
                    nursery.start_soon(self._ask_aside, _Asked(asked.sight, page), topic)
        at_ms = self.world.wall_clock.now_ms()
        return {
            "cluster": self.cluster_event(at_ms),
            "partitions": partitions_seen(self._in_order(), topic, self.now_ms(), at_ms),
        }

    async def _ask_aside(self, asked: _Asked, topic: str) -> None:
        """Without its decisions."""
        node = asked.sight.node
        path = f"/state?topic={quote(topic, safe='')}" if node.role == "broker" else "/state"
        try:
            with trio.move_on_after(ANSWER_SECONDS) as patience:
                asked.sight.heard(read_state(await asked.page.get(path)), topic, self.now_ms())
            if patience.cancelled_caught:
                asked.sight.not_heard(f"no answer within {ANSWER_SECONDS} s", refused=False)
        except (NoAnswer, NotAState) as error:
            asked.sight.not_heard(str(error), refused=isinstance(error, Refused))
        finally:
            asked.page.close()

    async def story_of(self, subject: str) -> list[Mapping[str, Any]]:
        """What all nodes know of a subject, each thing once, by time."""
        addresses = [NodeAddress(each.node.name, each.host, each.http_port) for each in self.addresses]
        answers = await ask_all(self.world.network, addresses, subject, ANSWER_SECONDS)
        return [event.to_json() for event in story(answers.decisions)]


async def decisions_of(page: NodePage, query: str) -> list[Mapping[str, Any]]:
    """Raises `NoAnswer`."""
    told = await page.get(f"/decisions?{query}&limit={MOST_DECISIONS}")
    try:
        found = list(told["decisions"])
        for each in found:
            int(each["number"]), int(each["at_ms"]), str(each["node"]), each["kind"], each["subject"], each["told"]
            each["facts"].get("hearsay")
    except (AttributeError, KeyError, TypeError, ValueError):
        raise NoAnswer("its /decisions is not what this page reads: is it of another version?") from None
    return found
