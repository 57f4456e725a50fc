"""SCRAM: the exchange of the RFC, refusals that give nothing away, and hostile messages."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.sasl.mechanism import Authenticated, SaslRefused
from barnabas.protocol.sasl.scram import MAX_CLIENT_ITERATIONS, ScramClient, ScramIdentity, ScramServer
from barnabas.protocol.sasl.scram_credentials import (
    SCRAM_MECHANISMS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
    ScramMechanism,
    credential_of_password,
    credential_of_salted_password,
)
from barnabas.protocol.sasl.scram_messages import escape_name, unescape_name

SECRET = b"secret of the node"
BOTH = pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values(), ids=SCRAM_MECHANISMS)


def no_one(name: str, is_token: bool) -> None:
    return None


def only(user: str, credential: ScramCredential, name: str, is_token: bool) -> ScramIdentity | None:
    return ScramIdentity(credential, Authenticated(name)) if (name, is_token) == (user, False) else None


def server_of(mechanism: ScramMechanism, user: str, password: str, nonce: bytes = b"server nonce") -> ScramServer:
    credential = credential_of_password(mechanism, password, b"salt")
    return ScramServer(mechanism, partial(only, user, credential), SECRET, nonce)


def converse(client: ScramClient, server: ScramServer) -> None:
    """Exchange messages to the end. Raises SaslRefused."""
    token: bytes | None = client.first()
    while token is not None:
        token = client.receive(server.receive(token))


# The example of RFC 7677

RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
RFC_CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
RFC_SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
RFC_CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
RFC_SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.feature("SE-04")
def test_a_client_says_what_the_rfc_says() -> None:
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", base64.b64decode("rOprNGfwEbeRWgbNEkqO"))
    assert client.first() == RFC_CLIENT_FIRST
    assert client.receive(RFC_SERVER_FIRST) == RFC_CLIENT_FINAL
    assert not client.complete
    assert client.receive(RFC_SERVER_FINAL) is None
    assert client.complete
    assert client.name == "SCRAM-SHA-256"
    with pytest.raises(SaslRefused, match="after the end"):
        client.receive(RFC_SERVER_FINAL)


@pytest.mark.feature("SE-04")
def test_a_server_says_what_the_rfc_says() -> None:
    credential = credential_of_password(SCRAM_SHA_256, "pencil", RFC_SALT)
    server = ScramServer(SCRAM_SHA_256, partial(only, "user", credential), SECRET, b"")
    server._own_nonce = RFC_SERVER_NONCE
    assert server.receive(RFC_CLIENT_FIRST) == RFC_SERVER_FIRST
    assert server.result is None
    assert server.receive(RFC_CLIENT_FINAL) == RFC_SERVER_FINAL
    assert server.result == Authenticated("user")


@BOTH
def test_keys_are_those_of_the_definition(mechanism: ScramMechanism) -> None:
    def digest(key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, mechanism.hash_name).digest()

    salted = previous = digest(b"pencil", b"salt" + bytes([0, 0, 0, 1]))
    for _ in range(4095):
        previous = digest(b"pencil", previous)
        salted = bytes(one ^ other for one, other in zip(salted, previous, strict=True))
    credential = credential_of_password(mechanism, "pencil", b"salt")
    assert credential == credential_of_salted_password(mechanism, salted, b"salt", 4096)
    assert credential.server_key == digest(salted, b"Server Key")
    assert credential.stored_key == hashlib.new(mechanism.hash_name, digest(salted, b"Client Key")).digest()
    assert len(credential.stored_key) == mechanism.key_bytes


# Exchanges


@BOTH
@settings(max_examples=20, deadline=None)
@given(
    user=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1),
    password=st.text(st.characters(exclude_categories=["Cs"])),
    nonces=st.tuples(st.binary(min_size=1), st.binary(min_size=1)),
)
def test_the_right_password_is_proven_to_both(
    mechanism: ScramMechanism, user: str, password: str, nonces: tuple[bytes, bytes]
) -> None:
    server = server_of(mechanism, user, password, nonces[1])
    client = ScramClient(mechanism, user, password, nonces[0])
    converse(client, server)
    assert server.result == Authenticated(user)
    assert client.complete


@BOTH
@pytest.mark.feature("SE-04")
def test_an_unknown_user_looks_like_one_with_a_wrong_password(mechanism: ScramMechanism) -> None:
    def messages(user: str) -> tuple[bytes, str]:
        server = server_of(mechanism, "alice", "right", b"server nonce")
        client = ScramClient(mechanism, user, "wrong", b"nonce")
        first = server.receive(client.first())
        final = client.receive(first)
        assert final is not None
        with pytest.raises(SaslRefused) as refusal:
            server.receive(final)
        assert server.result is None
        return first, str(refusal.value)

    known, known_refusal = messages("alice")
    unknown, unknown_refusal = messages("mallory")
    again, _ = messages("mallory")
    other, _ = messages("trudy")
    assert known_refusal == unknown_refusal == ""
    assert unknown == again != other
    assert [field[:2] for field in known.split(b",")] == [field[:2] for field in unknown.split(b",")]
    assert known.split(b",")[2] == unknown.split(b",")[2] == b"i=4096"
    salt = base64.b64decode(unknown.split(b",")[1].removeprefix(b"s="))
    assert re.fullmatch(rb"[0-9a-z]{20,26}", salt), "as Kafka's tools make them"


def test_the_derived_credential_of_an_unknown_user_lets_no_one_in() -> None:
    server = ScramServer(SCRAM_SHA_256, no_one, SECRET, b"nonce")
    credential = server._unknown("mallory")
    # A peer that knew the secret of the node could forge a proof of this credential, and would still be refused.
    other = ScramServer(SCRAM_SHA_256, no_one, b"another secret", b"nonce")._unknown("mallory")
    assert credential.stored_key != other.stored_key
    assert credential.salt != other.salt


@BOTH
def test_a_token_is_looked_up_as_a_token(mechanism: ScramMechanism) -> None:
    credential = credential_of_password(mechanism, "aG1hYw==", b"salt")
    result = Authenticated("owner", token_authenticated=True, expires_ms=5)
    asked: list[tuple[str, bool]] = []

    def identify(name: str, is_token: bool) -> ScramIdentity:
        asked.append((name, is_token))
        return ScramIdentity(credential, result)

    server = ScramServer(mechanism, identify, SECRET, b"nonce")
    converse(ScramClient(mechanism, "token-1", "aG1hYw==", b"nonce", is_token=True), server)
    assert server.result == result
    assert asked == [("token-1", True)]


# Replays, and messages that do not fit

FIRST = b"n,,n=alice,r=abc"


def refuses(server: ScramServer, token: bytes) -> str:
    with pytest.raises(SaslRefused) as refusal:
        server.receive(token)
    assert server.result is None
    return str(refusal.value)


@pytest.mark.feature("SE-04")
def test_a_replayed_proof_is_refused() -> None:
    client = ScramClient(SCRAM_SHA_256, "alice", "right", b"nonce")
    heard = [client.first()]
    server = server_of(SCRAM_SHA_256, "alice", "right", b"one nonce")
    final = client.receive(server.receive(heard[0]))
    assert final is not None
    server.receive(final)
    replayed = server_of(SCRAM_SHA_256, "alice", "right", b"another nonce")
    replayed.receive(heard[0])
    assert refuses(replayed, final) == ""


def test_an_exchange_that_failed_or_ended_takes_no_message() -> None:
    server = server_of(SCRAM_SHA_256, "alice", "right")
    refuses(server, b"nonsense")
    refuses(server, FIRST)
    client = ScramClient(SCRAM_SHA_256, "alice", "right", b"nonce")
    server = server_of(SCRAM_SHA_256, "alice", "right")
    converse(client, server)
    with pytest.raises(SaslRefused):
        server.receive(client.first())


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=alice",
        b"n,,n=,r=abc",
        b"n,,r=abc,n=alice",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=a b",
        b"n,,n=al=ice,r=abc",
        b"n,,n=al=2Dice,r=abc",
        b"n,,m=must,n=alice,r=abc",
        b"n,,n=alice,r=abc,extension",
        b"n,,n=alice,r=abc,1=x",
        b"n,b=c,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"x,,n=alice,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,,n=a\0b,r=abc",
    ],
)
def test_first_messages_that_are_refused(first: bytes) -> None:
    assert refuses(server_of(SCRAM_SHA_256, "alice", "right"), first) == ""


def test_another_authorization_id_is_refused_for_every_user() -> None:
    texts = {
        refuses(server_of(SCRAM_SHA_256, "alice", "right"), f"n,a=root,n={user},r=abc".encode())
        for user in ("alice", "mallory")
    }
    assert texts == {"Authentication failed: Client requested an authorization id that is different from username"}


@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=alice,", "y,a=alice,"])
def test_the_final_message_must_repeat_the_header(header: str) -> None:
    def final_with(binding: str) -> tuple[ScramServer, bytes]:
        """The proof of a client that sent `header`, and now says that it sent `binding`."""
        server = server_of(SCRAM_SHA_256, "alice", "right")
        bare = "n=alice,r=abc"
        challenge = server.receive(f"{header}{bare}".encode()).decode()
        nonce = challenge.partition(",")[0].removeprefix("r=")
        without_proof = f"c={base64.b64encode(binding.encode()).decode()},r={nonce}"
        salted = hashlib.pbkdf2_hmac("sha256", b"right", b"salt", 4096)
        key = SCRAM_SHA_256.hmac(salted, b"Client Key")
        signature = SCRAM_SHA_256.hmac(SCRAM_SHA_256.hash(key), f"{bare},{challenge},{without_proof}".encode())
        proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
        return server, f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    server, final = final_with(header)
    server.receive(final)
    assert server.result == Authenticated("alice")
    server, final = final_with("p=tls-unique,,")
    refuses(server, final)


@pytest.mark.parametrize(
    "final", [b"", b"c=biws", b"c=biws,r=abc", b"c=biws,r=abcother,p=AAAA", b"c=!,r=abc,p=AAAA", b"r=abc,c=biws,p=AAAA"]
)
def test_final_messages_that_are_refused(final: bytes) -> None:
    server = server_of(SCRAM_SHA_256, "alice", "right")
    server.receive(FIRST)
    assert refuses(server, final) == ""


@pytest.mark.parametrize(
    "proof",
    [
        "",
        "AAAA",
        base64.b64encode(b"\xff" * 33).decode(),
        base64.b64encode(bytes(33)).decode(),
        base64.b64encode(bytes(32)).decode(),
    ],
)
def test_proofs_that_are_refused(proof: str) -> None:
    server = server_of(SCRAM_SHA_256, "alice", "right")
    nonce = server.receive(FIRST).decode().partition(",")[0]
    assert refuses(server, f"c=biws,{nonce},p={proof}".encode()) == ""


def test_a_credential_with_too_few_iterations_lets_no_one_in() -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"right", b"salt", 4096)
    weak = ScramCredential(
        b"salt",
        credential_of_salted_password(SCRAM_SHA_256, salted, b"salt", 4096).stored_key,
        credential_of_salted_password(SCRAM_SHA_256, salted, b"salt", 4096).server_key,
        4095,
    )
    server = ScramServer(SCRAM_SHA_256, partial(only, "alice", weak), SECRET, b"nonce")
    client = ScramClient(SCRAM_SHA_256, "alice", "right", b"nonce")
    with pytest.raises(SaslRefused, match="wants 4095 iterations of SCRAM-SHA-256; allowed: 4096 to"):
        client.receive(server.receive(client.first()))


@given(st.lists(st.binary(), max_size=3))
def test_a_server_takes_any_bytes(tokens: list[bytes]) -> None:
    server = server_of_alice()
    for token in [FIRST, *tokens]:
        try:
            server.receive(token)
        except SaslRefused:
            break
    assert server.result is None


_ALICE = credential_of_password(SCRAM_SHA_256, "right", b"salt")


def server_of_alice() -> ScramServer:
    return ScramServer(SCRAM_SHA_256, partial(only, "alice", _ALICE), SECRET, b"nonce")


@given(st.text(alphabet=st.sampled_from("nyp,=arm2C3Dx é\0"), max_size=30))
def test_a_server_takes_any_first_message(text: str) -> None:
    server = server_of_alice()
    try:
        answer = server.receive(text.encode())
    except SaslRefused:
        return
    assert answer.startswith(b"r=")


# A client distrusts the server


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        ("r=other,s=c2FsdA==,i=4096", "must begin with that of the client"),
        ("r={nonce},s=c2FsdA==,i=4096", "must begin with that of the client, and be longer"),
        ("r={nonce}x,s=c2FsdA==,i=1", "wants 1 iterations"),
        (f"r={{nonce}}x,s=c2FsdA==,i={MAX_CLIENT_ITERATIONS + 1}", "iterations"),
        ("r={nonce}x,s=c2FsdA==,i=9999999999", "a bad number of iterations"),
        ("r={nonce}x,s=c2FsdA==,i=-1", "a bad number of iterations"),
        ("r={nonce}x,s=!,i=4096", "not in Base64"),
        ("r={nonce}x", "too few fields"),
        ("e=other-error", "too few fields"),
    ],
)
def test_challenges_that_a_client_refuses(challenge: str, reason: str) -> None:
    client = ScramClient(SCRAM_SHA_256, "alice", "right", b"nonce")
    nonce = base64.b64encode(b"nonce").decode()
    with pytest.raises(SaslRefused, match=reason):
        client.receive(challenge.format(nonce=nonce).encode())
    with pytest.raises(SaslRefused, match="after the end"):
        client.receive(b"v=AAAA")


@pytest.mark.feature("SE-04")
def test_a_client_refuses_a_server_that_does_not_know_the_password() -> None:
    client = ScramClient(SCRAM_SHA_512, "alice", "right", b"nonce")
    server = server_of(SCRAM_SHA_512, "alice", "right")
    final = client.receive(server.receive(client.first()))
    assert final is not None
    with pytest.raises(SaslRefused, match="its signature is wrong"):
        client.receive(b"v=" + base64.b64encode(bytes(64)))
    assert not client.complete


def test_a_client_reports_the_error_of_the_server() -> None:
    client = ScramClient(SCRAM_SHA_256, "alice", "right", b"nonce")
    client.receive(server_of(SCRAM_SHA_256, "alice", "right").receive(client.first()))
    with pytest.raises(SaslRefused, match="the server refused: 'unknown-user'"):
        client.receive(b"e=unknown-user")


@given(st.binary())
def test_a_client_takes_any_challenge(challenge: bytes) -> None:
    with pytest.raises(SaslRefused):
        ScramClient(SCRAM_SHA_256, "alice", "right", b"nonce").receive(challenge)


@given(st.text())
def test_names_are_escaped_and_back(name: str) -> None:
    escaped = escape_name(name)
    assert "," not in escaped
    assert unescape_name(escaped) == name


def test_a_credential_does_not_show_its_keys() -> None:
    assert repr(_ALICE) == "ScramCredential(iterations=4096)"
