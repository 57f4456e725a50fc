"""`BrokerSessions`: the last heartbeats of brokers. The controller's only state that no record carries (KIP-631).

A session belongs to one registration (broker id and epoch). It starts with the registration or when this
controller becomes active, is kept alive by heartbeats, and ends by timeout, by evidence that the process is gone,
or when the broker may shut down. Knows nothing of fencing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class BrokerSession:
    """Contents of the last heartbeat of one incarnation of a broker."""

    epoch: int
    last_contact_ms: int
    began_ms: int = 0
    """The time of the registration; of the first contact, if another controller was active then."""
    metadata_offset: int = -1
    """Last offset of the metadata log that the broker had applied."""
    controlled_shutdown_offset: int = -1
    """The broker may stop once all active brokers have applied the log up to this offset; -1 unless it is in
    controlled shutdown."""
    full_directories: tuple[bytes, ...] = ()
    """Ids of its log directories that have no room."""
    wants_to_stop: bool = False
    """Its last heartbeat asked for a controlled shutdown, perhaps one that is not decided on yet."""
    wants_to_serve: bool = False
    """It is fenced, has caught up, and its last heartbeat asked to be unfenced."""

    def start_controlled_shutdown(self, offset: int) -> None:
        """The broker stops once all active brokers have applied the log up to `offset`."""
        self.controlled_shutdown_offset = offset


class BrokerSessions:
    """Sessions by broker id; at most one each. Times are monotonic milliseconds."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, BrokerSession] = {}

    def get(self, broker_id: int) -> BrokerSession | None:
        return self._sessions.get(broker_id)

    def start(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A new session, instead of any other of this broker."""
        self._sessions[broker_id] = BrokerSession(broker_epoch, now_ms, began_ms=now_ms)

    def touch(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> BrokerSession:
        """Note a heartbeat."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != broker_epoch:
            session = self._sessions[broker_id] = BrokerSession(broker_epoch, now_ms, began_ms=now_ms)
        session.last_contact_ms = max(session.last_contact_ms, now_ms)
        session.metadata_offset = metadata_offset
        return session

    def contact(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A heartbeat arrived, which is going to be decided on later."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == broker_epoch:
            session.last_contact_ms = max(session.last_contact_ms, now_ms)

    def end(self, broker_id: int) -> None:
        """The process is gone or stops: another incarnation may register at once."""
        self._sessions.pop(broker_id, None)

    def clear(self) -> None:
        self._sessions.clear()

    def is_valid(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """True if this incarnation sent a heartbeat within the session timeout."""
        session = self._sessions.get(broker_id)
        return (
            session is not None
            and session.epoch == broker_epoch
            and now_ms <= session.last_contact_ms + self.session_timeout_ms
        )

    def expires_ms(self, broker_id: int, broker_epoch: int) -> int | None:
        """Time at which the session ends unless a heartbeat comes; None if there is no session."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != broker_epoch:
            return None
        return session.last_contact_ms + self.session_timeout_ms + 1
