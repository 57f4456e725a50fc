"""Core: rebalances of classic groups, and the timers that enforce them.

A rebalance begins with `prepare`, which collects JoinGroups until all members have joined or the rebalance timeout is
over (`complete_join`). Then all members must send SyncGroup within the same timeout; the leader's request ends the
rebalance. A member that is silent for its session timeout is removed.
"""

from __future__ import annotations

import logging
from functools import partial

from barnabas.broker.coordinator.outcome import Now, Outcome
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.classic_member import ClassicMember
from barnabas.broker.groups.classic_state import ClassicState
from barnabas.broker.groups.decision_notes import note_generation, note_member_fenced, note_rebalance
from barnabas.broker.groups.group import GroupContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse

log = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""Maximum wait of a new member's first JoinGroup. A waiting client cannot be distinguished from one that disconnected
and joined again.
"""
PENDING_JOIN_WAIT_MS = 500
"""Extra wait, after the initial rebalance delay, for members that were sent MEMBER_ID_REQUIRED."""
ABSENT_WAIT_MS = 500
"""Minimum wait for static members of which none has rejoined. Their rebalance timeout may be 0."""


class ClassicRebalances:
    """Moves the classic groups of one partition through their states.

    Methods that take an `Outcome` add records and answers to it. The timers of a phase are cancelled when the group
    leaves it, and when the group is removed or replaced.
    """

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._timers = context.timers

    def find(self, group_id: str) -> ClassicGroup | None:
        group = self._context.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    # -- generations

    def proceed(self, group: ClassicGroup, reason: str, outcome: Outcome, now: Now) -> None:
        """Start a rebalance because of a change, or complete the current one if all have joined."""
        if group.can_rebalance:
            self.prepare(group, reason, outcome, now)
        else:
            self.complete_join_if_all_joined(group, outcome, now)

    def prepare(self, group: ClassicGroup, reason: str, outcome: Outcome, now: Now) -> None:
        """Start a rebalance."""
        if group.state is ClassicState.COMPLETING_REBALANCE:
            self.refuse_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, outcome, now)
        group.pending_sync.clear()
        self._timers.cancel(_sync_key(group.group_id))
        is_first = group.is_empty()
        group.move(ClassicState.PREPARING_REBALANCE, now)
        note_rebalance(outcome.notes, group, reason)
        if is_first:
            # More members are probably starting. A short delay saves a rebalance for each of them (KIP-134).
            group.new_member_added = group.initial_delay_is_over = False
            delay_ms = self._initial_delay_ms()
            self._put_off(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0), now)
        elif group.has_all_joined():
            self.complete_join(group, outcome, now)
        else:
            self._schedule_join_end(group, group.rebalance_timeout_ms, now)

    def _initial_delay_ms(self) -> int:
        return self._context.settings().group_initial_rebalance_delay_ms

    def _put_off(self, group: ClassicGroup, delay_ms: int, remaining_ms: int, now: Now) -> None:
        operation = partial(self._end_delay, group, delay_ms, remaining_ms)
        self._timers.schedule(_join_key(group.group_id), now.monotonic_ms + delay_ms, operation)

    def _end_delay(self, group: ClassicGroup, delay_ms: int, remaining_ms: int, now: Now) -> Outcome:
        """Timer: extend the initial rebalance delay while members join, up to the rebalance timeout in all."""
        outcome = Outcome(replay=False)
        if group.new_member_added and remaining_ms > 0:
            group.new_member_added = False
            next_delay_ms = min(self._initial_delay_ms(), remaining_ms)
            self._put_off(group, next_delay_ms, max(remaining_ms - delay_ms, 0), now)
        elif group.pending_join and remaining_ms > 0:
            # Their second JoinGroup is on its way. If this generation started without them, all other members would
            # have to rebalance again.
            group.initial_delay_is_over = True
            self._schedule_join_end(group, min(PENDING_JOIN_WAIT_MS, remaining_ms), now)
        else:
            self.complete_join(group, outcome, now)
        return outcome

    def _schedule_join_end(self, group: ClassicGroup, wait_ms: int, now: Now) -> None:
        deadline_ms = now.monotonic_ms + wait_ms
        self._timers.schedule(_join_key(group.group_id), deadline_ms, partial(self._end_join, group))

    def _end_join(self, group: ClassicGroup, now: Now) -> Outcome:
        """Timer: remove members that have not joined."""
        outcome = Outcome(replay=False)
        self.complete_join(group, outcome, now)
        return outcome

    def complete_join_if_all_joined(self, group: ClassicGroup, outcome: Outcome, now: Now) -> None:
        """The initial rebalance delay is not shortened; it ends by its timer."""
        if (
            group.state is ClassicState.PREPARING_REBALANCE
            and (group.previous_state is not ClassicState.EMPTY or group.initial_delay_is_over)
            and group.has_all_joined()
        ):
            self.complete_join(group, outcome, now)

    def complete_join(self, group: ClassicGroup, outcome: Outcome, now: Now) -> None:
        """Start the next generation with the members that have joined, and with static members that may still return.
        """
        self._timers.cancel(_join_key(group.group_id))
        late = [m.member_id for m in group.members.values() if m.awaiting_join is None and not m.is_static]
        for member_id in late:
            self.forget(group, member_id)
        if not group.elect_joined_leader() and group.members:
            log.info("group %s: no member rejoined; waits until its static members expire", group.group_id)
            self._schedule_join_end(group, max(group.rebalance_timeout_ms, ABSENT_WAIT_MS), now)
            return
        group.begin_generation(now)
        note_generation(outcome.notes, group, late)
        if group.is_empty():
            outcome.records.append(group.record())
            outcome.failed = partial(_empty_not_written, group, outcome)
            return
        for member in group.members.values():
            group.answer_join(member, group.join_response(member), outcome)
            member.is_new = False
            self.watch(group, member, member.session_timeout_ms, now)
            group.pending_sync[member.member_id] = None
        deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
        self._timers.schedule(_sync_key(group.group_id), deadline_ms, partial(self._end_sync, group))

    # -- SyncGroup phase

    def synced(self, group: ClassicGroup, member: ClassicMember) -> None:
        """The member has sent its SyncGroup."""
        group.pending_sync.pop(member.member_id, None)
        if not group.pending_sync:
            self._timers.cancel(_sync_key(group.group_id))

    def _end_sync(self, group: ClassicGroup, now: Now) -> Outcome:
        """Timer: remove members that have not sent SyncGroup."""
        outcome = Outcome(replay=False)
        silent = list(group.pending_sync)
        for member_id in silent:
            self.forget(group, member_id)
        reason = f"{', '.join(silent)} did not send SyncGroup within {group.rebalance_timeout_ms} ms"
        self.prepare(group, reason, outcome, now)
        return outcome

    def hand_out_assignments(self, group: ClassicGroup, outcome: Outcome, now: Now) -> None:
        """The leader's assignments have arrived: answer all waiting SyncGroups."""
        self._context.events.rebalances += 1
        for member in group.members.values():
            if group.answer_sync(member, group.sync_response(member), outcome):
                self.watch(group, member, member.session_timeout_ms, now)

    def refuse_syncs(self, group: ClassicGroup, code: ErrorCode, outcome: Outcome, now: Now) -> None:
        """Answer waiting SyncGroups with an error: this generation gets no assignment."""
        for member in group.members.values():
            group.set_assignment(member, b"")
            if group.answer_sync(member, SyncGroupResponse(error_code=code), outcome):
                self.watch(group, member, member.session_timeout_ms, now)

    # -- sessions

    def watch(self, group: ClassicGroup, member: ClassicMember, timeout_ms: int, now: Now) -> None:
        """Require another sign of life within `timeout_ms`.

        A heartbeat only postpones the member's own deadline, which the timer checks when it is due. So the timer must
        never be due after that deadline.
        """
        member.session_deadline_ms = now.monotonic_ms + timeout_ms
        due_ms = self._timers.deadline_ms(session_key(group.group_id, member.member_id))
        if due_ms is None or due_ms > member.session_deadline_ms:
            self._schedule_session_end(group.group_id, member.member_id, member.session_deadline_ms)

    def watch_new(self, group: ClassicGroup, member: ClassicMember, now: Now) -> None:
        """Limit the wait of a new member, which cannot send heartbeats before its JoinGroup is answered."""
        self.watch(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS, now)

    def watch_pending(self, group: ClassicGroup, member_id: str, timeout_ms: int, now: Now) -> None:
        """Require the client to join with this assigned id within `timeout_ms`."""
        group.expect(member_id)
        self._schedule_session_end(group.group_id, member_id, now.monotonic_ms + timeout_ms)

    def _schedule_session_end(self, group_id: str, member_id: str, deadline_ms: int) -> None:
        operation = partial(self._end_session, group_id, member_id)
        self._timers.schedule(session_key(group_id, member_id), deadline_ms, operation)

    def _end_session(self, group_id: str, member_id: str, now: Now) -> Outcome:
        """Timer: remove the member if its session has expired."""
        outcome = Outcome(replay=False)
        group = self.find(group_id)
        if group is None:
            return outcome
        member = group.members.get(member_id)
        if member is None:
            if member_id in group.pending_join:
                log.info("group %s: %s was assigned to a client that did not join in time", group_id, member_id)
                self.forget(group, member_id)
                self._complete_join_without(group, outcome, now)
        elif member.is_excused():
            self._schedule_session_end(group_id, member_id, now.monotonic_ms + member.session_timeout_ms)
        elif member.session_deadline_ms > now.monotonic_ms:
            self._schedule_session_end(group_id, member_id, member.session_deadline_ms)
        else:
            silent_ms = member.session_timeout_ms + now.monotonic_ms - member.session_deadline_ms
            allowed = f"it sent nothing for {silent_ms} ms; session timeout {member.session_timeout_ms} ms"
            note_member_fenced(outcome.notes, group_id, member_id, allowed)
            self.leave(group, member_id, outcome)
            if group.state is ClassicState.PREPARING_REBALANCE:
                self._complete_join_without(group, outcome, now)
            else:
                self.prepare(group, f"the session of {member_id} expired; {allowed}", outcome, now)
        return outcome

    def _complete_join_without(self, group: ClassicGroup, outcome: Outcome, now: Now) -> None:
        """Complete the join phase if the removed member was the last one missing."""
        if group.state is ClassicState.PREPARING_REBALANCE and group.has_all_joined():
            self.complete_join(group, outcome, now)

    def rename(self, group: ClassicGroup, member: ClassicMember, member_id: str, now: Now) -> None:
        """Move the timer of a static member to its new id."""
        self._timers.cancel(session_key(group.group_id, member.member_id))
        group.rename(member, member_id)
        self.watch(group, member, member.session_timeout_ms, now)

    def leave(self, group: ClassicGroup, member_id: str, outcome: Outcome) -> None:
        """Remove the member and answer its waiting requests with UNKNOWN_MEMBER_ID: it may join again as a new member.
        """
        member = group.members.get(member_id)
        if member is not None:
            gone = ErrorCode.UNKNOWN_MEMBER_ID
            group.answer_join(member, JoinGroupResponse(member_id="", error_code=gone), outcome)
            group.answer_sync(member, SyncGroupResponse(error_code=gone), outcome)
        self.forget(group, member_id)

    def forget(self, group: ClassicGroup, member_id: str) -> None:
        """Remove the member and its timer; it has no waiting request."""
        self._timers.cancel(session_key(group.group_id, member_id))
        group.remove(member_id)

    def cancel_timers(self, group: ClassicGroup) -> None:
        """The group was removed."""
        self.cancel_phases(group)
        for member_id in group.members:
            self.unwatch(group, member_id)

    def cancel_phases(self, group: ClassicGroup) -> None:
        """Cancel all timers but those of members."""
        self._timers.cancel(_join_key(group.group_id))
        self._timers.cancel(_sync_key(group.group_id))
        for member_id in group.pending_join:
            self.unwatch(group, member_id)

    def unwatch(self, group: ClassicGroup, member_id: str) -> None:
        """Cancel the timer of the member's session."""
        self._timers.cancel(session_key(group.group_id, member_id))


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """Timer key of a member's session."""
    return ("classic session", group_id, member_id)


def _join_key(group_id: str) -> tuple[str, str]:
    return ("classic join", group_id)


def _sync_key(group_id: str) -> tuple[str, str]:
    return ("classic sync", group_id)


def _empty_not_written(group: ClassicGroup, outcome: Outcome, error: KafkaError) -> Outcome:
    # If this broker fails now, the previous generation is loaded again and its members' sessions expire there.
    log.warning("%r cannot be written as empty: %s", group, error)
    return Outcome(answers=outcome.answers)
