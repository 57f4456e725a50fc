"""A network that counts what is asked, around any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.runtime.world import Bytes, Connection, Listener, Network


class CountingNetwork:
    """`asked` are the paths that were asked for, with where."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.dials = 0
        self.asked: list[tuple[str, str]] = []

    async def dial(self, host: str, port: int) -> Connection:
        self.dials += 1
        return _Counted(await self._network.dial(host, port), host, self)  # type: ignore[return-value]

    async def listen(self, host: str, port: int, *, shared: bool = False) -> Listener:
        return await self._network.listen(host, port, shared=shared)


class _Counted:
    def __init__(self, connection: Connection, host: str, count: CountingNetwork) -> None:
        self._connection = connection
        self._host = host
        self._count = count

    def send_now(self, views: Sequence[Bytes]) -> int:
        data = b"".join(bytes(view) for view in views)
        if data.startswith(b"GET "):
            self._count.asked.append((self._host, data.split(b" ")[1].decode()))
        return self._connection.send_now(views)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)
