"""Shell: share groups on one broker: the share partitions that it leads, and the sessions of the members that fetch."""

from __future__ import annotations

from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.shares.led_partitions import LedPorts, LedSharePartitions
from barnabas.broker.shares.sessions import SessionKey, ShareSession, ShareSessions
from barnabas.kraft.metadata.features import SHARE_VERSION


class ShareGroups:
    def __init__(self, ports: LedPorts, metadata: MetadataCache, sessions: ShareSessions) -> None:
        self._metadata = metadata
        self.partitions = LedSharePartitions(ports)
        self.sessions = sessions
        self.leadership_changed = self.partitions.leadership_changed
        self.partition_changed = self.partitions.partition_changed

    def are_enabled(self) -> bool:
        """The cluster has finalised a level of share.version that has share groups."""
        return self._metadata.image.features.level(SHARE_VERSION) >= 1

    def close_session(self, session: ShareSession) -> None:
        """The member is gone: others may have what it has acquired."""
        group_id, member_id = session.key
        self.sessions.remove(session)
        for led in self.partitions.of_group(group_id):
            self.partitions.release(led, member_id)
        if not self.sessions.has_members(group_id):
            self.partitions.drop_group(group_id, "no member of the group fetches from this broker any more")

    def connection_closed(self, connection_id: int) -> None:
        for session in self.sessions.of_connection(connection_id):
            self.close_session(session)

    def member_left(self, key: SessionKey) -> None:
        """The group coordinator is here, and has removed the member."""
        session = self.sessions.find(key)
        if session is not None:
            self.close_session(session)

    def group_deleted(self, group_id: str) -> None:
        for session in self.sessions.of_group(group_id):
            self.sessions.remove(session)
        self.partitions.drop_group(group_id, "the group was deleted")

    def feature_changed(self) -> None:
        """Forget everything if the cluster has no share groups any more."""
        if not self.are_enabled():
            for group_id in {led.key.group_id for led in self.partitions}:
                self.group_deleted(group_id)
