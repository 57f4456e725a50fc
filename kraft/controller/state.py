"""Input and output of a decision: the state to decide on, and the records and the answer.

A command is a function `(state, request, version) -> ControllerResult`, or a generator that returns one. It reads the
image and never changes it: state moves only when its records are replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from barnabas.kraft.controller.quota_division import QuotaDivision
from barnabas.kraft.controller.sessions import BrokerSessions
from barnabas.kraft.controller.token_index import TokenIndex
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.kraft.metadata.replay import ImageReplay
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import Notes
from barnabas.runtime.identity import ANONYMOUS, Principal
from barnabas.runtime.throttling import Mutations
from barnabas.runtime.world import Chance

R = TypeVar("R")

MAX_RECORDS_PER_OPERATION = 10_000
"""A request that would write more than this is refused (POLICY_VIOLATION): its records are one atomic
batch."""

STEP_ITEMS = 25
"""Items that one step of a decision handles. An item is a partition that is created or changed, or something that costs
as much: about 0.1 ms."""

Steps = Generator[Callable[[], Any] | None, Any, R]
"""A decision in progress: each `next` is a step of a few milliseconds; other tasks run between steps. A step may
yield work (a function without arguments and effects); it is run away from the event loop, and its result is sent."""


PARTS = 100
"""Parts of an item that are counted."""


class Pace:
    """Counts the items of a decision, to end its steps in time."""

    __slots__ = ("_parts", "steps")

    def __init__(self) -> None:
        self._parts = 0
        self.steps = 0
        """Steps that were full."""

    def is_full(self, items: int = 1, *, per_item: int = 1) -> bool:
        """Count items that were handled, or things of which `per_item` (a divisor of 100) cost as much as one. True if
        the step has to end: the caller yields."""
        self._parts += items * PARTS // per_item
        if self._parts < STEP_ITEMS * PARTS:
            return False
        self._parts = 0
        self.steps += 1
        return True


@dataclass(frozen=True, slots=True)
class ControllerDefaults:
    """The settings of this controller that decisions depend on."""

    node_id: int
    cluster_id: str
    quorum_ids: tuple[int, ...] = ()
    num_partitions: int = 1
    default_replication_factor: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    broker_session_timeout_ms: int = 9000
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_ms: int = 300_000
    unclean_leader_election_interval_ms: int = 300_000
    metadata_max_idle_interval_ms: int = 500
    delegation_token_secret_key: str = field(default="", repr=False)
    """Empty: the cluster has no delegation tokens."""
    delegation_token_max_lifetime_ms: int = 604_800_000
    delegation_token_expiry_time_ms: int = 86_400_000
    delegation_token_expiry_check_interval_ms: int = 3_600_000
    raw: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Keys and values of the configuration file, under broker keys."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The sender of a request, its time, and its quota."""

    by: Principal = ANONYMOUS
    at_ms: int = 0
    """On the wall clock; decisions about everything else use the monotonic one."""
    mutations: Mutations | None = None
    """The quota for partitions that are created and deleted; None: without limit."""


BY_NOBODY = Asked()


class Quorum(Protocol):
    """State of the quorum that is not in the image. `MetadataReplica` fits."""

    @property
    def kraft_version(self) -> int:
        """The level of `kraft.version` in the log."""

    def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> str | None:
        """Append the records that raise it. Returns the reason why that cannot be; None if it can."""


class FixedQuorum:
    """A quorum whose voters are those of the configuration: level 0."""

    kraft_version = 0

    def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> str | None:
        """Refuse every other level."""
        return None if level == 0 else "the voters of this quorum are fixed"


@dataclass(slots=True)
class ControllerState:
    """State of the cluster as the active controller sees it for the length of one decision."""

    defaults: ControllerDefaults
    chance: Chance
    sessions: BrokerSessions
    image: MetadataImage
    """Every record appended so far, committed or not."""
    next_offset: int
    """The offset that the next appended record will get."""
    now_ms: int
    notes: Notes = field(default_factory=Notes)
    """Decisions and their causes, for people; they count once the records are committed."""
    reports: Notes = field(default_factory=Notes)
    """Notes of what nodes report and no record carries; they count without records, too."""
    pace: Pace = field(default_factory=Pace)
    effects: list[Callable[[], None]] = field(default_factory=list)
    """Changes of broker sessions, made once the records are appended."""
    quorum: Quorum = field(default_factory=FixedQuorum)
    asked: Asked = BY_NOBODY
    token_index: TokenIndex = field(default_factory=TokenIndex)
    quota_division: QuotaDivision = field(default_factory=QuotaDivision)

    def spend(self, partitions: int) -> None:
        """Count partitions that are created or deleted. Raises KafkaError THROTTLING_QUOTA_EXCEEDED."""
        if self.asked.mutations is not None:
            self.asked.mutations.spend(partitions)

    def after(self, records: Sequence[Message]) -> Steps[ControllerState]:
        """This state as if `records` were appended, for decisions that build on each other."""
        if not records:
            return self
        offset = self.next_offset + len(records) - 1
        image = yield from replayed(self.image, records, offset, self.image.epoch, self.image.timestamp_ms)
        return replace(self, image=image, next_offset=offset + 1)


def replayed(
    image: MetadataImage, records: Sequence[Message], offset: int, epoch: int, timestamp_ms: int
) -> Steps[MetadataImage]:
    """The image after `records`, the last of which has `offset`. Raises `ReplayError`."""
    replay = ImageReplay(image)
    for record in records:
        for _ in replay.steps(record):
            yield None
    return replay.finish(offset, epoch, timestamp_ms).after


@dataclass(slots=True)
class ControllerResult(Generic[R]):
    """Records to append atomically, and the answer to give once they are committed."""

    response: R
    records: list[Message] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)
    """Decisions of the records, and their causes."""
    effects: list[Callable[[], None]] = field(default_factory=list)
    """Called once the records are appended."""
    before: list[Callable[[], None]] = field(default_factory=list)
    """Called once, just before they are appended: what the quorum has to append first."""
    is_long: bool = False
    """The decision took several steps, and its answer is too long to be encoded in one."""


Command = Callable[[ControllerState, Any, int], ControllerResult[Any] | Steps[ControllerResult[Any]]]
"""(state, request, request version) -> result. Raises KafkaError if the whole request is refused."""


def refuse_if_excessive(records: int) -> None:
    """Raises KafkaError POLICY_VIOLATION for more records than one operation may write."""
    if records > MAX_RECORDS_PER_OPERATION:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"the operation would write {records} records; at most {MAX_RECORDS_PER_OPERATION} are allowed",
        )
