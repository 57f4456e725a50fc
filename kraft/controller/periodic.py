"""Core: periodic work of the active controller.

`PeriodicWork` knows the time of its next run; a run returns the next batch of records. It writes at most one batch at
a time and asks to run again at once while there is more, so that no scan delays commands for long.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.kraft.controller.brokers import fence_stale_brokers, next_session_check_ms
from barnabas.kraft.controller.effective_configs import unclean_leader_election
from barnabas.kraft.controller.leader_elections import elect_leader
from barnabas.kraft.controller.partition_change import Election
from barnabas.kraft.controller.partition_notes import note_change
from barnabas.kraft.controller.partitions import UNCLEAN_ELECTION, change_of, find_partitions, leaderless_partitions
from barnabas.kraft.controller.state import ControllerResult, ControllerState, Steps
from barnabas.kraft.controller.token_sweep import MAX_SWEPT_AT_ONCE, sweep_expired_tokens
from barnabas.protocol.messages.metadata_log import NoOpRecord
from barnabas.protocol.schema import Message

MAX_ELECTIONS_AT_ONCE = 1000
ALLOWED = "unclean.leader.election.enable is true"


@dataclass(slots=True)
class PeriodicWork:
    """The timetable of one term as active controller; monotonic milliseconds."""

    next_balance_ms: int
    next_unclean_check_ms: int
    next_no_op_ms: int
    next_token_sweep_ms: int

    @classmethod
    def starting(cls, state: ControllerState) -> PeriodicWork:
        """The timetable of a controller that becomes active now."""
        defaults, now_ms = state.defaults, state.now_ms
        return cls(
            now_ms + defaults.leader_imbalance_check_interval_ms,
            now_ms + defaults.unclean_leader_election_interval_ms,
            now_ms + defaults.metadata_max_idle_interval_ms,
            now_ms + defaults.delegation_token_expiry_check_interval_ms,
        )

    def appended(self, state: ControllerState) -> None:
        """Records were appended: the log is not idle."""
        self.next_no_op_ms = state.now_ms + state.defaults.metadata_max_idle_interval_ms

    def next_run_ms(self, state: ControllerState) -> int:
        """Time at which `run` has something to do."""
        times = [self.next_unclean_check_ms, self.next_token_sweep_ms]
        if state.defaults.auto_leader_rebalance_enable:
            times.append(self.next_balance_ms)
        if state.defaults.metadata_max_idle_interval_ms > 0:
            times.append(self.next_no_op_ms)
        session_check_ms = next_session_check_ms(state)
        if session_check_ms is not None:
            times.append(session_check_ms)
        return min(times)

    def run(self, state: ControllerState) -> Steps[ControllerResult[bool]]:
        """The most urgent piece of work that is due. The answer is True if `run` should be called again at once."""
        fenced = yield from fence_stale_brokers(state)
        if fenced.response:
            return ControllerResult(True, fenced.records)
        now_ms, defaults = state.now_ms, state.defaults
        if defaults.auto_leader_rebalance_enable and now_ms >= self.next_balance_ms:
            records = yield from preferred_elections(state, MAX_ELECTIONS_AT_ONCE)
            if len(records) < MAX_ELECTIONS_AT_ONCE:
                self.next_balance_ms = now_ms + defaults.leader_imbalance_check_interval_ms
            return ControllerResult(True, records)
        if now_ms >= self.next_unclean_check_ms:
            records = yield from unclean_elections(state, MAX_ELECTIONS_AT_ONCE)
            if len(records) < MAX_ELECTIONS_AT_ONCE:
                self.next_unclean_check_ms = now_ms + defaults.unclean_leader_election_interval_ms
            return ControllerResult(True, records)
        if now_ms >= self.next_token_sweep_ms:
            records = yield from sweep_expired_tokens(state)
            if len(records) < MAX_SWEPT_AT_ONCE:
                self.next_token_sweep_ms = now_ms + defaults.delegation_token_expiry_check_interval_ms
            return ControllerResult(True, records)
        if defaults.metadata_max_idle_interval_ms > 0 and now_ms >= self.next_no_op_ms:
            # Moves the end of the log, so that followers in an idle cluster can see that they are up to date.
            self.next_no_op_ms = now_ms + defaults.metadata_max_idle_interval_ms
            return ControllerResult(False, [NoOpRecord()])
        return ControllerResult(False)


def preferred_elections(state: ControllerState, limit: int) -> Steps[list[Message]]:
    """Move leaderships back to preferred leaders that are in sync again."""
    records: list[Message] = []
    imbalanced = yield from find_partitions(state, lambda it: it.leader != it.preferred_leader)
    for topic, partition_id, partition in imbalanced:
        if state.pace.is_full():
            yield None
        change = change_of(state, (topic, partition_id, partition))
        change.election = Election.PREFERRED
        record = change.build()
        if record is not None:
            records.append(record)
            cause = f"leaders are balanced, and the preferred leader, broker {partition.preferred_leader}, is in sync"
            note_change(state, (topic, partition_id, partition), record, cause)
            if len(records) >= limit:
                break
    return records


def unclean_elections(state: ControllerState, limit: int) -> Steps[list[Message]]:
    """Elect leaders of leaderless partitions of topics that allow loss."""
    records: list[Message] = []
    for topic, partition_id, partition in (yield from leaderless_partitions(state)):
        if state.pace.is_full():
            yield None
        if partition.awaits_decision or not unclean_leader_election(state, topic.name):
            continue
        elect_leader(state, topic.name, partition_id, UNCLEAN_ELECTION, records, ALLOWED)
        if len(records) >= limit:
            break
    return records
