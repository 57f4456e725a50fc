"""`barnabas security user`: passwords of users (SCRAM)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.local_users import add, remove_locally
from barnabas.cli.option_group import grouped
from barnabas.cli.output import Account, show_json, show_table, show_text
from barnabas.cli.passwords import read_password
from barnabas.cli.session import with_admin
from barnabas.cluster.errors import WrongArgument
from barnabas.protocol.sasl.scram_credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    SCRAM_MECHANISMS_BY_TYPE,
    ScramMechanism,
)

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, ScramCredentialInfo
    from barnabas.client.admin.results import Results
    from barnabas.protocol.errors import KafkaError

app = typer.Typer(help="List users with passwords (SCRAM), set passwords and delete them.", rich_markup_mode=None)

User = Annotated[str, typer.Argument(metavar="USER")]


@app.command("list")
@grouped
def list_(
    names: Annotated[list[str] | None, typer.Argument(metavar="[USER]...", help="Show only these users.")] = None,
    as_json: AsJson = False,
    *,
    connection: Connection,
) -> None:
    """List users and the mechanisms for which they have passwords."""

    async def work(admin: Admin) -> Results[str, tuple[ScramCredentialInfo, ...]]:
        return await admin.describe_user_scram_credentials(names or None)

    found = with_admin(connection, work)
    rows = [
        (user, SCRAM_MECHANISMS_BY_TYPE[it.mechanism].name, it.iterations)
        for user, credentials in sorted(found.succeeded.items())
        for it in credentials
    ]
    if as_json:
        show_json([{"user": user, "mechanism": name, "iterations": count} for user, name, count in rows])
    else:
        show_table(("user", "mechanism", "iterations"), rows)
    account = Account()
    account.failures(found.errors)
    account.close()


@app.command("set-password")
@grouped
def set_password(
    user: User,
    mechanism: Annotated[
        str, typer.Option("--mechanism", metavar="NAME", help=f"{' or '.join(SCRAM_MECHANISMS)}.")
    ] = "SCRAM-SHA-512",
    iterations: Annotated[
        int, typer.Option("--iterations", min=MIN_ITERATIONS, max=MAX_ITERATIONS, help="Work of each guess.")
    ] = MIN_ITERATIONS,
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="Its first line is the password; default: standard input.")
    ] = None,
    *,
    connection: Connection,
) -> None:
    """Set a user's password for one mechanism. Only a salted hash is sent."""
    chosen = _mechanism(mechanism)
    password = read_password(user, password_file)

    async def work(admin: Admin) -> None:
        from barnabas.client.admin import ScramMechanism as Mechanism
        from barnabas.client.admin import UserScramCredentialUpsertion

        change = UserScramCredentialUpsertion(user, Mechanism(chosen.type), password, iterations)
        await admin.alter_user_scram_credentials([change])

    with_admin(connection, work)
    show_text(f"set the {chosen.name} password of {user}")


@app.command()
@grouped
def delete(
    user: User,
    mechanism: Annotated[
        str | None, typer.Option("--mechanism", metavar="NAME", help="Delete only this one; default: all.")
    ] = None,
    *,
    connection: Connection,
) -> None:
    """Delete a user's passwords; without --mechanism on a local cluster also that of PLAIN."""
    chosen = list(SCRAM_MECHANISMS.values()) if mechanism is None else [_mechanism(mechanism)]

    async def work(admin: Admin) -> tuple[list[ScramMechanism], Mapping[str, KafkaError]]:
        from barnabas.client.admin import ScramMechanism as Mechanism
        from barnabas.client.admin import UserScramCredentialDeletion
        from barnabas.client.errors import ResourceNotFoundException

        deleted: list[ScramMechanism] = []
        for each in chosen:  # a request changes each user once
            change = UserScramCredentialDeletion(user, Mechanism(each.type))
            errors = (await admin.alter_user_scram_credentials([change], raise_errors=False)).errors
            missing = isinstance(errors.get(user), ResourceNotFoundException)
            if errors and not (missing and (deleted or each is not chosen[-1])):
                raise errors[user]
            if not missing:
                deleted.append(each)
        return deleted, await remove_locally(admin, connection, user) if mechanism is None else {}

    deleted, failures = with_admin(connection, work)
    for each in deleted:
        show_text(f"deleted the {each.name} password of {user}")
    account = Account()
    account.failures(failures)
    account.close()


app.command("add")(add)


def _mechanism(name: str) -> ScramMechanism:
    """Raises `WrongArgument`."""
    found = SCRAM_MECHANISMS.get(name.upper())
    if found is None:
        raise WrongArgument(f"--mechanism must be {' or '.join(SCRAM_MECHANISMS)}; got {name!r}")
    return found
