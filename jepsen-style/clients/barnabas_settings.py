"""Keyword arguments of our client for a run."""

from __future__ import annotations

from typing import Any

from clients.client import ClientSettings, ShareMode

NEVER_AGAIN_MS = 3_600_000
"""A backoff that is longer than any run: nothing is retried."""


def _common(settings: ClientSettings) -> dict[str, Any]:
    return {
        "bootstrap_servers": settings.bootstrap_servers,
        "client_id": settings.client_id,
        "request_timeout_ms": settings.request_timeout_ms,
        "retry_backoff_ms": 50,
        "retry_backoff_max_ms": 500,
        "reconnect_backoff_max_ms": 1_000,
        "socket_connection_setup_timeout_ms": 1_000,
        "socket_connection_setup_timeout_max_ms": 2_000,
        **settings.security,
    }


def admin(settings: ClientSettings, timeout_ms: int) -> dict[str, Any]:
    return _common(settings) | {"default_api_timeout_ms": timeout_ms}


def changing_admin(settings: ClientSettings) -> dict[str, Any]:
    """Asks once: what happened at a second try could be the doing of the first."""
    options = admin(settings, settings.request_timeout_ms)
    options["retry_backoff_ms"] = options["retry_backoff_max_ms"] = NEVER_AGAIN_MS
    return options


def producer(settings: ClientSettings) -> dict[str, Any]:
    options = _common(settings) | {
        "allow_auto_create_topics": False,
        "acks": settings.acks,
        "enable_idempotence": settings.idempotence,
        "linger_ms": settings.linger_ms,
        "delivery_timeout_ms": settings.delivery_timeout_ms,
        "max_block_ms": settings.max_block_ms,
    }
    if settings.transactional_id is not None:
        options["transactional_id"] = settings.transactional_id
        if settings.two_phase:
            options["transaction_two_phase_commit_enable"] = True
        else:
            options["transaction_timeout_ms"] = settings.transaction_timeout_ms
    return options


def consumer(settings: ClientSettings) -> dict[str, Any]:
    options = _common(settings) | {
        "allow_auto_create_topics": False,
        "isolation_level": settings.isolation,
        "auto_offset_reset": settings.auto_offset_reset,
        "default_api_timeout_ms": settings.max_block_ms,
        "max_poll_interval_ms": settings.max_poll_interval_ms,
        "fetch_max_wait_ms": settings.fetch_max_wait_ms,
    }
    if settings.group_id is not None:
        options["group_id"] = settings.group_id
        options["enable_auto_commit"] = settings.auto_commit
        options["group_protocol"] = settings.group_protocol
        if settings.group_instance_id is not None:
            options["group_instance_id"] = settings.group_instance_id
        if settings.group_protocol == "classic":
            options["session_timeout_ms"] = settings.session_timeout_ms
            options["heartbeat_interval_ms"] = settings.heartbeat_interval_ms
            if settings.assignors:
                options["partition_assignment_strategy"] = settings.assignors
    return options


def share_consumer(settings: ClientSettings, mode: ShareMode) -> dict[str, Any]:
    return _common(settings) | {
        "allow_auto_create_topics": False,
        "group_id": mode.group,
        "share_acknowledgement_mode": mode.acknowledges,
        "share_acquire_mode": mode.acquires,
        "default_api_timeout_ms": settings.max_block_ms,
        "max_poll_interval_ms": settings.max_poll_interval_ms,
        "fetch_max_wait_ms": settings.fetch_max_wait_ms,
    }
