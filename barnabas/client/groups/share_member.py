"""Core: a member of a share group (KIP-932): the broker assigns, and no partition belongs to one member alone.

It goes through the states of a member of a consumer group. Its heartbeats carry less: nobody waits until it has given
partitions up, so it does not report what it has.
"""

from __future__ import annotations

from barnabas.client.groups.consumer_member import ConsumerMember
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.schema import Message


class ShareMember(ConsumerMember):
    """A `Member`."""

    def _heartbeat(self) -> Message:
        """The subscription at first, after a failure and when it has changed."""
        request = self._plain_heartbeat(self.epoch)
        self._may_be_in = True
        self._subscribing = None
        if self._acknowledged is None:
            self._target, self._unnamed = None, {}
            request.rack_id = self._settings.client_rack or None
        if self._acknowledged is None or self._subscribed != self._subscription:
            request.subscribed_topic_names = sorted(self._subscription.topics)
            self._subscribing = self._subscription
        self._reported = self._version
        return request

    def _plain_heartbeat(self, epoch: int) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self._settings.group_id, member_id=self.member_id, member_epoch=epoch
        )
