"""Core: session and rebalance timeouts of consumer group members.

All of it is soft state: after a failover every member gets a full session timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

from barnabas.broker.coordinator.outcome import Now, Outcome
from barnabas.broker.groups.consumer_group import ConsumerGroup
from barnabas.broker.groups.consumer_member import ConsumerMember
from barnabas.broker.groups.group import GroupContext


def session_timer(group_id: str, member_id: str) -> Hashable:
    return ("consumer-session", group_id, member_id)


def rebalance_timer(group_id: str, member_id: str) -> Hashable:
    return ("consumer-rebalance", group_id, member_id)


class Sessions:
    """Timeouts of the members of one partition's groups. `fence(group_id, member_id, reason, now)` removes a member
    that is late.
    """

    def __init__(self, context: GroupContext, fence: Callable[[str, str, str, Now], Outcome]) -> None:
        self._context = context
        self._fence = fence

    def renew(self, group_id: str, member_id: str, session_timeout_ms: int, now: Now) -> None:
        """The member is alive: restart its session timeout."""
        fence = partial(self._fence, group_id, member_id, f"it sent nothing for {session_timeout_ms} ms")
        self._context.timers.schedule(session_timer(group_id, member_id), now.monotonic_ms + session_timeout_ms, fence)

    def expect_revocation(self, group_id: str, member: ConsumerMember, now: Now) -> None:
        """The member must revoke partitions within its rebalance timeout."""
        deadline_ms = now.monotonic_ms + member.rebalance_timeout_ms
        check = partial(self._check_revocation, group_id, member.member_id, member.epoch)
        self._context.timers.schedule(rebalance_timer(group_id, member.member_id), deadline_ms, check)

    def _check_revocation(self, group_id: str, member_id: str, epoch: int, now: Now) -> Outcome:
        """Timer: fence the member if it has not revoked its partitions."""
        group = self._context.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if member is None or member.epoch != epoch:
            return Outcome()
        waited = f"it did not revoke its partitions within {member.rebalance_timeout_ms} ms"
        return self._fence(group_id, member_id, waited, now)

    def revoked(self, group_id: str, member_id: str) -> None:
        """The member has nothing left to revoke."""
        self._context.timers.cancel(rebalance_timer(group_id, member_id))

    def forget(self, group_id: str, member_id: str) -> None:
        """Cancel all timers of the member."""
        self._context.timers.cancel(session_timer(group_id, member_id))
        self._context.timers.cancel(rebalance_timer(group_id, member_id))
