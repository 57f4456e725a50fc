"""Core: session and rebalance timeouts of members of consumer and streams groups.

All of it is soft state: after a failover every member gets a full session timeout.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from barnabas.broker.coordinator.outcome import Now, Outcome, Timers


class TimedMember(Protocol):
    @property
    def member_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def rebalance_timeout_ms(self) -> int: ...


class Sessions:
    """Timeouts of the members of one partition's groups of one kind. `fence(group_id, member_id, reason, now)` removes
    a member that is late.
    """

    def __init__(
        self,
        kind: str,
        timers: Timers,
        find: Callable[[str, str], TimedMember | None],
        fence: Callable[[str, str, str, Now], Outcome],
    ) -> None:
        """`find(group_id, member_id)` returns the current member."""
        self._kind = kind
        self._timers = timers
        self._find = find
        self._fence = fence

    def renew(self, group_id: str, member_id: str, session_timeout_ms: int, now: Now) -> None:
        """The member is alive: restart its session timeout."""
        fence = partial(self._fence, group_id, member_id, f"it sent nothing for {session_timeout_ms} ms")
        self._timers.schedule(self._session(group_id, member_id), now.monotonic_ms + session_timeout_ms, fence)

    def expect_revocation(self, group_id: str, member: TimedMember, now: Now) -> None:
        """The member must give up what it was asked to, within its rebalance timeout."""
        deadline_ms = now.monotonic_ms + member.rebalance_timeout_ms
        check = partial(self._check_revocation, group_id, member.member_id, member.epoch)
        self._timers.schedule(self._rebalance(group_id, member.member_id), deadline_ms, check)

    def _check_revocation(self, group_id: str, member_id: str, epoch: int, now: Now) -> Outcome:
        """Timer: fence the member if it is still in that epoch."""
        member = self._find(group_id, member_id)
        if member is None or member.epoch != epoch:
            return Outcome()
        waited = f"it did not revoke its partitions within {member.rebalance_timeout_ms} ms"
        return self._fence(group_id, member_id, waited, now)

    def revoked(self, group_id: str, member_id: str) -> None:
        """The member has nothing left to revoke."""
        self._timers.cancel(self._rebalance(group_id, member_id))

    def forget(self, group_id: str, member_id: str) -> None:
        """Cancel all timers of the member."""
        self._timers.cancel(self._session(group_id, member_id))
        self._timers.cancel(self._rebalance(group_id, member_id))

    def _session(self, group_id: str, member_id: str) -> tuple[str, str, str]:
        return (f"{self._kind}-session", group_id, member_id)

    def _rebalance(self, group_id: str, member_id: str) -> tuple[str, str, str]:
        return (f"{self._kind}-rebalance", group_id, member_id)
