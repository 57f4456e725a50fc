"""Ports for the nodes of a run."""

from __future__ import annotations

import socket


class Ports:
    """A range of ports that no other run on this machine draws from."""

    RANGES = range(20_000, 32_000, 1_000)

    def __init__(self) -> None:
        for first in self.RANGES:
            claim = socket.socket()
            try:
                claim.bind(("127.0.0.1", first))
            except OSError:
                claim.close()
                continue
            self._claim = claim
            self._range = range(first + 1, first + self.RANGES.step)
            self._next = 0
            return
        raise RuntimeError(f"no free range of ports from {self.RANGES.start} to {self.RANGES.stop}")

    def draw(self) -> int:
        for _ in self._range:
            port = self._range[self._next]
            self._next = (self._next + 1) % len(self._range)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
                return port
        raise RuntimeError(f"all ports from {self._range.start} to {self._range.stop} are in use")
