"""Core: the follower's side of an incremental fetch session with one leader (KIP-227).

Remembers what the leader remembers, so that a request names only partitions whose question changed. The
leader's side is `broker.fetch_sessions`. Knows no network; a request that got no answer is told by `lost`.
"""

from __future__ import annotations

from broker.fetch_sessions import INITIAL_EPOCH, NO_SESSION, next_epoch
from broker.replication.follower import FetchWanted
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

PartitionKey = tuple[bytes, int]
"""(topic id, partition)"""


class LeaderSession:
    """`wants` and `forget` say what shall be fetched; `request` says what has to be sent for it."""

    __slots__ = ("_changed", "_epoch", "_forgotten", "_id", "_sent", "wanted")

    def __init__(self) -> None:
        self.wanted: dict[PartitionKey, FetchWanted] = {}
        """All questions of the session."""
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._changed: dict[PartitionKey, None] = {}
        # What the leader remembers, so far as we know.
        self._forgotten: dict[PartitionKey, None] = {}
        self._sent: dict[PartitionKey, None] = {}

    def wants(self, key: PartitionKey, wanted: FetchWanted) -> None:
        """Ask this from the next request on."""
        if self.wanted.get(key) != wanted:
            self.wanted[key] = wanted
            self._changed[key] = None
            self._forgotten.pop(key, None)

    def forget(self, key: PartitionKey) -> None:
        """Stop asking."""
        if self.wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            if key in self._sent:
                self._forgotten[key] = None

    @property
    def idle(self) -> bool:
        """Nothing to ask and nothing to take back."""
        return not self.wanted and not self._forgotten

    def request(self, partition_max_bytes: int) -> FetchRequest:
        """The next request, without what does not change. Call `answered` or `lost` before the next one."""
        full = self._epoch == INITIAL_EPOCH
        request = FetchRequest(session_id=self._id, session_epoch=self._epoch)
        topics: dict[bytes, FetchTopic] = {}
        for key in self.wanted if full else self._changed:
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
        if full:
            self._sent = dict.fromkeys(self.wanted)
        else:
            self._sent.update(self._changed)
            forgotten: dict[bytes, ForgottenTopic] = {}
            for topic_id, partition in self._forgotten:
                del self._sent[topic_id, partition]
                if topic_id not in forgotten:
                    forgotten[topic_id] = ForgottenTopic(topic_id=topic_id)
                    request.forgotten_topics_data.append(forgotten[topic_id])
                forgotten[topic_id].partitions.append(partition)
        self._changed = {}
        self._forgotten = {}
        return request

    def answered(self, response: FetchResponse) -> bool:
        """Whether the answer can be used. If not, the next request starts over."""
        if response.error_code != 0:
            self.lost()
            return False
        full = self._epoch == INITIAL_EPOCH
        if response.session_id == NO_SESSION or (not full and response.session_id != self._id):
            # The leader keeps no session (any more): everything is said again.
            self._id = NO_SESSION
            self._epoch = INITIAL_EPOCH
        else:
            self._id = response.session_id
            self._epoch = next_epoch(self._epoch)
        return True

    def lost(self) -> None:
        """No answer came, or an error. A full request, which closes the session if there is one."""
        self._epoch = INITIAL_EPOCH
