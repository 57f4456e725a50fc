"""Finding out whether a process that listens somewhere is gone.

Only a refused connection says so. A dying process closes its descriptors one after the other, so for a moment its
listener may still take connections while others of its connections have ended: such a connection is closed soon
after, and then the question is asked again.
"""

from __future__ import annotations

import trio

from runtime.world import ConnectionLost, DialFailed, DialRefused, World

PAUSE_MS = 5


async def process_is_gone(world: World, host: str, port: int, patience_ms: int) -> bool:
    """True if nobody listens at (host, port). False for everything else, after at most `patience_ms`."""
    with trio.move_on_after(patience_ms / 1000):
        while True:
            try:
                connection = await world.network.dial(host, port)
            except DialRefused:
                return True
            except DialFailed:
                return False
            try:
                # A living server says nothing before it is asked.
                await connection.receive_into(memoryview(bytearray(1)))
            except ConnectionLost:
                await trio.sleep(PAUSE_MS / 1000)
            finally:
                connection.close()
    return False
