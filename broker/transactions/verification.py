"""Shell: asks transaction coordinators whether partitions belong to a transaction, or to add them (KIP-890).

There is one courier per coordinating broker, with one connection and one AddPartitionsToTxn in flight; questions that
arrive meanwhile go with the next request, which can cover many transactions. Knows neither logs nor client requests:
`storage.producers` decides what may be appended after the answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import trio

from barnabas.broker.broker_channels import BrokerChannels
from barnabas.broker.coordinator.coordinator import partition_for
from barnabas.broker.internal_topics import TRANSACTION_TOPIC
from barnabas.broker.metadata_cache import Node
from barnabas.broker.own_channel import OwnChannel, Serve
from barnabas.broker.traffic import Verifications
from barnabas.broker.transactions.transaction import TopicPartition
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.runtime.background import Background
from barnabas.runtime.channel import Channel, ChannelError
from barnabas.runtime.world import World
from barnabas.settings.broker import BrokerSettings

log = logging.getLogger(__name__)

Verdict = Mapping[TopicPartition, ErrorCode]
Settings = Callable[[], BrokerSettings]


class TransactionVerifier:
    """Client side of AddPartitionsToTxn from version 4 on."""

    def __init__(
        self, world: World, nursery: trio.Nursery, channels: BrokerChannels, settings: Settings, serve: Serve
    ) -> None:
        """`settings` returns the current settings; `serve` handles the transactions that this broker coordinates
        itself.
        """
        self._world = world
        self._nursery = nursery
        self._channels = channels
        self._settings = settings
        self._serve = serve
        self._couriers: dict[int, _Courier] = {}
        self.counted = Verifications()

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns NONE for each partition in the open transaction of exactly this producer epoch; otherwise an error.

        With `add`, missing partitions are added, and a transaction is begun if none is open; while the previous one is
        still ending, the coordinator is asked again for a short time.

        Errors come from the coordinator (INVALID_TXN_STATE, TRANSACTION_ABORTABLE, INVALID_PRODUCER_ID_MAPPING,
        CONCURRENT_TRANSACTIONS, …), with INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED. COORDINATOR_NOT_AVAILABLE:
        it is unknown. NETWORK_EXCEPTION: it did not answer.
        """
        settings = self._settings()
        patience_ms = min(settings.add_partitions_to_txn_retry_backoff_max_ms, settings.request_timeout_ms)
        deadline_ms = self._world.monotonic.now_ms() + patience_ms
        began = self._world.stopwatch()
        while True:
            question = _Question(producer_id, producer_epoch, add, dict.fromkeys(partitions))
            verdict = await self._ask(transactional_id, question)
            answers = {each: verdict.get(each, ErrorCode.UNKNOWN_SERVER_ERROR) for each in partitions}
            is_ending = add and ErrorCode.CONCURRENT_TRANSACTIONS in answers.values()
            if not is_ending or self._world.monotonic.now_ms() >= deadline_ms:
                self.counted.spread.took(self._world.stopwatch() - began)
                self.counted.failures += sum(code is not ErrorCode.NONE for code in answers.values())
                return answers
            await trio.sleep(settings.add_partitions_to_txn_retry_backoff_ms / 1000)

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """Stop waiting for brokers that may never answer, since later questions queue behind the current one."""
        for broker_id in delta.interrupted_brokers:
            if (courier := self._couriers.get(broker_id)) is not None:
                courier.give_up("the broker was fenced or restarted")

    async def _ask(self, transactional_id: str, question: _Question) -> Verdict:
        node = self._coordinator(transactional_id)
        if node is None:
            return question.all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        courier = self._couriers.get(node.node_id)
        if courier is None:
            courier = self._couriers[node.node_id] = _Courier(
                self._channels, self._nursery, self._settings, self._serve
            )
        question = courier.take(transactional_id, question)
        courier.go(node)
        await question.answered.wait()
        return question.verdict

    def _coordinator(self, transactional_id: str) -> Node | None:
        """Leader of the partition that the id hashes to, if that broker is alive."""
        image = self._channels.metadata.image.topics.by_name.get(TRANSACTION_TOPIC)
        if image is None or not image.partitions:
            return None
        leader = image.partitions[partition_for(transactional_id, len(image.partitions))].leader
        return self._channels.alive_node(leader)


@dataclass(slots=True, eq=False)
class _Question:
    """A question about one transaction, until its answer arrives."""

    producer_id: int
    producer_epoch: int
    add: bool
    partitions: dict[TopicPartition, None]
    answered: trio.Event = field(default_factory=trio.Event)
    verdict: Verdict = field(default_factory=dict)

    def settle(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.answered.set()

    def all(self, error: ErrorCode) -> Verdict:
        return dict.fromkeys(self.partitions, error)

    def may_join(self, other: _Question) -> bool:
        mine = (self.producer_id, self.producer_epoch, self.add)
        return mine == (other.producer_id, other.producer_epoch, other.add)


class _Courier:
    """Carries questions to one broker. A request contains a transaction at most once: later questions about it are
    merged, and a newer producer epoch rejects questions of an older one.
    """

    def __init__(
        self, channels: BrokerChannels, nursery: trio.Nursery, settings: Settings, serve: Serve
    ) -> None:
        self._channels = channels
        self._nursery = nursery
        self._settings = settings
        self._own_channel = OwnChannel(serve)
        self._channel: Channel | None = None
        self._asked: dict[str, _Question] = {}
        """Questions for the next request, by transactional id."""
        self._is_on_its_way = False
        self._asking = trio.CancelScope()
        """Cancels the request in flight."""

    def take(self, transactional_id: str, question: _Question) -> _Question:
        """Returns the question whose answer will include that of this one."""
        known = self._asked.get(transactional_id)
        if known is not None:
            if known.may_join(question):
                known.partitions |= question.partitions
                return known
            if known.producer_id == question.producer_id and known.producer_epoch > question.producer_epoch:
                question.settle(question.all(ErrorCode.INVALID_PRODUCER_EPOCH))
                return question
            is_fenced = known.producer_id == question.producer_id and known.producer_epoch < question.producer_epoch
            known.settle(known.all(ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION))
        self._asked[transactional_id] = question
        return question

    def give_up(self, reason: str) -> None:
        """Answer the question in flight with NETWORK_EXCEPTION; the next one uses a new connection."""
        self._asking.cancel()
        if self._channel is not None:
            self._channel.disconnect(reason)

    def go(self, node: Node) -> None:
        if not self._is_on_its_way and self._asked:
            self._is_on_its_way = True
            Background(self._nursery).spawn(self._run, node)

    async def _run(self, node: Node) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked, {}
                verdicts: Mapping[str, Verdict] = _all(asked, ErrorCode.NETWORK_EXCEPTION)
                try:
                    verdicts = await self._carry(node, asked)
                finally:
                    for transactional_id, question in asked.items():
                        question.settle(verdicts.get(transactional_id, {}))
        finally:
            self._is_on_its_way = False

    async def _carry(self, node: Node, asked: Mapping[str, _Question]) -> Mapping[str, Verdict]:
        request = AddPartitionsToTxnRequest(
            transactions=[_transaction(transactional_id, question) for transactional_id, question in asked.items()]
        )
        response: AddPartitionsToTxnResponse | None = None
        try:
            with trio.CancelScope() as self._asking:
                response = await self._channel_to(node).call(request, timeout_ms=self._settings().request_timeout_ms)
        except ChannelError as error:
            log.info("broker %d cannot verify transactions: %s", node.node_id, error)
        if response is None:
            return _all(asked, ErrorCode.NETWORK_EXCEPTION)
        if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            # Internal error codes, which clients must not see.
            return _all(asked, ErrorCode.INVALID_TXN_STATE)
        if response.error_code != ErrorCode.NONE:
            return _all(asked, _known(response.error_code))
        return {result.transactional_id: _verdict(result) for result in response.results_by_transaction}

    def _channel_to(self, node: Node) -> Channel | OwnChannel:
        if node.node_id == self._settings().node_id:
            return self._own_channel
        channel = self._channel
        if channel is not None and (channel.host, channel.port) != (node.host, node.port):
            channel.close()
            channel = None
        if channel is None:
            channel = self._channel = self._channels.open(node, self._nursery, "transactions")
        return channel


def _transaction(transactional_id: str, question: _Question) -> AddPartitionsToTxnTransaction:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, index in question.partitions:
        topics.setdefault(name, AddPartitionsToTxnTopic(name=name)).partitions.append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=question.producer_id,
        producer_epoch=question.producer_epoch,
        verify_only=not question.add,
        topics=list(topics.values()),
    )


def _all(asked: Mapping[str, _Question], error: ErrorCode) -> Mapping[str, Verdict]:
    return {transactional_id: question.all(error) for transactional_id, question in asked.items()}


def _verdict(result: AddPartitionsToTxnResult) -> Verdict:
    return {
        (topic.name, partition.partition_index): _known(partition.partition_error_code)
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }


def _known(code: int) -> ErrorCode:
    """Error code that producers understand."""
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
