"""Connections that request much and read nothing, send nothing, or send very slowly."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
import struct
import time
from collections.abc import Sequence

from attacks.costs import produce_request
from attacks.scene import Scene
from attacks.wire import HOST, Peer, frame
from barnabas.protocol.api_keys import API_SPECS, ApiSpec
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.records.builder import build_batch

WIDE_PARTITIONS = 400
"""Partitions of the topic that makes a Metadata response large."""
ONE_READ_BYTES = 122_880
READY_SECONDS = 2.0
SPARE_DESCRIPTORS = 50
HTTP_CONNECTIONS = 64
RANDOM_FRAMES = 20_000


def closed_connection(scene: Scene) -> None:
    """One connection that pipelines 120 kB of Metadata and is closed, with a topic of 400 partitions."""
    data = _metadata_requests(ONE_READ_BYTES)
    _widen(scene)
    scene.begin()
    with scene.peer() as peer:
        scene.outcome.bytes_sent = peer.send_for(data, 0.3)


def never_read(scene: Scene) -> None:
    """100 connections that pipeline Metadata for 3 s, read nothing and are closed."""
    data = _metadata_requests(40_000)
    _widen(scene)
    scene.begin()
    with contextlib.ExitStack() as open_peers:
        peers = [open_peers.enter_context(scene.peer(receive_buffer_bytes=4096)) for _ in range(100)]
        for peer in peers:
            scene.outcome.bytes_sent += peer.send_for(data, 0.03)


def never_idle(scene: Scene) -> None:
    """With connections.max.idle.ms=4000: a connection that asks and never reads is still there after 20 s."""
    data = _metadata_requests(4_000_000)
    _widen(scene)
    scene.begin()
    with scene.peer(receive_buffer_bytes=4096) as peer:
        scene.outcome.bytes_sent = peer.send_for(data, 3.0)
        time.sleep(20.0)
        if _is_established(peer):
            scene.report("the connection that never reads was not closed")


def announced_frames(scene: Scene) -> None:
    """400 connections that announce a frame of 100 MB each and send 20 bytes of it in 5 s."""
    scene.begin()
    with contextlib.ExitStack() as open_peers:
        peers = [open_peers.enter_context(scene.peer()) for _ in range(400)]
        for peer in peers:
            scene.send(peer, struct.pack(">i", 100_000_000))
        for _ in range(20):
            time.sleep(0.25)
            for peer in peers:
                scene.send(peer, b"\0")


def idle_connections(scene: Scene) -> None:
    """2,000 connections that send nothing for 5 s."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(limit[0], 4_000), limit[1]), limit[1]))
    scene.begin()
    with contextlib.ExitStack() as open_peers:
        for _ in range(2_000):
            open_peers.enter_context(scene.peer())
        time.sleep(5.0)
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def descriptors_used_up(scene: Scene) -> None:
    """Idle connections up to the broker's limit of descriptors; then an ordinary producer makes its log roll."""
    topic = "rolls"
    scene.target.create_topic(topic, configs={"segment.bytes": "1048576"})
    leader = scene.target.leaders(topic)[0]
    pid = scene.target.pids[leader.name]
    limit = len(os.listdir(f"/proc/{pid}/fd")) + SPARE_DESCRIPTORS
    value = (0, time.time_ns() // 1_000_000, None, bytes(400_000), ())
    request = frame(produce_request(topic, build_batch([value])), 9)
    with scene.peer(leader) as feeder, contextlib.ExitStack() as open_peers:
        scene.begin(leader)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))
        with contextlib.suppress(OSError):
            for _ in range(4 * SPARE_DESCRIPTORS):
                open_peers.enter_context(scene.peer())
        for _ in range(6):
            scene.send(feeder, request)
            feeder.swallow()


def slow_http(scene: Scene) -> None:
    """64 connections to the HTTP port that send a byte of a head each second for 10 s; /readyz is asked meanwhile."""
    port = scene.victim.http_port
    assert port is not None
    scene.begin()
    refused = 0
    with contextlib.ExitStack() as open_sockets:
        slow = [
            open_sockets.enter_context(socket.create_connection((HOST, port), READY_SECONDS))
            for _ in range(HTTP_CONNECTIONS)
        ]
        for round_ in range(10):
            for each in slow:
                with contextlib.suppress(OSError):
                    scene.outcome.bytes_sent += each.send(b"GET /metrics HTTP/1.1\r\nX"[round_ : round_ + 1])
            refused += not _is_ready(port)
            time.sleep(1.0)
    if refused > 1:
        scene.report(f"/readyz was not answered {refused} of 10 times")


def random_frames(scene: Scene) -> None:
    """20,000 frames of all API keys and versions with random bodies, 100 on a connection."""
    chance = random.Random(15)
    specs = list(API_SPECS.values())
    scene.begin()
    for _ in range(RANDOM_FRAMES // 100):
        with contextlib.suppress(OSError), scene.peer() as peer:
            data = b"".join(_random_frame(chance, specs) for _ in range(100))
            scene.outcome.bytes_sent += peer.send_for(data, 0.2)


def _random_frame(chance: random.Random, specs: Sequence[ApiSpec]) -> bytes:
    spec = chance.choice(specs)
    version = chance.randint(spec.min_version, spec.max_version)
    head = struct.pack(">hhih", spec.key, version, chance.randrange(1 << 31), -1)
    body = head + chance.randbytes(chance.choice((0, 1, 8, 40, 200)))
    return struct.pack(">i", len(body)) + body


def _metadata_requests(size_bytes: int) -> bytes:
    request = frame(MetadataRequest(topics=None), 12, client_id="a")
    return request * (size_bytes // len(request))


def _widen(scene: Scene) -> None:
    if "wide" not in scene.target.topics:
        scene.target.create_topic("wide", WIDE_PARTITIONS, copies=1)


def _is_established(peer: Peer) -> bool:
    """Whether this side has not received the end of the connection; unread bytes may lie before the end."""
    info = peer.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return info[0] == 1


def _is_ready(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), READY_SECONDS) as connection:
            connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return connection.recv(12).startswith(b"HTTP/1.1 ")
    except OSError:
        return False
