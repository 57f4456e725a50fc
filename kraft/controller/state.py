"""What every command sees and gives: the state to decide on, and the records and answer decided.

A command is a function `(state, request, version) -> ControllerResult`. It reads the image and never changes
it: state moves only when its records are replayed. What it may touch is the soft state, the broker sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from kraft.controller.sessions import BrokerSessions
from kraft.metadata.image import MetadataImage
from protocol.errors import ErrorCode, KafkaError
from protocol.schema import Message
from runtime.decisions import Notes
from runtime.world import Chance

R = TypeVar("R")

MAX_RECORDS_PER_OPERATION = 10_000
"""A request that would write more than this is refused (POLICY_VIOLATION): its records are one atomic
batch."""


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
    raw: Mapping[str, str] = field(default_factory=dict)
    """What the configuration file set, under broker keys."""


@dataclass(slots=True)
class ControllerState:
    """The world as the active controller sees it while it decides one thing."""

    defaults: ControllerDefaults
    chance: Chance
    sessions: BrokerSessions
    image: MetadataImage
    """Every record appended so far, committed or not."""
    next_offset: int
    """The offset that the next appended record will get."""
    now_ms: int
    notes: Notes = field(default_factory=Notes)
    """What is decided and why, for people; it counts when the records are committed."""

    def after(self, records: Sequence[Message]) -> ControllerState:
        """This state as if `records` were appended: for commands that decide in steps."""
        if not records:
            return self
        offset = self.next_offset + len(records) - 1
        image = self.image.apply(records, offset, self.image.epoch, self.image.timestamp_ms)
        return replace(self, image=image, next_offset=offset + 1)


@dataclass(slots=True)
class ControllerResult(Generic[R]):
    """Records to append atomically, and the answer to give once they are committed."""

    response: R
    records: list[Message] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)
    """What the records decide, and why."""


Command = Callable[[ControllerState, Any, int], ControllerResult[Any]]
"""(state, request, request version) -> result. Raises KafkaError when the request is refused as a whole."""


def refuse_if_excessive(records: int) -> None:
    """Raises KafkaError POLICY_VIOLATION for more records than one operation may write."""
    if records > MAX_RECORDS_PER_OPERATION:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"the operation would write {records} records, more than {MAX_RECORDS_PER_OPERATION}",
        )
