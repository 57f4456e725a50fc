"""Replicas move in the middle of open transactions: a new leader inherits what is open; readers see all or nothing."""

from __future__ import annotations

import pytest
import trio

from barnabas import Admin, Consumer, Producer
from barnabas.client.admin import NewTopic
from barnabas.client.cluster import TopicPartition
from barnabas.testing.simulated import SimulatedClusterForTests

TOPIC = "moving"
PARTITION = TopicPartition(TOPIC, 0)
LOG_OF_COORDINATOR = "__transaction_state"


async def move(admin: Admin, partition: TopicPartition, broker: int) -> None:
    await admin.alter_partition_reassignments({partition: [broker]})
    with trio.fail_after(60):
        while await admin.list_partition_reassignments([partition]):
            await trio.sleep(0.1)


async def leader(admin: Admin, partition: TopicPartition) -> int:
    described = await admin.describe_topics([partition.topic])
    found = described[partition.topic].partitions[partition.partition].leader
    return -1 if found is None else found


async def committed(cluster: SimulatedClusterForTests, count: int) -> list[bytes | None]:
    """Returns the values that a reader of committed records gets, until none came for a second."""
    values: list[bytes | None] = []
    async with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, world=cluster.world, isolation_level="read_committed"
    ) as consumer:
        consumer.assign([PARTITION])
        consumer.seek_to_beginning([PARTITION])
        with trio.move_on_after(20):
            while len(values) < count:
                values += [record.value for record in await consumer.poll(1.0)]
        values += [record.value for record in await consumer.poll(1.0)]
    return values


@pytest.mark.feature("TX-08", "TX-09", "MB-19", "AD-05")
@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_a_partition_moves_while_a_transaction_is_open_in_it(ends: str) -> None:
    cluster = SimulatedClusterForTests()

    async def test() -> None:
        settings = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
        async with (
            Admin(**settings) as admin,  # type: ignore[arg-type]
            Producer(transactional_id="mover", **settings) as producer,  # type: ignore[arg-type]
        ):
            await admin.create_topics(NewTopic(TOPIC, replica_assignments={0: [1]}))
            producer.begin_transaction()
            await producer.send(TOPIC, b"before the move", partition=0)
            assert await committed(cluster, 0) == []
            await move(admin, PARTITION, 2)
            assert await leader(admin, PARTITION) == 2
            assert await committed(cluster, 0) == [], "the new leader knows what is open"
            await producer.send(TOPIC, b"after the move", partition=0)
            # The log of its coordinator moves, too.
            described = await admin.describe_topics([LOG_OF_COORDINATOR])
            for part in described[LOG_OF_COORDINATOR].partitions:
                others = [broker for broker in (1, 2, 3) if broker != part.leader]
                await admin.alter_partition_reassignments(
                    {TopicPartition(LOG_OF_COORDINATOR, part.partition): [*others, part.leader or 1]}
                )
            if ends == "commit":
                await producer.commit_transaction()
                assert await committed(cluster, 2) == [b"before the move", b"after the move"]
            else:
                await producer.abort_transaction()
                assert await committed(cluster, 0) == []
            await move(admin, PARTITION, 3)
            producer.begin_transaction()
            await producer.send(TOPIC, b"later", partition=0)
            await producer.commit_transaction()
            kept = [b"before the move", b"after the move", b"later"] if ends == "commit" else [b"later"]
            assert await committed(cluster, len(kept)) == kept

    cluster.run(test)
