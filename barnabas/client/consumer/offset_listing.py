"""ListOffsets: offsets by time, and the begins and ends of logs, from their leaders. Knows no positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import starmap

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.consumer.leader_requests import LeaderAnswers, PartitionAnswer, ask_leaders
from barnabas.client.metadata import STALE_METADATA, Leadership, TopicPartition
from barnabas.client.offset_lookup import EARLIEST, LATEST, FoundOffset, Isolation, answers_of, request_for
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse


def is_passing(code: ErrorCode) -> bool:
    """Whether the error may pass, perhaps with another broker."""
    return code.retriable or code in STALE_METADATA or code is ErrorCode.UNKNOWN_SERVER_ERROR


async def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    timeout_ms: int,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """The offsets of `find_offsets`."""
    found = await find_offsets(cluster, timestamps, timeout_ms, isolation)
    return {partition: each.offset for partition, each in found.items()}


async def find_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    timeout_ms: int,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, FoundOffset]:
    """The first offset at or after each timestamp (also EARLIEST, LATEST); retries until all are known.

    KafkaError if a leader refuses; TimeoutException if some are unknown after `timeout_ms`. May be cancelled.
    """
    deadline = trio.current_time() + timeout_ms / 1000
    found: dict[TopicPartition, FoundOffset] = {}
    failed: dict[TopicPartition, ErrorCode] = {}
    backoff = cluster.backoff()
    with trio.move_on_at(deadline):
        while True:
            wanted = {partition: timestamp for partition, timestamp in timestamps.items() if partition not in found}
            round_found, failed = await ask_once(cluster, wanted, isolation)
            found |= round_found
            if not failed:
                return {partition: found[partition] for partition in timestamps}
            for partition, code in failed.items():
                if not is_passing(code):
                    raise KafkaError(code, str(partition))
            await trio.sleep(backoff.next_ms() / 1000)
            await cluster.refresh(dict.fromkeys(partition.topic for partition in failed))
    missing = ", ".join(
        f"{p} ({failed.get(p, ErrorCode.REQUEST_TIMED_OUT).name})" for p in timestamps if p not in found
    )
    raise KafkaError(
        ErrorCode.REQUEST_TIMED_OUT, f"no offsets within {timeout_ms} ms: {missing}{cluster.last_failure()}"
    )


async def ask_once(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], isolation: Isolation
) -> LeaderAnswers[FoundOffset]:
    """Send one request to each leader."""
    question = partial(_request, cluster, timestamps, isolation)
    return await ask_leaders(cluster, timestamps, question, _answers)


def _request(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    isolation: Isolation,
    partitions: Mapping[TopicPartition, Leadership],
) -> ListOffsetsRequest:
    return request_for(partitions, timestamps, isolation, cluster.settings.request_timeout_ms)


def _answers(response: ListOffsetsResponse) -> Iterator[PartitionAnswer[FoundOffset]]:
    return starmap(PartitionAnswer, answers_of(response))


__all__ = ["EARLIEST", "LATEST", "FoundOffset", "LeaderAnswers", "ask_once", "find_offsets", "list_offsets"]
