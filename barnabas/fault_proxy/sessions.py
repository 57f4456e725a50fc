"""Core: fetch sessions (KIP-227) and share sessions (KIP-932) while rules are about what is fetched.

In a session, a client names only the partitions that have changed. So that a rule finds its topic, and an error has
partitions to stand in, the proxy ends sessions while a rule with a topic or an error is about them, as a broker does
that has no room for them: the client begins again and names everything.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.fault_proxy.error_answers import error_answer
from barnabas.fault_proxy.requests import Asked
from barnabas.fault_proxy.rule_book import Rule
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.schema import Message

FETCH_WITH_SESSIONS = 7
"""First version of Fetch with sessions."""
FIRST_EPOCH, NO_SESSION = 0, -1

Answer = tuple[Message, int]
"""A response, and the version in which to encode it."""


class SessionReset:
    """The sessions of one connection."""

    def __init__(self) -> None:
        self._is_out_of_step = False
        """The broker's share session lacks what the client believes is in it."""

    def broken(self, asked: Asked) -> None:
        """The broker got a part of this request alone."""
        if asked.api_key == ApiKey.SHARE_FETCH:
            self._is_out_of_step = True

    def check(self, asked: Asked, rules: Iterable[Rule]) -> Answer | None:
        """The answer that ends a session, if one of these rules is about what it fetches; None: the request may go on,
        a Fetch without a session."""
        if asked.api_key not in (ApiKey.FETCH, ApiKey.SHARE_FETCH):
            return None
        is_meant = any(rule.fault.topic is not None or rule.fault.error is not None for rule in rules)
        if not (is_meant or self._is_out_of_step) or not asked.is_readable:
            return None
        return self._check_share(asked) if asked.api_key == ApiKey.SHARE_FETCH else _check_fetch(asked)

    def _check_share(self, asked: Asked) -> Answer | None:
        request = asked.decoded
        goes_on = request.share_session_epoch > FIRST_EPOCH
        if not goes_on or (request.topics and not self._is_out_of_step):
            return None
        self._is_out_of_step = False
        return error_answer(request, asked.version, ErrorCode.SHARE_SESSION_NOT_FOUND)


def _check_fetch(asked: Asked) -> Answer | None:
    request = asked.decoded
    if asked.version < FETCH_WITH_SESSIONS:
        return None
    if request.session_epoch > FIRST_EPOCH:
        return error_answer(request, asked.version, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if request.session_epoch == FIRST_EPOCH:
        request.session_epoch = NO_SESSION
        asked.frame = asked.encoded(request)
    return None
