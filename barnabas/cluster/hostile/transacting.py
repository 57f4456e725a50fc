"""A transaction of a hostile client, good but for one thing: the group that it commits for, or what it adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster.hostile.aims import OWN_PREFIX
from barnabas.cluster.hostile.arguments import LONG_STRING, ODD_STRINGS
from barnabas.cluster.hostile.promises import ask_any, find_coordinator, in_time
from barnabas.cluster.hostile.requests import Drawn
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from barnabas.cluster.hostile.client import HostileClient

ODD_GROUPS = (*ODD_STRINGS, LONG_STRING, OWN_PREFIX + "g0")
GROUPS, TRANSACTIONS = 0, 1
ADDS_BY_ITSELF = 5
"""From this version on TxnOffsetCommit needs no AddOffsetsToTxn before it."""


async def transact(client: HostileClient) -> None:
    """Raises ConnectionLost, DialFailed, TooSlowError."""
    chance = client.chance
    transactional_id = chance.choice(client.knowledge.transactional_ids.own.values)
    group = chance.choice(ODD_GROUPS)
    coordinator = await find_coordinator(client, transactional_id, TRANSACTIONS)
    group_coordinator = await find_coordinator(client, group, GROUPS)
    if coordinator is None:
        return
    begin = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=6_000)
    connection = await client.dial_at(coordinator)
    try:
        producer = await in_time(connection.call(Drawn.of(begin, 4)))
        client.knowledge.learn(ApiKey.INIT_PRODUCER_ID, producer)
        if producer.error_code != ErrorCode.NONE:
            return
    finally:
        connection.close()
    client.counts["transactions"] += 1
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=chance.choice((0, 7, 1 << 62)))
    topic = chance.choice(client.knowledge.topics.own.values)
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    commit = Drawn.of(request, chance.choice((3, ADDS_BY_ITSELF, ADDS_BY_ITSELF)))
    if group_coordinator is None:
        await ask_any(client, commit)
        return
    connection = await client.dial_at(group_coordinator)
    try:
        await connection.send(connection.frame(commit))
        await client.take_answer(connection, commit)
    finally:
        connection.close()
