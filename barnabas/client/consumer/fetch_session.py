"""Core: a client's side of one incremental fetch session (KIP-227): requests contain only changes.

The broker remembers the partitions and offsets of a session. A request has the changes since the one before; a response
lacks partitions without news. Whenever the two sides might disagree the session starts again with a full request; a
broker that keeps no session for us gets full requests only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.metadata import TopicPartition
from barnabas.protocol.errors import ErrorCode, error_code
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from barnabas.protocol.primitives import INT32_MAX, ZERO_UUID

NO_SESSION = 0
FIRST_EPOCH = 0
"""Epoch of a request that ends its session and starts another one."""
LAST_EPOCH = -1
"""Epoch of a request that only ends its session."""

LAST_VERSION_WITH_NAMES = 12
"""Later versions of Fetch name topics by their ids."""


class Wanted(NamedTuple):
    """Fetch parameters of one partition."""

    topic_id: bytes
    """ZERO_UUID if the topic has no id known to the client."""
    offset: int
    leader_epoch: int
    max_bytes: int


class Answers(NamedTuple):
    """Contents of a response."""

    code: ErrorCode
    """Error of the whole request; unless it is NONE there is nothing else."""
    partitions: dict[TopicPartition, PartitionData]
    silent: list[TopicPartition]
    """Partitions that the response should have contained."""


class FetchSession:
    """The session with one broker. A request, then `answered` or `failed`, then the next request."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._partitions: dict[TopicPartition, Wanted] = {}
        """State that the broker has after the last request."""
        self.was_full = True

    @property
    def is_open(self) -> bool:
        """Whether the broker keeps a session for us, as far as we know."""
        return self._session_id != NO_SESSION

    def request(self, wanted: Mapping[TopicPartition, Wanted]) -> tuple[FetchRequest, int | None]:
        """A request for all of `wanted`, and the highest version that it may be sent in; None for any.

        The caller sets sizes, waiting and isolation.
        """
        known = self._partitions
        if any(partition in known and known[partition].topic_id != each.topic_id for partition, each in wanted.items()):
            # The topic was created again. Whether the broker would notice the new id depends on its version.
            self._restart(self._session_id)
        self.was_full = self._epoch == FIRST_EPOCH
        request = FetchRequest(session_id=self._session_id, session_epoch=self._epoch)
        names_only = any(each.topic_id == ZERO_UUID for each in wanted.values())
        changed = list(wanted)
        if not self.was_full:
            changed = [partition for partition in changed if known.get(partition) != wanted[partition]]
            gone = [partition for partition in known if partition not in wanted]
            names_only = names_only or any(known[partition].topic_id == ZERO_UUID for partition in gone)
            request.forgotten_topics_data = _forgotten(gone, known)
        request.topics = _topics(changed, wanted)
        self._partitions = dict(wanted)
        return request, LAST_VERSION_WITH_NAMES if names_only else None

    def answered(self, response: FetchResponse) -> Answers:
        """Take the response to the last request."""
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            self._restart(NO_SESSION if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND else self._session_id)
            return Answers(code, {}, [])
        names = {each.topic_id: partition.topic for partition, each in self._partitions.items()}
        answers: dict[TopicPartition, PartitionData] = {}
        strange = False
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for answer in topic.partitions:
                partition = TopicPartition(name, answer.partition_index)
                if partition in self._partitions:
                    answers[partition] = answer
                else:
                    strange = True
        silent: list[TopicPartition] = []
        if self.was_full:
            silent = [partition for partition in self._partitions if partition not in answers]
        if strange or silent or response.session_id == NO_SESSION:
            # The response does not reveal whether the broker still knows a session of this id.
            self._restart(response.session_id)
        else:
            self._session_id = response.session_id
            self._epoch = 1 if self._epoch == INT32_MAX else self._epoch + 1
        return Answers(code, answers, silent)

    def failed(self) -> None:
        """There was no response to the last request: it may have arrived or not."""
        self._restart(self._session_id)

    def end(self) -> FetchRequest | None:
        """The request that ends the session; None if there is none. Its response is irrelevant."""
        if not self.is_open:
            return None
        request = FetchRequest(session_id=self._session_id, session_epoch=LAST_EPOCH)
        self._restart(NO_SESSION)
        return request

    def _restart(self, session_id: int) -> None:
        self._session_id = session_id
        self._epoch = FIRST_EPOCH


def _topics(changed: list[TopicPartition], wanted: Mapping[TopicPartition, Wanted]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for partition in changed:
        name = partition.topic
        each = wanted[partition]
        if name not in topics:
            topics[name] = FetchTopic(topic=name, topic_id=each.topic_id)
        topics[name].partitions.append(
            FetchPartition(
                partition=partition.partition,
                current_leader_epoch=each.leader_epoch,
                fetch_offset=each.offset,
                partition_max_bytes=each.max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(gone: list[TopicPartition], known: Mapping[TopicPartition, Wanted]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for partition in gone:
        key = partition.topic, known[partition].topic_id
        if key not in topics:
            topics[key] = ForgottenTopic(topic=key[0], topic_id=key[1])
        topics[key].partitions.append(partition.partition)
    return list(topics.values())
