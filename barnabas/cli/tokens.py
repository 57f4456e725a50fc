"""`barnabas security token`: delegation tokens, with which programs act for a user for a limited time."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.output import show_json, show_table, show_text
from barnabas.cli.session import with_admin
from barnabas.cli.times import iso_time, parse_duration
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, DelegationToken, KafkaPrincipal

app = typer.Typer(
    help="Create, list, renew and expire delegation tokens. Needs a connection that is authenticated, not by a token.",
    rich_markup_mode=None,
)

TokenId = Annotated[str, typer.Argument(metavar="TOKEN", help="The token's id, as `tokens list` shows it.")]


@app.command()
@grouped
def create(
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="USER", help="Owner of the token; default: the caller.")
    ] = None,
    renewer: Annotated[
        list[str] | None, typer.Option("--renewer", metavar="USER", help="User who may renew it; repeatable.")
    ] = None,
    max_lifetime: Annotated[
        str | None, typer.Option("--max-lifetime", metavar="DURATION", help="E.g. 12h; default: the cluster's.")
    ] = None,
    *,
    connection: Connection,
) -> None:
    """Create a token, and print its id and its secret, the user and the password of a SCRAM login."""
    lifetime_ms = -1 if max_lifetime is None else parse_duration("--max-lifetime", max_lifetime)
    token_owner = None if owner is None else _principal("--owner", owner)
    renewers = [_principal("--renewer", each) for each in renewer or ()]

    async def work(admin: Admin) -> DelegationToken:
        return await admin.create_delegation_token(owner=token_owner, renewers=renewers, max_lifetime_ms=lifetime_ms)

    token = with_admin(connection, work)
    show_json(_json(token) | {"hmac": b64encode(token.hmac).decode()})


@app.command("list")
@grouped
def list_(
    owner: Annotated[
        list[str] | None, typer.Option("--owner", metavar="USER", help="Only tokens of this user; repeatable.")
    ] = None,
    as_json: AsJson = False,
    *,
    connection: Connection,
) -> None:
    """List tokens, without their secrets."""
    owners = [_principal("--owner", each) for each in owner] if owner else None

    async def work(admin: Admin) -> list[DelegationToken]:
        return await admin.describe_delegation_token(owners)

    found = sorted(with_admin(connection, work), key=lambda it: it.issue_timestamp_ms)
    if as_json:
        show_json([_json(each) for each in found])
        return
    rows = [
        (
            it.token_id,
            str(it.owner),
            ", ".join(map(str, it.renewers)),
            *map(iso_time, (it.issue_timestamp_ms, it.expiry_timestamp_ms, it.max_timestamp_ms)),
        )
        for it in found
    ]
    show_table(("token", "owner", "renewers", "issued", "expires", "renewable until"), rows)


@app.command()
@grouped
def renew(
    token: TokenId,
    period: Annotated[
        str | None, typer.Option("--period", metavar="DURATION", help="From now on; default: the cluster's.")
    ] = None,
    *,
    connection: Connection,
) -> None:
    """Extend a token's lifetime."""
    period_ms = -1 if period is None else parse_duration("--period", period)

    async def work(admin: Admin) -> int:
        return await admin.renew_delegation_token(await _hmac(admin, token), renew_time_period_ms=period_ms)

    show_text(f"token {token} expires {iso_time(with_admin(connection, work))}")


@app.command()
@grouped
def expire(
    token: TokenId,
    period: Annotated[
        str | None, typer.Option("--period", metavar="DURATION", help="From now on; default: at once.")
    ] = None,
    *,
    connection: Connection,
) -> None:
    """Let a token expire."""
    period_ms = -1 if period is None else parse_duration("--period", period)

    async def work(admin: Admin) -> int:
        return await admin.expire_delegation_token(await _hmac(admin, token), expiry_time_period_ms=period_ms)

    show_text(f"token {token} expires {iso_time(with_admin(connection, work))}")


async def _hmac(admin: Admin, token_id: str) -> bytes:
    """The secret of a token, which needs not be on the command line. Raises `ClusterError`."""
    for each in await admin.describe_delegation_token():
        if each.token_id == token_id:
            return each.hmac
    raise ClusterError(f"there is no token {token_id}, or you may not see it")


def _principal(option: str, text: str) -> KafkaPrincipal:
    """From `alice` or `User:alice`. Raises `WrongArgument`."""
    from barnabas.client.admin import KafkaPrincipal

    name = text.removeprefix("User:")
    if not name:
        raise WrongArgument(f"{option} must be a user's name; got {text!r}")
    return KafkaPrincipal(name)


def _json(token: DelegationToken) -> dict[str, object]:
    return {
        "token": token.token_id,
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": list(map(str, token.renewers)),
        "issued_ms": token.issue_timestamp_ms,
        "expires_ms": token.expiry_timestamp_ms,
        "renewable_until_ms": token.max_timestamp_ms,
    }
