"""The time in which a cluster gives up what clients left behind: nothing can be judged before.

A transaction that nobody ends is aborted when it is older than its timeout and the coordinator looks, and holds up
every reader of committed records until then. The partitions of a dead member have no owner until its session is over;
in the classic protocol its client sets the session timeout, with KIP-848 the brokers do.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.settings.definitions import find_broker_key
from clients.client import ClientSettings

ABORTS_EVERY_MS = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
SESSION_MS = "group.consumer.session.timeout.ms"
HEARTBEAT_MS = "group.consumer.heartbeat.interval.ms"
KEYS = (ABORTS_EVERY_MS, SESSION_MS, HEARTBEAT_MS)
"""Settings of the brokers that have to be known."""
MARKERS_SECONDS = 1.0
"""From the decision to abort until every partition has its marker."""


def quiet_seconds(asked: float, settings: Mapping[str, str], client: ClientSettings) -> float:
    """Before the last readings: what was asked for, or as long as transactions that are left open may stay."""
    return max(asked, (client.transaction_timeout_ms + _of(ABORTS_EVERY_MS, settings)) / 1000 + MARKERS_SECONDS)


def session_seconds(group_protocol: str, settings: Mapping[str, str], client: ClientSettings) -> float:
    """Maximum time for which a group waits for a member that is gone. With KIP-848 the others learn of it by the
    answers to their heartbeats: one with the partitions that they give up and the next with those that they get."""
    classic_ms = client.session_timeout_ms
    if group_protocol == "classic":
        return classic_ms / 1000
    return max(classic_ms, _of(SESSION_MS, settings) + 2 * _of(HEARTBEAT_MS, settings)) / 1000


def _of(key: str, settings: Mapping[str, str]) -> int:
    """A missing setting has Kafka's default."""
    definition = find_broker_key(key)
    assert definition is not None
    assert definition.default is not None
    return int(settings.get(key, definition.default))
