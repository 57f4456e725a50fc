"""Logs the proxy in at a broker: SASL on a connection through which a client's requests pass afterwards."""

from __future__ import annotations

from typing import Any

import trio

from barnabas.fault_proxy.dialogue import Dialogue
from barnabas.fault_proxy.pump import Proxied
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.client_exchange import (
    Handshake,
    NoCommonVersion,
    RequestEncoder,
    Versions,
    choose_version,
    decode_response,
    response_body,
)
from barnabas.protocol.errors import KafkaError, MalformedMessage
from barnabas.protocol.framing import frame
from barnabas.protocol.schema import Message
from barnabas.runtime.renewal import EARLIEST, MIN_INTERVAL_SECONDS
from barnabas.runtime.security import Authenticator

CLIENT_ID = "barnabas-proxy"
LOGIN_SECONDS = 30.0
DRAIN_SECONDS = 30.0


class LoginFailed(Exception):
    """The broker refused the login, or did not answer in time; the message is one line."""


class Login:
    """The logins of one connection, which is held until the first one is done."""

    def __init__(self, authenticator: Authenticator, dialogue: Dialogue, proxied: Proxied, address: tuple[str, int]):
        self.host, self.port = address
        self._authenticator = authenticator
        self._dialogue = dialogue
        self._proxied = proxied
        self._encoder = RequestEncoder(CLIENT_ID)
        self._versions: Versions = {}

    async def run(self) -> None:
        """Log in, and again before the session ends, until cancelled. Raises `LoginFailed`."""
        while True:
            lifetime_ms = await self._log_in()
            ended = trio.current_time()
            self._dialogue.resume(trio.current_time())
            self._proxied.wake()
            if lifetime_ms is None:
                return
            await trio.sleep(lifetime_ms / 1000 * EARLIEST)
            # No other request may come between those of a login.
            self._dialogue.is_held = True
            with trio.move_on_after(DRAIN_SECONDS):
                while not self._dialogue.is_answered:
                    await self._proxied.answered_some()
            await trio.sleep_until(ended + MIN_INTERVAL_SECONDS)

    async def call(self, request: Message, *, version: int | None = None) -> Any:
        """See `runtime.security.Peer`."""
        spec = API_SPECS[ApiKey(request.API_KEY)]
        try:
            chosen = choose_version(self._versions, spec, version)
        except NoCommonVersion as error:
            raise LoginFailed(str(error)) from None
        return decode_response(await self._exchange(request, chosen), spec, chosen)

    async def _log_in(self) -> int | None:
        with trio.move_on_after(LOGIN_SECONDS):
            try:
                if not self._versions:
                    await self._learn_versions()
                return await self._authenticator.authenticate(self)
            except (KafkaError, MalformedMessage) as error:
                raise LoginFailed(str(error)) from None
        raise LoginFailed(f"no answer to the login within {LOGIN_SECONDS:.0f} s")

    async def _learn_versions(self) -> None:
        handshake = Handshake(CLIENT_ID)
        while not handshake.done:
            spec, version = handshake.spec, handshake.version
            handshake.receive(response_body(await self._exchange(handshake.request, version), spec, version))
        self._versions = handshake.versions

    async def _exchange(self, request: Message, version: int) -> bytearray:
        spec = API_SPECS[ApiKey(request.API_KEY)]
        _, chunks = self._encoder.encode(spec, version, request)
        answered, answers = trio.Event(), list[bytes]()

        def take(answer: bytes) -> None:
            answers.append(answer)
            answered.set()

        self._dialogue.ask(b"".join(frame(chunks)), take, trio.current_time())
        self._proxied.wake()
        await answered.wait()
        return bytearray(answers[0])
