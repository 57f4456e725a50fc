"""Settings of librdkafka for a run."""

from __future__ import annotations

import logging
import math
from typing import Any

from clients.client import ClientSettings

_SILENT = logging.getLogger("jepsen.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

_NAMES = {
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "ssl_truststore_location": "ssl.ca.location",
}
_OURS = ("ssl_truststore_type",)
"""Settings that librdkafka needs not: it finds the format of a file by itself."""


def common(settings: ClientSettings) -> dict[str, Any]:
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "client.id": settings.client_id,
        "reconnect.backoff.max.ms": 1_000,
        "retry.backoff.ms": 50,
        "retry.backoff.max.ms": 500,
        "socket.connection.setup.timeout.ms": 1_000,
        "allow.auto.create.topics": False,
        "log_level": 0,
        "logger": _SILENT,
        **{
            _NAMES.get(name, name.replace("_", ".")): value
            for name, value in settings.security.items()
            if name not in _OURS
        },
    }


def producer(settings: ClientSettings) -> dict[str, Any]:
    options: dict[str, Any] = {
        "acks": settings.acks,
        "enable.idempotence": settings.idempotence,
        "linger.ms": settings.linger_ms,
        "request.timeout.ms": settings.request_timeout_ms,
        "delivery.timeout.ms": settings.delivery_timeout_ms,
        "topic.metadata.refresh.interval.ms": 5_000,
    }
    if settings.transactional_id is None:
        options["socket.timeout.ms"] = settings.request_timeout_ms
    else:
        options["transactional.id"] = settings.transactional_id
        options["transaction.timeout.ms"] = max(1_000, settings.transaction_timeout_ms)
        # It takes no longer ones: the transaction would be over before its records.
        options["delivery.timeout.ms"] = min(settings.delivery_timeout_ms, options["transaction.timeout.ms"])
    return options


def consumer(settings: ClientSettings) -> dict[str, Any]:
    options: dict[str, Any] = {
        "group.id": settings.group_id or f"none-{settings.client_id}",
        "enable.auto.commit": settings.auto_commit,
        "isolation.level": settings.isolation,
        "auto.offset.reset": settings.auto_offset_reset,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": settings.fetch_max_wait_ms,
        "socket.timeout.ms": settings.request_timeout_ms,
        "topic.metadata.refresh.interval.ms": 5_000,
        "group.protocol": settings.group_protocol,
    }
    if settings.group_protocol == "classic":
        options["session.timeout.ms"] = settings.session_timeout_ms
        options["heartbeat.interval.ms"] = settings.heartbeat_interval_ms
        options["max.poll.interval.ms"] = max(settings.max_poll_interval_ms, math.ceil(settings.session_timeout_ms))
        if settings.assignors:
            options["partition.assignment.strategy"] = ",".join(settings.assignors)
    if settings.group_instance_id is not None:
        options["group.instance.id"] = settings.group_instance_id
    return options
