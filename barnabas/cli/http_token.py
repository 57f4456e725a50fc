"""Options that protect HTTP: tokens and certificates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.runtime.http_token import HttpToken

HttpTokenFile = Annotated[
    Path | None,
    typer.Option(
        "--http-token-file",
        metavar="FILE",
        envvar="BARNABAS_HTTP_TOKEN_FILE",
        show_envvar=False,
        help="File with the token of the nodes' HTTP listeners (barnabas.http.token.file). Default: that of the secure "
        "local cluster in --data.",
    ),
]

OwnTokenFile = Annotated[
    Path | None,
    typer.Option(
        "--http-token-file",
        metavar="FILE",
        help="File with a token on its first line; every request needs it, as a bearer or as the password of any user.",
    ),
]
HttpsConfig = Annotated[
    Path | None,
    typer.Option(
        "--https-config",
        metavar="FILE",
        help="Properties file with a certificate, to serve HTTPS: ssl.keystore.location and others of Kafka's ssl.*.",
    ),
]


def http_token_file(given: Path | None, data: Path, *, is_local: bool) -> Path | None:
    """The given file, or that of a secure local cluster in `data`; None if there is no token."""
    if given is not None or not is_local:
        return given
    from barnabas.security.local_security import LocalSecurity

    own = LocalSecurity.of(data).http_token_file
    return own if own.exists() else None


def read_http_token(file: Path | None) -> HttpToken | None:
    """Raises `WrongArgument`."""
    if file is None:
        return None
    from barnabas.runtime.http_token import ALLOWED, HttpToken

    try:
        return HttpToken.parse(file.read_bytes())
    except OSError as error:
        raise WrongArgument(f"--http-token-file {file}: {error.strerror}") from None
    except ValueError as error:
        raise WrongArgument(f"--http-token-file {file}: {error}; allowed: {ALLOWED}") from None
