"""Core: the follower's side of an incremental fetch session with one leader (KIP-227).

Mirrors the leader's session, so that a request names only partitions whose request changed. The leader's side is
`broker.fetch_sessions`. Knows no network; `lost` reports a request without a response.
"""

from __future__ import annotations

from itertools import islice

from barnabas.broker.fetch_session import INITIAL_EPOCH, NO_SESSION, next_epoch
from barnabas.broker.replication.follower import FetchWanted
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from barnabas.runtime.at_once import Stepwise, at_once

PartitionKey = tuple[bytes, int]
"""(topic id, partition)"""

NAMED_IN_A_STEP = 100
"""Partitions that one step adds to a request."""


class LeaderSession:
    """`wants` and `forget` change what is fetched; `request` returns what has to be sent for it."""

    __slots__ = ("_changed", "_epoch", "_forgotten", "_id", "_is_refused", "_sent", "wanted")

    def __init__(self) -> None:
        self.wanted: dict[PartitionKey, FetchWanted] = {}
        """The latest request of each partition in the session."""
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._changed: dict[PartitionKey, None] = {}
        self._forgotten: dict[PartitionKey, None] = {}
        # Partitions in the leader's session, as far as known.
        self._sent: dict[PartitionKey, None] = {}
        # The leader keeps no session for this follower: each request has to name all partitions.
        self._is_refused = False

    def wants(self, key: PartitionKey, wanted: FetchWanted) -> None:
        """Fetch the partition like this from the next request on."""
        if self.wanted.get(key) != wanted:
            self.wanted[key] = wanted
            self._changed[key] = None
            self._forgotten.pop(key, None)

    def forget(self, key: PartitionKey) -> None:
        """Stop fetching the partition."""
        if self.wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            if key in self._sent:
                self._forgotten[key] = None

    def put_off(self, most: int) -> list[PartitionKey]:
        """Take out all but `most` partitions if the next request is to open a session, into which they are to come by
        later requests. Returns them, in order."""
        if self._epoch != INITIAL_EPOCH or self._is_refused or len(self.wanted) <= most:
            return []
        later = list(islice(self.wanted, most, None))
        for key in later:
            self.forget(key)
        return later

    @property
    def idle(self) -> bool:
        """True if there is nothing to fetch and nothing to remove from the session."""
        return not self.wanted and not self._forgotten

    def request(self, partition_max_bytes: int) -> FetchRequest:
        """All steps of `request_steps` at once."""
        return at_once(self.request_steps(partition_max_bytes))

    def request_steps(self, partition_max_bytes: int) -> Stepwise[FetchRequest]:
        """The next request, without partitions that did not change. Call `answered` or `lost` before the next one.
        Changes between the steps are in this request or in the next one."""
        full = self._epoch == INITIAL_EPOCH
        request = FetchRequest(session_id=self._id, session_epoch=self._epoch)
        topics: dict[bytes, FetchTopic] = {}
        keys = list(self.wanted if full else self._changed)
        self._changed = {}
        if full:
            self._sent, self._forgotten = {}, {}
        for place, key in enumerate(keys, 1):
            if place % NAMED_IN_A_STEP == 0:
                yield
            if key not in self.wanted:
                continue
            self._sent[key] = None
            topic_id, partition = key
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
                request.topics.append(topic)
            leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset = self.wanted[key]
            topic.partitions.append(
                FetchPartition(
                    partition=partition,
                    current_leader_epoch=leader_epoch,
                    fetch_offset=fetch_offset,
                    last_fetched_epoch=last_fetched_epoch,
                    log_start_offset=log_start_offset,
                    partition_max_bytes=partition_max_bytes,
                )
            )
        if not full:
            forgotten: dict[bytes, ForgottenTopic] = {}
            # One that was forgotten after a step named it is so in the next request.
            named = dict.fromkeys(keys)
            leaving = [key for key in self._forgotten if key not in named]
            for topic_id, partition in leaving:
                del self._sent[topic_id, partition]
                del self._forgotten[topic_id, partition]
                if topic_id not in forgotten:
                    forgotten[topic_id] = ForgottenTopic(topic_id=topic_id)
                    request.forgotten_topics_data.append(forgotten[topic_id])
                forgotten[topic_id].partitions.append(partition)
        return request

    def answered(self, response: FetchResponse) -> bool:
        """True if the response can be used. If not, the next request is a full one."""
        if response.error_code != 0:
            self.lost()
            return False
        full = self._epoch == INITIAL_EPOCH
        if response.session_id == NO_SESSION or (not full and response.session_id != self._id):
            # The leader has no session: the next request is a full one.
            self._is_refused = full
            self._id = NO_SESSION
            self._epoch = INITIAL_EPOCH
        else:
            self._is_refused = False
            self._id = response.session_id
            self._epoch = next_epoch(self._epoch)
        return True

    def lost(self) -> None:
        """No response came, or an error: the next request is a full one, which closes the session if there is one."""
        self._epoch = INITIAL_EPOCH
