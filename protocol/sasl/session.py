"""Core: the server's side of the SASL sessions of one connection (KIP-43, KIP-152, KIP-368).

The session looks at every frame before a handler does. Until the peer is authenticated only ApiVersions goes to its
handler; later a SaslHandshake may begin a re-authentication, and a session that expired ends the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode, MalformedMessage
from barnabas.protocol.framing import parse_request_header, response_prefix
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse
from barnabas.protocol.sasl.mechanism import Authenticated, SaslRefused, ServerMechanism, ServerMechanisms
from barnabas.protocol.schema import Message, decode_prefix, encode_chunks

DEFAULT_MAX_RECEIVE_BYTES = 524_288
MIN_REAUTHENTICATION_INTERVAL_MS = 1000

_SASL_HANDSHAKE = int(ApiKey.SASL_HANDSHAKE).to_bytes(2, "big")


class SaslState(Enum):
    INITIAL = auto()
    """ApiVersions, or SaslHandshake."""
    HANDSHAKE = auto()
    """SaslHandshake: the versions were asked for."""
    AUTHENTICATE = auto()
    """Tokens: in SaslAuthenticate, or bare after version 0 of SaslHandshake."""
    COMPLETE = auto()
    FAILED = auto()


class Action(Enum):
    PASS = auto()
    """The request goes to its handler."""
    ANSWER = auto()
    """Answer, and go on."""
    FAIL = auto()
    """Answer, if there is an answer, and close after a delay: the peer did not authenticate."""
    CLOSE = auto()
    """Close at once: the peer sent something that is not allowed here."""
    DROP = auto()
    """Ignore the frame: the connection is about to close."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """The reaction to one frame."""

    action: Action
    answer: Sequence[Any] | None = None
    """Chunks of a frame, without its size."""
    reason: str = ""
    """For the log. Never a secret."""
    authenticated: Authenticated | None = None
    """The peer is authenticated, from the next frame on."""
    has_expired: bool = False
    """The connection ends because its session expired."""


class Now(NamedTuple):
    """The time of a frame, on both clocks."""

    wall_ms: int
    monotonic_ms: int


@dataclass(frozen=True, slots=True)
class SessionRules:
    """The rules of one listener."""

    mechanisms: ServerMechanisms
    max_reauth_ms: Mapping[str, int]
    """connections.max.reauth.ms by mechanism; 0: sessions do not expire, unless their credentials do."""
    max_receive_bytes: int = DEFAULT_MAX_RECEIVE_BYTES


PASS = Reaction(Action.PASS)


class SaslSession:
    """The state of one connection."""

    def __init__(self, rules: SessionRules) -> None:
        self.rules = rules
        """May be replaced between sessions."""
        self._mechanism_name = ""
        self._mechanism: ServerMechanism | None = None
        self._has_headers = False
        """Tokens come in SaslAuthenticate."""
        self._previous: tuple[str, Authenticated] | None = None
        """The mechanism and the result of the session that is being renewed."""
        self._current: tuple[str, Authenticated] | None = None
        self._renewal_began_ms: int | None = None
        self._expires_ms: int | None = None
        """End of the session on the monotonic clock."""
        self.knows_renewal = False
        """The client speaks a version of SaslAuthenticate that reports the lifetime of the session."""
        self.state = SaslState.INITIAL

    @property
    def is_renewal(self) -> bool:
        """A re-authentication is under way, or is over."""
        return self._previous is not None

    @property
    def may_expire(self) -> bool:
        return self._expires_ms is not None

    def receive(self, frame: bytearray, now: Now) -> Reaction:
        """React to a frame without its size."""
        match self.state:
            case SaslState.COMPLETE:
                reaction = self._react_when_complete(frame, now)
            case SaslState.INITIAL | SaslState.HANDSHAKE:
                reaction = self._react_to_request(frame)
            case SaslState.AUTHENTICATE:
                reaction = self._react_to_token(frame, now)
            case SaslState.FAILED:
                return Reaction(Action.DROP)
        if reaction.action in (Action.FAIL, Action.CLOSE):
            self.state = SaslState.FAILED
            self._mechanism = None
        return reaction

    def _react_when_complete(self, frame: bytearray, now: Now) -> Reaction:
        if self._expires_ms is None:
            return PASS
        if frame[:2] == _SASL_HANDSHAKE and self._may_renew(now):
            self._renewal_began_ms = now.monotonic_ms
            self._previous = self._current
            return self._react_to_request(frame)
        if now.monotonic_ms > self._expires_ms:
            reason = "its session expired, and it did not re-authenticate"
            return Reaction(Action.CLOSE, reason=reason, has_expired=True)
        return PASS

    def _may_renew(self, now: Now) -> bool:
        began_ms = self._renewal_began_ms
        return began_ms is None or now.monotonic_ms - began_ms >= MIN_REAUTHENTICATION_INTERVAL_MS

    # -- SaslHandshake

    def _react_to_request(self, frame: bytearray) -> Reaction:
        if len(frame) > self.rules.max_receive_bytes:
            return self._too_large(frame)
        try:
            header, position = parse_request_header(memoryview(frame))
        except MalformedMessage as error:
            return Reaction(Action.CLOSE, reason=f"malformed request header before authentication: {error}")
        key, version = header.request_api_key, header.request_api_version
        if key == ApiKey.API_VERSIONS and self.state is SaslState.INITIAL:
            spec = API_SPECS[ApiKey.API_VERSIONS]
            if spec.min_version <= version <= spec.max_version:
                self.state = SaslState.HANDSHAKE
            return PASS
        if key != ApiKey.SASL_HANDSHAKE:
            return Reaction(Action.CLOSE, reason=f"{_name(key)} before authentication")
        try:
            request = _decoded(header, frame, position)
        except MalformedMessage as error:
            return Reaction(Action.CLOSE, reason=str(error))
        return self._shake_hands(header, request.mechanism)

    def _shake_hands(self, header: RequestHeader, mechanism: str) -> Reaction:
        mechanisms = self.rules.mechanisms
        names = list(mechanisms)
        begin: Callable[[], ServerMechanism] | None = mechanisms.get(mechanism)
        if begin is None:
            refusal = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=names)
            reason = f"the client wants the SASL mechanism {mechanism[:64]!r}; enabled: {', '.join(names)}"
            return Reaction(Action.FAIL, _encoded(header, refusal), reason)
        self._has_headers = header.request_api_version >= 1
        self._mechanism_name = mechanism
        self._mechanism = begin()
        self.state = SaslState.AUTHENTICATE
        return Reaction(Action.ANSWER, _encoded(header, SaslHandshakeResponse(mechanisms=names)))

    # -- tokens

    def _react_to_token(self, frame: bytearray, now: Now) -> Reaction:
        if len(frame) > self.rules.max_receive_bytes:
            return self._too_large(frame)
        if not self._has_headers:
            return self._react_to_bare_token(bytes(frame), now)
        try:
            header, position = parse_request_header(memoryview(frame))
            if header.request_api_key != ApiKey.SASL_AUTHENTICATE:
                return self._react_to_other_request(header)
            request = _decoded(header, frame, position)
        except MalformedMessage as error:
            return Reaction(Action.CLOSE, reason=str(error))
        self.knows_renewal = self.knows_renewal or header.request_api_version > 0
        try:
            token, lifetime_ms = self._take(bytes(request.auth_bytes), now)
        except SaslRefused as refused:
            reason = str(refused) or self._reason()
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            refusal = SaslAuthenticateResponse(error_code=code, error_message=reason)
            return Reaction(Action.FAIL, _encoded(header, refusal), reason)
        response = SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms)
        return self._answer(_encoded(header, response))

    def _react_to_other_request(self, header: RequestHeader) -> Reaction:
        """A client that asks for versions, or shakes hands, where a token is due learns of its mistake."""
        reason = f"{_name(header.request_api_key)} instead of SaslAuthenticate"
        spec = API_SPECS[ApiKey(header.request_api_key)]
        if not spec.min_version <= header.request_api_version <= spec.max_version:
            return Reaction(Action.CLOSE, reason=reason)
        code = ErrorCode.ILLEGAL_SASL_STATE
        if header.request_api_key == ApiKey.API_VERSIONS:
            return Reaction(Action.FAIL, _encoded(header, ApiVersionsResponse(error_code=code)), reason)
        if header.request_api_key == ApiKey.SASL_HANDSHAKE:
            names = list(self.rules.mechanisms)
            refusal = SaslHandshakeResponse(error_code=code, mechanisms=names)
            return Reaction(Action.FAIL, _encoded(header, refusal), reason)
        return Reaction(Action.CLOSE, reason=reason)

    def _react_to_bare_token(self, token: bytes, now: Now) -> Reaction:
        """SaslHandshake version 0: no request says what a failure is, so the connection only closes."""
        try:
            answer, _ = self._take(token, now)
        except SaslRefused as refused:
            return Reaction(Action.FAIL, None, str(refused) or self._reason())
        return self._answer([answer])

    def _answer(self, answer: Sequence[Any]) -> Reaction:
        if self.state is SaslState.COMPLETE and self._current is not None:
            return Reaction(Action.ANSWER, answer, authenticated=self._current[1])
        return Reaction(Action.ANSWER, answer)

    def _take(self, token: bytes, now: Now) -> tuple[bytes, int]:
        """(token for the client, lifetime of the session in ms). Raises SaslRefused."""
        assert self._mechanism is not None
        if self._previous is not None and self._previous[0] != self._mechanism_name:
            raise SaslRefused(
                f"SASL mechanism '{self._mechanism_name}' requested by client is not supported for re-authentication of"
                f" mechanism '{self._previous[0]}'"
            )
        answer = self._mechanism.receive(token)
        result = self._mechanism.result
        if result is None:
            return answer, 0
        if result.expires_ms is not None and result.expires_ms <= now.wall_ms:
            raise SaslRefused
        if self._previous is not None and self._previous[1].name != result.name:
            before = self._previous[1].name
            change = f"from User.{before}: User.{result.name}"
            raise SaslRefused(f"Cannot change principals during re-authentication {change}")
        self._current = (self._mechanism_name, result)
        self._mechanism = None
        self.state = SaslState.COMPLETE
        lifetime_ms = self._lifetime_ms(result, now)
        self._expires_ms = None if lifetime_ms is None else now.monotonic_ms + lifetime_ms
        return answer, lifetime_ms or 0

    def _lifetime_ms(self, result: Authenticated, now: Now) -> int | None:
        max_reauth_ms = self.rules.max_reauth_ms.get(self._mechanism_name, 0)
        limits = [max_reauth_ms] if max_reauth_ms > 0 else []
        if result.expires_ms is not None:
            limits.append(result.expires_ms - now.wall_ms)
        return min(limits) if limits else None

    def _reason(self) -> str:
        """The refusal that says nothing of the user."""
        renewal = "re-authentication" if self.is_renewal else "authentication"
        mechanism = self._mechanism_name
        return f"Authentication failed during {renewal} due to invalid credentials with SASL mechanism {mechanism}"

    def _too_large(self, frame: bytearray) -> Reaction:
        most = self.rules.max_receive_bytes
        return Reaction(Action.CLOSE, reason=f"a request of {len(frame)} bytes to authenticate by; allowed: {most}")


def _name(key: int) -> str:
    return API_SPECS[ApiKey(key)].name


def _decoded(header: RequestHeader, frame: bytearray, position: int) -> Any:
    """The request. Raises MalformedMessage, also for a version that is not served."""
    spec = API_SPECS[ApiKey(header.request_api_key)]
    version = header.request_api_version
    if not spec.min_version <= version <= spec.max_version:
        raise MalformedMessage(f"{spec.name} v{version} is not supported")
    try:
        request, _ = decode_prefix(spec.request_type(), memoryview(frame)[position:], 0, version)
    except MalformedMessage as error:
        raise MalformedMessage(f"malformed {spec.name} v{version}: {error}") from None
    return request


def _encoded(header: RequestHeader, response: Message) -> Sequence[Any]:
    spec = API_SPECS[ApiKey(header.request_api_key)]
    version = header.request_api_version
    is_flexible = spec.response_header_version(version) == 1
    return encode_chunks(response, version, response_prefix(header.correlation_id, is_flexible))
