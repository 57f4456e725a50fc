"""A driver repeats a committed batch, and the first broker it asks is a group coordinator that was cut off from all
nodes and replaced, with an outdated ledger."""

from __future__ import annotations

import pytest
import trio

from barnabas import OffsetAndMetadata, TopicPartition
from barnabas.broker.coordinator.coordinator import partition_for
from barnabas.broker.coordinator.shard import Shard
from barnabas.broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from barnabas.client.groups.membership import ConsumerGroupMetadata
from barnabas.pipeline.ledger import Ledger, LedgerEntry, Verdict, decide, entries_at, group_of
from barnabas.pipeline.transaction import Transaction
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from scenarios.stage import Stage, came_about
from tests.pipeline.simulated_driver import Bridge, SimulatedDriver, in_simulated_time

pytestmark = pytest.mark.feature("PL-06", "CG-12")

TOPIC = "t"
CHECKPOINT = "checkpoint-1"
FIRST, SECOND = "driver1", "driver2"


async def coordinators_and_a_query(stage: Stage) -> tuple[str, str]:
    """(query, coordinator of its group): not the coordinator of its transactions, nor the leader of the topic."""
    await stage.create_topic(TOPIC)
    for kind, topic in ((0, GROUP_TOPIC), (1, TRANSACTION_TOPIC)):
        await stage.ask(stage.brokers[0], FindCoordinatorRequest(key="x", key_type=kind), host=SECOND, version=2)
        for index in range(3):
            await stage.until(lambda t=topic, i=index: len(stage.isr(t, i)) == 3, f"{topic}-{index} is in sync")
    for number in range(1_000):
        query = f"query{number}"
        index = partition_for(group_of(query), 3)
        coordinator = stage.leader(GROUP_TOPIC, index)
        if coordinator not in (stage.leader(TRANSACTION_TOPIC, index), stage.leader(TOPIC)):
            return query, coordinator
    raise AssertionError("every group's coordinator leads something else, too")


async def commit_batch(stage: Stage, query: str, number: int) -> None:
    """Write a batch as the first driver would: the records, and the entry of the ledger."""
    async with stage.producer(host=FIRST, transactional_id=group_of(query)) as producer:
        producer.begin_transaction()
        await producer.send(TOPIC, b"batch %d" % number)
        for (topic, index), (offset, metadata) in entries_at([TOPIC], LedgerEntry(number, CHECKPOINT)).items():
            offsets = {TopicPartition(topic, index): OffsetAndMetadata(offset, metadata=metadata)}
            await producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(group_of(query)))
        await producer.commit_transaction()


async def offset_at(stage: Stage, node: str, query: str) -> int:
    """The ledger's offset at one broker."""
    topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
    request = OffsetFetchRequest(group_id=group_of(query), topics=topics, require_stable=True)
    answer = await stage.ask(node, request, host=SECOND, version=7)
    assert answer.error_code == ErrorCode.NONE
    return int(answer.topics[0].partitions[0].committed_offset)


def repeat(cluster: SimulatedDriver, query: str, number: int) -> Verdict:
    """The steps of the sink up to its decision."""
    transaction = Transaction(cluster, group_of(query), 60_000)
    transaction.begin()
    last = Ledger(cluster, query, TOPIC).last_before(transaction, [TOPIC], LedgerEntry(number, CHECKPOINT))
    transaction.abort()
    return decide(last, number, CHECKPOINT, query=query)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("knows", [False, True])
def test_a_batch_is_skipped_whatever_the_deposed_coordinator_knows(
    seed: int, knows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if its clock is so slow that it does not notice the partition: the read does not rely on leases."""
    if not knows:
        monkeypatch.setattr(Shard, "may_be_deposed", property(lambda _: False))
        monkeypatch.setattr("barnabas.broker.replication.replica.Replica.is_forgotten", lambda *_, **__: False)
    stage = Stage(seed)

    async def story(stage: Stage) -> None:
        query, old = await coordinators_and_a_query(stage)
        index = partition_for(group_of(query), 3)
        await commit_batch(stage, query, 7)
        with trio.fail_after(30):
            while await offset_at(stage, old, query) != 7:
                # The marker of the transaction is on its way.
                await trio.sleep(0.1)
        stage.isolate(old, but=[SECOND])
        await stage.until(lambda: stage.leader(GROUP_TOPIC, index) not in ("", old), "another coordinates")
        await commit_batch(stage, query, 8)
        await trio.sleep(10)
        came_about(stage.replica_of(old, GROUP_TOPIC, index).is_leader, "the old one knows of its successor")
        if not knows:
            came_about(await offset_at(stage, old, query) == 7, "it answers with its old offset")
        bridge = Bridge()
        others = [name for name in stage.brokers if name != old]
        with monkeypatch.context() as patch:
            in_simulated_time(patch, stage, bridge)
            driver = SimulatedDriver(stage, SECOND, [old, *others], bridge)
            assert await bridge.run(lambda: repeat(driver, query, 8)) is Verdict.SKIP
            assert await bridge.run(lambda: repeat(driver, query, 9)) is Verdict.WRITE
        stage.mend()
        assert await stage.read(TOPIC) == [b"batch 7", b"batch 8"]

    stage.play(story)
