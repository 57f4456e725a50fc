"""Core: a member's share session with one node, and the acknowledgements of what it acquired there (KIP-932).

A session begins with a fetch of epoch 0, and each further request has the next epoch. Acquired records belong to the
session: once it is lost, nothing that it acquired can be acknowledged any longer. `generation` counts sessions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.client.metadata import STALE_METADATA
from barnabas.client.shares.acknowledgements import TopicIdPartition, ranges_of
from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages import share_acknowledge as acknowledging
from barnabas.protocol.messages import share_fetch as fetching
from barnabas.protocol.primitives import INT32_MAX

FIRST_EPOCH = 0
LAST_EPOCH = -1
"""Epoch of the request that ends a session."""

Types = dict[int, AcknowledgeType]
"""Acknowledgements by offset."""


class FetchTerms(NamedTuple):
    """Parameters of a fetch."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    acquire_mode: int
    """0: whole batches (`batch_optimized`); 1: at most max_records (`record_limit`, KIP-1206)."""


class Result(NamedTuple):
    """The result of acknowledgements in one partition."""

    place: TopicIdPartition
    types: Types
    error: KafkaError | None


Answer = fetching.PartitionData | acknowledging.PartitionData


class ShareSession:
    """A request, then `fetched`, `acknowledged` or `failed`, then the next request."""

    def __init__(self, group_id: str, member_id: str, retry_ms: int) -> None:
        """`retry_ms`: acknowledgements that fail for a passing reason are sent again for this long."""
        self.generation = 0
        self.results: list[Result] = []
        """Results that the caller has not taken yet."""
        self._group_id = group_id
        self._member_id = member_id
        self._retry_ms = retry_ms
        self._epoch = FIRST_EPOCH
        self._partitions: dict[TopicIdPartition, None] = {}
        """Partitions of the session at the node."""
        self._asked: dict[TopicIdPartition, None] | None = None
        """Partitions of the session once the fetch that is in flight is answered; None: none is."""
        self._waiting: dict[TopicIdPartition, Types] = {}
        self._sent: dict[TopicIdPartition, Types] = {}
        """Acknowledgements in the request that is in flight."""
        self._give_up_ms: dict[TopicIdPartition, int] = {}
        """End of the attempts for partitions with failures."""

    @property
    def is_open(self) -> bool:
        return self._epoch != FIRST_EPOCH

    @property
    def has_acknowledgements(self) -> bool:
        """Whether some wait to be sent."""
        return bool(self._waiting)

    @property
    def in_flight(self) -> int:
        """Number of acknowledgements in the request that is in flight."""
        return sum(map(len, self._sent.values()))

    @property
    def unfinished(self) -> dict[TopicIdPartition, Types]:
        """Acknowledgements without a result."""
        return {
            place: {**self._sent.get(place, {}), **self._waiting.get(place, {})}
            for place in {**self._sent, **self._waiting}
        }

    def acknowledge(self, place: TopicIdPartition, types: Mapping[int, AcknowledgeType]) -> None:
        """Send these with a later request, in place of others for the same offsets that are not sent yet."""
        self._waiting.setdefault(place, {}).update(types)

    # ---- requests

    def fetch(self, wanted: Sequence[TopicIdPartition], terms: FetchTerms) -> fetching.ShareFetchRequest:
        """Acquire records of these partitions. Waiting acknowledgements of them go along, unless some renew."""
        after = dict.fromkeys(wanted)
        added = [place for place in after if place not in self._partitions]
        forgotten = [place for place in self._partitions if place not in after]
        if self.is_open:
            self._send({place: types for place, types in self._waiting.items() if place in after})
        topics: dict[bytes, fetching.FetchTopic] = {}
        for place in {**dict.fromkeys(added), **self._sent}:
            topic = topics.setdefault(place.topic_id, fetching.FetchTopic(topic_id=place.topic_id))
            batches = [
                fetching.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in ranges_of(self._sent.get(place, {}))
            ]
            topic.partitions.append(
                fetching.FetchPartition(partition_index=place.partition, acknowledgement_batches=batches)
            )
        gone: dict[bytes, fetching.ForgottenTopic] = {}
        for place in forgotten:
            gone.setdefault(place.topic_id, fetching.ForgottenTopic(topic_id=place.topic_id)).partitions.append(
                place.partition
            )
        self._asked = after
        return fetching.ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=terms.max_wait_ms,
            min_bytes=terms.min_bytes,
            max_bytes=terms.max_bytes,
            max_records=terms.max_records,
            batch_size=terms.max_records,
            share_acquire_mode=terms.acquire_mode,
            topics=list(topics.values()),
            forgotten_topics_data=list(gone.values()),
        )

    def acknowledgements(self) -> acknowledging.ShareAcknowledgeRequest:
        """Send all waiting acknowledgements. The session must be open."""
        return self._acknowledge(self._epoch)

    def last(self) -> acknowledging.ShareAcknowledgeRequest:
        """End the session: the node releases all that is not acknowledged. The session must be open."""
        return self._acknowledge(LAST_EPOCH)

    def _acknowledge(self, epoch: int) -> acknowledging.ShareAcknowledgeRequest:
        self._asked = None
        self._send(self._waiting)
        topics: dict[bytes, acknowledging.AcknowledgeTopic] = {}
        for place, types in self._sent.items():
            topic = topics.setdefault(place.topic_id, acknowledging.AcknowledgeTopic(topic_id=place.topic_id))
            batches = [
                acknowledging.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=each)
                for first, last, each in ranges_of(types)
            ]
            topic.partitions.append(
                acknowledging.AcknowledgePartition(partition_index=place.partition, acknowledgement_batches=batches)
            )
        return acknowledging.ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=epoch,
            is_renew_ack=any(AcknowledgeType.RENEW in types.values() for types in self._sent.values()),
            topics=list(topics.values()),
        )

    def _send(self, some: Mapping[TopicIdPartition, Types]) -> None:
        self._sent = dict(some)
        for place in self._sent:
            del self._waiting[place]

    @property
    def renews(self) -> bool:
        """Whether acknowledgements that wait renew locks: no fetch may carry them."""
        return any(AcknowledgeType.RENEW in types.values() for types in self._waiting.values())

    # ---- responses

    def fetched(
        self, response: fetching.ShareFetchResponse, now_ms: int
    ) -> dict[TopicIdPartition, fetching.PartitionData]:
        """Results by partition; {} if the session is lost."""
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            self.lose(KafkaError(code, response.error_message))
            return {}
        assert self._asked is not None
        self._partitions, self._asked = self._asked, None
        self._next_epoch()
        asked = {(place.topic_id, place.partition): place for place in {**self._partitions, **self._sent}}
        answers = {
            asked[topic.topic_id, data.partition_index]: data
            for topic in response.responses
            for data in topic.partitions
            if (topic.topic_id, data.partition_index) in asked
        }
        for place in list(self._sent):
            answer = answers.get(place)
            if answer is None:
                self._finish(place, _unanswered())
            else:
                error = KafkaError(error_code(answer.acknowledge_error_code), answer.acknowledge_error_message)
                self._finish_or_retry(place, error, now_ms)
        return answers

    def acknowledged(
        self, response: acknowledging.ShareAcknowledgeResponse, now_ms: int
    ) -> dict[TopicIdPartition, acknowledging.PartitionData]:
        """Results by partition; {} if the session is lost."""
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            self.lose(KafkaError(code, response.error_message))
            return {}
        self._next_epoch()
        asked = {(place.topic_id, place.partition): place for place in self._sent}
        answers: dict[TopicIdPartition, acknowledging.PartitionData] = {}
        for topic in response.responses:
            for data in topic.partitions:
                place = asked.pop((topic.topic_id, data.partition_index), None)
                if place is not None:
                    answers[place] = data
                    self._finish_or_retry(place, KafkaError(error_code(data.error_code), data.error_message), now_ms)
        for place in asked.values():
            self._finish(place, _unanswered())
        return answers

    def failed(self, error: KafkaError) -> None:
        """There was no response."""
        self.lose(error)

    def cannot_renew(self, error: KafkaError) -> None:
        """The request was not sent, because the node is too old to renew locks: all but renewals is sent again."""
        for place, types in self._sent.items():
            renewals: Types = {offset: each for offset, each in types.items() if each is AcknowledgeType.RENEW}
            others = {offset: each for offset, each in types.items() if each is not AcknowledgeType.RENEW}
            if others:
                self._waiting[place] = {**others, **self._waiting.get(place, {})}
            if renewals:
                self.results.append(Result(place, renewals, error))
        self._sent = {}

    def lose(self, error: KafkaError) -> None:
        """Forget the session. All acknowledgements without a result have failed."""
        for place, types in self.unfinished.items():
            self.results.append(Result(place, types, error))
        self._waiting, self._sent, self._partitions = {}, {}, {}
        self._asked = None
        self._give_up_ms.clear()
        self._epoch = FIRST_EPOCH
        self.generation += 1

    def _next_epoch(self) -> None:
        self._epoch = 1 if self._epoch == INT32_MAX else self._epoch + 1

    def _finish_or_retry(self, place: TopicIdPartition, error: KafkaError, now_ms: int) -> None:
        if error.code is ErrorCode.NONE:
            self._finish(place, None)
        elif not error.code.retriable or error.code in STALE_METADATA:
            # After a change of the leader nothing is locked any longer, so that a retry is useless.
            self._finish(place, error)
        elif now_ms >= self._give_up_ms.setdefault(place, now_ms + self._retry_ms):
            self._finish(place, error)
        else:
            # The application may have decided otherwise meanwhile.
            self._waiting[place] = {**self._sent.pop(place), **self._waiting.get(place, {})}

    def _finish(self, place: TopicIdPartition, error: KafkaError | None) -> None:
        self._give_up_ms.pop(place, None)
        self.results.append(Result(place, self._sent.pop(place), error))


def _unanswered() -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, "the response of the broker has no result for this partition")
