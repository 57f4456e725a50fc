"""Core: the four messages of SCRAM (RFC 5802, section 7), as texts.

Parsing is strict where the RFC is, and in linear time: a peer that is not authenticated sends these.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field

from barnabas.protocol.sasl.mechanism import SaslRefused

NO_CHANNEL_BINDING = "n"
SUPPORTS_CHANNEL_BINDING = "y"
"""The client would bind the channel, but knows of no mechanism of the server that does."""

TOKEN_AUTHENTICATION = "tokenauth"
"""The extension that says that the name is the id of a delegation token (KIP-48)."""

MAX_ITERATION_DIGITS = 9


@dataclass(frozen=True, slots=True)
class ClientFirst:
    name: str
    nonce: str
    authorization_id: str = ""
    extensions: dict[str, str] = field(default_factory=dict)
    gs2_header: str = "n,,"
    bare: str = ""
    """The part that both sides sign, as it was sent."""

    @property
    def is_token(self) -> bool:
        return self.extensions.get(TOKEN_AUTHENTICATION, "").lower() == "true"


@dataclass(frozen=True, slots=True)
class ServerFirst:
    nonce: str
    salt: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class ClientFinal:
    gs2_header: bytes
    nonce: str
    proof: bytes
    without_proof: str


def escape_name(name: str) -> str:
    """A saslname: a comma becomes `=2C`, an equals sign `=3D`."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(saslname: str) -> str:
    """Raises SaslRefused."""
    first, *rest = saslname.split("=")
    for part in rest:
        if not part.startswith(("2C", "3D")):
            raise _refused("a name with a stray equals sign")
    return first + "".join(("," if part.startswith("2C") else "=") + part[2:] for part in rest)


def parse_client_first(token: bytes) -> ClientFirst:
    """Raises SaslRefused."""
    flag, authorization, bare = _fields(token, 3)
    if flag not in (NO_CHANNEL_BINDING, SUPPORTS_CHANNEL_BINDING):
        raise _refused("channel binding is not supported")
    if authorization and not authorization.startswith("a="):
        raise _refused("an unknown field before the user name")
    name, nonce, *extensions = _fields_of(bare)
    return ClientFirst(
        unescape_name(_value("n", name)),
        _nonce(nonce),
        unescape_name(authorization.removeprefix("a=")),
        dict(map(_extension, extensions)),
        f"{flag},{authorization},",
        bare,
    )


def parse_server_first(token: bytes) -> ServerFirst:
    """Raises SaslRefused."""
    nonce, salt, iterations = _fields(token, 3)
    digits = _value("i", iterations.partition(",")[0])
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_ITERATION_DIGITS and int(digits)):
        raise _refused("a bad number of iterations")
    return ServerFirst(_nonce(nonce), _base64(_value("s", salt)), int(digits))


def parse_client_final(token: bytes) -> ClientFinal:
    """Raises SaslRefused."""
    without_proof, comma, proof = _text(token).rpartition(",")
    if not comma:
        raise _refused("a message with too few fields")
    binding, _, rest = without_proof.partition(",")
    nonce, *extensions = rest.split(",")
    for extension in extensions:
        _extension(extension)
    return ClientFinal(_base64(_value("c", binding)), _nonce(nonce), _base64(_value("p", proof)), without_proof)


def parse_server_final(token: bytes) -> bytes:
    """The signature. Raises SaslRefused, also with the server's error."""
    first = _text(token).partition(",")[0]
    if first.startswith("e="):
        raise SaslRefused(f"the server refused: {first[2:]!r}")
    return _base64(_value("v", first))


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _refused(problem: str) -> SaslRefused:
    """For the log of a client. A server says no more than that the credentials are not valid."""
    return SaslRefused(f"invalid SCRAM message: {problem}")


def _text(token: bytes) -> str:
    try:
        text = str(token, "utf-8")
    except UnicodeDecodeError:
        raise _refused("it is not encoded in UTF-8") from None
    if "\0" in text:
        raise _refused("it contains a zero")
    return text


def _fields(token: bytes, count: int) -> list[str]:
    fields = _text(token).split(",", count - 1)
    if len(fields) != count:
        raise _refused("a message with too few fields")
    return fields


def _fields_of(bare: str) -> list[str]:
    fields = bare.split(",")
    if len(fields) < 2:
        raise _refused("a message with too few fields")
    return fields


def _value(key: str, text: str) -> str:
    if not text.startswith(f"{key}=") or len(text) == 2:
        raise _refused(f"the field {key} is missing")
    return text[2:]


def _nonce(text: str) -> str:
    nonce = _value("r", text)
    if not all("!" <= letter <= "~" for letter in nonce):
        raise _refused("a nonce with characters that are not printable")
    return nonce


def _extension(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (equals and value and key.isascii() and key.isalpha()):
        raise _refused("an extension that is not key=value")
    return key, value


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _refused("a field that is not in Base64") from None
