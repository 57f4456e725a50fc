"""Core: one incremental fetch session (KIP-227): the partitions of one fetcher, and what it knows of them."""

from __future__ import annotations

from barnabas.protocol.messages.fetch import FetchPartition, PartitionData

NO_SESSION = 0
INITIAL_EPOCH = 0
"""Session epoch of a full request that opens a session."""
FINAL_EPOCH = -1
"""Session epoch of a full request without a session; it closes the session that it names."""
LAST_EPOCH = 0x7FFFFFFF

WANTED_IN_A_STEP = 500
"""Partitions of a request that one step handles."""

TopicKey = bytes | str
"""A topic's id from Fetch v13 on, its name before."""
PartitionKey = tuple[TopicKey, int]
Wanted = tuple[TopicKey, FetchPartition]
Answer = tuple[TopicKey, PartitionData]


def next_epoch(epoch: int) -> int:
    """The last epoch is followed by 1: 0 would open a new session."""
    return 1 if epoch == LAST_EPOCH else epoch + 1


def session_key(session_id: int) -> PartitionKey:
    """The purgatory key of a session's waiting fetch: the session knows the partitions. (No topic has an empty
    name.)"""
    return "", session_id


class CachedPartition:
    """One partition of a session: the last request for it, and what the last response said of it."""

    __slots__ = ("high_watermark", "log_start_offset", "topic", "wanted")

    def __init__(self, topic: TopicKey, wanted: FetchPartition) -> None:
        self.topic = topic
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1

    def asks(self, wanted: FetchPartition) -> None:
        """Record a new request for this partition. Only a fetcher that continues from a later offset in the same leader
        epoch is known to have processed the last response: a follower that truncates its log, or learns of a new epoch
        first, has dropped it.
        """
        before, self.wanted = self.wanted, wanted
        if wanted.fetch_offset <= before.fetch_offset or wanted.current_leader_epoch != before.current_leader_epoch:
            self.high_watermark = -1

    def is_news(self, data: PartitionData) -> bool:
        """True if a response has to contain `data`."""
        return bool(
            data.records
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or must_be_repeated(data)
        )

    def sent(self, data: PartitionData) -> None:
        # After an error nothing counts as known, so that the partition is news when the error is gone.
        self.high_watermark = data.high_watermark if data.error_code == 0 else -1
        self.log_start_offset = data.log_start_offset


# (is a follower's, partitions, id): a session may be evicted for one that is greater in this order.
SessionValue = tuple[bool, int, int]


class FetchSession:
    __slots__ = (
        "created_ms",
        "epoch",
        "fresh",
        "id",
        "key",
        "last_used_ms",
        "listed_as_old",
        "listed_value",
        "moved",
        "partitions",
        "privileged",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, privileged: bool, uses_topic_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.key = session_key(session_id)
        """The key under which its waiting fetch is watched."""
        self.privileged = privileged
        """It is a follower's."""
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        # In the order in which they are read: one that had data moves to the end, so that none starves (RP-05).
        self.partitions: dict[PartitionKey, CachedPartition] = {}
        # Partitions that have to be checked, in this order.
        self.moved: dict[PartitionKey, None] = {}
        # Partitions that moved since the waiting request checked them. Each request has a dict of its own.
        self.fresh: dict[PartitionKey, None] = {}
        # The entry in the lists of evictable sessions.
        self.listed_value: SessionValue | None = None
        self.listed_as_old = False

    @property
    def value(self) -> SessionValue:
        return (self.privileged, len(self.partitions), self.id)

    def asks(self, key: PartitionKey, wanted: FetchPartition) -> None:
        cached = self.partitions.get(key)
        if cached is None:
            self.partitions[key] = CachedPartition(key[0], wanted)
        else:
            cached.asks(wanted)
        self.moved[key] = None

    def forgets(self, key: PartitionKey) -> None:
        self.partitions.pop(key, None)
        self.moved.pop(key, None)


def must_be_repeated(data: PartitionData) -> bool:
    """True if this answer is sent with every response until the fetcher reacts: a consumer that cannot reach its
    preferred replica fetches from the leader again, and does not name the partition.
    """
    return bool(data.error_code != 0 or data.preferred_read_replica >= 0 or data.diverging_epoch.epoch >= 0)
