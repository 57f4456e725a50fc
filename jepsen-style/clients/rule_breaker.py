"""A member of a share group that breaks the rules of the protocol: it acknowledges what it does not have, twice, in the
wrong order or never, and its session epochs jump."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.metadata import TopicPartition
from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import share_acknowledge as acknowledging
from barnabas.protocol.messages import share_fetch as fetching
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.runtime.channel import ChannelError
from clients.barnabas_errors import definite_errors
from clients.client import ClientError
from operations import Place

MOST_RECORDS = 5
LAST_EPOCH = -1
UNKNOWN_TYPE = 9

Acked = tuple[int, int, list[int]]
"""(first offset, last offset, types)"""
Got = Sequence[tuple[int, int]]
"""Acquired ranges of offsets."""


class Act(NamedTuple):
    """One ShareAcknowledge."""

    of: Callable[[Got], list[Acked]]
    jump: int = 0
    """The difference of its session epoch from the right one."""
    ends: bool = False
    """The session ends with it."""


def _all(kind: int) -> Callable[[Got], list[Acked]]:
    return lambda got: [(first, last, [kind]) for first, last in got]


def _each_backwards(got: Got) -> list[Acked]:
    offsets = [offset for first, last in got for offset in range(first, last + 1)]
    return [(offset, offset, [AcknowledgeType.ACCEPT]) for offset in reversed(offsets)]


_ACCEPT = Act(_all(AcknowledgeType.ACCEPT))
BREACHES: Mapping[str, Sequence[Act]] = {
    "never": (),
    "twice": (_ACCEPT, _ACCEPT),
    "release-then-accept": (Act(_all(AcknowledgeType.RELEASE)), _ACCEPT),
    "others": (Act(lambda got: [(max(0, first - 3), first - 1, [1]) for first, _ in got[:1] if first]),),
    "behind": (Act(lambda got: [(last + 1, last + 3, [1]) for _, last in got[-1:]]),),
    "backwards": (Act(_each_backwards),),
    "gaps": (Act(lambda got: [(first, first, [AcknowledgeType.GAP]) for first, _ in got[:1]]),),
    "too-many-types": (Act(lambda got: [(first, last, [1] * (last - first + 2)) for first, last in got]),),
    "unknown-type": (Act(_all(UNKNOWN_TYPE)),),
    "epoch-jumps": (_ACCEPT._replace(jump=7),),
    "epoch-again": (Act(_all(AcknowledgeType.RENEW)), _ACCEPT._replace(jump=-1)),
    "ends-twice": (_ACCEPT._replace(ends=True), _ACCEPT._replace(ends=True)),
}
"""Acknowledgements after one fetch, by name."""


@dataclass(frozen=True, slots=True)
class RuleBreaker:
    """One member, with the connections of an administrator."""

    cluster: Cluster
    call: Callable[..., Any]
    """`Cluster.call`, with notes in `exchanges`."""
    exchanges: list[dict[str, Any]]
    group: str
    member_id: str
    timeout_ms: int

    async def break_rules(self, place: Place, acts: Sequence[Act]) -> None:
        node, topic_id = await self._leader(place)
        epoch = 0
        requests: list[Any] = [self._fetch(topic_id, place.partition)]
        got: list[tuple[int, int]] = []
        acts = list(acts)
        while requests:
            try:
                await self.call(node, requests.pop(), self.timeout_ms, line=self.member_id)
            except (ChannelError, KafkaError):
                await self.cluster.refresh([place.topic])
                return
            last = self.exchanges[-1]
            got += [(first, last_offset) for _, _, first, last_offset, _ in last["got"]]
            epoch += last["error"] is None
            if acts and got:
                requests.append(self._acknowledge(topic_id, place.partition, epoch, (acts.pop(0), got)))

    async def _leader(self, place: Place) -> tuple[int, bytes]:
        """The node and the topic's id. Raises ClientError."""
        partition = TopicPartition(*place)
        for _ in range(2):
            topic_id, leadership = self.cluster.topic_id(place.topic), self.cluster.leadership(partition)
            if leadership is not None and topic_id != ZERO_UUID:
                return leadership.node_id, topic_id
            with definite_errors():
                await self.cluster.refresh([place.topic])
        raise ClientError("UnknownTopicOrPartitionException", f"{place} has no leader", definite=True)

    def _fetch(self, topic_id: bytes, index: int) -> fetching.ShareFetchRequest:
        topic = fetching.FetchTopic(topic_id=topic_id, partitions=[fetching.FetchPartition(partition_index=index)])
        return fetching.ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=0,
            max_wait_ms=200,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=MOST_RECORDS,
            batch_size=MOST_RECORDS,
            topics=[topic],
        )

    def _acknowledge(
        self, topic_id: bytes, index: int, epoch: int, what: tuple[Act, Got]
    ) -> acknowledging.ShareAcknowledgeRequest:
        act, got = what
        ranges = act.of(got)
        batches = [
            acknowledging.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
            for first, last, types in ranges
        ]
        partition = acknowledging.AcknowledgePartition(partition_index=index, acknowledgement_batches=batches)
        return acknowledging.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=LAST_EPOCH if act.ends else epoch + act.jump,
            is_renew_ack=any(AcknowledgeType.RENEW in types for _, _, types in ranges),
            topics=[acknowledging.AcknowledgeTopic(topic_id=topic_id, partitions=[partition])],
        )
