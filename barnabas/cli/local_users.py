"""`barnabas security user add`, and the first users of a secure local cluster."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.connection import ADMIN_SSL_CONFIG, Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.output import show_text
from barnabas.cli.session import with_admin
from barnabas.cluster.errors import WrongArgument
from barnabas.security.users import ADMIN, FIRST_USERS

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.admin.acl_values import AclBinding
    from barnabas.security.local_security import LocalSecurity

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user, without `User:`.")]


@grouped
def add(
    name: Name,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input; default: draw one.")
    ] = False,
    *,
    connection: Connection,
) -> None:
    """Add a user, or give it another password, for SCRAM-SHA-256 and SCRAM-SHA-512."""
    from barnabas.security.local_security import is_reserved

    if is_reserved(name):
        raise WrongArgument(f"{name} is the name of the cluster's nodes; choose another")
    password = sys.stdin.readline().rstrip("\n") if password_stdin else secrets.token_urlsafe(18)
    if not password:
        raise WrongArgument("the password on standard input is empty")

    async def work(admin: Admin) -> None:
        await set_passwords(admin, {name: password})

    with_admin(connection, work)
    local = _local(connection)
    if local is not None:
        show_text(f"{name} may log in; client files are in {_write_files(local, connection.data, name, password)}")
    elif password_stdin:
        show_text(f"{name} may log in")
    else:
        show_text(f"{name} may log in with the password {password}")


async def set_passwords(admin: Admin, passwords: dict[str, str]) -> None:
    """Set the passwords of users, for both mechanisms."""
    from barnabas.client.admin.scram import ScramMechanism, UserScramCredentialUpsertion

    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        # As in Kafka, one request alters each user once.
        await admin.alter_user_scram_credentials(
            UserScramCredentialUpsertion(user, mechanism, password) for user, password in passwords.items()
        )


def publish_users(data: Path) -> None:
    """Give the users of a secure local cluster their passwords, unless the cluster has them. The first users may do
    everything with topics, groups and transactional ids whose names begin with their own, and a hyphen."""
    from barnabas.security.local_security import LocalSecurity

    passwords = LocalSecurity.of(data).users.read()

    async def work(admin: Admin) -> None:
        known = await admin.describe_user_scram_credentials()
        missing = {user: password for user, password in passwords.items() if user not in known}
        if missing:
            await set_passwords(admin, missing)
            await admin.create_acls(
                [right for user in missing if user in FIRST_USERS and user != ADMIN for right in rights_on_own(user)]
            )

    with_admin(Connection(data=data, client_config=data / ADMIN_SSL_CONFIG), work)


def rights_on_own(user: str) -> list[AclBinding]:
    """All operations on what is named after the user: `alice-flights`."""
    from barnabas.client.admin.acl_values import AclBinding
    from barnabas.protocol.acls import AclOperation, AclResourceType, PatternType

    kinds = (AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID)
    return [
        AclBinding(kind, f"{user}-", f"User:{user}", AclOperation.ALL, pattern_type=PatternType.PREFIXED)
        for kind in kinds
    ]


def _local(connection: Connection) -> LocalSecurity | None:
    """The security of the local cluster, if the command is about that."""
    from barnabas.security.local_security import LocalSecurity

    local = LocalSecurity.of(connection.data)
    return local if connection.is_local and local.authority_file.exists() else None


def _write_files(local: LocalSecurity, data: Path, name: str, password: str) -> Path:
    from barnabas.cluster.layout import Layout

    local.users.write(local.users.read() | {name: password})
    local.ensure(Layout.open(data.absolute()))
    return local.directory / name
