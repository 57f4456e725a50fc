"""Finds out whether the process behind a listener is gone.

Only a refused connection proves it. A dying process closes its descriptors one after the other, so for a moment its
listener may still accept connections while other connections have ended: such a connection is closed soon after, and
then the dial is repeated.
"""

from __future__ import annotations

import trio

from barnabas.runtime.world import ConnectionLost, DialFailed, DialRefused, World

PAUSE_MS = 5


async def process_is_gone(world: World, host: str, port: int, patience_ms: int) -> bool:
    """True if a dial to (host, port) is refused; False otherwise, after at most `patience_ms`."""
    with trio.move_on_after(patience_ms / 1000):
        while True:
            try:
                connection = await world.network.dial(host, port)
            except DialRefused:
                return True
            except DialFailed:
                return False
            try:
                # A living server sends nothing before it gets a request.
                await connection.receive_into(memoryview(bytearray(1)))
            except ConnectionLost:
                await trio.sleep(PAUSE_MS / 1000)
            finally:
                connection.close()
    return False
