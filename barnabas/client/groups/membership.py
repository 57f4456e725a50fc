"""What it means to be in a group, whichever protocol the group speaks. A core.

A `Member` has two faces. To the coordinator it is a line of requests, one under way at a time: `next_request`, then
`answered` or `unanswered`. To the application it is a line of changes: `change` says which partitions it gains or
gives up, and the application tells `changed` once it has done so. Heartbeats go on while the application takes its
time; what the coordinator must not learn before the application has given something up waits for `changed`.

`classic_member` and `consumer_member` are the two kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from barnabas.client.groups.assignors import AssignorOption
from barnabas.client.metadata import TopicPartition
from protocol.errors import ErrorCode, KafkaError
from protocol.schema import Message

NO_GENERATION = -1

COORDINATOR_AWAY = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Nothing was decided: the member asks again."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Names and defaults are Kafka's."""

    group_id: str
    group_instance_id: str | None = None
    group_protocol: str = "classic"
    """`classic` or `consumer` (KIP-848)."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """Also how long a rebalance waits for this member."""
    partition_assignors: tuple[AssignorOption, ...] = ("range", "cooperative-sticky")
    """Of classic groups, in the order of preference; all members need one in common."""
    group_remote_assignor: str | None = None
    """Of consumer groups: who assigns on the broker."""
    client_rack: str = ""
    metadata_max_age_ms: int = 300_000
    default_api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000

    def __post_init__(self) -> None:
        if self.group_protocol not in ("classic", "consumer"):
            raise ValueError(f"group_protocol {self.group_protocol}: it must be classic or consumer")
        if not self.group_id:
            raise ValueError("group_id is empty")


class Subscription(NamedTuple):
    """What a member wants to read."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """Matched by the broker (RE2, the whole name; KIP-848); for consumer groups only."""


class ChangeKind(Enum):
    """What the application has to do with some partitions."""

    ASSIGN = "assign"
    """They are its own from now on."""
    REVOKE = "revoke"
    """Finish with them: offsets may still be committed until `changed`."""
    LOSE = "lose"
    """They may be somebody else's already: nothing can be committed for them."""


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
    """Who commits: a coordinator refuses one that is not of the group as it is now (KIP-447)."""

    group_id: str
    member_id: str = ""
    generation_or_epoch: int = NO_GENERATION
    """The generation of a classic group, or the member's epoch; -1 for nobody's: a coordinator takes a transaction's
    offsets then without a look at who is in the group."""
    group_instance_id: str | None = None


class Leaving(Enum):
    """What becomes of the membership when a consumer closes (KIP-1092)."""

    DEFAULT = "default"
    """A dynamic member leaves, a static one stays: it is expected back."""
    LEAVE_GROUP = "leave_group"
    """Leave, also as a static member: others take over at once."""
    REMAIN_IN_GROUP = "remain_in_group"
    """Say nothing: others take over when the session has timed out."""


class Member(Protocol):
    """One member of one group."""

    @property
    def stamp(self) -> ConsumerGroupMetadata | None:
        """None while it is not in the group."""

    @property
    def last_stamp(self) -> ConsumerGroupMetadata | None:
        """The newest that it had, be it in the group or not; None if it never was."""

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """What the application has, as far as it has told."""

    @property
    def change(self) -> Change | None:
        """What the application has to do next."""

    @property
    def fatal(self) -> KafkaError | None:
        """Why it can never be in the group again."""

    def subscribe(self, subscription: Subscription) -> None:
        """The application wants something else from now on."""

    def topics_to_learn(self) -> list[str]:
        """Topics whose metadata it waits for; answered by `learnt`."""

    def ids_to_learn(self) -> list[bytes]:
        """Topic ids whose names it waits for; answered by `learnt`."""

    def topics_to_watch(self) -> list[str]:
        """Topics of which it is to learn anew now and then."""

    def learnt(self, topics: TopicsView) -> None:
        """The metadata is as new as it gets."""

    def next_request(self, now_ms: int) -> Message | None:
        """What to send now; it counts as under way until `answered` or `unanswered`."""

    def answer_timeout_ms(self, request: Message, request_timeout_ms: int) -> int:
        """How long to wait for its answer: a join waits for the other members."""

    def answered(self, response: Message, now_ms: int) -> ErrorCode:
        """Gives the error, for the caller to know whether somebody else is the coordinator now."""

    def unanswered(self, now_ms: int) -> None:
        """There was no answer; the coordinator may have acted or not."""

    def changed(self, change: Change) -> None:
        """The application has done what `change` said, though the member may want something else by now."""

    def polled(self, now_ms: int) -> None:
        """The application is alive."""

    def wake_at_ms(self, now_ms: int) -> int | None:
        """When to look again without news from outside."""

    def fenced(self, code: ErrorCode, stamp: ConsumerGroupMetadata, now_ms: int) -> None:
        """A commit with this stamp was refused: it may be that the group went on without this member."""

    def fail(self, error: KafkaError) -> None:
        """It cannot be in the group, for a reason that lies outside of the membership."""

    def leave(self, leaving: Leaving = Leaving.DEFAULT, reason: str | None = None) -> Message | None:
        """The last request; None if there is nothing to leave."""


class TopicsView(Protocol):
    """What a member may ask of the metadata."""

    def partitions_count(self, topic: str) -> int:
        """0 if there is no such topic."""

    def topic_name(self, topic_id: bytes) -> str | None: ...

    def racks(self, topic: str) -> Mapping[int, frozenset[str]]:
        """Of the replicas of each partition; empty if no broker tells its rack."""


class Retry:
    """When a member may ask again after a failure."""

    def __init__(self, settings: GroupSettings) -> None:
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
    """Those of `some` that are not in `others`, in order."""
    known = dict.fromkeys(others)
    return tuple(partition for partition in some if partition not in known)
