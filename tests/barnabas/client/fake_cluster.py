"""Three brokers in one head: enough of the protocol for a client, and faults on demand. Runs in a simulated
universe."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.cluster_settings import ClusterSettings
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.framing import response_prefix
from barnabas.protocol.messages import (
    create_topics,
    delete_topics,
    describe_configs,
    elect_leaders,
    incremental_alter_configs,
)
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.messages.fetch import LeaderIdAndEpoch as FetchLeader
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.protocol.records.batch import iterate_batches, read_header, set_base_offset_and_epoch
from barnabas.protocol.records.record import decode_records
from barnabas.protocol.schema import Message, decode, encode_chunks
from barnabas.runtime.server import Request, ResponseSlot, ServerLimits, serve_listener
from barnabas.runtime.simulated import Universe, make_world
from barnabas.runtime.world import World

PORT = 9092
TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
"""Without a receiver of metrics a broker does not offer these."""


@dataclass(frozen=True)
class Fate:
    """Result of one produced batch, other than success."""

    append: bool = False
    error: ErrorCode = ErrorCode.NONE
    """NONE: no answer, the connection breaks."""


Script = Callable[[int, "FakePartition"], Fate | None]


@dataclass
class FakePartition:
    leader: int
    epoch: int = 0
    log: list[bytes] = field(default_factory=list)
    end_offset: int = 0
    start_offset: int = 0
    aborted: list[AbortedTransaction] = field(default_factory=list)
    producers: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    producer_epochs: dict[int, int] = field(default_factory=dict)

    def append(self, data: bytes) -> int | ErrorCode:
        """Append as a leader does: check epoch and sequence, assign offsets."""
        batch = bytearray(data)
        header = read_header(batch)
        if header.has_producer_id:
            epoch = self.producer_epochs.get(header.producer_id, header.producer_epoch)
            if header.producer_epoch < epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            if header.producer_epoch > epoch:
                if header.base_sequence != 0:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                self.producers.pop(header.producer_id, None)
            self.producer_epochs[header.producer_id] = header.producer_epoch
        known = self.producers.setdefault(header.producer_id, [])
        if header.has_producer_id and header.base_sequence > 0 and not self.end_offset:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # KAFKA-15591
        if header.has_producer_id and header.base_sequence >= 0 and known:
            for first, last, offset in known[-5:]:
                if (first, last) == (header.base_sequence, header.last_sequence):
                    return offset
            if header.base_sequence != known[-1][1] + 1:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if header.base_sequence >= 0:
            known.append((header.base_sequence, header.last_sequence, self.end_offset))
        set_base_offset_and_epoch(batch, 0, self.end_offset, self.epoch)
        self.log.append(bytes(batch))
        self.end_offset += header.records_count
        return self.end_offset - header.records_count

    def values(self) -> list[bytes]:
        return [record.value or b"" for batch in self.log for record in decode_records(batch)]


@dataclass
class FakeTopic:
    topic_id: bytes
    partitions: list[FakePartition]


class FakeCluster:
    """Brokers 1 to 3 at hosts b1 to b3."""

    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self.topics: dict[str, FakeTopic] = {}
        self._created = 0
        self.script: Script = lambda broker, partition: None
        self.hints = True
        """Whether responses name the new leader (KIP-951)."""
        self.produced: list[tuple[int, int]] = []
        """(broker, api version) of every produce request."""
        self.produced_partitions: list[int] = []
        """Number of batches in each of them."""
        self.throttle_ms = 0
        self.max_message_bytes = 2**31
        self.seen: list[ApiKey] = []
        self.max_versions: dict[ApiKey, int] = {}
        self.configs: dict[str, str | None] = {}
        self.last_producer_id = 1000

    def create(self, name: str, partitions: int = 1) -> list[FakePartition]:
        made = [FakePartition(leader=index % 3 + 1) for index in range(partitions)]
        self._created += 1
        self.topics[name] = FakeTopic(bytes([self._created]) * 16, made)
        return made

    async def run_broker(self, broker: int, world: World) -> None:
        listener = await world.network.listen(f"b{broker}", PORT)

        async def fetch_later(request: Request, slot: ResponseSlot) -> None:
            await trio.sleep(0.1)
            self._handle(broker, request, slot)

        def handle(request: Request, slot: ResponseSlot) -> None:
            if request.api_key == ApiKey.FETCH:
                nursery.start_soon(fetch_later, request, slot)
            else:
                self._handle(broker, request, slot)

        async with trio.open_nursery() as nursery:
            await serve_listener(world, listener, handle, ServerLimits())

    def start(self, nursery: trio.Nursery) -> None:
        for broker in (1, 2, 3):
            self.start_broker(nursery, broker)

    def start_broker(self, nursery: trio.Nursery, broker: int) -> None:
        async def main(world: World) -> None:
            await self.run_broker(broker, world)

        nursery.start_soon(self.universe.run_node, f"b{broker}", main)

    def _handle(self, broker: int, request: Request, slot: ResponseSlot) -> None:
        key = ApiKey(request.api_key)
        spec = API_SPECS[key]
        self.seen.append(key)
        message: Any = decode(spec.request_type(), request.body, request.api_version)
        answer = getattr(self, f"_{key.name.lower()}")(broker, message, request, slot)
        if answer is not None:
            flexible = spec.response_header_version(request.api_version) == 1
            prefix = response_prefix(request.correlation_id, flexible)
            slot.fill(encode_chunks(answer, request.api_version, prefix))

    def _api_versions(self, *_: object) -> Message:
        keys = [
            ApiVersion(
                api_key=key,
                min_version=spec.min_version,
                max_version=self.max_versions.get(key, spec.max_version),
            )
            for key, spec in API_SPECS.items()
            if key not in TELEMETRY
        ]
        return ApiVersionsResponse(api_keys=keys)

    def _metadata(self, broker: int, message: MetadataRequest, *_: object) -> Message:
        names = list(self.topics) if message.topics is None else [topic.name or "" for topic in message.topics]
        alive = [node for node in (1, 2, 3) if self.universe.is_alive(f"b{node}")]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=node, host=f"b{node}", port=PORT) for node in alive],
            cluster_id="fake",
            controller_id=1,
            topics=[self._describe(name) for name in names],
        )

    def _describe(self, name: str) -> MetadataResponseTopic:
        topic = self.topics.get(name)
        if topic is None:
            return MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=part.leader, leader_epoch=part.epoch)
            for index, part in enumerate(topic.partitions)
        ]
        return MetadataResponseTopic(name=name, topic_id=topic.topic_id, partitions=partitions)

    def _init_producer_id(self, *_: object) -> Message:
        self.last_producer_id += 1
        return InitProducerIdResponse(producer_id=self.last_producer_id, producer_epoch=0)

    def _topic(self, name: str, topic_id: bytes) -> tuple[str, FakeTopic]:
        if name:
            return name, self.topics[name]
        return next((known, topic) for known, topic in self.topics.items() if topic.topic_id == topic_id)

    def _produce(self, broker: int, message: ProduceRequest, request: Request, slot: ResponseSlot) -> Message | None:
        self.produced.append((broker, request.api_version))
        self.produced_partitions.append(sum(len(data.partition_data) for data in message.topic_data))
        responses = []
        broken = False
        for data in message.topic_data:
            if not data.name and all(known.topic_id != data.topic_id for known in self.topics.values()):
                responses.append(_unknown_topic(data))
                continue
            _, topic = self._topic(data.name, data.topic_id)
            answers = []
            for part in data.partition_data:
                answer, breaks = self._produce_one(broker, part.index, bytes(part.records or b""), topic)
                answers.append(answer)
                broken = broken or breaks
            responses.append(TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=answers))
        if broken:
            slot.abort("scripted")
            return None
        if message.acks == 0:
            slot.drop()
            return None
        return ProduceResponse(responses=responses, throttle_time_ms=self.throttle_ms)

    def _produce_one(
        self, broker: int, index: int, records: bytes, topic: FakeTopic
    ) -> tuple[PartitionProduceResponse, bool]:
        """(the answer, whether the connection breaks instead)"""
        partition = topic.partitions[index]
        answer = PartitionProduceResponse(index=index, base_offset=-1)
        fate = self.script(broker, partition)
        if partition.leader != broker:
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if self.hints:
                answer.current_leader = LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.epoch)
        elif len(records) > self.max_message_bytes:
            answer.error_code = ErrorCode.MESSAGE_TOO_LARGE
        elif fate is not None and not fate.append:
            answer.error_code = fate.error
        else:
            result = partition.append(records)
            if isinstance(result, ErrorCode):
                answer.error_code = result
            else:
                answer.base_offset = result
                answer.error_code = fate.error if fate is not None else ErrorCode.NONE
        return answer, fate is not None and fate.error is ErrorCode.NONE

    def _fetch(self, broker: int, message: FetchRequest, request: Request, *_: object) -> Message:
        topics = []
        for wanted in message.topics:
            _, topic = self._topic(wanted.topic, wanted.topic_id)
            answers = []
            for part in wanted.partitions:
                partition = topic.partitions[part.partition]
                answer = PartitionData(partition_index=part.partition, high_watermark=partition.end_offset)
                answer.aborted_transactions = partition.aborted
                if partition.leader != broker or part.current_leader_epoch > partition.epoch:
                    answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                    if self.hints:
                        answer.current_leader = FetchLeader(leader_id=partition.leader, leader_epoch=partition.epoch)
                elif not partition.start_offset <= part.fetch_offset <= partition.end_offset:
                    answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                else:
                    data = b"".join(partition.log)
                    batches = [
                        data[position : position + header.size_bytes]
                        for position, header in iterate_batches(data)
                        if header.last_offset >= part.fetch_offset
                    ]
                    answer.records = b"".join(batches)[:2000]
                answers.append(answer)
            topics.append(FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=answers))
        return FetchResponse(responses=topics)

    def _list_offsets(self, broker: int, message: ListOffsetsRequest, *_: object) -> Message:
        topics = []
        for wanted in message.topics:
            answers = []
            for part in wanted.partitions:
                partition = self.topics[wanted.name].partitions[part.partition_index]
                answer = ListOffsetsPartitionResponse(partition_index=part.partition_index)
                if partition.leader != broker:
                    answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                else:
                    answer.offset = partition.start_offset if part.timestamp == -2 else partition.end_offset
                answers.append(answer)
            topics.append(ListOffsetsTopicResponse(name=wanted.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

    def _create_topics(self, broker: int, message: create_topics.CreateTopicsRequest, *_: object) -> Message:
        [topic] = message.topics
        result = create_topics.CreatableTopicResult(name=topic.name)
        if topic.name in self.topics:
            result.error_code = ErrorCode.TOPIC_ALREADY_EXISTS
            result.error_message = f"Topic '{topic.name}' already exists."
        else:
            self.create(topic.name, topic.num_partitions)
            result.num_partitions = topic.num_partitions
        return create_topics.CreateTopicsResponse(topics=[result])

    def _delete_topics(self, broker: int, message: delete_topics.DeleteTopicsRequest, *_: object) -> Message:
        results = []
        for topic in message.topics:
            gone = self.topics.pop(topic.name or "", None)
            code = ErrorCode.NONE if gone is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(delete_topics.DeletableTopicResult(name=topic.name, error_code=code))
        return delete_topics.DeleteTopicsResponse(responses=results)

    def _describe_configs(self, broker: int, message: describe_configs.DescribeConfigsRequest, *_: object) -> Message:
        configs = [
            describe_configs.DescribeConfigsResourceResult(name=name, value=value)
            for name, value in {**self.configs, "node.id": str(broker)}.items()
        ]
        result = describe_configs.DescribeConfigsResult(configs=configs)
        return describe_configs.DescribeConfigsResponse(results=[result])

    def _incremental_alter_configs(
        self, broker: int, message: incremental_alter_configs.IncrementalAlterConfigsRequest, *_: object
    ) -> Message:
        for config in message.resources[0].configs:
            if config.config_operation == 1:
                self.configs.pop(config.name, None)
            else:
                self.configs[config.name] = config.value
        done = incremental_alter_configs.AlterConfigsResourceResponse()
        return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=[done])

    def _elect_leaders(self, broker: int, message: elect_leaders.ElectLeadersRequest, *_: object) -> Message:
        results = [
            elect_leaders.ReplicaElectionResult(
                topic=wanted.topic,
                partition_result=[
                    elect_leaders.PartitionResult(partition_id=partition, error_code=ErrorCode.ELECTION_NOT_NEEDED)
                    for partition in wanted.partitions
                ],
            )
            for wanted in message.topic_partitions or []
        ]
        return elect_leaders.ElectLeadersResponse(replica_election_results=results)


def _unknown_topic(data: TopicProduceData) -> TopicProduceResponse:
    answers = [
        PartitionProduceResponse(index=each.index, error_code=ErrorCode.UNKNOWN_TOPIC_ID, base_offset=-1)
        for each in data.partition_data
    ]
    return TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=answers)


SETTINGS = ClusterSettings(request_timeout_ms=2000, retry_backoff_ms=20, retry_backoff_max_ms=200)

ClientStory = Callable[[FakeCluster, Cluster, trio.Nursery], Awaitable[None]]


async def with_client(universe: Universe, story: ClientStory) -> None:
    """Run three brokers and a client's view of them, for the story."""
    fake = FakeCluster(universe)
    async with trio.open_nursery() as nursery:
        fake.start(nursery)
        await trio.sleep(0.1)
        world = make_world("client", universe)
        bootstrap = [("b1", PORT), ("b2", PORT), ("b3", PORT)]
        cluster = Cluster(world, nursery, bootstrap, client_id="test", settings=SETTINGS)
        await story(fake, cluster, nursery)
        nursery.cancel_scope.cancel()
