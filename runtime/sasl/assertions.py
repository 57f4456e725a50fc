"""Assertions: signed tokens by which a client proves itself to an OAuth provider (RFC 7523, KIP-1258).

By the keys `sasl.oauthbearer.assertion.…`: an assertion is read from a file that another program replaces, or made here
and signed by a private key. Files are read again for each assertion, so they may be replaced, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from jwt.algorithms import get_default_algorithms

from barnabas.protocol.sasl.jwt_claims import Jwt, encode_signed, json_object
from barnabas.protocol.sasl.oauthbearer import TokenRefused
from barnabas.runtime.sasl.numbers import whole_number
from barnabas.runtime.sasl.oauth_values import PREFIX, check_file
from barnabas.runtime.sasl.prepared import NotPrepared
from barnabas.runtime.uuids import random_uuid
from barnabas.runtime.world import Disk, World
from barnabas.settings.errors import SettingsError

ASSERTION = f"{PREFIX}assertion."
FILE = f"{ASSERTION}file"
ISSUER = f"{ASSERTION}claim.iss"
PRIVATE_KEY = f"{ASSERTION}private.key.file"
PASSPHRASE = f"{ASSERTION}private.key.passphrase"
TEMPLATE = f"{ASSERTION}template.file"
ALGORITHM = f"{ASSERTION}algorithm"

ALGORITHMS = ("RS256", "ES256")
MOST_FILE_BYTES = 128 * 1024
_LONGEST_SECONDS = 86_400
_EARLIEST_SECONDS = 3_600
_STATIC_CLAIMS = ("aud", "iss", "sub")


class Assertions(Protocol):
    """Gets assertions."""

    async def assertion(self) -> str:
        """Raises NotPrepared, in one line without a secret."""


class AssertionFile:
    """The assertion in a file."""

    def __init__(self, world: World, path: str) -> None:
        self._world = world
        self._path = path

    async def assertion(self) -> str:
        text = (await self._world.run_blocking(self._contents)).decode("ascii", "replace").strip()
        try:
            Jwt.parse(text)
        except TokenRefused as refused:
            raise NotPrepared(f"{self._path}: no assertion: {refused}") from None
        return text

    def _contents(self) -> bytes:
        return contents(self._world.disk, self._path)


@dataclass(frozen=True, slots=True)
class AssertionRules:
    """The contents of assertions that are made here, and the key that signs them."""

    algorithm: str
    key_path: str
    passphrase: str | None = field(default=None, repr=False)
    template_path: str | None = None
    claims: Mapping[str, str] = field(default_factory=dict)
    """Those of the settings; a template may replace them."""
    lives_seconds: int = 300
    early_seconds: int = 60
    """`nbf` is so long before now."""
    has_id: bool = False
    """Each assertion has a `jti` of its own."""


class SignedAssertions:
    """Assertions that are made here."""

    def __init__(self, world: World, rules: AssertionRules) -> None:
        self._world = world
        self._rules = rules

    async def assertion(self) -> str:
        world = self._world
        now = world.wall_clock.now_ms() // 1000
        id_ = random_uuid(world.chance).hex() if self._rules.has_id else None
        # In a thread: the key may be encrypted by a function that is meant to be slow.
        return await world.run_blocking(lambda: self._made(now, id_))

    def _made(self, now: int, id_: str | None) -> str:
        rules, disk = self._rules, self._world.disk
        sign = signer(contents(disk, rules.key_path), rules)
        header: dict[str, Any] = {}
        claims: dict[str, Any] = dict(rules.claims)
        if rules.template_path is not None:
            of_header, of_claims = template(contents(disk, rules.template_path), rules.template_path)
            header |= of_header
            claims |= of_claims
        header |= {"alg": rules.algorithm, "typ": "JWT"}
        claims |= {"iat": now, "exp": now + rules.lives_seconds, "nbf": now - rules.early_seconds}
        if id_ is not None:
            claims["jti"] = id_
        return encode_signed(header, claims, sign)


def assertions_of(values: Mapping[str, str], world: World, allowed_files: str | None) -> Assertions:
    """By the settings of a client; the file of assertions takes precedence over all that is for making one. Raises
    SettingsError, as Kafka does when a client starts: files that are missing, a key that cannot sign."""
    if values.get(FILE, "").strip():
        return AssertionFile(world, check_file(values, FILE, world.disk, allowed_files))
    rules = AssertionRules(
        _algorithm(values),
        check_file(values, PRIVATE_KEY, world.disk, allowed_files),
        _given(values, PASSPHRASE),
        check_file(values, TEMPLATE, world.disk, allowed_files) if TEMPLATE in values else None,
        {claim: text for claim in _STATIC_CLAIMS if (text := _given(values, f"{ASSERTION}claim.{claim}")) is not None},
        whole_number(values, f"{ASSERTION}claim.exp.seconds", 300, 0, _LONGEST_SECONDS),
        whole_number(values, f"{ASSERTION}claim.nbf.seconds", 60, 0, _EARLIEST_SECONDS),
        values.get(f"{ASSERTION}claim.jti.include", "").strip().lower() == "true",
    )
    _check(PRIVATE_KEY, rules.key_path, world.disk, lambda data: signer(data, rules))
    if rules.template_path is not None:
        path = rules.template_path
        _check(TEMPLATE, path, world.disk, lambda data: template(data, path))
    return SignedAssertions(world, rules)


def signer(pem: bytes, rules: AssertionRules) -> Callable[[bytes], bytes]:
    """The function that signs by the key. Raises NotPrepared."""
    passphrase = None if rules.passphrase is None else rules.passphrase.encode()
    try:
        key = load_pem_private_key(pem, passphrase, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        problem = "no private key in PEM form, or the passphrase does not fit"
        raise NotPrepared(f"{rules.key_path}: {problem}") from None
    name = rules.algorithm.upper()
    if name == "RS256":
        fits = isinstance(key, RSAPrivateKey)
    else:
        fits = isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1)
    if not fits:
        raise NotPrepared(f"{rules.key_path}: not a key for {rules.algorithm}")
    algorithm = get_default_algorithms()[name]
    return lambda data: algorithm.sign(data, key)


def template(data: bytes, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the claims of a template. Raises NotPrepared."""
    try:
        members = json_object(data)
    except ValueError as error:
        raise NotPrepared(f"{path}: not a JSON object: {' '.join(str(error).split())}") from None
    header, claims = members.get("header", {}), members.get("payload", {})
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise NotPrepared(f"{path}: header and payload must be JSON objects")
    return header, claims


def contents(disk: Disk, path: str) -> bytes:
    """Raises NotPrepared."""
    try:
        if disk.size(path) <= MOST_FILE_BYTES:
            return disk.read_bytes(path)
    except OSError as error:
        raise NotPrepared(f"{path}: {error.strerror or error}") from None
    raise NotPrepared(f"{path}: a file of more than {MOST_FILE_BYTES} bytes")


def _check(key: str, path: str, disk: Disk, check: Callable[[bytes], object]) -> None:
    try:
        check(contents(disk, path))
    except NotPrepared as error:
        raise SettingsError(str(error).removeprefix(f"{path}: "), key, path) from None


def _algorithm(values: Mapping[str, str]) -> str:
    text = values.get(ALGORITHM, "").strip() or ALGORITHMS[0]
    if text.upper() not in ALGORITHMS:
        raise SettingsError("not an algorithm of assertions", ALGORITHM, text, ", ".join(ALGORITHMS))
    return text


def _given(values: Mapping[str, str], key: str) -> str | None:
    """A text that may be left out, but not be empty."""
    if key not in values:
        return None
    text = values[key].strip()
    if not text:
        raise SettingsError("empty; leave the key out, or give it a value", key)
    return text
