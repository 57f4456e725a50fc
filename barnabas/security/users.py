"""The users of a cluster that `cluster up --secure` made, with the passwords that it drew."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.private_files import write_private

ADMIN = "admin"
FIRST_USERS = (ADMIN, "alice", "bob")
NODES = "barnabas-node"
"""The name of all nodes of the cluster, which is a super user. No client has it."""


@dataclass(frozen=True, slots=True)
class UserFile:
    """Names and passwords in a file that only its owner may read."""

    path: Path

    def read(self) -> dict[str, str]:
        """Passwords by name. Raises `ClusterError`."""
        try:
            found = json.loads(self.path.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ClusterError(f"{self.path} cannot be read: {error}") from None
        return {str(name): str(password) for name, password in found.items()}

    def ensure(self, names: tuple[str, ...] = FIRST_USERS) -> dict[str, str]:
        """Draw a password for each of `names` if there is no file yet, and return all users."""
        if not self.path.exists():
            self.write({name: secrets.token_urlsafe(18) for name in names})
        return self.read()

    def write(self, passwords: dict[str, str]) -> None:
        write_private(self.path, json.dumps(passwords, indent=2) + "\n")

