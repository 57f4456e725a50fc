"""Start offsets of share groups, before which all records are processed (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from barnabas.client.admin.calls import Part, Question
from barnabas.client.admin.results import Results, changed, refusal
from barnabas.client.admin.routes import Coordinators, group_coordinators, names_in, partitions_in
from barnabas.client.admin.topics import AS_AN_ANSWER
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import alter_share_group_offsets as altering
from barnabas.protocol.messages import delete_share_group_offsets as deleting
from barnabas.protocol.messages import describe_share_group_offsets as describing


@dataclass(frozen=True, slots=True)
class SharePartitionOffset:
    """Position of a share group in a partition; `lag` is None if the cluster does not report it (KIP-1226)."""

    start_offset: int
    leader_epoch: int | None
    lag: int | None


ShareOffsets = dict[TopicPartition, SharePartitionOffset | None]
"""None for a requested partition that the group has not read."""


class ShareGroupOffsets(Part):
    """Methods for the offsets of share groups."""

    async def list_share_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None] | Iterable[str] | str
    ) -> Results[str, ShareOffsets]:
        """Start offsets by group id and partition: of the given partitions, or (None, or only ids) of all that the
        group
        has read. GroupIdNotFoundException.
        """
        wanted: dict[str, list[TopicPartition] | None]
        if isinstance(groups, Mapping):
            wanted = {group: None if some is None else partitions_in(some) for group, some in groups.items()}
        else:
            wanted = dict.fromkeys(names_in(groups))

        def ask(group_ids: list[str], _: int) -> describing.DescribeShareGroupOffsetsRequest:
            return describing.DescribeShareGroupOffsetsRequest(
                groups=[_asked(group_id, wanted[group_id]) for group_id in group_ids]
            )

        def read(
            response: describing.DescribeShareGroupOffsetsResponse, _: object
        ) -> Iterator[tuple[str, ShareOffsets | KafkaError]]:
            for group in response.groups:
                found = _offsets(group)
                if not isinstance(found, KafkaError):
                    found = {**dict.fromkeys(wanted.get(group.group_id) or ()), **found}
                yield group.group_id, found

        return await self._calls.ask(wanted, group_coordinators(self._calls, str), Question("group", ask, read))

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, raise_errors: bool = True
    ) -> Results[TopicPartition, None]:
        """Set the start offsets of a share group that has no members. GroupNotEmptyException,
        UnknownTopicOrPartitionException.
        """
        wanted = {TopicPartition(*partition): offset for partition, offset in offsets.items()}

        def ask(some: list[TopicPartition], _: int) -> altering.AlterShareGroupOffsetsRequest:
            topics = [
                altering.AlterShareGroupOffsetsRequestTopic(
                    topic_name=name,
                    partitions=[
                        altering.AlterShareGroupOffsetsRequestPartition(
                            partition_index=index, start_offset=wanted[TopicPartition(name, index)]
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(some).items()
            ]
            return altering.AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics)

        def read(
            response: altering.AlterShareGroupOffsetsResponse, keys: list[TopicPartition]
        ) -> Iterator[tuple[TopicPartition, KafkaError | None]]:
            if error := refusal(response.error_code, response.error_message, f"group {group_id}"):
                yield from ((key, error) for key in keys)
                return
            for topic in response.responses:
                for it in topic.partitions:
                    key = TopicPartition(topic.topic_name, it.partition_index)
                    yield key, refusal(it.error_code, it.error_message, f"group {group_id}, partition {key}")

        question = Question[TopicPartition, None]("partition", ask, read, final=AS_AN_ANSWER)
        route: Coordinators[TopicPartition] = group_coordinators(self._calls, lambda _: group_id)
        return changed(await self._calls.ask(wanted, route, question), raise_errors)

    async def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str] | str, *, raise_errors: bool = True
    ) -> Results[str, None]:
        """Delete the offsets of a share group that has no members. GroupNotEmptyException,
        UnknownTopicOrPartitionException.
        """

        def ask(some: list[str], _: int) -> deleting.DeleteShareGroupOffsetsRequest:
            return deleting.DeleteShareGroupOffsetsRequest(
                group_id=group_id,
                topics=[deleting.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in some],
            )

        def read(
            response: deleting.DeleteShareGroupOffsetsResponse, keys: list[str]
        ) -> Iterator[tuple[str, KafkaError | None]]:
            if error := refusal(response.error_code, response.error_message, f"group {group_id}"):
                yield from ((key, error) for key in keys)
                return
            for it in response.responses:
                what = f"group {group_id}, topic {it.topic_name}"
                yield it.topic_name, refusal(it.error_code, it.error_message, what)

        question = Question[str, None]("topic", ask, read, final=AS_AN_ANSWER)
        route: Coordinators[str] = group_coordinators(self._calls, lambda _: group_id)
        return changed(await self._calls.ask(names_in(topics), route, question), raise_errors)


def _asked(group_id: str, partitions: list[TopicPartition] | None) -> describing.DescribeShareGroupOffsetsRequestGroup:
    topics = None
    if partitions is not None:
        topics = [
            describing.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
            for name, indexes in by_topic(partitions).items()
        ]
    return describing.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)


def _offsets(group: describing.DescribeShareGroupOffsetsResponseGroup) -> ShareOffsets | KafkaError:
    error = refusal(group.error_code, group.error_message, f"group {group.group_id}")
    found: ShareOffsets = {}
    for topic in group.topics:
        for it in topic.partitions:
            key = TopicPartition(topic.topic_name, it.partition_index)
            error = error or refusal(it.error_code, it.error_message, f"group {group.group_id}, partition {key}")
            if it.start_offset >= 0:
                epoch = it.leader_epoch if it.leader_epoch >= 0 else None
                found[key] = SharePartitionOffset(it.start_offset, epoch, it.lag if it.lag >= 0 else None)
    return error or found
