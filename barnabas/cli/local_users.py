"""`barnabas security user add`, and the first users of a secure local cluster."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.connection import ADMIN_SSL_CONFIG, Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.output import Account, show_text
from barnabas.cli.passwords import read_password
from barnabas.cli.session import with_admin
from barnabas.cluster.errors import WrongArgument
from barnabas.security.users import ADMIN, FIRST_USERS

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.admin.acl_values import AclBinding
    from barnabas.protocol.errors import KafkaError
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
    """Add a user, or give it another password, for both kinds of SCRAM; on a local cluster also for PLAIN."""
    from barnabas.security.local_security import is_reserved

    if is_reserved(name):
        raise WrongArgument(f"{name} is the name of the cluster's nodes; choose another")
    password = read_password(name) if password_stdin else secrets.token_urlsafe(18)

    local = _local(connection)

    async def work(admin: Admin) -> Mapping[str, KafkaError]:
        await set_passwords(admin, {name: password})
        if local is None:
            return {}
        _write_files(local, connection.data, name, password)
        return await _set_plain_users(admin, local, connection.data)

    failures = with_admin(connection, work)
    if local is not None:
        show_text(f"{name} may log in; client files are in {local.directory / name}")
    elif password_stdin:
        show_text(f"{name} may log in")
    else:
        show_text(f"{name} may log in with the password {password}")
    account = Account()
    account.failures(failures)
    account.close()


async def remove_locally(admin: Admin, connection: Connection, name: str) -> Mapping[str, KafkaError]:
    """Remove a user from the files of a secure local cluster, and from PLAIN on its brokers. Nothing elsewhere. Returns
    the errors, by broker."""
    local = _local(connection)
    if local is None:
        return {}
    local.users.write({user: password for user, password in local.users.read().items() if user != name})
    return await _set_plain_users(admin, local, connection.data)


async def _set_plain_users(admin: Admin, local: LocalSecurity, data: Path) -> Mapping[str, KafkaError]:
    """Set the users of PLAIN on all brokers, for new connections. Returns the errors, by broker; those brokers know the
    users after the next `cluster up`, from their files."""
    from barnabas.client.admin import ConfigResource, ResourceType
    from barnabas.cluster.layout import Layout
    from barnabas.security.node_files import plain_users

    passwords = local.users.read()
    brokers = {ConfigResource(ResourceType.BROKER, str(it.id)): it for it in Layout.open(data.absolute()).brokers}
    changes = {name: plain_users(local.addresses.listeners(it), passwords) for name, it in brokers.items()}
    results = await admin.incremental_alter_configs(changes, raise_errors=False)
    return {f"PLAIN on {brokers[broker].name}": error for broker, error in results.errors.items()}


async def set_passwords(admin: Admin, passwords: dict[str, str]) -> None:
    """Set the passwords of users, for both mechanisms."""
    from barnabas.client.admin.scram import ScramMechanism, UserScramCredentialUpsertion

    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        # As in Kafka, one request alters each user once.
        await admin.alter_user_scram_credentials(
            UserScramCredentialUpsertion(user, mechanism, password) for user, password in passwords.items()
        )


def publish_users(data: Path) -> None:
    """Give the users of a secure local cluster their passwords, unless the cluster has them."""
    from barnabas.security.local_security import LocalSecurity

    publish(LocalSecurity.of(data).users.read(), Connection(data=data, client_config=data / ADMIN_SSL_CONFIG))


def publish(passwords: Mapping[str, str], connection: Connection) -> None:
    """Give users their passwords, unless the cluster has them. The first users may do everything with topics, groups
    and transactional ids whose names begin with their own, and a hyphen."""

    async def work(admin: Admin) -> None:
        known = await admin.describe_user_scram_credentials()
        missing = {user: password for user, password in passwords.items() if user not in known}
        if missing:
            await set_passwords(admin, missing)
            await admin.create_acls(
                [right for user in missing if user in FIRST_USERS and user != ADMIN for right in rights_on_own(user)]
            )

    with_admin(connection, work)


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


def _write_files(local: LocalSecurity, data: Path, name: str, password: str) -> None:
    from barnabas.cluster.layout import Layout

    local.users.write(local.users.read() | {name: password})
    local.ensure(Layout.open(data.absolute()))
