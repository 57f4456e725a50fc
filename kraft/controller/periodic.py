"""What the active controller does by the clock, without being asked.

A core: `PeriodicWork` says when it wants to run next and, run, gives the next batch of records. It writes at
most one batch at a time and asks to run again at once while there is more, so one slow scan never holds up
commands for long.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from kraft.controller.brokers import fence_stale_brokers, next_session_check_ms
from kraft.controller.effective_configs import unclean_leader_election
from kraft.controller.partition_change import Election
from kraft.controller.partition_notes import note_change
from kraft.controller.partitions import (
    UNCLEAN_ELECTION,
    all_partitions,
    change_of,
    elect_leader,
    leaderless_partitions,
)
from kraft.controller.state import ControllerResult, ControllerState
from protocol.errors import ErrorCode
from protocol.messages.metadata_log import NoOpRecord
from protocol.schema import Message

log = logging.getLogger("kraft.controller")

MAX_ELECTIONS_AT_ONCE = 1000
ALLOWED = "unclean.leader.election.enable is true"


@dataclass(slots=True)
class PeriodicWork:
    """The timetable of one term as active controller; monotonic milliseconds."""

    next_balance_ms: int
    next_unclean_check_ms: int
    next_no_op_ms: int

    @classmethod
    def starting(cls, state: ControllerState) -> PeriodicWork:
        """The timetable of a controller that becomes active now."""
        defaults, now_ms = state.defaults, state.now_ms
        return cls(
            now_ms + defaults.leader_imbalance_check_interval_ms,
            now_ms + defaults.unclean_leader_election_interval_ms,
            now_ms + defaults.metadata_max_idle_interval_ms,
        )

    def appended(self, state: ControllerState) -> None:
        """Something was written: the log is not idle."""
        self.next_no_op_ms = state.now_ms + state.defaults.metadata_max_idle_interval_ms

    def next_run_ms(self, state: ControllerState) -> int:
        """When `run` will next have something to do."""
        times = [self.next_unclean_check_ms]
        if state.defaults.auto_leader_rebalance_enable:
            times.append(self.next_balance_ms)
        if state.defaults.metadata_max_idle_interval_ms > 0:
            times.append(self.next_no_op_ms)
        session_check_ms = next_session_check_ms(state)
        if session_check_ms is not None:
            times.append(session_check_ms)
        return min(times)

    def run(self, state: ControllerState) -> ControllerResult[bool]:
        """The most urgent piece of work that is due. The answer: whether to run again at once."""
        fenced = fence_stale_brokers(state)
        if fenced.response:
            return ControllerResult(True, fenced.records)
        now_ms, defaults = state.now_ms, state.defaults
        if defaults.auto_leader_rebalance_enable and now_ms >= self.next_balance_ms:
            records = preferred_elections(state, MAX_ELECTIONS_AT_ONCE)
            if len(records) < MAX_ELECTIONS_AT_ONCE:
                self.next_balance_ms = now_ms + defaults.leader_imbalance_check_interval_ms
            return ControllerResult(True, records)
        if now_ms >= self.next_unclean_check_ms:
            records = unclean_elections(state, MAX_ELECTIONS_AT_ONCE)
            if len(records) < MAX_ELECTIONS_AT_ONCE:
                self.next_unclean_check_ms = now_ms + defaults.unclean_leader_election_interval_ms
            return ControllerResult(True, records)
        if defaults.metadata_max_idle_interval_ms > 0 and now_ms >= self.next_no_op_ms:
            # Moves the log's end on, so that followers of an idle cluster can tell that they are up to date.
            self.next_no_op_ms = now_ms + defaults.metadata_max_idle_interval_ms
            return ControllerResult(False, [NoOpRecord()])
        return ControllerResult(False)


def preferred_elections(state: ControllerState, limit: int) -> list[Message]:
    """Move leaderships back to preferred leaders that are in sync again."""
    records: list[Message] = []
    for topic, partition_id, partition in all_partitions(state.image):
        if partition.leader == partition.preferred_leader:
            continue
        change = change_of(state, (topic, partition_id, partition))
        change.election = Election.PREFERRED
        record = change.build()
        if record is not None:
            records.append(record)
            cause = f"leaders are balanced, and broker {partition.preferred_leader}, which is preferred, is in sync"
            note_change(state, (topic, partition_id, partition), record, cause)
            if len(records) >= limit:
                break
    return records


def unclean_elections(state: ControllerState, limit: int) -> list[Message]:
    """Give leaders to leaderless partitions of topics that accept loss."""
    records: list[Message] = []
    for topic, partition_id, _ in leaderless_partitions(state.image):
        if not unclean_leader_election(state, topic.name):
            continue
        code, reason = elect_leader(state, topic.name, partition_id, UNCLEAN_ELECTION, records, ALLOWED)
        if code is not ErrorCode.NONE:
            log.warning("%s-%d stays offline: %s", topic.name, partition_id, reason)
        if len(records) >= limit:
            break
    return records
