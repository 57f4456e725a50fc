"""The two ends of GSSAPI with a context that stands for Kerberos's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.sasl.gssapi import GssapiClient, GssapiServer, GssError
from barnabas.protocol.sasl.kerberos_names import ShortNames
from barnabas.protocol.sasl.mechanism import Authenticated, SaslRefused

pytestmark = pytest.mark.feature("SE-05")


class Context:
    """Completes after its steps: each sends the next of `tokens`. Signed messages begin with `S`."""

    initiator = "alice@REALM.COM"

    def __init__(self, *tokens: bytes) -> None:
        self.tokens = list(tokens)

    @property
    def complete(self) -> bool:
        return not self.tokens

    def step(self, token: bytes) -> bytes:
        if token.startswith(b"bad") or not self.tokens:
            raise GssError("bad token")
        return self.tokens.pop(0)

    def wrap(self, message: bytes) -> bytes:
        return b"S" + message

    def unwrap(self, token: bytes) -> bytes:
        if not token.startswith(b"S"):
            raise GssError("not signed")
        return token[1:]


def server_with(*tokens: bytes, failures: list[str] | None = None) -> GssapiServer:
    log = (failures if failures is not None else []).append
    return GssapiServer(Context(*tokens), ShortNames(default_realm="REALM.COM"), log)


@pytest.mark.parametrize(
    ("server_tokens", "client_tokens"),
    [
        ((b"reply",), (b"request", b"")),  # mutual authentication, as with Kerberos
        ((b"",), (b"request",)),  # the server has nothing to say
        ((b"one", b"two"), (b"a", b"b", b"")),
    ],
)
def test_both_ends_agree_without_a_layer(server_tokens: tuple[bytes, ...], client_tokens: tuple[bytes, ...]) -> None:
    server, client = server_with(*server_tokens), GssapiClient(Context(*client_tokens))
    token: bytes | None = client.first()
    steps = 0
    while token is not None:
        assert not client.complete
        token = client.receive(server.receive(token))
        steps += 1
        assert steps < 10
    assert client.complete
    assert server.result == Authenticated("alice")


def established() -> GssapiServer:
    server = server_with(b"")
    assert server.receive(b"request") == b"S\x01\0\0\0"
    return server


def test_the_name_is_that_of_the_ticket() -> None:
    server = established()
    assert server.receive(b"S\x01\0\0\0root") == b""
    assert server.result == Authenticated("alice")


@pytest.mark.parametrize(
    "choice", [b"", b"S", b"S\x01", b"S\x02\0\0\0", b"S\x04\0\xff\xff", b"S\x00\0\0\0", b"\x01\0\0\0", b"bad"]
)
def test_another_choice_ends_the_exchange(choice: bytes) -> None:
    server = established()
    for token in (choice, b"S\x01\0\0\0"):
        with pytest.raises(SaslRefused, match=r"^$"):
            server.receive(token)
    assert server.result is None


def test_a_failure_is_logged_and_not_sent() -> None:
    failures: list[str] = []
    server = server_with(b"x", failures=failures)
    with pytest.raises(SaslRefused, match=r"^$"):
        server.receive(b"bad")
    assert failures == ["bad token"]


def test_more_than_the_exchange_is_refused() -> None:
    server = established()
    server.receive(b"S\x01\0\0\0")
    with pytest.raises(SaslRefused):
        server.receive(b"")
    server = server_with(b"reply")
    server.receive(b"request")
    with pytest.raises(SaslRefused):
        server.receive(b"more")


@pytest.mark.parametrize("offer", [b"", b"S", b"S\x02\0\0\0", b"S\x06\0\xff\xff", b"S\x01\0\0\0\0", b"\x01\0\0\0"])
def test_a_client_refuses_a_server_that_insists_on_a_layer(offer: bytes) -> None:
    client = GssapiClient(Context(b"request"))
    client.first()
    with pytest.raises(SaslRefused):
        client.receive(offer)
    assert not client.complete


def test_a_client_chooses_no_layer_of_several() -> None:
    client = GssapiClient(Context(b"request"))
    client.first()
    assert client.receive(b"S\x07\x01\x00\x00") == b"S\x01\0\0\0"
    assert not client.complete
    assert client.receive(b"") is None and client.complete
    with pytest.raises(SaslRefused):
        client.receive(b"")


@given(st.lists(st.binary(max_size=6), max_size=6))
def test_no_tokens_but_the_right_ones_authenticate(tokens: list[bytes]) -> None:
    server = server_with(b"reply")
    accepted = []
    for token in tokens:
        try:
            server.receive(token)
        except SaslRefused:
            break
        accepted.append(token)
    if server.result is not None:
        assert len(accepted) == 3 and accepted[1] == b"" and accepted[2].startswith(b"S\x01")
