"""Core: the interface of a group's member, for all protocols.

A `Member` has two sides. The coordinator gets a sequence of requests, one in flight at a time: `next_request`, then
`answered` or `unanswered`. The application gets a sequence of changes: `change` names the partitions that it gains or
gives up, and the application calls `changed` once it has done so. Heartbeats go on in between; what the coordinator
must not learn before the application has given something up waits for `changed`.

`classic_member`, `consumer_member` and `share_member` are the implementations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from barnabas.client.groups.assignors import AssignorOption
from barnabas.client.metadata import TopicPartition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.schema import Message

NO_GENERATION = -1

COORDINATOR_AWAY = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors without a decision: the member retries."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Names and defaults are Kafka's."""

    group_id: str
    group_instance_id: str | None = None
    group_protocol: str = "classic"
    """`classic`, `consumer` (KIP-848) or `share` (KIP-932)."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """Also the time that a rebalance waits for this member."""
    partition_assignors: tuple[AssignorOption, ...] = ("range", "cooperative-sticky")
    """Assignors of classic groups, in the order of preference; all members need one in common."""
    group_remote_assignor: str | None = None
    """Server-side assignor of consumer groups."""
    client_rack: str = ""
    metadata_max_age_ms: int = 300_000
    default_api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000

    def __post_init__(self) -> None:
        if self.group_protocol not in ("classic", "consumer", "share"):
            raise ValueError(f"group_protocol must be classic, consumer or share; got {self.group_protocol!r}")
        if not self.group_id:
            raise ValueError("group_id must not be empty; got ''")


class Subscription(NamedTuple):
    """Topics or a pattern that a member subscribes to."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """Matched by the broker against whole names (RE2; KIP-848); for consumer groups only."""


class ChangeKind(Enum):
    """Action of the application for some partitions."""

    ASSIGN = "assign"
    """Start reading: they are assigned."""
    REVOKE = "revoke"
    """Stop reading: offsets may still be committed until `changed`."""
    LOSE = "lose"
    """Stop reading: they may already belong to another member, and nothing can be committed."""


@dataclass(frozen=True, slots=True)
class Change:
    kind: ChangeKind
    partitions: tuple[TopicPartition, ...]

    def applied_to(self, owned: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
        if self.kind is ChangeKind.ASSIGN:
            return (*owned, *difference(self.partitions, owned))
        return difference(owned, self.partitions)


def lose(owned: tuple[TopicPartition, ...]) -> list[Change]:
    return [Change(ChangeKind.LOSE, owned)] if owned else []


class ConsumerGroupMetadata(NamedTuple):
    """Identity of a committing member: the coordinator refuses one that is not a current member (KIP-447)."""

    group_id: str
    member_id: str = ""
    generation_or_epoch: int = NO_GENERATION
    """The generation of a classic group, or the member's epoch; -1 without membership: then a coordinator accepts a
    transaction's offsets without a check of the members."""
    group_instance_id: str | None = None


class Leaving(Enum):
    """End of the membership when a consumer closes (KIP-1092)."""

    DEFAULT = "default"
    """A dynamic member leaves, a static one stays and is expected back."""
    LEAVE_GROUP = "leave_group"
    """Leave, also as a static member: others take over at once."""
    REMAIN_IN_GROUP = "remain_in_group"
    """Send nothing: others take over after the session timeout."""


class Member(Protocol):
    """One member of one group."""

    @property
    def stamp(self) -> ConsumerGroupMetadata | None:
        """Group metadata for commits; None while it is not in the group."""

    @property
    def last_stamp(self) -> ConsumerGroupMetadata | None:
        """The last stamp, in the group or not; None if it never was a member."""

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """Partitions of the application, by the changes that it has confirmed."""

    @property
    def change(self) -> Change | None:
        """The next change for the application."""

    @property
    def fatal(self) -> KafkaError | None:
        """The reason why it can never be in the group again."""

    def subscribe(self, subscription: Subscription) -> None:
        """The application has a new subscription."""

    def topics_to_learn(self) -> list[str]:
        """Topics whose metadata it waits for; answered by `learnt`."""

    def ids_to_learn(self) -> list[bytes]:
        """Topic ids whose names it waits for; answered by `learnt`."""

    def topics_to_watch(self) -> list[str]:
        """Topics whose metadata it wants regularly."""

    def learnt(self, topics: TopicsView) -> None:
        """Take over current metadata."""

    def next_request(self, now_ms: int) -> Message | None:
        """The request to send now; it counts as in flight until `answered` or `unanswered`."""

    def answer_timeout_ms(self, request: Message, request_timeout_ms: int) -> int:
        """Timeout of its response: a join waits for the other members."""

    def answered(self, response: Message, now_ms: int) -> ErrorCode:
        """Take over a response. Returns its error, by which the caller notices that the coordinator has moved."""

    def unanswered(self, now_ms: int) -> None:
        """There was no response; the coordinator may have processed the request or not."""

    def changed(self, change: Change) -> None:
        """The application has carried out `change`, though another one may be wanted by now."""

    def polled(self, now_ms: int) -> None:
        """The application has called `poll`."""

    def wake_at_ms(self, now_ms: int) -> int | None:
        """When to check again if nothing else happens."""

    def fenced(self, code: ErrorCode, stamp: ConsumerGroupMetadata, now_ms: int) -> None:
        """A commit with this stamp was refused: the group may have rebalanced without this member."""

    def fail(self, error: KafkaError) -> None:
        """It cannot be in the group, for a reason outside of the membership."""

    def leave(self, leaving: Leaving = Leaving.DEFAULT, reason: str | None = None) -> Message | None:
        """The last request; None if there is nothing to leave."""


class TopicsView(Protocol):
    """Metadata that a member needs."""

    def partitions_count(self, topic: str) -> int:
        """0 if there is no such topic."""

    def topic_name(self, topic_id: bytes) -> str | None: ...

    def racks(self, topic: str) -> Mapping[int, frozenset[str]]:
        """Racks of the replicas of each partition; empty if no broker has one."""


class Backoff(Protocol):
    """Settings of a backoff."""

    @property
    def retry_backoff_ms(self) -> int: ...
    @property
    def retry_backoff_max_ms(self) -> int: ...


class Retry:
    """Backoff of a member after failures."""

    def __init__(self, settings: Backoff) -> None:
        self._settings = settings
        self._failures = 0
        self.at_ms = 0

    def failed(self, now_ms: int) -> None:
        settings = self._settings
        wait_ms = settings.retry_backoff_ms * 2 ** min(self._failures, 20)
        self._failures += 1
        self.at_ms = now_ms + min(wait_ms, settings.retry_backoff_max_ms)

    def reset(self) -> None:
        self._failures = self.at_ms = 0


def difference(some: tuple[TopicPartition, ...], others: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
    """Elements of `some` that are not in `others`, in order."""
    known = dict.fromkeys(others)
    return tuple(partition for partition in some if partition not in known)
