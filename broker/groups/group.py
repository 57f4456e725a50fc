"""Core: the interface of all kinds of groups, and their environment.

`GroupDirectory` holds the groups of one partition of `__consumer_offsets`. Offsets belong to a group id, whatever kind
of group it has. So the offset code uses groups through `Group` and knows no kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Timers
from barnabas.broker.groups.group_memory import GroupMemory, HeldBytes
from barnabas.broker.traffic import GroupEvents
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.world import Chance
from barnabas.settings.broker import BrokerSettings


class GroupType(Enum):
    """The value is the name in ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


def describes_all(_: str) -> bool:
    """The right of a client where no authorizer decides."""
    return True


class Client(NamedTuple):
    """Origin of a request, as descriptions of groups show it."""

    client_id: str
    host: str
    """With a leading slash, as Java prints addresses: `/127.0.0.1`."""
    may_describe: Callable[[str], bool] = describes_all
    """True for a topic that the client may describe: patterns match no other (KIP-848)."""


class Commit(NamedTuple):
    """Sender of an offset commit."""

    member_id: str
    """Empty for a client that is not a member (admin tools, assign())."""
    group_instance_id: str | None
    generation_or_epoch: int
    """-1 for a client that is not a member."""
    transactional: bool
    version: int
    """Version of OffsetCommit or TxnOffsetCommit."""


class Group(Protocol):
    """A group of any kind."""

    @property
    def group_id(self) -> str: ...
    @property
    def held(self) -> HeldBytes:
        """Memory of what clients sent."""

    @property
    def type(self) -> GroupType: ...
    @property
    def protocol_type(self) -> str: ...
    def state_name(self) -> str:
        """Name in ListGroups: `Stable`, `Empty`, `PreparingRebalance`, …"""

    def is_empty(self) -> bool:
        """True if it has no members."""

    def empty_since_ms(self) -> int | None:
        """Wall time since when it has no members; None if it has some, or if each offset expires by its own commit time
        (a group without members ever). KIP-211.
        """

    def is_subscribed_to(self, topic: str) -> bool:
        """True if the offsets of `topic` are in use, so that they neither expire nor may be deleted."""

    def check_commit(self, commit: Commit, now: Now) -> None:
        """Raises KafkaError: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH, FENCED_INSTANCE_ID,
        REBALANCE_IN_PROGRESS, …; a commit renews the session of a classic member, like a heartbeat.
        """

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Check whether offsets may be read. Raises KafkaError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""

    def check_delete(self) -> None:
        """Check whether the group may be deleted. Raises KafkaError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """Tombstones of the group's own records, without its offsets."""


NO_LIMIT = 1 << 62


class GroupDirectory:
    """The groups of one partition, by group id."""

    def __init__(self, memory: GroupMemory | None = None) -> None:
        """`memory`: the sum in which the groups of all directories of a broker count; None for one without a limit."""
        self._groups: dict[str, Group] = {}
        self._frozen: set[str] = set()
        self.memory = memory or GroupMemory(NO_LIMIT)

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def put(self, group: Group) -> None:
        """Add the group, or replace the one with its id."""
        before = self._groups.get(group.group_id)
        if before is not None:
            before.held.count_in(None)
        self._groups[group.group_id] = group
        group.held.count_in(self.memory)

    def remove(self, group_id: str) -> None:
        group = self._groups.pop(group_id, None)
        if group is not None:
            group.held.count_in(None)

    def freeze(self, group_id: str) -> None:
        """The group becomes one of another kind, in turns of the event loop. Nothing else changes it until `thaw`."""
        self._frozen.add(group_id)

    def thaw(self, group_id: str) -> None:
        self._frozen.discard(group_id)

    def is_frozen(self, group_id: str) -> bool:
        return group_id in self._frozen

    def check_may_change(
        self, group_id: str, code: ErrorCode = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ) -> None:
        """Raises KafkaError with this code, for which clients ask again, while the group is frozen."""
        if group_id in self._frozen:
            raise KafkaError(code, f"group {group_id} is becoming a group of another kind")

    def give_up(self) -> None:
        """The groups are those of another broker now."""
        for group in self._groups.values():
            group.held.count_in(None)
        self.memory = GroupMemory(NO_LIMIT)

    def ids(self) -> list[str]:
        return list(self._groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def __len__(self) -> int:
        return len(self._groups)


class ShareStates(Protocol):
    """Changes the states of share partitions at their share coordinators, for share groups."""

    def initialize(self, group_id: str, state_epoch: int, states: Mapping[bytes, Any]) -> None:
        """Initialize the states of partitions (`share_topics.TopicStates` by topic id). Returns at once; the group's
        machine gets the result by `ShareGroups.initialization_ended`."""


@dataclass(frozen=True, slots=True)
class GroupContext:
    """Environment of the cores of one partition."""

    groups: GroupDirectory
    timers: Timers
    chance: Chance
    settings: Callable[[], BrokerSettings]
    """Current settings."""
    image: Callable[[], MetadataImage]
    """Newest metadata: topics with ids, partitions and racks, and group configs."""
    share_states: ShareStates
    events: GroupEvents = field(default_factory=GroupEvents)
    """Counters for monitoring."""
