"""The certificates on the disks of simulated nodes, and how an operator replaces them.

They are files of one length, made once: a seed has the same messages at the same times in each run. A node's file and
its trust store are durable at once, since it is the operator who writes them and not the node.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from barnabas.runtime.simulated import Universe
from barnabas.runtime.simulated.store import Store
from worlds.cluster import AuthorityStep

FOLDER = Path(__file__).parent / "secure"
DIRECTORY = "/certificates"
KEYS, TRUSTED = f"{DIRECTORY}/node.pem", f"{DIRECTORY}/authority.pem"
_COUNT = 2
"""Number of authorities, and of certificates of each."""
FILE_SETTINGS = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": KEYS,
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": TRUSTED,
}
"""Settings of who has these files."""


class NodeCertificates:
    """The certificates of nodes, and of others who act as one, in one universe."""

    def __init__(self, universe: Universe, names: Iterable[str]) -> None:
        self._universe = universe
        self._numbers = dict.fromkeys(names, 0)
        """The number of the certificate of each."""
        self._spoiled: dict[str, None] = {}
        self._authority = 0
        self._trusted = [0]
        for name in self._numbers:
            self.install(name)

    def install(self, name: str) -> None:
        """Write what the node has to find when it starts: its disk may be another one."""
        disk = self._universe.disk(name)
        keys = b"no certificate\n" if name in self._spoiled else _keys(self._authority, self._numbers[name])
        _put(disk, KEYS, keys)
        _put(disk, TRUSTED, b"".join(map(_authority, self._trusted)))

    def renew(self, name: str) -> None:
        self._spoiled.pop(name, None)
        self._numbers[name] = (self._numbers[name] + 1) % _COUNT
        self.install(name)

    def spoil(self, name: str) -> None:
        self._spoiled[name] = None
        self.install(name)

    def change_authority(self, step: AuthorityStep) -> None:
        if step == "trust both":
            self._trusted = [self._authority, (self._authority + 1) % _COUNT]
        elif step == "switch":
            self._authority = self._trusted[-1]
        else:
            self._trusted = [self._authority]
        for name in self._numbers:
            self.install(name)

    def heal(self) -> None:
        """No file is broken."""
        for name in list(self._spoiled):
            self.renew(name)


def _keys(authority: int, number: int) -> bytes:
    return (FOLDER / f"node-{authority + 1}-{number + 1}.pem").read_bytes()


def _authority(number: int) -> bytes:
    return (FOLDER / f"authority-{number + 1}.pem").read_bytes()


def _put(disk: Store, path: str, data: bytes) -> None:
    """A file with other contents, durable; the old one is replaced as a whole."""
    disk.prepare_directories(DIRECTORY)
    fresh = f"{path}.new"
    inode = disk.create(fresh)
    disk.used_bytes += len(data)
    inode.write(data, 0)
    inode.sync()
    disk.rename(fresh, path)
    disk.sync_directory(DIRECTORY)
