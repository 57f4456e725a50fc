"""`BrokerSessions`: which brokers were heard lately. The controller's only state that no record carries.

A session belongs to one registration (broker id and epoch). It starts with the registration or when this
controller becomes active, lives on heartbeats, and ends by timeout, by evidence that the process is gone, or
when the broker was told to stop. Knows nothing of fencing: whoever finds an ended session decides.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class BrokerSession:
    """What was heard from one incarnation of a broker."""

    epoch: int
    last_contact_ms: int
    metadata_offset: int = -1
    """How far it had applied the metadata log, by its last heartbeat."""
    controlled_shutdown_offset: int = -1
    """The broker may stop once all active brokers have applied the log up to here; -1 while it does not want
    to."""
    full_directories: tuple[bytes, ...] = ()
    """Ids of its log directories that have no room, by its last heartbeat."""


class BrokerSessions:
    """Sessions by broker id; at most one each. Times are monotonic milliseconds."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, BrokerSession] = {}

    def get(self, broker_id: int) -> BrokerSession | None:
        return self._sessions.get(broker_id)

    def start(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A new session, instead of any other of this broker."""
        self._sessions[broker_id] = BrokerSession(broker_epoch, now_ms)

    def touch(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> BrokerSession:
        """A heartbeat came."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != broker_epoch:
            session = self._sessions[broker_id] = BrokerSession(broker_epoch, now_ms)
        session.last_contact_ms = max(session.last_contact_ms, now_ms)
        session.metadata_offset = metadata_offset
        return session

    def end(self, broker_id: int) -> None:
        """The process is gone or going: its id is free for another incarnation at once."""
        self._sessions.pop(broker_id, None)

    def clear(self) -> None:
        self._sessions.clear()

    def is_valid(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether this incarnation was heard within the session timeout."""
        session = self._sessions.get(broker_id)
        return (
            session is not None
            and session.epoch == broker_epoch
            and now_ms <= session.last_contact_ms + self.session_timeout_ms
        )

    def expires_ms(self, broker_id: int, broker_epoch: int) -> int | None:
        """When the session ends unless a heartbeat comes; None if there is no session."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != broker_epoch:
            return None
        return session.last_contact_ms + self.session_timeout_ms + 1
