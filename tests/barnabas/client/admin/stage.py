"""A cluster with an administrator, and raw requests that bring about what an administrator looks at."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import trio

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.metadata import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import consumer_group_heartbeat as heartbeat
from barnabas.protocol.messages import streams_group_heartbeat as streams
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from barnabas.protocol.schema import Message, encode

GROUP, TRANSACTION = 0, 1
LEAVES = -1
LAST_OF_CLIENTS = 3
"""Later versions of AddPartitionsToTxn come from brokers."""


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    generation_or_epoch: int


@dataclass(slots=True)
class Stage:
    """The cluster of an administrator's stories; each story uses its own names."""

    admin: Admin
    cluster: Cluster
    """For raw requests."""
    replication_factor: int
    scope: str = ""
    """Comes into every name."""
    now_ms: int = 1_700_000_000_000
    _numbers: itertools.count[int] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)

    def name(self, stem: str) -> str:
        return f"{self.scope}{stem}-{next(self._numbers)}"

    async def topic(self, stem: str, partitions: int = 1) -> str:
        name = self.name(stem)
        await self.admin.create_topics([NewTopic(name, partitions, self.replication_factor)])
        while any(it.leader is None for it in (await self.admin.describe_topics(name))[name].partitions):
            await trio.sleep(0.05)
        return name

    # ---- records

    async def produce(self, partition: TopicPartition, values: Sequence[bytes], *, at_ms: int, **stamp: Any) -> None:
        records = [Record(index, at_ms + index, None, value, ()) for index, value in enumerate(values)]
        batch = build_batch(records, **{key: value for key, value in stamp.items() if key != "transactional_id"})
        while (code := await self._produce(partition, batch, stamp.get("transactional_id"))) != ErrorCode.NONE:
            # The broker named as the leader may not know it yet.
            assert code in (None, ErrorCode.NOT_LEADER_OR_FOLLOWER), ErrorCode(code)
            await trio.sleep(0.05)

    async def _produce(self, partition: TopicPartition, batch: bytes, transactional_id: str | None) -> int | None:
        """The error code; None if nobody leads the partition."""
        await self.cluster.refresh([partition.topic])
        leadership = self.cluster.leadership(partition)
        if leadership is None:
            return None
        data = TopicProduceData(
            name=partition.topic,
            topic_id=self.cluster.topic_id(partition.topic),
            partition_data=[PartitionProduceData(index=partition.partition, records=batch)],
        )
        request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[data])
        response = await self.cluster.call(leadership.node_id, request)
        [answer] = response.responses[0].partition_responses
        code: int = answer.error_code
        return code

    # ---- groups

    async def coordinator(self, kind: int, key: str) -> int:
        while True:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            [found] = (await self.cluster.call_any(request)).coordinators
            if found.error_code == ErrorCode.NONE:
                self.cluster.learn_nodes([_Endpoint(found.node_id, found.host, found.port)])
                node_id: int = found.node_id
                return node_id
            await trio.sleep(0.1)

    async def _ask(self, kind: int, key: str, request: Message, at_most: int | None = None) -> Any:
        """Wait until the coordinator is ready."""
        while True:
            response = await self.cluster.call(await self.coordinator(kind, key), request, at_most=at_most)
            if response.error_code not in (
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.CONCURRENT_TRANSACTIONS,
            ):
                return response
            await trio.sleep(0.1)

    async def join(self, group: str, topic: str, instance: str | None = None) -> Member:
        """The only member of a classic group, which gives itself partition 0 of a topic."""
        metadata = (1).to_bytes(2, "big") + encode(ConsumerProtocolSubscription(topics=[topic]), 1)
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        joined = await self._ask(GROUP, group, request)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = joined.member_id
            joined = await self._ask(GROUP, group, request)
        assert joined.error_code == ErrorCode.NONE, ErrorCode(joined.error_code)
        assigned = ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=[0])
        assignment = (1).to_bytes(2, "big") + encode(ConsumerProtocolAssignment(assigned_partitions=[assigned]), 1)
        sync = SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)],
        )
        synced = await self._ask(GROUP, group, sync)
        assert synced.error_code == ErrorCode.NONE, ErrorCode(synced.error_code)
        return Member(joined.member_id, joined.generation_id)

    async def join_modern(self, group: str, topic: str) -> Member:
        """The only member of a KIP-848 group, which has taken on what it was given."""
        member = Member(str(uuid.UUID(int=next(self._numbers), version=4)), 0)
        owned: list[heartbeat.TopicPartitions] = []
        while True:
            request = heartbeat.ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id=member.member_id,
                member_epoch=member.generation_or_epoch,
                rebalance_timeout_ms=30_000,
                subscribed_topic_names=[topic],
                topic_partitions=owned,
            )
            answer = await self._ask(GROUP, group, request)
            assert answer.error_code == ErrorCode.NONE, answer
            member = Member(member.member_id, answer.member_epoch)
            given = [] if answer.assignment is None else answer.assignment.topic_partitions
            wanted = [heartbeat.TopicPartitions(topic_id=it.topic_id, partitions=it.partitions) for it in given]
            if owned and wanted in ([], owned):
                return member
            owned = wanted or owned
            await trio.sleep(0.1)

    async def join_share(self, group: str, topic: str) -> Member:
        member_id = str(uuid.UUID(int=next(self._numbers), version=4))
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=0, subscribed_topic_names=[topic]
        )
        answer = await self._ask(GROUP, group, request)
        assert answer.error_code == ErrorCode.NONE, answer
        return Member(member_id, answer.member_epoch)

    async def join_streams(self, group: str, topic: str) -> Member:
        member_id = str(uuid.UUID(int=next(self._numbers), version=4))
        topology = streams.Topology(
            epoch=1, subtopologies=[streams.Subtopology(subtopology_id="only", source_topics=[topic])]
        )
        request = streams.StreamsGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            rebalance_timeout_ms=30_000,
            topology=topology,
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="process",
            client_tags=[streams.KeyValue(key="zone", value="a")],
        )
        answer = await self._ask(GROUP, group, request)
        assert answer.error_code == ErrorCode.NONE, answer
        return Member(member_id, answer.member_epoch)

    async def leave_share(self, group: str, member: Member) -> None:
        request = ShareGroupHeartbeatRequest(group_id=group, member_id=member.member_id, member_epoch=LEAVES)
        assert (await self._ask(GROUP, group, request)).error_code == ErrorCode.NONE

    # ---- transactions

    async def begin(self, transactional_id: str, partition: TopicPartition) -> Member:
        """A transaction that has a record in one partition, and stays open."""
        init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        producer = await self._ask(TRANSACTION, transactional_id, init)
        assert producer.error_code == ErrorCode.NONE, producer
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition])],
        )
        while True:
            node_id = await self.coordinator(TRANSACTION, transactional_id)
            added = await self.cluster.call(node_id, add, at_most=LAST_OF_CLIENTS)
            [code] = [it.partition_error_code for it in added.results_by_topic_v3_and_below[0].results_by_partition]
            if code == ErrorCode.NONE:
                break
            assert ErrorCode(code).retriable, ErrorCode(code)
            await trio.sleep(0.1)
        await self.produce(
            partition,
            [b"pending"],
            at_ms=self.now_ms,
            transactional_id=transactional_id,
            transactional=True,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
        )
        return Member(str(producer.producer_id), producer.producer_epoch)


@dataclass(frozen=True, slots=True)
class _Endpoint:
    node_id: int
    host: str
    port: int
    rack: str | None = None
