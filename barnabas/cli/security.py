"""`barnabas security`: authorities and certificates, users, delegation tokens, access control lists."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli import acls, container_security, tokens, users
from barnabas.cli.output import show_text
from barnabas.cluster.errors import ClusterError, WrongArgument

app = typer.Typer(
    help="Make certificates; manage users, delegation tokens and access control lists.", rich_markup_mode=None
)
app.add_typer(users.app, name="user")
app.add_typer(tokens.app, name="token")
app.add_typer(acls.app, name="acl")
app.command("container-files")(container_security.container_files)
app.command("container-users")(container_security.container_users)

Days = Annotated[int, typer.Option("--days", min=1, help="Days until it expires.")]
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="PEM file to write.")]


@app.command()
def ca(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Common name of the authority.")],
    out: Out,
    days: Days = 3650,
) -> None:
    """Make an authority: FILE gets its certificate, FILE with the suffix .key its key."""
    from barnabas.cluster.private_files import write_private
    from barnabas.security.certificates import make_authority

    key = out.with_suffix(".key")
    _refuse_existing(out, key)
    authority = make_authority(name, _now_ms(), days=days)
    write_private(key, authority.key_pem.decode())
    out.write_bytes(authority.certificate_pem)
    show_text(f"{out} is the certificate, {key} the key; keep the key to yourself")


@app.command()
def certificate(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Common name: a user, or a node.")],
    authority: Annotated[
        Path, typer.Option("--ca", metavar="FILE", help="Certificate of the authority; its key is beside it.")
    ],
    out: Out,
    hosts: Annotated[
        list[str] | None, typer.Option("--host", metavar="HOST", help="Host name or address of a server; repeatable.")
    ] = None,
    days: Days = 825,
) -> None:
    """Make a key and its certificate, in one PEM file."""
    from barnabas.cluster.private_files import write_private
    from barnabas.security.certificates import Certificate, Purpose, make_certificate

    _refuse_existing(out)
    key = authority.with_suffix(".key")
    try:
        signer = Certificate.from_pem(key.read_bytes() + authority.read_bytes())
    except OSError as error:
        raise WrongArgument(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise ClusterError(f"{authority} and {key} are not a certificate and its key: {error}") from None
    purpose = Purpose(server=bool(hosts), days=days)
    made = make_certificate(signer, name, _now_ms(), names=hosts or (), purpose=purpose)
    write_private(out, made.key_store_pem.decode())
    show_text(f"{out} has a key and its certificate for {name}")


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise WrongArgument(f"{path} exists; remove it first")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
