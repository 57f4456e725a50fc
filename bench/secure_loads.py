"""Loads of `bench/secure.py`, each in a process of its own, with librdkafka or over sockets and OpenSSL.

Standard input has a line of JSON with the kind of load and the job. It prints `ready` when the load is under way, and
at its end one line of JSON. A load ends after its time, or before it when standard input ends.

    produce consume sync metadata   by librdkafka
    connect                         new connections that authenticate, ask for ApiVersions and are closed
    quiet                           100 records a second, each with acks=all
    connections                     1,000 connections that each send a Metadata request after the answer to the last
    expensive                       one connection that sends nothing but expensive requests
    handshakes                      connections that are closed after the TLS handshake
"""

from __future__ import annotations

import itertools
import json
import os
import select
import selectors
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from client_loads import (
    PARTITIONS,
    Clock,
    Done,
    Job,
    check,
    confluent_produces,
    confluent_settings,
    confluent_waits,
    each,
    peak_rss_mib,
)

sys.path.append(str(Path(__file__).resolve().parents[1] / "jepsen-style"))

from attacks import costs
from attacks.wire import HOST, NONE, Peer, frame
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.sasl.scram import NONCE_BYTES, ScramClient
from barnabas.protocol.sasl.scram_credentials import SCRAM_SHA_512

POLL_RECORDS = 10_000
THREADS = 4
QUIET_PER_SECOND = 100
QUIET_WARM_SECONDS = 2.0
CONNECTIONS = 1_000
PATIENCE_SECONDS = 30.0
SIZE_BYTES = 4
"""The length of a frame, before it."""


def consumes(job: Job, done: Done) -> None:
    """Reads all partitions from their beginning to their end, again and again."""
    from confluent_kafka import Consumer, TopicPartition

    more = {"enable.auto.commit": False, "queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 131_072}
    consumer = Consumer(confluent_settings(job, **{"group.id": "unused", "fetch.queue.backoff.ms": 5, **more}))
    partitions = [TopicPartition(job.topic, index, 0) for index in range(PARTITIONS)]
    filled = sum(consumer.get_watermark_offsets(partition, timeout=20)[1] for partition in partitions)
    consumer.assign(partitions)
    left = filled - len(consumer.consume(POLL_RECORDS, 10))
    with Clock(done, job.seconds) as clock:
        while not clock.is_over:
            records = consumer.consume(min(POLL_RECORDS, left), 1)
            done.records += len(records)
            left -= len(records)
            check(sum([len(record) for record in records]), records, job)
            if not left:
                consumer.assign(partitions)
                left = filled
    consumer.close()


def asks(job: Job, done: Done) -> None:
    """Metadata of a topic, one request at a time."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(confluent_settings(job))
    admin.list_topics(job.topic, timeout=20)
    with Clock(done, job.seconds) as clock:
        while not clock.is_over:
            with each(done):
                admin.list_topics(job.topic, timeout=20)


def connects(job: Job, done: Done) -> None:
    _by_threads(job, done, lambda port: authenticated(port, job.settings).close())


def shakes_hands(job: Job, done: Done) -> None:
    _by_threads(job, done, lambda port: _connected(port, job.settings).close())


def _by_threads(job: Job, done: Done, once: Callable[[int], None]) -> None:
    """Calls `once` with the ports in turn, in several threads at a time."""
    turns = itertools.cycle(_ports(job))
    failures: list[Exception] = []

    def work() -> None:
        try:
            while not clock.is_over and not _is_ended():
                once(next(turns))
                with lock:
                    done.records += 1
        except Exception as error:
            failures.append(error)

    once(next(turns))
    lock = threading.Lock()
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    with Clock(done, job.seconds) as clock:
        _report_ready()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def quiet(job: Job, done: Done) -> None:
    """Records at a fixed rate over all partitions; those of the first seconds do not count."""
    from confluent_kafka import Producer

    settings = {"linger.ms": 0, "acks": "all", "enable.idempotence": True}
    producer = Producer(confluent_settings(job, **settings))
    value, failures = b"x" * job.size, []
    first = int(QUIET_PER_SECOND * QUIET_WARM_SECONDS)
    count = first + int(QUIET_PER_SECOND * job.seconds)
    began = time.perf_counter()

    def send(number: int) -> None:
        sent = time.perf_counter()

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failures.append(str(error))
            elif number >= first:
                done.latencies_ms.append((time.perf_counter() - sent) * 1000)

        producer.produce(job.topic, value, partition=number % PARTITIONS, on_delivery=delivered)

    for number in range(count):
        while (left := began + number / QUIET_PER_SECOND - time.perf_counter()) > 0:
            producer.poll(left)
        send(number)
    producer.flush(PATIENCE_SECONDS)
    if failures:
        raise RuntimeError(f"{len(failures)} records failed: {failures[0]}")
    done.records, done.seconds = len(done.latencies_ms), job.seconds
    if done.records != count - first:
        raise RuntimeError(f"{done.records} of {count - first} records were acknowledged")


def many_connections(job: Job, done: Done) -> None:
    """All to the first broker."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=job.topic)], allow_auto_topic_creation=False)
    data = frame(request, costs.METADATA_VERSION)
    with ExitStack() as opened, selectors.DefaultSelector() as selector:
        for _ in range(CONNECTIONS):
            peer = opened.enter_context(authenticated(_ports(job)[0], job.settings))
            peer.socket.setblocking(False)
            selector.register(peer.socket, selectors.EVENT_READ, bytearray())
        with Clock(done, job.seconds) as clock:
            _report_ready()
            for key in list(selector.get_map().values()):
                _socket_of(key).send(data)
            while not clock.is_over and not _is_ended():
                for key, _ in selector.select(0.1):
                    done.records += _answers(key, data)


def _answers(key: selectors.SelectorKey, data: bytes) -> int:
    """Takes what has arrived; asks again after a whole answer. Returns 1 for one, else 0."""
    received: bytearray = key.data
    chunk = _socket_of(key).recv(65_536)
    if not chunk:
        raise ConnectionResetError("the broker closed a connection")
    received += chunk
    if len(received) < SIZE_BYTES or len(received) < SIZE_BYTES + int.from_bytes(received[:SIZE_BYTES]):
        return 0
    received.clear()
    _socket_of(key).send(data)
    return 1


def _socket_of(key: selectors.SelectorKey) -> socket.socket:
    assert isinstance(key.fileobj, socket.socket)
    return key.fileobj


def expensive(job: Job, done: Done) -> None:
    """To the leader of the topic, which is the first broker in `job.bootstrap`."""
    user = job.settings["sasl.username"]
    requests = (
        frame(costs.list_offsets_request(job.topic, 2_000), costs.LIST_OFFSETS_VERSION),
        frame(costs.offset_fetch_request(f"{user}-"), costs.OFFSET_FETCH_VERSION),
        frame(costs.find_coordinator_request(f"{user}-"), costs.FIND_COORDINATOR_VERSION),
        frame(costs.metadata_request(f"{user}-"), costs.METADATA_VERSION),
    )
    with authenticated(_ports(job)[0], job.settings, job.seconds) as peer, Clock(done, job.seconds) as clock:
        _report_ready()
        for data in itertools.cycle(requests):
            if clock.is_over or _is_ended():
                break
            peer.send(data)
            peer.swallow()
            done.records += 1


# -- connections


def authenticated(port: int, settings: dict[str, str], seconds: float = 0) -> Peer:
    """A connection on which requests may be sent: for so many seconds, and PATIENCE_SECONDS."""
    peer = _connected(port, settings, seconds)
    try:
        if settings["security.protocol"].startswith("SASL"):
            _log_in(peer, settings)
        peer.call(ApiVersionsRequest(), 0)
    except BaseException:
        peer.close()
        raise
    return peer


def _connected(port: int, settings: dict[str, str], seconds: float = 0) -> Peer:
    end = time.monotonic() + PATIENCE_SECONDS + seconds
    peer = Peer(port, lambda: end)
    if settings["security.protocol"].endswith("SSL"):
        try:
            peer.socket = _context(settings).wrap_socket(peer.socket, server_hostname=HOST)
        except BaseException:
            peer.close()
            raise
    return peer


_contexts: list[ssl.SSLContext] = []


def _context(settings: dict[str, str]) -> ssl.SSLContext:
    """One for all connections of this process, as in any client."""
    if not _contexts:
        context = ssl.create_default_context(cafile=settings["ssl.ca.location"])
        if "ssl.key.location" in settings:
            context.load_cert_chain(settings["ssl.certificate.location"], settings["ssl.key.location"])
        _contexts.append(context)
    return _contexts[0]


def _log_in(peer: Peer, settings: dict[str, str]) -> None:
    client = ScramClient(
        SCRAM_SHA_512, settings["sasl.username"], settings["sasl.password"], os.urandom(NONCE_BYTES)
    )
    peer.call(SaslHandshakeRequest(mechanism=client.name), 1)
    token: bytes | None = client.first()
    while token is not None:
        answer = peer.call(SaslAuthenticateRequest(auth_bytes=token), 1)
        if answer.error_code != NONE:
            raise RuntimeError(f"error {answer.error_code}: {answer.error_message}")
        token = client.receive(answer.auth_bytes)


def _ports(job: Job) -> Sequence[int]:
    return [int(address.rpartition(":")[2]) for address in job.bootstrap.split(",")]


# -- the process

KINDS: dict[str, Callable[[Job, Done], None]] = {
    "produce": confluent_produces,
    "consume": consumes,
    "sync": confluent_waits,
    "metadata": asks,
    "connect": connects,
    "quiet": quiet,
    "connections": many_connections,
    "expensive": expensive,
    "handshakes": shakes_hands,
}


def _report_ready() -> None:
    print("ready", flush=True)


def _is_ended() -> bool:
    """True when standard input has ended: the load is not wanted any longer."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def main() -> None:
    wanted = json.loads(sys.stdin.readline())
    done = Done()
    KINDS[wanted["kind"]](Job(**wanted["job"]), done)
    done.rss_mib = peak_rss_mib()
    print(json.dumps(asdict(done)))


if __name__ == "__main__":
    main()
