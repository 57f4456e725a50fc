"""Core: the users of a cluster that is being formatted (`--add-scram`, KIP-900).

Without one, nobody could log in to add the first. Errors never repeat what was given: it contains passwords.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterable

from barnabas.kraft.controller.scram import credential_record
from barnabas.kraft.metadata.features import SCRAM_SINCE
from barnabas.protocol.messages.metadata_log import UserScramCredentialRecord
from barnabas.protocol.sasl.scram_credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SALT_BYTES,
    SCRAM_MECHANISMS,
    salted_password,
)
from barnabas.runtime.world import Chance

KEYS = ("name", "password", "saltedpassword", "iterations", "salt")
FORM = "SCRAM-SHA-256=[name=…,password=…] or SCRAM-SHA-512=[name=…,saltedpassword=…,salt=…,iterations=…]"


class WrongUser(ValueError):
    """The user cannot be added; the message is one line, without secrets."""


def first_users(texts: Iterable[str], metadata_version: int, chance: Chance) -> list[UserScramCredentialRecord]:
    """The records of users in the form of `--add-scram`. Raises `WrongUser`."""
    records = [_first_user(text.strip(), chance) for text in texts]
    if records and metadata_version < SCRAM_SINCE:
        raise WrongUser("SCRAM is only supported in metadata.version 3.5-IV2 or later")
    if len({(it.name, it.mechanism) for it in records}) < len(records):
        raise WrongUser("a user has only one password for each mechanism")
    return records


def _first_user(text: str, chance: Chance) -> UserScramCredentialRecord:
    name, equals, rest = text.partition("=")
    if not equals or not rest.startswith("[") or not rest.endswith("]"):
        raise WrongUser(f"must have the form {FORM}")
    mechanism = SCRAM_MECHANISMS.get(name)
    if mechanism is None:
        raise WrongUser(f"the mechanism must be {' or '.join(SCRAM_MECHANISMS)}; got {name!r}")
    given = _pairs(rest[1:-1])
    iterations = _iterations(given.get("iterations", str(MIN_ITERATIONS)))
    user = given.get("name")
    if not user:
        raise WrongUser("name is missing")
    salt = _decoded("salt", given["salt"]) if "salt" in given else chance.randbytes(SALT_BYTES)
    if ("password" in given) == ("saltedpassword" in given):
        raise WrongUser(f"user {user} needs either password or saltedpassword")
    if "password" in given:
        salted = salted_password(mechanism, given["password"].encode(), salt, iterations)
    elif "salt" in given:
        salted = _decoded("saltedpassword", given["saltedpassword"])
    else:
        raise WrongUser("saltedpassword needs salt, the one that it was made with")
    return credential_record(user, mechanism, salted, (salt, iterations))


def _pairs(text: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for number, part in enumerate(text.rstrip(",").split(","), 1):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or key not in KEYS:
            raise WrongUser(f"part {number} between the brackets must be KEY=VALUE with a key of {', '.join(KEYS)}")
        if key in given:
            raise WrongUser(f"{key} is given twice")
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = value[1:-1]
        given[key] = value
    return given


def _iterations(text: str) -> int:
    fault = f"iterations must be a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}; got {text[:20]!r}"
    if not text.isascii() or not text.isdigit() or len(text) > len(str(MAX_ITERATIONS)):
        raise WrongUser(fault)
    if not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise WrongUser(fault)
    return int(text)


def _decoded(key: str, text: str) -> bytes:
    try:
        decoded = b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise WrongUser(f"{key} must be base64") from None
    if not decoded:
        raise WrongUser(f"{key} must not be empty")
    return decoded
