"""Users get passwords and lose them (KIP-554)."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.metadata_log import UserScramCredentialRecord
from barnabas.protocol.sasl.scram_credentials import SCRAM_SHA_256, SCRAM_SHA_512, salted_password
from barnabas.runtime.identity import Principal

SHA_256, SHA_512 = SCRAM_SHA_256.type, SCRAM_SHA_512.type
ADMIN = Principal("admin")
NEVER_TWICE = "A user credential cannot be altered twice in the same request"


def upsertion(user: str, mechanism: int = SHA_256, iterations: int = 4096, **fields: Any) -> ScramCredentialUpsertion:
    made = ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"s" * 32
    )
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def deletion(user: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=user, mechanism=mechanism)


def alter(cluster: Any, *changes: ScramCredentialDeletion | ScramCredentialUpsertion) -> dict[str, tuple[int, str]]:
    """(error code, message) by user."""
    request = AlterUserScramCredentialsRequest(
        deletions=[it for it in changes if isinstance(it, ScramCredentialDeletion)],
        upsertions=[it for it in changes if isinstance(it, ScramCredentialUpsertion)],
    )
    results = cluster.send(request, by=ADMIN).results
    assert len({it.user for it in results}) == len(results), "one result for each user"
    return {it.user: (it.error_code, it.error_message) for it in results}


@pytest.mark.feature("AD-07", "MB-20")
def test_a_password_is_set_replaced_and_deleted(cluster: Any) -> None:
    assert alter(cluster, upsertion("alice"), upsertion("bob", SHA_512)) == {"alice": (0, None), "bob": (0, None)}
    assert list(cluster.image.others.scram) == [("alice", 1), ("bob", 2)]
    assert alter(cluster, upsertion("alice", iterations=8192)) == {"alice": (0, None)}
    assert cluster.image.others.scram["alice", 1].iterations == 8192
    assert alter(cluster, upsertion("alice", SHA_512)) == {"alice": (0, None)}
    assert alter(cluster, deletion("alice")) == {"alice": (0, None)}
    assert list(cluster.image.others.scram) == [("bob", 2), ("alice", 2)]
    assert cluster.story("user alice")[-1] == (
        "the SCRAM-SHA-256 credential of user alice is deleted: User:admin asked for it"
    )


@pytest.mark.feature("AD-07", "SE-04")
def test_the_log_gets_the_keys_that_prove_the_example_of_rfc_7677(cluster: Any) -> None:
    """User `user`, password `pencil`; the log has neither the password nor the salted one."""
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = salted_password(SCRAM_SHA_256, b"pencil", salt, 4096)
    alter(cluster, upsertion("user", salt=salt, salted_password=salted))
    (record,) = [it for it in cluster.log if isinstance(it, UserScramCredentialRecord)]

    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    exchange = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}".encode()
    server_signature = hmac.digest(record.server_key, exchange, "sha256")
    assert b64encode(server_signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_signature = hmac.digest(record.stored_key, exchange, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, client_signature, strict=True))
    assert hashlib.sha256(client_key).digest() == record.stored_key

    assert salted not in (record.stored_key, record.server_key)
    assert cluster.story("user user") == ["the SCRAM-SHA-256 credential of user user is set: User:admin asked for it"]


@pytest.mark.feature("AD-07")
@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (deletion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsertion("u", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion("u", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (deletion("u", -1), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion("u", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion("u", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (
            deletion("alice", SHA_512),
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
        (
            upsertion("u", salted_password=b""),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "The salted password must have 1 to 1024 bytes; got 0",
        ),
        (
            upsertion("u", salt=b"s" * 1025),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "The salt must have 1 to 1024 bytes; got 1025",
        ),
    ],
)
def test_a_wrong_change_is_refused_and_others_are_made(cluster: Any, change: Any, code: int, message: str) -> None:
    alter(cluster, upsertion("alice"))
    assert alter(cluster, change, upsertion("bob")) == {"bob": (0, None), change.name: (code, message)}
    assert list(cluster.image.others.scram) == [("alice", 1), ("bob", 1)]


@pytest.mark.feature("AD-07")
@pytest.mark.parametrize(
    "changes",
    [
        (upsertion("alice"), upsertion("alice")),
        (upsertion("alice"), upsertion("alice", SHA_512)),
        (deletion("alice"), upsertion("alice")),
        (deletion("alice"), deletion("alice")),
        (deletion("alice"), upsertion("alice"), upsertion("alice")),
    ],
)
def test_a_user_changes_once_in_a_request_whatever_the_mechanism(cluster: Any, changes: Any) -> None:
    alter(cluster, upsertion("alice", iterations=5000))
    end = len(cluster.log)
    assert alter(cluster, *changes) == {"alice": (ErrorCode.DUPLICATE_RESOURCE, NEVER_TWICE)}
    assert len(cluster.log) == end


def test_the_first_error_of_a_user_counts(cluster: Any) -> None:
    changes = (upsertion("u", iterations=1), upsertion("u"))
    assert alter(cluster, *changes) == {"u": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")}


@pytest.mark.feature("AD-07", "MB-21")
def test_an_old_metadata_version_has_no_users(make_cluster: Any) -> None:
    old = make_cluster(levels={"metadata.version": 10})
    refused = (ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    assert alter(old, upsertion("alice"), deletion("bob")) == {"alice": refused, "bob": refused}
    assert alter(make_cluster(levels={"metadata.version": 11}), upsertion("alice")) == {"alice": (0, None)}


def test_a_request_changes_at_most_ten_thousand_users(cluster: Any) -> None:
    end = len(cluster.log)
    results = alter(cluster, *(upsertion(f"user-{number}") for number in range(10_001)))
    assert set(results.values()) == {
        (ErrorCode.POLICY_VIOLATION, "the request names more than 10000 credentials")
    }
    assert len(cluster.log) == end
    assert set(alter(cluster, *(upsertion(f"user-{number}") for number in range(10_000))).values()) == {(0, None)}
