"""Certificates, users and client configurations of a cluster, in one directory: DATA/security of a local one.

    ca.pem, ca.key                  the authority of clients, and of brokers towards clients
    nodes-ca.pem, nodes-ca.key      the authority of nodes among themselves
    nodes/broker-1.pem              key and certificate of a broker towards clients
    nodes/broker-1-node.pem         key and certificate of a node towards nodes
    users.json                      names and passwords
    token.secret                    the secret of delegation tokens, which all nodes share
    http.token                      the token of the nodes' HTTP pages, and of `barnabas page`
    alice/client.properties …       ready-made configurations of a user

Only the owner may read what contains a key or a password.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.cluster.layout import Layout, Node
from barnabas.cluster.private_files import write_private
from barnabas.cluster.probe import Key
from barnabas.security import client_files
from barnabas.security.addresses import SSL_ABOVE, Addresses, LocalAddresses
from barnabas.security.certificates import Certificate, Purpose, make_authority, make_certificate
from barnabas.security.node_files import NodeFiles, broker_settings, controller_settings
from barnabas.security.users import ADMIN, NODES, UserFile
from barnabas.settings.node import HTTP_TOKEN_FILE
from barnabas.settings.properties import render_properties

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 825
"""The longest life of a certificate that common clients accept."""
TOKEN_SECRET = "delegation.token.secret.key"


@dataclass(frozen=True, slots=True)
class LocalSecurity:
    """Makes the files of `cluster up --secure`, and those of the secure containers. Existing keys, certificates and
    passwords are kept."""

    directory: Path
    addresses: Addresses = field(default_factory=LocalAddresses)
    clients_directory: Path | None = None
    """The directory as files of clients name it; None: `directory`. They may be copied to another machine."""

    @classmethod
    def of(cls, data: Path) -> LocalSecurity:
        """The security of the cluster in this data directory."""
        return cls(data.absolute() / "security")

    @property
    def authority_file(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def http_token_file(self) -> Path:
        return self.directory / "http.token"

    @property
    def users(self) -> UserFile:
        return UserFile(self.directory / "users.json")

    def key_file(self, user: str) -> Path:
        """Key and certificate of a user."""
        return self.directory / user / "key.pem"

    def client_file(self, user: str = ADMIN) -> Path:
        """The `client.properties` of a user."""
        return self.directory / user / "client.properties"

    @property
    def admin_key(self) -> Key:
        """Key for questions to nodes."""
        return Key(self.key_file(ADMIN), self.authority_file, SSL_ABOVE)

    def ensure(self, layout: Layout) -> None:
        """Make what is missing for the nodes of a layout, and for its users."""
        clients = self._authority("ca", "Barnabas clients")
        nodes = self._authority("nodes-ca", "Barnabas nodes")
        for node in layout.nodes:
            files = self.files_of(node)
            host_names = self.addresses.host_names(node)
            self._certificate(files.for_nodes, nodes, node.name, host_names)
            self._certificate(files.for_clients, clients, node.name, host_names)
        if not self._token_secret.exists():
            write_private(self._token_secret, secrets.token_urlsafe(32))
        if not self.http_token_file.exists():
            write_private(self.http_token_file, secrets.token_urlsafe(32) + "\n")
        for user, password in self.users.ensure().items():
            self._certificate(self.key_file(user), clients, user, ())
            self.write_client_files(layout, user, password)

    def files_of(self, node: Node) -> NodeFiles:
        directory = self.directory / "nodes"
        return NodeFiles(
            for_clients=directory / f"{node.name}.pem",
            for_nodes=directory / f"{node.name}-node.pem",
            clients_authority=self.authority_file,
            nodes_authority=self.directory / "nodes-ca.pem",
        )

    def settings_of(self, node: Node) -> dict[str, str]:
        """Settings of a node beside those of its shape."""
        files = self.files_of(node)
        values = {TOKEN_SECRET: self._token_secret.read_text(), HTTP_TOKEN_FILE: str(self.http_token_file)}
        if node.is_broker:
            return values | broker_settings(self.addresses.listeners(node), files, self.users.read())
        return values | controller_settings(files)

    @property
    def _token_secret(self) -> Path:
        return self.directory / "token.secret"

    def write_client_files(self, layout: Layout, user: str, password: str) -> None:
        """Write the ready-made configurations of a user."""
        shown = self.clients_directory or self.directory
        authority_file = str(shown / self.authority_file.name)
        access = client_files.Access(self.bootstrap_servers(layout, "SASL_SSL"), user, password, authority_file)
        directory = self.directory / user
        write_private(self.client_file(user), render_properties(client_files.java(access)))
        with_certificate = client_files.java_with_certificate(
            self.bootstrap_servers(layout, "SSL"), authority_file, str(shown / user / self.key_file(user).name)
        )
        write_private(directory / "client-ssl.properties", render_properties(with_certificate))
        write_private(directory / "librdkafka.conf", client_files.librdkafka(access))
        write_private(directory / "kcat.conf", client_files.librdkafka(access))
        write_private(directory / "first_record.py", client_files.python(access))

    def bootstrap_servers(self, layout: Layout, listener: str) -> str:
        """The advertised addresses of all listeners of this name."""
        listeners = [it for broker in layout.brokers for it in self.addresses.listeners(broker)]
        return ",".join(it.advertised for it in listeners if it.name == listener)

    def _authority(self, name: str, common_name: str) -> Certificate:
        certificate, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        if certificate.exists() and key.exists():
            return Certificate.from_pem(key.read_bytes() + certificate.read_bytes())
        authority = make_authority(common_name, _now_ms(), days=AUTHORITY_DAYS)
        write_private(key, authority.key_pem.decode())
        certificate.write_bytes(authority.certificate_pem)
        return authority

    def _certificate(self, path: Path, authority: Certificate, name: str, host_names: Sequence[str]) -> None:
        """Write one PEM file with a key and its certificate. Nothing if it is there."""
        if path.exists():
            return
        purpose = Purpose(days=CERTIFICATE_DAYS)
        made = make_certificate(authority, name, _now_ms(), names=host_names, purpose=purpose)
        write_private(path, made.key_store_pem.decode())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def is_reserved(user: str) -> bool:
    """True for the name of the nodes, which no client may have."""
    return user == NODES
