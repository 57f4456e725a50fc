"""HTTP and HTTPS by hypercorn, for the page, the proxy and the schema registry: a port, and an application."""

from __future__ import annotations

import os
import socket
import ssl

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from hypercorn.typing import Framework

from barnabas.cluster.errors import ClusterError

MOST_HEAD_BYTES = 16 << 10
TAKES_NOTHING_SECONDS = 10.0
"""A connection that takes nothing for so long is reset. Clients connect again."""
HANDSHAKE_SECONDS = 10.0


def listen(host: str, port: int, what: str) -> socket.socket:
    """Listens before anything else is started, so that a port in use is reported first; `what` is in the message of
    `ClusterError`."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=100)
        # Inherited by all connections: one that takes nothing is reset, else it would delay the end of the program.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(TAKES_NOTHING_SECONDS * 1000))
    except (OSError, OverflowError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno and error.errno > 0 else error
        raise ClusterError(f"{what} cannot listen on {host}:{port}: {reason}; choose another --port") from None
    return listener


class _Config(Config):
    """A configuration whose certificates are in a context already."""

    tls: ssl.SSLContext | None = None
    ssl_handshake_timeout = HANDSHAKE_SECONDS

    @property
    def ssl_enabled(self) -> bool:
        return self.tls is not None

    def create_ssl_context(self) -> ssl.SSLContext | None:
        return self.tls


async def serve_app(
    app: Framework,
    listener: socket.socket,
    tls: ssl.SSLContext | None = None,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves until cancelled, with `tls` over HTTPS; started when it accepts requests."""
    config = _Config()
    config.tls = tls
    # Hypercorn opens the socket again by its descriptor.
    config.bind = [f"fd://{listener.detach()}"]
    config.errorlog = None
    config.graceful_timeout = 0.5
    config.h11_max_incomplete_size = MOST_HEAD_BYTES
    config.include_server_header = False
    config.alpn_protocols = ["http/1.1"]
    async with trio.open_nursery() as nursery:
        await nursery.start(_serve, app, config)
        task_status.started()


async def _serve(
    app: Framework, config: Config, *, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED
) -> None:
    await serve(app, config, shutdown_trigger=trio.sleep_forever, task_status=task_status)
