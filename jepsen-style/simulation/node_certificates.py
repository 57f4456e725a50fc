"""The certificates on the disks of simulated nodes.

They are files of one length, made once: a seed has the same messages at the same times in each run. A node's file and
its trust store are durable at once, since it is the operator who writes them and not the node.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from barnabas.runtime.simulated import Universe
from barnabas.runtime.simulated.store import Store
from worlds.certificates import BROKEN, Certificates

FOLDER = Path(__file__).parent / "secure"
DIRECTORY = "/certificates"
KEYS, TRUSTED = f"{DIRECTORY}/node.pem", f"{DIRECTORY}/authority.pem"
FILE_SETTINGS = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": KEYS,
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": TRUSTED,
}
"""Settings of a node that has these files."""
_COUNT = 2
"""Number of authorities, and of certificates of each."""


class NodeCertificates(Certificates[int]):
    """The files of nodes, and of others who act as one, in one universe. Authorities are numbers."""

    def __init__(self, universe: Universe, names: Iterable[str]) -> None:
        super().__init__(names, 1)
        self._universe = universe
        self._numbers = dict.fromkeys(self.names, 1)
        """The number of each one's certificate."""
        for name in self.names:
            self.install(name)

    def install(self, name: str) -> None:
        """Write what the node has to find when it starts: its disk may be a new one."""
        disk = self._universe.disk(name)
        own = FOLDER / f"node-{self.authority}-{self._numbers[name]}.pem"
        put(disk, KEYS, BROKEN if name in self.spoiled else own.read_bytes())
        put(disk, TRUSTED, b"".join((FOLDER / f"authority-{each}.pem").read_bytes() for each in self.trusted))

    def _next_authority(self) -> int:
        return _next(self.authority)

    def _issue(self, name: str) -> None:
        self._numbers[name] = _next(self._numbers[name])
        self.install(name)

    def _spoil(self, name: str) -> None:
        self.install(name)

    def _trust(self) -> None:
        for name in self.names:
            self.install(name)


def _next(number: int) -> int:
    return number % _COUNT + 1


def put(disk: Store, path: str, data: bytes) -> None:
    """A durable file with these contents; the old one is replaced as a whole."""
    disk.prepare_directories(DIRECTORY)
    fresh = f"{path}.new"
    inode = disk.create(fresh)
    disk.used_bytes += len(data)
    inode.write(data, 0)
    inode.sync()
    disk.rename(fresh, path)
    disk.sync_directory(DIRECTORY)
