"""Core: share sessions: the share partitions that each member of a share group fetches from this broker (KIP-932).

A session is that of a member, and begins and ends with the connection over which it was opened. Its epoch grows with
every request, so that a repeated request is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from barnabas.broker.fetch_session import INITIAL_EPOCH, next_epoch
from barnabas.protocol.errors import ErrorCode, KafkaError

TopicPartition = tuple[bytes, int]
"""(topic id, index)"""
SessionKey = tuple[str, str]
"""(group id, member id)"""

PARTITION_BYTES = 200
"""Memory of one partition of a session, nearly."""


class ShareSession:
    __slots__ = ("connection_id", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, connection_id: int, partitions: Iterable[TopicPartition]) -> None:
        self.key = key
        self.connection_id = connection_id
        self.epoch = next_epoch(INITIAL_EPOCH)
        """Epoch of the next request."""
        self.partitions: dict[TopicPartition, bool] = dict.fromkeys(partitions, False)
        """In the order in which they are read; true for those that the next response contains in any case."""

    def in_turn(self, epoch: int) -> list[TopicPartition]:
        """The partitions in the order in which a request of this epoch reads them, so that none starves."""
        partitions = list(self.partitions)
        if len(partitions) < 2 or epoch < 1:
            return partitions
        place = epoch % len(partitions)
        return partitions[place:] + partitions[:place]

    def must_answer(self, partition: TopicPartition, error: int, *, has_records: bool) -> bool:
        """Note the answer for a partition. True if the response has to contain it."""
        is_due = self.partitions.get(partition)
        if is_due is None:
            return False
        if has_records:
            del self.partitions[partition]
        # An error is repeated, and so is the partition once, when the error is gone.
        self.partitions[partition] = error != ErrorCode.NONE
        return has_records or is_due or error != ErrorCode.NONE


class ShareSessions:
    def __init__(self, max_sessions: int, max_partitions: int) -> None:
        """`max_partitions`: of all sessions together."""
        self._max_sessions = max_sessions
        self._max_partitions = max_partitions
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[int, dict[SessionKey, ShareSession]] = {}
        self._members: dict[str, int] = {}
        self.partitions = 0
        """Partitions of all sessions together."""

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, key: SessionKey) -> ShareSession | None:
        return self._sessions.get(key)

    def has_members(self, group_id: str) -> bool:
        """True if a member of the group has a session here."""
        return group_id in self._members

    @property
    def groups(self) -> set[str]:
        """The groups with members that have sessions here."""
        return set(self._members)

    def of_group(self, group_id: str) -> list[ShareSession]:
        return [session for session in self._sessions.values() if session.key[0] == group_id]

    def open(self, key: SessionKey, connection_id: int, partitions: Sequence[TopicPartition]) -> ShareSession:
        """Open a session in place of that which the member had. Raises KafkaError with
        SHARE_SESSION_LIMIT_REACHED."""
        before = self._sessions.get(key)
        if before is not None:
            self.remove(before)
        session = ShareSession(key, connection_id, partitions)
        count = len(session.partitions)
        if len(self._sessions) >= self._max_sessions or self.partitions + count > self._max_partitions:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self._sessions[key] = session
        self._by_connection.setdefault(connection_id, {})[key] = session
        self._members[key[0]] = self._members.get(key[0], 0) + 1
        self.partitions += count
        return session

    def closing(self, key: SessionKey) -> ShareSession:
        """The session that a request ends. Raises KafkaError with SHARE_SESSION_NOT_FOUND."""
        return self._found(key)

    def resume(self, key: SessionKey, epoch: int) -> ShareSession:
        """The session for its next request. Raises KafkaError: SHARE_SESSION_NOT_FOUND,
        INVALID_SHARE_SESSION_EPOCH."""
        session = self._found(key)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = next_epoch(epoch)
        return session

    def change(
        self, session: ShareSession, added: Sequence[TopicPartition], forgotten: Collection[TopicPartition]
    ) -> None:
        """Add and remove partitions. Raises KafkaError with SHARE_SESSION_LIMIT_REACHED, and changes nothing then."""
        partitions = session.partitions
        new = dict.fromkeys((it for it in added if it not in partitions), True)
        if self.partitions + len(new) > self._max_partitions:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        before = len(partitions)
        partitions.update(new)
        for each in forgotten:
            partitions.pop(each, None)
        self.partitions += len(partitions) - before

    def remove(self, session: ShareSession) -> None:
        if self._sessions.get(session.key) is not session:
            return
        del self._sessions[session.key]
        self.partitions -= len(session.partitions)
        of_connection = self._by_connection[session.connection_id]
        del of_connection[session.key]
        if not of_connection:
            del self._by_connection[session.connection_id]
        group_id = session.key[0]
        self._members[group_id] -= 1
        if not self._members[group_id]:
            del self._members[group_id]

    def of_connection(self, connection_id: int) -> list[ShareSession]:
        """The sessions that were opened over this connection."""
        return list(self._by_connection.get(connection_id, {}).values())

    def _found(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session


