"""How long a cluster takes to give up what clients left behind: nothing can be judged before.

A transaction that nobody ends is aborted when it is older than its timeout and the coordinator looks, and holds up
every reader of committed records until then. What a dead member was given is nobody's until its session is over; in
the classic protocol its client says how long that is, with KIP-848 the brokers do.
"""

from __future__ import annotations

from collections.abc import Mapping

from clients.client import ClientSettings
from settings.definitions import find_broker_key

ABORTS_EVERY_MS = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
SESSION_MS = "group.consumer.session.timeout.ms"
HEARTBEAT_MS = "group.consumer.heartbeat.interval.ms"
KEYS = (ABORTS_EVERY_MS, SESSION_MS, HEARTBEAT_MS)
"""What has to be known of the brokers' settings."""
MARKERS_SECONDS = 1.0
"""From the decision to abort until every partition has its marker."""


def quiet_seconds(asked: float, settings: Mapping[str, str]) -> float:
    """Before the last readings: what was asked for, or as long as transactions that are left open may stay."""
    timeout_ms = ClientSettings("", "").transaction_timeout_ms
    return max(asked, (timeout_ms + _of(ABORTS_EVERY_MS, settings)) / 1000 + MARKERS_SECONDS)


def session_seconds(group_protocol: str, settings: Mapping[str, str]) -> float:
    """How long a group waits for a member that is gone, at most; with KIP-848 those that are left hear of it with the
    answers to their heartbeats, to the one what they give up and to the next what they get."""
    classic_ms = ClientSettings("", "").session_timeout_ms
    if group_protocol != "consumer":
        return classic_ms / 1000
    return max(classic_ms, _of(SESSION_MS, settings) + 2 * _of(HEARTBEAT_MS, settings)) / 1000


def _of(key: str, settings: Mapping[str, str]) -> int:
    """What is not said is as in Kafka."""
    definition = find_broker_key(key)
    assert definition is not None
    assert definition.default is not None
    return int(settings.get(key, definition.default))
