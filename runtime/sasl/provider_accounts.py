"""A client's account at an OAuth provider: how it asks the token endpoint for a token."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.parse import quote_plus

from barnabas.runtime.sasl.assertions import Assertions
from barnabas.runtime.sasl.http_exchange import HttpRequest

_HEADERS = {
    "Accept": "application/json",
    "Cache-Control": "no-cache",
    "Content-Type": "application/x-www-form-urlencoded",
}
_CLIENT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class ProviderAccount(Protocol):
    """Makes requests for tokens."""

    async def request(self, base: HttpRequest) -> HttpRequest:
        """The request for a token; `base` has the URL, the TLS and the times. Raises NotPrepared."""


@dataclass(frozen=True, slots=True)
class ClientSecret:
    """A client with a secret (RFC 6749, section 4.4)."""

    client_id: str
    secret: str = field(repr=False)
    scope: str | None = None
    url_encode: bool = False
    """`sasl.oauthbearer.header.urlencode`: as the RFC says; many providers want it plain."""

    async def request(self, base: HttpRequest) -> HttpRequest:
        code = quote_plus if self.url_encode else str
        account = b64encode(f"{code(self.client_id)}:{code(self.secret)}".encode()).decode()
        body = "grant_type=client_credentials" + (f"&scope={code(self.scope)}" if self.scope else "")
        return replace(base, headers={**_HEADERS, "Authorization": f"Basic {account}"}, body=body.encode())


@dataclass(frozen=True, slots=True)
class ClientAssertion:
    """A client that proves itself by assertions (RFC 7523, section 2.2)."""

    assertions: Assertions
    client_id: str | None = None
    """None: the assertion names it."""
    scope: str | None = None

    async def request(self, base: HttpRequest) -> HttpRequest:
        assertion = await self.assertions.assertion()
        parameters = {
            "client_assertion_type": _CLIENT_ASSERTION,
            "client_assertion": assertion,
            "grant_type": "client_credentials",
            "client_id": self.client_id,
            "scope": self.scope,
        }
        return replace(base, headers=_HEADERS, body=_form(parameters))


@dataclass(frozen=True, slots=True)
class JwtBearer:
    """An assertion that is exchanged for a token (RFC 7523, section 2.1)."""

    assertions: Assertions
    scope: str | None = None

    async def request(self, base: HttpRequest) -> HttpRequest:
        assertion = await self.assertions.assertion()
        parameters = {"grant_type": _JWT_BEARER, "assertion": assertion, "scope": self.scope}
        return replace(base, headers=_HEADERS, body=_form(parameters))


def _form(parameters: Mapping[str, str | None]) -> bytes:
    return "&".join(f"{name}={quote_plus(text)}" for name, text in parameters.items() if text).encode()
