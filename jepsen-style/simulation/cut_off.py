"""A client that asks a broker which is cut off from all nodes but not from clients. Once it was replaced, the broker
must not answer as a leader or coordinator.

A lease by clocks is never exact, so for a while after it was replaced its answers may be old. Not for ever: once it has
received nothing from any node for longer than a session, it has to know that others may lead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import trio

from barnabas.broker.coordinator.coordinator import partition_for
from barnabas.broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from barnabas.cluster.hostile.aims import JUDGED_PREFIX, OWN_PREFIX
from barnabas.cluster.simulated import SimulatedNode
from barnabas.kraft.metadata.image import NO_LEADER, MetadataImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import Channel, ChannelError
from barnabas.runtime.world import World
from simulation.findings import Findings

HOST = "cut-off-client"
"""Host of this client."""
SESSIONS = 1.5
"""Sessions without contact, besides SLACK_SECONDS, after which a broker has to know: clocks run at different rates, and
it checks periodically."""
SLACK_SECONDS = 1.0
ASK_SECONDS = 0.4
ANSWER_MS = 1_000
TRANSACTIONAL_ID = "somebody"
LATEST = -1


@dataclass(frozen=True, slots=True)
class _Question:
    """A question that only a leader can answer."""

    topic: str
    partition: int
    request: Message
    version: int
    code_of: Callable[[Any], int]


@dataclass(slots=True)
class CutOffClient:
    """Asks one broker while it is cut off, and holds its answers against who leads by the committed metadata."""

    world: World
    node: SimulatedNode
    session_seconds: float
    groups: Sequence[str]
    findings: Findings
    image: Callable[[], MetadataImage]

    async def ask_on(self) -> None:
        """From the cut on, until cancelled."""
        led = self._led()
        await trio.sleep(SESSIONS * self.session_seconds + SLACK_SECONDS)
        name, port = self.node.node.name, self.node.node.port
        async with trio.open_nursery() as nursery:
            channel = Channel(self.world, nursery, name, port, client_id=HOST)
            while True:
                for question in self._questions(led):
                    with suppress(ChannelError, KafkaError):
                        await self._ask(channel, question)
                await trio.sleep(ASK_SECONDS)

    def _led(self) -> set[tuple[str, int]]:
        """The partitions that it leads when it is cut off."""
        return {
            (topic.name, index)
            for topic in self.image().topics.by_name.values()
            for index, partition in topic.partitions.items()
            if partition.leader == self.node.node.id
        }

    def _leader(self, topic: str, index: int) -> int:
        partition = self.image().topics.partition(topic, index)
        return NO_LEADER if partition is None else partition.leader

    def _questions(self, led: set[tuple[str, int]]) -> Iterator[_Question]:
        """About all that others lead by now."""
        lost = {place for place in sorted(led) if self._leader(*place) not in (NO_LEADER, self.node.node.id)}
        topics = self.image().topics.by_name
        for group in self.groups:
            place = self._responsible(GROUP_TOPIC, group)
            if place in lost:
                for stable in (False, True):
                    fetch = OffsetFetchRequest(group_id=group, topics=None, require_stable=stable)
                    yield _Question(*place, fetch, 7, lambda answer: answer.error_code)
                find = FindCoordinatorRequest(key=group, key_type=0)
                yield _Question(*place, find, 2, self._names_itself)
        place = self._responsible(TRANSACTION_TOPIC, TRANSACTIONAL_ID)
        if place in lost:
            describe = DescribeTransactionsRequest(transactional_ids=[TRANSACTIONAL_ID])
            yield _Question(*place, describe, 0, lambda answer: answer.transaction_states[0].error_code)
        for topic, index in sorted(lost):
            if topic in topics and not topic.startswith("__"):
                partition = ListOffsetsPartition(partition_index=index, timestamp=LATEST)
                asked = [ListOffsetsTopic(name=topic, partitions=[partition])]
                latest = ListOffsetsRequest(replica_id=-1, topics=asked)
                yield _Question(topic, index, latest, 5, lambda answer: answer.topics[0].partitions[0].error_code)

    def _responsible(self, topic: str, key: str) -> tuple[str, int]:
        image = self.image().topics.by_name.get(topic)
        return topic, -1 if image is None else partition_for(key, len(image.partitions))

    def _names_itself(self, answer: Any) -> int:
        return ErrorCode.NONE if answer.node_id == self.node.node.id else ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def _ask(self, channel: Channel, question: _Question) -> None:
        before = self._leader(question.topic, question.partition)
        answer = await channel.call(question.request, timeout_ms=ANSWER_MS, version=question.version)
        self.findings.count("questions to brokers that are cut off")
        after = self._leader(question.topic, question.partition)
        if self.node.node.id in (before, after) or not self.node.running:
            return
        if question.topic.startswith((OWN_PREFIX, JUDGED_PREFIX)):
            return  # hostile clients elect whom they like, without waiting until the cut-off broker is fenced
        # That there is no such thing is something that only the coordinator knows.
        knows = question.code_of(answer) in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        whose, name = f"{question.topic}-{question.partition}", self.node.node.name
        self.findings.check(
            not knows, lambda: f"{whose}: {before} leads it, {name} is cut off from nodes, and answers {answer}"
        )
