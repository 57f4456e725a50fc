"""Handlers with ports of a test instead of a broker's: nothing runs, nothing waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.broker.apis.find_coordinator import FindCoordinatorPorts, find_coordinator
from barnabas.broker.apis.list_offsets import ListOffsetsPorts, list_offsets
from barnabas.broker.apis.metadata import MetadataPorts, metadata
from barnabas.broker.apis.partition_lookup import PartitionLookup
from barnabas.broker.apis.producer_ids import ProducerIdPorts, init_producer_id
from barnabas.broker.apis.transactions import AddPartitionsPorts, add_partitions_here
from barnabas.broker.internal_topics import TRANSACTION_TOPIC
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.kraft.metadata.image import EMPTY_IMAGE
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.schema import Message
from barnabas.runtime.call import Call


class NoPartitions:
    """A broker without replicas."""

    def find(self, topic: bytes | str, index: int) -> None:
        return None

    def missing_error(self, topic: bytes | str, index: int) -> ErrorCode:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def is_offline(self, topic: bytes | str, index: int) -> bool:
        return False


class Ids:
    """A block with one producer id."""

    def __init__(self, at_hand: bool = True) -> None:
        self.at_hand = at_hand

    def take(self) -> int:
        return 4711

    async def fetch(self, broker_epoch: int) -> None:
        raise AssertionError("not called by the handler itself")


def empty_cluster() -> MetadataCache:
    return MetadataCache(EMPTY_IMAGE, "cluster")


def asked(handler: Callable[[Call], Iterable[Any] | None], message: Message, version: int) -> tuple[Any, list[Any]]:
    """The response, and the tasks that the handler spawned."""
    responses: list[Any] = []
    tasks: list[Any] = []
    call = SimpleNamespace(
        message=message,
        version=version,
        request=SimpleNamespace(listener_name="PLAINTEXT", client_id="test", peer_host="here"),
        answer=responses.append,
        spawn=lambda *task: tasks.append(task),
        is_large=False,
        has_authorizer=False,
        may=lambda *right: True,
        may_on_cluster=lambda *right, audited=True: True,
    )
    for _ in handler(cast(Call, call)) or ():
        pass
    return (responses[0] if responses else None), tasks


@pytest.mark.feature("TX-01")
def test_the_first_request_for_a_coordinator_creates_its_topic() -> None:
    created: list[str] = []
    ports = FindCoordinatorPorts(empty_cluster(), created.append, lambda topic, index: False)
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "a", "b"])
    response, _ = asked(lambda call: find_coordinator(ports, call), request, 4)
    assert [it.key for it in response.coordinators] == ["a", "b"]
    assert {it.error_code for it in response.coordinators} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert set(created) == {TRANSACTION_TOPIC}


@pytest.mark.feature("MB-21")
@pytest.mark.parametrize("at_hand", [True, False])
def test_an_idempotent_producer_gets_an_id_at_once_if_one_is_at_hand(at_hand: bool) -> None:
    ports = ProducerIdPorts(Ids(at_hand), lambda: 1, cast(Any, None))
    request = InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=-1)
    response, tasks = asked(lambda call: init_producer_id(ports, call), request, 4)
    assert (response is not None) is at_hand
    assert len(tasks) == (0 if at_hand else 1), "the next block is fetched in the background"
    if at_hand:
        assert (response.producer_id, response.producer_epoch) == (4711, 0)


@pytest.mark.feature("RP-02")
def test_an_unknown_partition_has_no_offsets() -> None:
    lookup = PartitionLookup(NoPartitions(), empty_cluster(), 1)
    asked_for = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked_for])])
    response, _ = asked(lambda call: list_offsets(ListOffsetsPorts(lookup), call), request, 5)
    (partition,) = response.topics[0].partitions
    assert (partition.error_code, partition.offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


@pytest.mark.feature("MB-09")
@pytest.mark.parametrize("allowed", [True, False])
def test_missing_topics_with_legal_names_are_created_if_the_client_allows_it(allowed: bool) -> None:
    created: list[str] = []
    clock = cast(Any, SimpleNamespace(now_ms=lambda: 0))
    creation = cast(Any, SimpleNamespace(is_enabled=True, create=lambda names, client: created.extend(names)))
    ports = MetadataPorts(1, empty_cluster(), creation, clock)
    topics = [MetadataRequestTopic(name=name) for name in ("new", "no/topic")]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=allowed)
    response, _ = asked(lambda call: metadata(ports, call), request, 9)
    assert [it.error_code for it in response.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert created == (["new"] if allowed else [])


@pytest.mark.feature("TX-02")
def test_no_partition_joins_a_transaction_if_one_does_not_exist() -> None:
    """The coordinator is not even asked."""
    ports = AddPartitionsPorts(cast(Any, None), empty_cluster())
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[2, 0, 2])]
    transaction = AddPartitionsToTxnTransaction(
        transactional_id="x", producer_id=1, producer_epoch=0, verify_only=False, topics=topics
    )
    responses: list[Any] = []
    for _ in add_partitions_here(ports, AddPartitionsToTxnRequest(transactions=[transaction]), responses.append):
        pass
    (result,) = responses[0].results_by_transaction
    (topic,) = result.topic_results
    assert [(it.partition_index, it.partition_error_code) for it in topic.results_by_partition] == [
        (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
