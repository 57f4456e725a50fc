"""The certificates of a cluster under test, as its operator replaces them while nodes run.

Each world has a class that writes the files: this one of real nodes, `simulation.node_certificates` of simulated ones.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from cryptography import x509

from barnabas.cluster.layout import Layout, Node
from barnabas.cluster.private_files import write_private
from barnabas.runtime.tls.options import TlsOptions
from barnabas.runtime.tls.reload import TlsHolder
from barnabas.runtime.world import World
from barnabas.security.addresses import LocalAddresses
from barnabas.security.certificates import Certificate, make_authority, make_certificate
from barnabas.security.local_security import LocalSecurity
from worlds.cluster import AuthorityStep

A = TypeVar("A")

BROKEN = b"no certificate\n"
"""The contents of a file that is spoiled."""
ONLOOKER = "onlooker"
"""The name under which the views of a run have a certificate of a node."""


class Certificates(ABC, Generic[A]):
    """The certificates of some names, which all trust the same authorities; in the beginning one."""

    def __init__(self, names: Iterable[str], authority: A) -> None:
        self.names = list(names)
        self.authority = authority
        """The authority of new certificates."""
        self.trusted = [authority]
        self.spoiled: dict[str, None] = {}
        """Names with a broken file."""

    def renew(self, name: str) -> None:
        self.spoiled.pop(name, None)
        self._issue(name)

    def spoil(self, name: str) -> None:
        self.spoiled[name] = None
        self._spoil(name)

    def change_authority(self, step: AuthorityStep) -> None:
        if step == "trust both":
            self.trusted = [self.authority, self._next_authority()]
        elif step == "switch":
            self.authority = self.trusted[-1]
            for name in self.names:
                if name not in self.spoiled:
                    self._issue(name)
            return
        else:
            self.trusted = [self.authority]
        self._trust()

    def heal(self) -> None:
        """No file is broken any longer."""
        for name in list(self.spoiled):
            self.renew(name)

    @abstractmethod
    def _next_authority(self) -> A: ...

    @abstractmethod
    def _issue(self, name: str) -> None:
        """Put another certificate of the present authority into the file of that name."""

    @abstractmethod
    def _spoil(self, name: str) -> None: ...

    @abstractmethod
    def _trust(self) -> None:
        """Put the trusted authorities into all trust stores."""


@dataclass(frozen=True, slots=True)
class HostAddresses(LocalAddresses):
    """Nodes that listen on addresses of their own."""

    hosts: Mapping[str, str]
    """By the name of a node."""

    def host_names(self, node: Node) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*LocalAddresses.host_names(self, node), self.hosts[node.name])))


class LocalCertificates(Certificates[Certificate]):
    """The files that `cluster up --secure` made. The authority of the nodes is replaced, that of clients stays."""

    def __init__(self, security: LocalSecurity, layout: Layout) -> None:
        """Call its methods from one thread at a time; `lock` is there for it."""
        self._files = {node.name: security.files_of(node) for node in layout.nodes}
        [first, *_] = self._files.values()
        self._trust_store = first.nodes_authority
        self._onlooker = first.for_nodes.with_name(f"{ONLOOKER}.pem")
        clients = first.clients_authority
        self._clients_authority = _authority_in(clients)
        self._brokers = [node.name for node in layout.brokers]
        self.lock = threading.Lock()
        super().__init__([*self._files, ONLOOKER], _authority_in(self._trust_store))
        paths = [path for name in self._files for path in self._of(name)]
        self._previous = {path: Certificate.from_pem(path.read_bytes()) for path in paths}
        """The last certificate of each file."""
        self._previous[self._onlooker] = self._previous[first.for_nodes]
        self._issue(ONLOOKER)

    def holder(self, world: World) -> TlsHolder:
        """Contexts with which the onlooker talks to nodes."""
        values = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._onlooker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._trust_store),
        }
        return TlsHolder(TlsOptions.of(values), world, client=True, name=ONLOOKER)

    def _of(self, name: str) -> list[Path]:
        """The file for other nodes, then that for clients."""
        if name == ONLOOKER:
            return [self._onlooker]
        files = self._files[name]
        return [files.for_nodes, *([files.for_clients] if name in self._brokers else [])]

    def _next_authority(self) -> Certificate:
        return make_authority("Barnabas nodes", _now_ms())

    def _issue(self, name: str) -> None:
        for path, authority in zip(self._of(name), (self.authority, self._clients_authority), strict=False):
            old = self._previous[path].certificate
            found = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            names = [*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))]
            made = make_certificate(authority, old.subject, _now_ms(), names=names)
            self._previous[path] = made
            write_private(path, made.key_store_pem.decode())

    def _spoil(self, name: str) -> None:
        for path in self._of(name):
            write_private(path, BROKEN.decode())

    def _trust(self) -> None:
        # The key first: what finds the certificate finds its key.
        write_private(self._trust_store.with_suffix(".key"), self.authority.key_pem.decode())
        write_private(self._trust_store, b"".join(each.certificate_pem for each in self.trusted).decode())


def _authority_in(path: Path) -> Certificate:
    return Certificate.from_pem(path.with_suffix(".key").read_bytes() + path.read_bytes())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
