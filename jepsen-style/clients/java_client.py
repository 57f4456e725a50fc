"""Kafka's own client, in a Java process for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.protocol.sasl.plain import LOGIN_MODULE as PLAIN_LOGIN_MODULE
from barnabas.protocol.sasl.scram_credentials import LOGIN_MODULE as SCRAM_LOGIN_MODULE
from barnabas.security.client_files import jaas
from clients import java_program
from clients.client import ClientError, ClientSettings
from clients.program_client import Program, ProgramLibrary

ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
FATAL = frozenset(
    {
        "ProducerFencedException",
        "OutOfOrderSequenceException",
        "FencedInstanceIdException",
        "InvalidPidMappingException",
        "IllegalStateException",
        "TransactionalIdAuthorizationException",
        "ClusterAuthorizationException",
    }
)
"""After these errors a client is no longer usable. A producer without transactions survives a broken sequence, but
nobody needs it to."""


def check() -> str:
    """See `java_program.check`."""
    return java_program.check()


def classified(answer: Mapping[str, Any], definite_names: frozenset[str]) -> ClientError:
    """From the program's word: what was never sent surely did not happen."""
    name = str(answer["error"])
    never_sent = answer.get("sent") is False
    return ClientError(
        name, str(answer.get("text")), definite=never_sent or name in definite_names, fatal=name in FATAL
    )


def library(now_ns: Callable[[], int]) -> ProgramLibrary:
    """Makes them. LibraryMissing if the program cannot be compiled."""
    return ProgramLibrary(Program("java", java_program.command(), options, classified), now_ns)


def options(settings: ClientSettings) -> dict[str, Any]:
    common = {
        "bootstrap.servers": settings.bootstrap_servers,
        "client.id": settings.client_id,
        "request.timeout.ms": settings.request_timeout_ms,
        **_security(settings.security),
        "retry.backoff.ms": 50,
        "retry.backoff.max.ms": 500,
        "reconnect.backoff.max.ms": 1_000,
        "socket.connection.setup.timeout.ms": 1_000,
        "socket.connection.setup.timeout.max.ms": 2_000,
    }
    # Changes are asked for once: what happened at a second try could be the doing of the first.
    admin = common | {"retries": 0, "default.api.timeout.ms": settings.max_block_ms}
    return {
        "patience_ms": settings.max_block_ms,
        "admin": admin,
        "producer": common | _producer(settings),
        "consumer": common | _consumer(settings),
    }


def _security(ours: Mapping[str, str]) -> dict[str, str]:
    """Kafka has a login module where we have a user and a password."""
    theirs = {name.replace("_", "."): value for name, value in ours.items() if not name.startswith("sasl_plain_")}
    user, password = ours.get("sasl_plain_username"), ours.get("sasl_plain_password")
    if user is not None and password is not None:
        module = PLAIN_LOGIN_MODULE if ours.get("sasl_mechanism") == "PLAIN" else SCRAM_LOGIN_MODULE
        theirs["sasl.jaas.config"] = jaas(module, username=user, password=password)
    return theirs


def _producer(settings: ClientSettings) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "acks": settings.acks,
        "enable.idempotence": str(settings.idempotence).lower(),
        "linger.ms": settings.linger_ms,
        "delivery.timeout.ms": settings.delivery_timeout_ms,
        "max.block.ms": settings.max_block_ms,
    }
    if settings.transactional_id is not None:
        chosen["transactional.id"] = settings.transactional_id
        chosen["transaction.timeout.ms"] = settings.transaction_timeout_ms
    return chosen


def _consumer(settings: ClientSettings) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "isolation.level": settings.isolation,
        "auto.offset.reset": settings.auto_offset_reset,
        "default.api.timeout.ms": settings.max_block_ms,
        "max.poll.interval.ms": settings.max_poll_interval_ms,
        "fetch.max.wait.ms": settings.fetch_max_wait_ms,
        "allow.auto.create.topics": "false",
        "enable.auto.commit": "false",
    }
    if settings.group_id is not None:
        chosen["group.id"] = settings.group_id
        chosen["group.protocol"] = settings.group_protocol
        chosen["enable.auto.commit"] = str(settings.auto_commit).lower()
        if settings.group_instance_id is not None:
            chosen["group.instance.id"] = settings.group_instance_id
        if settings.group_protocol == "classic":
            chosen["session.timeout.ms"] = settings.session_timeout_ms
            chosen["heartbeat.interval.ms"] = settings.heartbeat_interval_ms
            if settings.assignors:
                chosen["partition.assignment.strategy"] = ",".join(ASSIGNORS[each] for each in settings.assignors)
    return chosen
