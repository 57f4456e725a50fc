"""What all kinds of groups have in common, and what they are given. A core.

`GroupDirectory` holds the groups of one partition of `__consumer_offsets`. Offsets belong to a group id, whatever kind
of group has it, so whoever keeps offsets asks the group through `Group` and knows no kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from broker.coordinator.outcome import CoordinatorRecord, Now, Timers
from broker.traffic import GroupEvents
from kraft.metadata.image import MetadataImage
from runtime.world import Chance
from settings.broker import BrokerSettings


class GroupType(Enum):
    """The value is what ListGroups says."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class Client(NamedTuple):
    """Who sent a request, as descriptions of groups show it."""

    client_id: str
    host: str
    """With a slash before it, as Java writes addresses: `/127.0.0.1`."""


class Commit(NamedTuple):
    """Who says that a group has come so far."""

    member_id: str
    """Empty for one who is not in the group (admin tools, assign())."""
    group_instance_id: str | None
    generation_or_epoch: int
    """-1 for one who is not in the group."""
    transactional: bool
    version: int
    """Of OffsetCommit or TxnOffsetCommit."""


class Group(Protocol):
    """One group, of whatever kind."""

    @property
    def group_id(self) -> str: ...
    @property
    def type(self) -> GroupType: ...
    @property
    def protocol_type(self) -> str: ...
    def state_name(self) -> str:
        """As ListGroups says it: `Stable`, `Empty`, `PreparingRebalance`, …"""

    def is_empty(self) -> bool:
        """Nobody is in it."""

    def empty_since_ms(self) -> int | None:
        """Wall time since when nobody is in it; None if somebody is, or if each offset counts from its own commit
        (a group that has nothing but offsets). KIP-211.
        """

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether the offsets of `topic` are in use: then they neither expire nor may be deleted."""

    def check_commit(self, commit: Commit, now: Now) -> None:
        """Raises KafkaError: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH, FENCED_INSTANCE_ID,
        REBALANCE_IN_PROGRESS, …; a classic member that commits is heard by it, as by a heartbeat.
        """

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """May offsets be read? Raises KafkaError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""

    def check_delete(self) -> None:
        """May the group be deleted? Raises KafkaError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """What forgets the group (not its offsets)."""


class GroupDirectory:
    """Group id to group, of one partition."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def put(self, group: Group) -> None:
        """Adds the group, or takes the place of the one with its id."""
        self._groups[group.group_id] = group

    def remove(self, group_id: str) -> None:
        self._groups.pop(group_id, None)

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def __len__(self) -> int:
        return len(self._groups)


@dataclass(frozen=True, slots=True)
class GroupContext:
    """What the cores of one partition are given."""

    groups: GroupDirectory
    timers: Timers
    chance: Chance
    settings: Callable[[], BrokerSettings]
    """As they hold now."""
    image: Callable[[], MetadataImage]
    """The newest metadata: topics, their ids and partitions, racks, configs of groups."""
    events: GroupEvents = field(default_factory=GroupEvents)
    """Counted for those who watch the broker."""
