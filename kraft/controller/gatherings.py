"""Core: brokers that stop or start together, as in a cluster that is stopped or started as a whole.

One after the other, each of them would change every partition that it has a replica of: three times as many records,
and after the start all partitions would be led by the broker that came first. So a request to stop, and in a cluster
without any broker the first request to serve, are held back for a moment, and one decision is made for all that asked
meanwhile. The sessions keep who asked (`BrokerSession.wants_to_stop`, `wants_to_serve`).
"""

from __future__ import annotations

from barnabas.kraft.controller.sessions import BrokerSession, BrokerSessions
from barnabas.kraft.metadata.image import BrokerImage, MetadataImage
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

STOPS_WITHIN_MS = 80
"""Time in which others ask to stop, too. Each controlled shutdown takes so much longer."""
STARTS_WITHIN_MS = 3_500
"""Longest wait for brokers that are registered and not ready yet."""
LEAST_START_MS = 500
"""The first broker that is ready waits as long as it took itself from its registration on, and at least so long: others
that started with it need about the same time. One that needs much longer, because it recovers its logs after a crash,
is not worth a wait in which nobody serves."""


def note_wishes(image: MetadataImage, sessions: BrokerSessions, request: BrokerHeartbeatRequest) -> int:
    """A heartbeat of a registered incarnation arrived: note in its session what the broker wants. Returns the longest
    time in ms for which it should be held back; 0 for almost all."""
    broker, session = image.cluster.brokers[request.broker_id], sessions.get(request.broker_id)
    if session is None or session.epoch != broker.epoch:
        return 0
    session.wants_to_stop = request.want_shut_down and broker.active
    session.wants_to_serve = (
        not (request.want_fence or request.want_shut_down or broker.in_controlled_shutdown)
        and broker.fenced
        and request.current_metadata_offset >= broker.epoch
    )
    hold_ms = 0
    if session.wants_to_stop and image.features.elr_enabled and len(_active(image)) > 1:
        hold_ms = STOPS_WITHIN_MS
    elif session.wants_to_serve and image.topics.by_name and not _active(image):
        took_ms = session.last_contact_ms - session.began_ms
        hold_ms = min(STARTS_WITHIN_MS, max(LEAST_START_MS, took_ms))
    # A broker waits for half of its session's timeout for an answer.
    return min(hold_ms, sessions.session_timeout_ms * 2 // 5)


def is_awaited(image: MetadataImage, sessions: BrokerSessions, now_ms: int) -> bool:
    """True if a broker is starting that has not asked to serve yet."""
    return any(
        broker.fenced
        and not broker.in_controlled_shutdown
        and sessions.is_valid(broker.id, broker.epoch, now_ms)
        and not _session(sessions, broker).wants_to_serve
        for broker in image.cluster.brokers.values()
    )


def stopping_with(image: MetadataImage, sessions: BrokerSessions, first: BrokerImage) -> list[BrokerImage]:
    """`first`, and the others that asked to stop. Without ELR alone: an ISR keeps its last member, dead or alive."""
    if not image.features.elr_enabled:
        return [first]
    return [it for it in _active(image) if it.id == first.id or _session(sessions, it).wants_to_stop]


def starting_with(image: MetadataImage, sessions: BrokerSessions, first: BrokerImage) -> list[BrokerImage]:
    """`first`, and the others that asked to serve."""
    return [
        it
        for it in image.cluster.brokers.values()
        if it.id == first.id or (it.fenced and _session(sessions, it).wants_to_serve)
    ]


def _active(image: MetadataImage) -> list[BrokerImage]:
    return [broker for broker in image.cluster.brokers.values() if broker.active]


_NONE = BrokerSession(epoch=-1, last_contact_ms=0)


def _session(sessions: BrokerSessions, broker: BrokerImage) -> BrokerSession:
    """The session of this incarnation; one without wishes if it has none."""
    session = sessions.get(broker.id)
    return session if session is not None and session.epoch == broker.epoch else _NONE
