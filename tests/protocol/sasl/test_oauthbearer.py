"""The messages of OAUTHBEARER, and an exchange of both ends without a connection."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.sasl.mechanism import Authenticated, SaslRefused
from barnabas.protocol.sasl.oauthbearer import (
    MOST_EXTENSIONS,
    MOST_TOKEN_CHARACTERS,
    BearerToken,
    ClientFirstMessage,
    OAuthBearerClient,
    OAuthBearerServer,
    TokenRefused,
    check_extensions,
)

pytestmark = pytest.mark.feature("SE-05")

tokens = st.from_regex(r"[-_~+/.a-zA-Z0-9]+=*", fullmatch=True)
names = st.text(string.ascii_letters, min_size=1).filter(lambda name: name != "auth")
values = st.text(string.ascii_letters + string.digits + string.punctuation + " \t\r\n", min_size=1)
authorization_ids = st.text(st.characters(min_codepoint=2, max_codepoint=0x7F))


def accept(token: str) -> BearerToken:
    if token != "good":
        raise TokenRefused("not good")
    return BearerToken(token, "alice", expires_ms=1000)


def lacks_scope(token: str) -> BearerToken:
    raise TokenRefused("no scope", missing_scope='[a, "b"]')


@given(tokens, authorization_ids, st.dictionaries(names, values, max_size=5))
def test_a_message_is_parsed_as_it_was_written(token: str, authorization_id: str, extensions: dict[str, str]) -> None:
    message = ClientFirstMessage(token, authorization_id, extensions)
    assert ClientFirstMessage.parse(message.encode()) == message


@given(st.binary())
def test_any_other_bytes_are_refused_and_not_repeated(message: bytes) -> None:
    try:
        ClientFirstMessage.parse(message)
    except SaslRefused as refused:
        assert str(refused).startswith("Invalid OAUTHBEARER client first message")


@given(tokens, st.dictionaries(names, values, max_size=3), st.data())
def test_a_truncated_message_is_refused(token: str, extensions: dict[str, str], data: st.DataObject) -> None:
    message = ClientFirstMessage(token, extensions=extensions).encode()
    length = data.draw(st.integers(0, len(message) - 1))
    with pytest.raises(SaslRefused):
        ClientFirstMessage.parse(message[:length])


def test_the_bytes_are_those_of_java() -> None:
    message = ClientFirstMessage("123.456.789", "me", {"nineteen": "42"})
    assert message.encode() == b"n,a=me,\x01auth=Bearer 123.456.789\x01nineteen=42\x01\x01"
    assert ClientFirstMessage("x").encode() == b"n,,\x01auth=Bearer x\x01\x01"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",  # no token
        b"n,,\x01x=y\x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01",  # channel binding
        b"p=tls-unique,,\x01auth=Bearer x\x01\x01",
        b"n,me,\x01auth=Bearer x\x01\x01",
        b"n,a=,\x01auth=Bearer x\x01\x01",
        b"n,a=a=b,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearerx\x01\x01",
        b"n,,\x01auth=Bearer x y\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,\x01auth=Bearer x\x01\x01\x01",
        b"n,,\x01auth=Bearer x\x01a1=b\x01\x01",  # a digit in the name of an extension
        b"n,,\x01auth=Bearer x\x01a=\x01\x01",
        b"n,,\x01auth=Bearer x\x01a\x01\x01",
        "n,,\x01auth=Bearer ü\x01\x01".encode(),
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_a_malformed_message_is_refused(message: bytes) -> None:
    with pytest.raises(SaslRefused):
        OAuthBearerServer(accept).receive(message)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer  "])
def test_the_scheme_may_be_in_any_case(scheme: str) -> None:
    assert ClientFirstMessage.parse(f"n,,\x01auth={scheme} x\x01\x01".encode()).token == "x"


def test_a_message_is_bounded() -> None:
    longest = ClientFirstMessage("x" * (MOST_TOKEN_CHARACTERS - len("Bearer ")))
    assert ClientFirstMessage.parse(longest.encode()) == longest
    with pytest.raises(SaslRefused, match="more than"):
        ClientFirstMessage.parse(ClientFirstMessage("x" * MOST_TOKEN_CHARACTERS).encode())
    many = {"a" * (count + 1): "x" for count in range(MOST_EXTENSIONS)}
    assert ClientFirstMessage.parse(ClientFirstMessage("x", extensions=many).encode()).extensions == many
    with pytest.raises(SaslRefused):
        ClientFirstMessage.parse(ClientFirstMessage("x", extensions={**many, "b": "x"}).encode())


def test_a_good_token_authenticates_its_subject_until_it_expires() -> None:
    server, client = OAuthBearerServer(accept), OAuthBearerClient(accept("good"), {"traceId": "7"})
    assert server.receive(client.first()) == b""
    assert server.result == Authenticated("alice", expires_ms=1000)
    assert client.receive(b"") is None and client.complete


def test_a_bad_token_is_answered_by_an_error_that_the_client_acknowledges() -> None:
    server, client = OAuthBearerServer(accept), OAuthBearerClient(BearerToken("bad", "alice", None))
    error = server.receive(client.first())
    assert error == b'{"status":"invalid_token"}'
    acknowledgement = client.receive(error)
    assert acknowledgement == b"\x01"
    with pytest.raises(SaslRefused, match="invalid_token"):
        server.receive(acknowledgement)
    assert server.result is None
    with pytest.raises(SaslRefused, match="invalid_token"):
        client.receive(b"")
    assert not client.complete


def test_a_good_token_after_a_bad_one_is_refused() -> None:
    server = OAuthBearerServer(accept)
    server.receive(ClientFirstMessage("bad").encode())
    with pytest.raises(SaslRefused, match="invalid_token"):
        server.receive(ClientFirstMessage("good").encode())
    assert server.result is None


def test_a_missing_scope_is_named_in_json() -> None:
    error = json.loads(OAuthBearerServer(lacks_scope).receive(ClientFirstMessage("x").encode()))
    assert error == {"status": "insufficient_scope", "scope": '[a, "b"]'}


@pytest.mark.parametrize(("authorization_id", "fits"), [("", True), ("alice", True), ("bob", False)])
def test_a_client_may_only_be_who_the_token_says(authorization_id: str, fits: bool) -> None:
    server = OAuthBearerServer(accept)
    message = ClientFirstMessage("good", authorization_id).encode()
    if fits:
        server.receive(message)
    else:
        with pytest.raises(SaslRefused, match="authorization id"):
            server.receive(message)
    assert (server.result is not None) is fits


def test_a_client_shows_only_a_part_of_a_strange_error() -> None:
    client = OAuthBearerClient(accept("good"))
    client.receive(b"\x1b[31m\xff" + b"x" * 100_000)
    with pytest.raises(SaslRefused) as refused:
        client.receive(b"")
    assert str(refused.value).isprintable() and len(str(refused.value)) < 1000


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a1": "x"}, {"": "x"}, {"a": ""}, {"a": "\x01"}, {"a": "ü"}])
def test_extensions_that_cannot_be_sent_are_refused(extensions: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="extension"):
        check_extensions(extensions)


def test_a_token_is_in_no_text() -> None:
    token = BearerToken("secret", "alice", None)
    assert "secret" not in repr(token) + repr(ClientFirstMessage("secret")) + repr(OAuthBearerClient(token))
