"""From the bytes of a request to its handler, and from the handler's answer to bytes.

Versions are checked here, once. A body that does not decode, an unknown API key or an unsupported version closes
that connection and nothing else (except ApiVersions, which is answered in its version 0 with error 35 so that the
client can learn the right one: KIP-511). Which requests exist is the caller's table; nothing here knows a broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from protocol.api_keys import API_SPECS, ApiKey, ApiSpec
from protocol.errors import ErrorCode, MalformedMessage
from protocol.framing import response_prefix
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol.schema import Message, decode_prefix, encode_chunks
from runtime.metrics import ApiCounter
from runtime.server import Request, ResponseSlot
from runtime.world import Clock

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Call:
    """One request under way: what was asked, and the place for the answer."""

    request: Request
    message: Any
    slot: ResponseSlot
    _spec: ApiSpec
    _counter: ApiCounter
    _clock: Clock | None = None

    @property
    def version(self) -> int:
        return self.request.api_version

    def answer(self, response: Message) -> None:
        """Send the response in the version that was asked. May be called later, from any task, but once."""
        request, counter = self.request, self._counter
        counter.answers += 1
        if self._clock is not None:
            counter.total_ms += self._clock.now_ms() - request.received_ms
        flexible = self._spec.response_header_version(request.api_version) == 1
        prefix = response_prefix(request.correlation_id, flexible)
        self.slot.fill(encode_chunks(response, request.api_version, prefix))

    def answer_bytes(self, header_and_body: bytes) -> None:
        """Send a response that somebody else encoded for this very request (an Envelope's content)."""
        self.slot.fill([header_and_body])

    def answer_nothing(self) -> None:
        """acks=0: the one request without a response."""
        self.slot.drop()

    def abort(self, reason: str) -> None:
        """Close the connection: the client is to know that something went wrong, but not what was done."""
        self.slot.abort(reason)


Handler = Callable[[Call], None]


class Dispatcher:
    """A listener's table of handlers; called by the server with each request."""

    def __init__(self, handlers: Mapping[ApiKey, Handler], clock: Clock | None = None) -> None:
        """`clock` is the one by which requests are told to have arrived; without it nobody measures how long they
        take."""
        self.counters = {API_SPECS[key].name: ApiCounter() for key in handlers}
        """By the name of the API."""
        self._clock = clock
        self._handlers = {
            int(key): (API_SPECS[key], handler, self.counters[API_SPECS[key].name]) for key, handler in handlers.items()
        }

    def advertised(self) -> list[ApiVersion]:
        """The ranges that ApiVersions tells.

        Produce is advertised from 0 although 0-2 are refused: librdkafka takes a missing 0 as "no Produce"
        (KAFKA-18659).
        """
        ranges = []
        for key, (spec, _, _) in sorted(self._handlers.items(), key=itemgetter(0)):
            minimum = 0 if key == ApiKey.PRODUCE else spec.min_version
            ranges.append(ApiVersion(api_key=key, min_version=minimum, max_version=spec.max_version))
        return ranges

    def __call__(self, request: Request, slot: ResponseSlot) -> None:
        entry = self._handlers.get(request.api_key)
        if entry is None:
            slot.abort(f"API key {request.api_key} is not served on this listener")
            return
        spec, handler, counter = entry
        counter.requests += 1
        counter.request_bytes += len(request.body)
        if not spec.min_version <= request.api_version <= spec.max_version:
            self._refuse_version(request, slot, spec)
            return
        try:
            # What follows the body is passed over, as Kafka does: librdkafka sends Metadata v13 with two bytes of v10.
            message, _ = decode_prefix(spec.request_type(), request.body, 0, request.api_version)
        except MalformedMessage as error:
            slot.abort(f"malformed {spec.name} v{request.api_version}: {error}")
            return
        try:
            handler(Call(request, message, slot, spec, counter, self._clock))
        except Exception:
            # A mistake of ours. The connection closes, so that the client takes the outcome as unknown, which is true.
            log.exception(
                "%s v%d failed, correlation id %d from %s",
                spec.name,
                request.api_version,
                request.correlation_id,
                request.peer_host,
            )
            slot.abort("internal error")

    def _refuse_version(self, request: Request, slot: ResponseSlot, spec: ApiSpec) -> None:
        if request.api_key != ApiKey.API_VERSIONS:
            slot.abort(f"{spec.name} v{request.api_version} is not supported")
            return
        own = ApiVersion(api_key=spec.key, min_version=spec.min_version, max_version=spec.max_version)
        response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
        slot.fill(encode_chunks(response, 0, response_prefix(request.correlation_id, False)))
