"""The states of a SASL session: what a connection may send, when, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.client_exchange import RequestEncoder, decode_response
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.sasl.mechanism import Authenticated, SaslRefused
from barnabas.protocol.sasl.session import Action, Now, Reaction, SaslSession, SaslState, SessionRules
from barnabas.protocol.schema import Message

WALL_MS = 1_700_000_000_000


class Knock:
    """A mechanism: two tokens, `knock` and the name. A name with a colon has an expiry time."""

    def __init__(self) -> None:
        self.result: Authenticated | None = None
        self._knocked = False

    def receive(self, token: bytes) -> bytes:
        if not self._knocked:
            self._knocked = token == b"knock"
            if not self._knocked:
                raise SaslRefused("knock first")
            return b"who is there?"
        if token == b"nobody":
            raise SaslRefused
        name, _, expires_in = token.decode().partition(":")
        self.result = Authenticated(name, expires_ms=WALL_MS + int(expires_in) if expires_in else None)
        return b"welcome"


class Door:
    """A session, and a clock that is shown to it."""

    def __init__(self, max_reauth_ms: Mapping[str, int] | None = None, max_receive_bytes: int = 1000) -> None:
        rules = SessionRules({"KNOCK": Knock, "OTHER": Knock}, max_reauth_ms or {}, max_receive_bytes)
        self.session = SaslSession(rules)
        self.now_ms = 0
        self._encoder = RequestEncoder("me")

    def bare(self, frame: bytes) -> Reaction:
        return self.session.receive(bytearray(frame), Now(WALL_MS + self.now_ms, self.now_ms))

    def send(self, request: Message, version: int | None = None) -> Reaction:
        spec = API_SPECS[ApiKey(request.API_KEY)]
        version = spec.max_version if version is None else version
        return self.bare(b"".join(self._encoder.encode(spec, version, request)[1]))

    def ask(self, request: Message, version: int | None = None) -> Any:
        """The answer, decoded."""
        return self.answered(request, self.send(request, version), version)

    def answered(self, request: Message, reaction: Reaction, version: int | None = None) -> Any:
        assert reaction.answer is not None
        spec = API_SPECS[ApiKey(request.API_KEY)]
        frame = bytearray(b"".join(reaction.answer))
        return decode_response(frame, spec, spec.max_version if version is None else version)

    def shake(self, mechanism: str = "KNOCK", version: int = 1) -> Any:
        return self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    def prove(self, token: bytes, version: int | None = None) -> Any:
        return self.ask(SaslAuthenticateRequest(auth_bytes=token), version)

    def enter(self, name: str = "alice") -> Any:
        assert self.shake().error_code == 0
        assert self.prove(b"knock").auth_bytes == b"who is there?"
        return self.prove(name.encode())


@pytest.mark.feature("SE-03")
def test_a_session_from_versions_to_requests() -> None:
    door = Door()
    assert door.send(ApiVersionsRequest()).action is Action.PASS
    answer = door.shake()
    assert (answer.error_code, answer.mechanisms) == (0, ["KNOCK", "OTHER"])
    challenge = door.prove(b"knock")
    assert (challenge.error_code, challenge.auth_bytes, challenge.session_lifetime_ms) == (0, b"who is there?", 0)
    assert door.session.state is SaslState.AUTHENTICATE
    reaction = door.send(SaslAuthenticateRequest(auth_bytes=b"alice"))
    assert reaction.authenticated == Authenticated("alice")
    assert door.session.state is SaslState.COMPLETE
    assert not door.session.may_expire
    assert door.send(MetadataRequest()).action is Action.PASS


def test_versions_need_not_be_asked_for() -> None:
    assert Door().enter().auth_bytes == b"welcome"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_of_authenticate(version: int) -> None:
    door = Door({"KNOCK": 5000})
    door.shake()
    door.prove(b"knock", version)
    answer = door.prove(b"alice", version)
    assert (answer.error_code, answer.auth_bytes) == (0, b"welcome")
    assert answer.session_lifetime_ms == (5000 if version else 0)
    assert door.session.knows_renewal is bool(version)


def test_tokens_come_bare_after_the_first_version_of_the_handshake() -> None:
    door = Door()
    assert door.shake(version=0).error_code == 0
    assert door.bare(b"knock") == Reaction(Action.ANSWER, [b"who is there?"])
    reaction = door.bare(b"alice")
    assert (reaction.answer, reaction.authenticated) == ([b"welcome"], Authenticated("alice"))


def test_a_bare_token_that_is_refused_gets_no_answer() -> None:
    door = Door()
    door.shake(version=0)
    assert door.bare(b"ring") == Reaction(Action.FAIL, None, "knock first")


# Failures


@pytest.mark.feature("SE-03")
def test_an_unknown_mechanism_is_answered_with_those_that_are_enabled() -> None:
    door = Door()
    answer = door.shake("GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["KNOCK", "OTHER"]
    assert door.session.state is SaslState.FAILED
    assert door.send(SaslHandshakeRequest(mechanism="KNOCK"), 1).action is Action.DROP


@pytest.mark.feature("SE-03")
def test_a_refusal_has_the_reason_of_the_mechanism() -> None:
    door = Door()
    door.shake()
    answer = door.prove(b"ring")
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, "knock first")
    assert answer.auth_bytes == b""
    assert door.send(MetadataRequest()).action is Action.DROP


@pytest.mark.feature("SE-04")
def test_a_refusal_without_a_reason_blames_the_credentials() -> None:
    door = Door()
    door.shake()
    door.prove(b"knock")
    assert door.prove(b"nobody").error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism KNOCK"
    )


@pytest.mark.feature("SE-03")
@pytest.mark.parametrize("request_", [MetadataRequest(), ProduceRequest(), SaslAuthenticateRequest(auth_bytes=b"x")])
def test_other_requests_before_the_handshake_close_the_connection(request_: Message) -> None:
    reaction = Door().send(request_)
    assert reaction.action is Action.CLOSE
    name = API_SPECS[ApiKey(request_.API_KEY)].name
    assert reaction.reason == f"{name} before authentication"


def test_other_requests_among_the_tokens_close_the_connection() -> None:
    door = Door()
    door.shake()
    reaction = door.send(MetadataRequest())
    assert reaction.action is Action.CLOSE
    assert reaction.reason.endswith("instead of SaslAuthenticate")


@pytest.mark.feature("SE-03")
@pytest.mark.parametrize("request_", [ApiVersionsRequest(), SaslHandshakeRequest(mechanism="KNOCK")])
def test_requests_of_the_beginning_are_refused_among_the_tokens(request_: Message) -> None:
    door = Door()
    door.shake()
    reaction = door.send(request_)
    assert reaction.action is Action.FAIL
    assert door.answered(request_, reaction).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert reaction.reason.endswith("instead of SaslAuthenticate")


def test_versions_are_asked_for_once_unless_they_were_refused() -> None:
    door = Door()
    newer = bytearray(b"".join(RequestEncoder("me").encode(API_SPECS[ApiKey.API_VERSIONS], 4, ApiVersionsRequest())[1]))
    newer[2:4] = (99).to_bytes(2, "big")
    assert door.bare(newer).action is Action.PASS
    assert door.send(ApiVersionsRequest(), 3).action is Action.PASS
    assert door.send(ApiVersionsRequest(), 3).action is Action.CLOSE


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0",
        b"\x60\x82\x02\x50 a token of GSSAPI",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\x11\0\x05\0\0\0\1\0\0\0\5KNOCK",
        b"\0\x11\0\x01\0\0\0\1\0\0\0\5KN",
        b"\0\x11\0\x01\0\0\0\1\0\0" + (990).to_bytes(2, "big") + bytes(990),
    ],
)
def test_frames_that_are_no_requests_close_the_connection(frame: bytes) -> None:
    assert Door().bare(frame).action is Action.CLOSE


def test_versions_that_are_not_served() -> None:
    reaction = Door().bare(b"\0\x11\0\x02\0\0\0\1\0\0\0\5KNOCK")
    assert (reaction.action, reaction.reason) == (Action.CLOSE, "SaslHandshake v2 is not supported")


def test_a_token_has_a_size() -> None:
    door = Door(max_receive_bytes=100)
    door.shake()
    reaction = door.send(SaslAuthenticateRequest(auth_bytes=bytes(100)))
    assert (reaction.action, reaction.answer) == (Action.CLOSE, None)
    assert "allowed: 100" in reaction.reason


@given(st.lists(st.binary(max_size=40), max_size=4), st.sampled_from([None, 0, 1]))
def test_no_bytes_get_past_a_session(frames: list[bytes], handshake: int | None) -> None:
    door = Door()
    if handshake is not None:
        door.shake(version=handshake)
    for frame in frames:
        reaction = door.bare(frame)
        if reaction.action is Action.PASS:
            assert frame[:2] == b"\0\x12", "only ApiVersions has a handler before authentication"
        elif reaction.action in (Action.CLOSE, Action.FAIL):
            assert door.session.state is SaslState.FAILED


# The end of a session, and re-authentication (KIP-368)


@pytest.mark.feature("SE-06")
def test_a_session_without_limits_has_no_end() -> None:
    door = Door()
    assert door.enter().session_lifetime_ms == 0
    door.now_ms = 10**12
    assert door.send(MetadataRequest()).action is Action.PASS
    assert door.send(SaslHandshakeRequest(mechanism="KNOCK"), 1).action is Action.PASS, "its handler refuses it"


@pytest.mark.feature("SE-06")
@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_in_ms", "lifetime_ms"),
    [(5000, None, 5000), (0, 3000, 3000), (5000, 3000, 3000), (2000, 3000, 2000)],
)
def test_the_lifetime_is_the_smaller_of_two_limits(
    max_reauth_ms: int, expires_in_ms: int | None, lifetime_ms: int
) -> None:
    door = Door({"KNOCK": max_reauth_ms})
    assert door.enter("alice" + (f":{expires_in_ms}" if expires_in_ms else "")).session_lifetime_ms == lifetime_ms
    door.now_ms = lifetime_ms
    assert door.send(MetadataRequest()).action is Action.PASS
    door.now_ms += 1
    reaction = door.send(MetadataRequest())
    assert (reaction.action, reaction.has_expired) == (Action.CLOSE, True)
    assert door.send(SaslHandshakeRequest(mechanism="KNOCK"), 1).action is Action.DROP


def test_a_credential_that_has_expired_is_refused() -> None:
    answer = Door().enter("alice:0")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "invalid credentials" in answer.error_message


@pytest.mark.feature("SE-06")
@pytest.mark.parametrize("late_ms", [-500, 500])
def test_a_session_is_renewed_before_or_after_its_end(late_ms: int) -> None:
    door = Door({"KNOCK": 5000})
    door.enter()
    door.now_ms = 5000 + late_ms
    answer = door.enter()
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 5000)
    assert door.session.is_renewal
    door.now_ms += 5000
    assert door.send(MetadataRequest()).action is Action.PASS


@pytest.mark.feature("SE-06")
def test_a_second_renewal_within_a_second_is_left_to_the_handler() -> None:
    door = Door({"KNOCK": 5000})
    door.enter()
    door.enter()
    door.now_ms = 999
    assert door.send(SaslHandshakeRequest(mechanism="KNOCK"), 1).action is Action.PASS
    door.now_ms = 1000
    assert door.enter().error_code == 0


@pytest.mark.feature("SE-06")
def test_a_renewal_keeps_the_principal() -> None:
    door = Door({"KNOCK": 5000})
    door.enter("alice")
    answer = door.enter("bob")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"


@pytest.mark.feature("SE-06")
def test_a_renewal_keeps_the_mechanism() -> None:
    door = Door({"KNOCK": 5000})
    door.enter("alice")
    door.shake("OTHER")
    answer = door.prove(b"knock")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "'OTHER' requested by client is not supported for re-authentication of mechanism 'KNOCK'" in (
        answer.error_message
    )


def test_a_failed_renewal_says_so() -> None:
    door = Door({"KNOCK": 5000})
    door.enter("alice")
    door.shake()
    door.prove(b"knock")
    assert "during re-authentication due to" in door.prove(b"nobody").error_message
    assert door.session.state is SaslState.FAILED


def test_requests_among_the_tokens_of_a_renewal_close_the_connection() -> None:
    door = Door({"KNOCK": 5000})
    door.enter("alice")
    door.shake()
    assert door.send(MetadataRequest()).action is Action.CLOSE


def test_a_renewal_may_end_the_limit_of_a_session() -> None:
    door = Door()
    assert door.enter("alice:3000").session_lifetime_ms == 3000
    assert door.session.may_expire
    assert door.enter("alice").session_lifetime_ms == 0
    assert not door.session.may_expire
