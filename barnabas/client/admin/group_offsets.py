"""Committed offsets of groups: listed, set and removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from barnabas.client.admin.calls import Part, Question
from barnabas.client.admin.results import Results, changed, refusal
from barnabas.client.admin.routes import Coordinators, group_coordinators, names_in, partitions_in
from barnabas.client.admin.topics import AS_AN_ANSWER
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import offset_commit as committing
from barnabas.protocol.messages import offset_delete as deleting
from barnabas.protocol.messages import offset_fetch as fetching

Committed = dict[TopicPartition, OffsetAndMetadata | None]
"""None for a requested partition without a committed offset."""

BY_NAME = 9
"""Last version of OffsetFetch and OffsetCommit with topic names: an administrator may mean a topic that was deleted."""


class GroupOffsets(Part):
    """Methods for the offsets of groups."""

    async def list_consumer_group_offsets(
        self,
        groups: Mapping[str, Iterable[TopicPartition] | None] | Iterable[str] | str,
        *,
        require_stable: bool = False,
    ) -> Results[str, Committed]:
        """Committed offsets, by group id and partition: of the given partitions, or (None, or only ids) of all. With
        `require_stable` it waits for transactions that may still commit. A group that does not exist has no committed
        offsets.
        """
        wanted: dict[str, list[TopicPartition] | None]
        if isinstance(groups, Mapping):
            wanted = {group: None if some is None else partitions_in(some) for group, some in groups.items()}
        else:
            wanted = dict.fromkeys(names_in(groups))

        def ask(group_ids: list[str], _: int) -> fetching.OffsetFetchRequest:
            return fetching.OffsetFetchRequest(
                groups=[_asked(group_id, wanted[group_id]) for group_id in group_ids], require_stable=require_stable
            )

        def read(response: fetching.OffsetFetchResponse, _: object) -> Iterator[tuple[str, Committed | KafkaError]]:
            for group in response.groups:
                found = _committed(group)
                if not isinstance(found, KafkaError):
                    found = {**dict.fromkeys(wanted.get(group.group_id) or ()), **found}
                yield group.group_id, found

        route = group_coordinators(self._calls, str)
        return await self._calls.ask(wanted, route, Question("group", ask, read, at_most=BY_NAME))

    async def alter_consumer_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, None]:
        """Set the offsets of a group that has no members; a group that does not exist is created.
        UnknownMemberIdException while it has members, UnknownTopicOrPartitionException.
        """
        wanted = {TopicPartition(*partition): _place(offset) for partition, offset in offsets.items()}

        def ask(some: list[TopicPartition], _: int) -> committing.OffsetCommitRequest:
            topics = [
                committing.OffsetCommitRequestTopic(
                    name=name, partitions=[_commit(index, wanted[TopicPartition(name, index)]) for index in indexes]
                )
                for name, indexes in by_topic(some).items()
            ]
            return committing.OffsetCommitRequest(group_id=group_id, topics=topics)

        def read(
            response: committing.OffsetCommitResponse, _: object
        ) -> Iterator[tuple[TopicPartition, KafkaError | None]]:
            for topic in response.topics:
                for it in topic.partitions:
                    key = TopicPartition(topic.name, it.partition_index)
                    yield key, refusal(it.error_code, None, f"group {group_id}, partition {key}")

        question = Question[TopicPartition, None]("partition", ask, read, final=AS_AN_ANSWER, at_most=BY_NAME)
        route: Coordinators[TopicPartition] = group_coordinators(self._calls, lambda _: group_id)
        return changed(await self._calls.ask(wanted, route, question), raise_errors)

    async def delete_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | TopicPartition, *, raise_errors: bool = True
    ) -> Results[TopicPartition, None]:
        """Remove a group's offsets for partitions of topics that no member subscribes to.
        GroupSubscribedToTopicException, GroupIdNotFoundException.
        """

        def ask(some: list[TopicPartition], _: int) -> deleting.OffsetDeleteRequest:
            topics = [
                deleting.OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[deleting.OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
                )
                for name, indexes in by_topic(some).items()
            ]
            return deleting.OffsetDeleteRequest(group_id=group_id, topics=topics)

        def read(
            response: deleting.OffsetDeleteResponse, keys: list[TopicPartition]
        ) -> Iterator[tuple[TopicPartition, KafkaError | None]]:
            if error := refusal(response.error_code, None, f"group {group_id}"):
                yield from ((key, error) for key in keys)
                return
            for topic in response.topics:
                for it in topic.partitions:
                    key = TopicPartition(topic.name, it.partition_index)
                    yield key, refusal(it.error_code, None, f"group {group_id}, partition {key}")

        question = Question[TopicPartition, None]("partition", ask, read, final=AS_AN_ANSWER)
        route: Coordinators[TopicPartition] = group_coordinators(self._calls, lambda _: group_id)
        return changed(await self._calls.ask(partitions_in(partitions), route, question), raise_errors)

    # Streams groups commit offsets as consumers do.
    list_streams_group_offsets = list_consumer_group_offsets
    alter_streams_group_offsets = alter_consumer_group_offsets
    delete_streams_group_offsets = delete_consumer_group_offsets


def _asked(group_id: str, partitions: list[TopicPartition] | None) -> fetching.OffsetFetchRequestGroup:
    topics = None
    if partitions is not None:
        topics = [
            fetching.OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
            for name, indexes in by_topic(partitions).items()
        ]
    return fetching.OffsetFetchRequestGroup(group_id=group_id, topics=topics)


def _committed(group: fetching.OffsetFetchResponseGroup) -> Committed | KafkaError:
    error = refusal(group.error_code, None, f"group {group.group_id}")
    found: Committed = {}
    for topic in group.topics:
        for it in topic.partitions:
            key = TopicPartition(topic.name, it.partition_index)
            error = error or refusal(it.error_code, None, f"group {group.group_id}, partition {key}")
            epoch = it.committed_leader_epoch if it.committed_leader_epoch >= 0 else None
            if it.committed_offset >= 0:
                found[key] = OffsetAndMetadata(it.committed_offset, epoch, it.metadata or "")
    return error or found


def _place(offset: OffsetAndMetadata | int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset) if isinstance(offset, int) else offset


def _commit(index: int, place: OffsetAndMetadata) -> committing.OffsetCommitRequestPartition:
    return committing.OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=place.offset,
        committed_leader_epoch=-1 if place.leader_epoch is None else place.leader_epoch,
        committed_metadata=place.metadata,
    )
