"""Files of the secure containers of docker-compose.yml, in a volume that all of them mount.

    conf/broker-1.properties    settings of a node
    internal.properties         for commands in containers, as the administrator
    ca.pem, alice/…             to be copied out; they name each other from the directory that they are copied to
    …                           as in `local_security`
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from barnabas.cluster.layout import Layout, read_shape
from barnabas.cluster.private_files import write_private
from barnabas.protocol.sasl.plain import PLAIN
from barnabas.security import client_files
from barnabas.security.addresses import ContainerAddresses
from barnabas.security.local_security import LocalSecurity
from barnabas.security.users import ADMIN
from barnabas.settings.properties import render_properties


@dataclass(frozen=True, slots=True)
class ContainerFiles:
    """The volume."""

    directory: Path

    @property
    def internal_file(self) -> Path:
        return self.directory / "internal.properties"

    @property
    def security(self) -> LocalSecurity:
        return LocalSecurity(self.directory)

    def passwords(self) -> dict[str, str]:
        """Passwords of users, by name."""
        return self.security.users.read()

    def ensure(self, shape: Path, addresses: ContainerAddresses) -> None:
        """Make what is missing, and the settings of the nodes of `shape` again. Raises `ClusterError`."""
        security = LocalSecurity(self.directory, addresses, clients_directory=Path())
        layout = Layout.open(self.directory, shape=shape)
        security.ensure(layout)
        for node in layout.nodes:
            settings = read_shape(shape / f"{node.name}.properties") | security.settings_of(node)
            write_private(self.directory / "conf" / f"{node.name}.properties", render_properties(settings))
        servers = security.bootstrap_servers(layout, "INTERNAL")
        access = client_files.Access(servers, ADMIN, self.passwords()[ADMIN], str(security.authority_file))
        # By PLAIN, because the cluster gets the passwords for SCRAM over this connection.
        write_private(self.internal_file, render_properties(client_files.java(access, PLAIN)))
