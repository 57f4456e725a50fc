"""Shell: share groups on one broker: the share partitions that it leads, and the sessions of the members that fetch."""

from __future__ import annotations

from barnabas.broker.shares.led_partitions import LedPorts, LedSharePartitions
from barnabas.broker.shares.sessions import ShareSession, ShareSessions


class ShareGroups:
    def __init__(self, ports: LedPorts, sessions: ShareSessions) -> None:
        self.partitions = LedSharePartitions(ports)
        self.sessions = sessions
        self.leadership_changed = self.partitions.leadership_changed
        self.partition_changed = self.partitions.partition_changed

    def close_session(self, session: ShareSession) -> None:
        """The member is gone: others may have what it has acquired."""
        group_id, member_id = session.key
        self.sessions.remove(session)
        for led in self.partitions.of_group(group_id):
            self.partitions.release(led, member_id)
        if not self.sessions.has_members(group_id):
            self.partitions.drop_unused_group(group_id, "no member of the group fetches from this broker any more")

    def connection_closed(self, connection_id: int) -> None:
        for session in self.sessions.of_connection(connection_id):
            self.close_session(session)

    def switched_off(self) -> None:
        """The cluster has no share groups any more."""
        for group_id in {led.key.group_id for led in self.partitions} | self.sessions.groups:
            for session in self.sessions.of_group(group_id):
                self.sessions.remove(session)
            self.partitions.drop_group(group_id, "share groups were switched off")
