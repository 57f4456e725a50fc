"""Topics: created, deleted, listed, described, and given more partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import trio

from barnabas.client.admin.acl_values import operations_of
from barnabas.client.admin.calls import Anywhere, Calls, Part, Question
from barnabas.client.admin.config_values import ConfigEntry, ConfigSource
from barnabas.client.admin.results import Results, changed, refusal
from barnabas.client.admin.routes import names_in, uuid_of
from barnabas.client.admin.topic_values import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    TopicDescription,
    TopicListing,
    TopicPartitionInfo,
)
from barnabas.client.errors import UnsupportedVersionException
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import create_partitions as growing
from barnabas.protocol.messages import create_topics as creating
from barnabas.protocol.messages import delete_topics as deleting
from barnabas.protocol.messages import describe_topic_partitions as paging
from barnabas.protocol.messages import metadata
from barnabas.protocol.primitives import ZERO_UUID, uuid_to_string

PARTITIONS_IN_A_PAGE = 2_000
AS_AN_ANSWER = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Errors that are final: a missing topic is the answer."""


class Topics(Part):
    """Methods for topics."""

    async def create_topics(
        self, new_topics: Iterable[NewTopic] | NewTopic, *, validate_only: bool = False, raise_errors: bool = True
    ) -> Results[str, CreatedTopic]:
        """Create topics; results by name. TopicExistsException, InvalidTopicException,
        InvalidReplicationFactorException,
        PolicyViolationException and others. A topic may exist because of a first attempt whose response was lost.
        """
        wanted: dict[str, NewTopic] = {}
        for topic in [new_topics] if isinstance(new_topics, NewTopic) else new_topics:
            if topic.name in wanted:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"topics to create must have different names; got {topic.name} twice"
                )
            wanted[topic.name] = topic

        def ask(names: list[str], timeout_ms: int) -> creating.CreateTopicsRequest:
            topics = [_creatable(wanted[name]) for name in names]
            return creating.CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)

        def read(response: creating.CreateTopicsResponse, _: object) -> Iterator[tuple[str, CreatedTopic | KafkaError]]:
            for topic in response.topics:
                error = refusal(topic.error_code, topic.error_message, f"topic {topic.name}")
                yield topic.name, error or _created(topic)

        results = await self._calls.ask(wanted, Anywhere(), Question("topic", ask, read))
        if not validate_only:
            for name in results.succeeded:
                self._calls.created_topic(name)
        return changed(results, raise_errors)

    async def delete_topics(
        self, names: Iterable[str] | str = (), *, topic_ids: Iterable[str] | str = (), raise_errors: bool = True
    ) -> Results[str, None]:
        """Delete topics and their records; by name or id. UnknownTopicOrPartitionException, UnknownTopicIdException,
        possibly because of a first attempt whose response was lost.
        """
        ids = _ids(topic_ids)

        def ask(keys: list[str], timeout_ms: int) -> deleting.DeleteTopicsRequest:
            topics = [
                deleting.DeleteTopicState(name=None, topic_id=ids[key])
                if key in ids
                else deleting.DeleteTopicState(name=key)
                for key in keys
            ]
            by_name = [key for key in keys if key not in ids]
            return deleting.DeleteTopicsRequest(topics=topics, topic_names=by_name, timeout_ms=timeout_ms)

        def read(response: deleting.DeleteTopicsResponse, _: object) -> Iterator[tuple[str, KafkaError | None]]:
            for topic in response.responses:
                key = _key(topic.name, topic.topic_id, ids)
                yield key, refusal(topic.error_code, topic.error_message, f"topic {key}")

        question = Question[str, None]("topic", ask, read, final=AS_AN_ANSWER)
        results = await self._calls.ask([*names_in(names), *ids], Anywhere(), question)
        for key in results.succeeded:
            self._calls.removed_topic(key)
        return changed(results, raise_errors)

    async def list_topics(self, *, list_internal: bool = False) -> dict[str, TopicListing]:
        """All topics, by name, in the order of names."""

        def read(response: metadata.MetadataResponse) -> dict[str, TopicListing] | KafkaError:
            topics = sorted(response.topics, key=lambda topic: topic.name or "")
            return refusal(response.error_code, None, "topics") or {
                topic.name: TopicListing(topic.name, _id(topic.topic_id), topic.is_internal)
                for topic in topics
                if topic.name and (list_internal or not topic.is_internal)
            }

        def ask(_: int) -> metadata.MetadataRequest:
            return metadata.MetadataRequest(topics=None, allow_auto_topic_creation=False)

        return await self._calls.one("topics", ask, read)

    async def describe_topics(
        self,
        names: Iterable[str] | str = (),
        *,
        topic_ids: Iterable[str] | str = (),
        include_authorized_operations: bool = False,
    ) -> Results[str, TopicDescription]:
        """Topics with partitions, leaders and replicas; by name or id. UnknownTopicOrPartitionException at once for a
        missing topic (unless this client has just created it), UnknownTopicIdException.
        """
        wanted, ids = names_in(names), _ids(topic_ids)
        found: dict[str, TopicDescription | KafkaError] = {}
        calls = self._calls.together()
        backoff = calls.cluster.backoff()
        while missing := [name for name in wanted if name not in found]:
            try:
                described = await _describe_by_pages(calls, missing, include_authorized_operations)
            except UnsupportedVersionException:
                described = await _describe_at_once(calls, missing, {}, include_authorized_operations)
            late = [name for name, it in described.items() if _is_unknown(it) and calls.is_new(name)]
            found |= {name: outcome for name, outcome in described.items() if name not in late}
            if late:
                await trio.sleep(backoff.next_ms() / 1000)
        if ids:
            found |= await _describe_at_once(calls, list(ids), ids, include_authorized_operations)
        return Results({key: found[key] for key in [*wanted, *ids]})

    async def create_partitions(
        self,
        new_partitions: Mapping[str, NewPartitions | int],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Add partitions to topics; by name. A number is the new total. InvalidPartitionsException if it is not more
        than the present count.
        """

        def ask(names: list[str], timeout_ms: int) -> growing.CreatePartitionsRequest:
            topics = [_growing(name, new_partitions[name]) for name in names]
            return growing.CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)

        def read(response: growing.CreatePartitionsResponse, _: object) -> Iterator[tuple[str, KafkaError | None]]:
            for topic in response.results:
                yield topic.name, refusal(topic.error_code, topic.error_message, f"topic {topic.name}")

        question = Question[str, None]("topic", ask, read, final=AS_AN_ANSWER)
        return changed(await self._calls.ask(new_partitions, Anywhere(), question), raise_errors)


async def _describe_by_pages(
    calls: Calls, names: list[str], operations: bool
) -> dict[str, TopicDescription | KafkaError]:
    """UnsupportedVersionException if no broker has DescribeTopicPartitions."""
    found: dict[str, TopicDescription | KafkaError] = {}
    parts: dict[str, list[paging.DescribeTopicPartitionsResponsePartition]] = {}
    cursor: paging.Cursor | None = None
    wanted = [paging.TopicRequest(name=name) for name in sorted(names)]
    while True:

        def ask(_: int, cursor: paging.Cursor | None = cursor) -> paging.DescribeTopicPartitionsRequest:
            return paging.DescribeTopicPartitionsRequest(
                topics=wanted, response_partition_limit=PARTITIONS_IN_A_PAGE, cursor=cursor
            )

        page: paging.DescribeTopicPartitionsResponse = await calls.one("topics", ask, _unchanged)
        for topic in page.topics:
            name = topic.name or ""
            parts.setdefault(name, []).extend(topic.partitions)
            error = refusal(topic.error_code, None, f"topic {name}")
            found[name] = error or _described(topic, parts[name], operations)
        after = page.next_cursor
        if after is None:
            break
        if cursor is not None and (after.topic_name, after.partition_index) <= _position(cursor):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "DescribeTopicPartitions: the cursor did not advance")
        cursor = after
    left_out = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's response lacks topics")
    return {name: found.get(name, left_out) for name in names}


async def _describe_at_once(
    calls: Calls, keys: list[str], ids: Mapping[str, bytes], operations: bool
) -> dict[str, TopicDescription | KafkaError]:
    def ask(some: list[str], _: int) -> metadata.MetadataRequest:
        topics = [
            metadata.MetadataRequestTopic(name=None, topic_id=ids[key])
            if key in ids
            else metadata.MetadataRequestTopic(name=key)
            for key in some
        ]
        return metadata.MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=operations,
        )

    def read(response: metadata.MetadataResponse, _: object) -> Iterator[tuple[str, TopicDescription | KafkaError]]:
        for topic in response.topics:
            key = _key(topic.name, topic.topic_id, ids)
            error = refusal(topic.error_code, None, f"topic {key}")
            yield key, error or _described(topic, topic.partitions, operations)

    question = Question[str, TopicDescription]("topic", ask, read, final=AS_AN_ANSWER)
    results = await calls.ask(keys, Anywhere(), question)
    return {**results.succeeded, **results.errors}


def _unchanged(response: Any) -> Any:
    return response


def _position(cursor: paging.Cursor) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


def _is_unknown(outcome: TopicDescription | KafkaError) -> bool:
    return isinstance(outcome, KafkaError) and outcome.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _ids(texts: Iterable[str] | str) -> dict[str, bytes]:
    return {text: uuid_of(text) for text in names_in(texts)}


def _id(topic_id: bytes) -> str | None:
    return None if topic_id == ZERO_UUID else uuid_to_string(topic_id)


def _key(name: str | None, topic_id: bytes, ids: Mapping[str, bytes]) -> str:
    """The requested key: a response to an id may have the name as well."""
    text = uuid_to_string(topic_id)
    return text if text in ids else name or ""


def _creatable(topic: NewTopic) -> creating.CreatableTopic:
    assigned = topic.replica_assignments
    return creating.CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assigned else topic.num_partitions,
        replication_factor=-1 if assigned else topic.replication_factor,
        assignments=[
            creating.CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in (assigned or {}).items()
        ],
        configs=[creating.CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
    )


def _created(topic: creating.CreatableTopicResult) -> CreatedTopic:
    configs = None
    if topic.configs is not None and topic.topic_config_error_code == ErrorCode.NONE and topic.num_partitions >= 0:
        configs = {
            it.name: ConfigEntry(
                it.name, it.value, ConfigSource(it.config_source), it.read_only, is_sensitive=it.is_sensitive
            )
            for it in topic.configs
        }
    return CreatedTopic(topic.name, _id(topic.topic_id), topic.num_partitions, topic.replication_factor, configs)


def _growing(name: str, wanted: NewPartitions | int) -> growing.CreatePartitionsTopic:
    if isinstance(wanted, int):
        wanted = NewPartitions(wanted)
    assignments = None
    if wanted.assignments is not None:
        assignments = [growing.CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in wanted.assignments]
    return growing.CreatePartitionsTopic(name=name, count=wanted.total_count, assignments=assignments)


def _described(
    topic: metadata.MetadataResponseTopic | paging.DescribeTopicPartitionsResponseTopic,
    partitions: Sequence[metadata.MetadataResponsePartition | paging.DescribeTopicPartitionsResponsePartition],
    operations: bool,
) -> TopicDescription:
    return TopicDescription(
        name=topic.name or "",
        topic_id=_id(topic.topic_id),
        is_internal=topic.is_internal,
        partitions=tuple(map(_partition, sorted(partitions, key=lambda each: each.partition_index))),
        authorized_operations=operations_of(topic.topic_authorized_operations) if operations else None,
    )


def _partition(
    it: metadata.MetadataResponsePartition | paging.DescribeTopicPartitionsResponsePartition,
) -> TopicPartitionInfo:
    elr, last_known = None, None
    if isinstance(it, paging.DescribeTopicPartitionsResponsePartition):
        elr = None if it.eligible_leader_replicas is None else tuple(it.eligible_leader_replicas)
        last_known = None if it.last_known_elr is None else tuple(it.last_known_elr)
    return TopicPartitionInfo(
        partition=it.partition_index,
        leader=it.leader_id if it.leader_id >= 0 else None,
        leader_epoch=it.leader_epoch,
        replicas=tuple(it.replica_nodes),
        isr=tuple(it.isr_nodes),
        offline_replicas=tuple(it.offline_replicas),
        elr=elr,
        last_known_elr=last_known,
    )
