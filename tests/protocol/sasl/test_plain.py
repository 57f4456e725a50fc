"""SASL/PLAIN: who is let in, and what a refusal says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.sasl.jaas import parse_jaas
from barnabas.protocol.sasl.mechanism import Authenticated, SaslRefused
from barnabas.protocol.sasl.plain import PlainClient, PlainServer, users_of

USERS = users_of(parse_jaas('x.PlainLoginModule required username="node" user_alice="secret" user_bob="mot de passé";'))


@pytest.mark.feature("SE-03")
@pytest.mark.parametrize(("name", "password"), [("alice", "secret"), ("bob", "mot de passé")])
def test_a_user_with_the_right_password(name: str, password: str) -> None:
    server, client = PlainServer(USERS), PlainClient(name, password)
    assert client.receive(server.receive(client.first())) is None
    assert server.result == Authenticated(name)
    assert client.complete


@pytest.mark.parametrize("token", [b"\0alice\0guess", b"\0carol\0secret", b"\0node\0secret", b"alice\0carol\0secret"])
@pytest.mark.feature("SE-03")
def test_a_refusal_does_not_tell_an_unknown_user_from_a_wrong_password(token: bytes) -> None:
    server = PlainServer(USERS)
    with pytest.raises(SaslRefused, match=r"^Authentication failed: Invalid username or password$"):
        server.receive(token)
    assert server.result is None


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"alice\0secret", "expected 3 tokens, got 2"),
        (b"", "expected 3 tokens, got 1"),
        (b"\0alice\0secret\0", "expected 3 tokens, got 4"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"\0alice\0\xff", "not encoded in UTF-8"),
        (b"bob\0alice\0secret", "an authorization id that is different from username"),
    ],
)
def test_refusals_with_a_reason(token: bytes, reason: str) -> None:
    with pytest.raises(SaslRefused, match=reason):
        PlainServer(USERS).receive(token)


def test_the_authorization_id_may_be_the_user() -> None:
    server = PlainServer(USERS)
    assert server.receive(b"alice\0alice\0secret") == b""
    assert server.result == Authenticated("alice")


def test_an_exchange_has_one_token() -> None:
    server = PlainServer(USERS)
    server.receive(b"\0alice\0secret")
    with pytest.raises(SaslRefused):
        server.receive(b"\0bob\0mot de pass\xc3\xa9")
    assert server.result == Authenticated("alice")


@given(st.binary())
def test_any_token_is_refused(token: bytes) -> None:
    with pytest.raises(SaslRefused):
        PlainServer(USERS).receive(token)
