"""One request under way: what was asked, its answer, and the work on it that outlasts its handler."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from barnabas.protocol.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclOperation,
    AclResourceType,
    allowed_bits,
)
from barnabas.protocol.api_keys import ApiSpec
from barnabas.protocol.errors import EncodeError, ErrorCode, KafkaError
from barnabas.protocol.framing import response_prefix
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.refusals import refusal_of
from barnabas.protocol.schema import Message, encode_chunks, encode_in_steps
from barnabas.protocol.shortening import shorten_error_messages
from barnabas.runtime.access import Authorizer, AuthorizerNotReady
from barnabas.runtime.background import Background, Task
from barnabas.runtime.freeing import free_in_steps
from barnabas.runtime.request import AnswerSlot, Request
from barnabas.runtime.request_times import ApiCounter, error_codes, error_codes_in_steps, request_log
from barnabas.runtime.steps import Steps, measured
from barnabas.runtime.throttling import NO_LIMIT_BYTES, Mutations, Throttling
from barnabas.runtime.worker import Worker
from barnabas.runtime.world import CountWork

log = logging.getLogger(__name__)

Stopwatch = Callable[[], float]
"""`World.stopwatch`."""


@dataclass(frozen=True, slots=True)
class Execution:
    """The parts of a node that do the work of requests that does not fit into a turn."""

    background: Background
    worker: Worker
    count_work: CountWork | None = None
    authorizer: Authorizer | None = None
    """None: everybody may do everything."""
    throttling: Throttling | None = None
    """None: nobody is held back."""


@dataclass(slots=True)
class Call:
    """One request under way."""

    request: Request
    message: Any
    slot: AnswerSlot
    _spec: ApiSpec
    _counter: ApiCounter
    _execution: Execution | None
    is_large: bool = field(kw_only=True, default=False)
    """The answer has too many elements to be encoded in one step. The dispatcher sets it for large requests, and
    handlers for small requests with large answers."""
    is_over: bool = field(kw_only=True, default=False)
    """It was answered, or its connection was closed."""
    has_failed: bool = field(kw_only=True, default=False)
    """A mistake of ours was answered; an answer of the rest of the work comes too late."""

    @property
    def version(self) -> int:
        return self.request.api_version

    @property
    def api(self) -> str:
        """The name of the API."""
        return self._spec.name

    # -- rights

    @property
    def has_authorizer(self) -> bool:
        """This node checks the rights of clients."""
        return self._execution is not None and self._execution.authorizer is not None

    def may(self, operation: AclOperation, resource_type: AclResourceType, name: str, *, audited: bool = True) -> bool:
        """The client may do `operation` on the resource. `audited` as in `Authorizer.allows`."""
        execution = self._execution
        if execution is None or execution.authorizer is None:
            return True
        return execution.authorizer.allows(self.request, operation, resource_type, name, audited=audited)

    def may_on_cluster(self, operation: AclOperation, *, audited: bool = True) -> bool:
        """The client may do `operation` on the cluster."""
        return self.may(operation, AclResourceType.CLUSTER, CLUSTER_NAME, audited=audited)

    def may_on_any(self, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """The client may do `operation` on at least one resource of the type."""
        execution = self._execution
        if execution is None or execution.authorizer is None:
            return True
        return execution.authorizer.allows_any(self.request, operation, resource_type)

    def authorized_operations(self, resource_type: AclResourceType, name: str) -> int:
        """The field of authorized operations for a resource (KIP-430)."""
        execution = self._execution
        if execution is None or execution.authorizer is None:
            return allowed_bits(SUPPORTED_OPERATIONS[resource_type])
        return execution.authorizer.authorized_operations(self.request, resource_type, name)

    # -- quotas: `ThrottledCall` has other answers

    def fetch_throttle(self, size_bytes: int) -> tuple[int, bool]:
        """Count what a consumer is about to get. Returns the time for which it is held back, and whether it may have
        records nevertheless."""
        return 0, True

    def most_fetch_bytes(self) -> int:
        """The most that a consumer can fetch without being held back."""
        return NO_LIMIT_BYTES

    def mutations(self, *, strict: bool) -> Mutations | None:
        """The quota of a request that creates or deletes partitions; None: without limit."""
        return None

    def hold_back(self, throttle_ms: int) -> None:
        """Hold the client back for at least this long, once this request is answered."""

    # -- answers

    def answer(self, response: Message, *, has_errors: bool = True) -> None:
        """Send the response in the version of the request. May be called later, from any task, but once.

        Errors in it are counted; a caller that knows of none may pass `has_errors=False`. An answer that cannot be
        encoded fails this call, and not its caller.
        """
        if self.is_over:
            assert self.has_failed, "a request was answered twice"
            return
        self.is_over = True
        counter = self._counter
        counter.answers += 1
        if self.is_large and self._execution is not None:
            self._execution.background.spawn(self._answer_in_steps, [response], failed=self._abort_failed)
            return
        if has_errors:
            counter.errors.update(error_codes(response))
        request = self.request
        version = request.api_version
        try:
            prefix = response_prefix(request.correlation_id, version >= self._spec.flexible_header_from)
            chunks = encode_chunks(response, version, prefix)
        except EncodeError:
            self._answer_shortened(response)
        except Exception as error:
            self._abort_failed(error)
        else:
            self.slot.fill(chunks)

    def _answer_shortened(self, response: Message) -> None:
        """A message that quotes a name of 32 kB does not fit into a classic string. Any other reason stays."""
        shorten_error_messages(response)
        try:
            chunks = encode_chunks(response, self.version, self._prefix())
        except Exception as error:
            self._abort_failed(error)
        else:
            self.slot.fill(chunks)

    def answer_bytes(self, header_and_body: bytes) -> None:
        """Send a response that another node encoded for this very request (an Envelope's content)."""
        if self.has_failed:
            return
        self.is_over = True
        self._counter.answers += 1
        self.slot.fill([header_and_body])

    def answer_nothing(self) -> None:
        """Finish a request that has no response: acks=0."""
        if self.has_failed:
            return
        self.is_over = True
        self.slot.drop()

    def abort(self, reason: str) -> None:
        """Close the connection: the client learns that something went wrong, but not what was done."""
        self.is_over = True
        self.slot.abort(reason)

    def refuse(self, code: ErrorCode, message: str | None = None) -> None:
        """Answer with an error and nothing else, wherever the answer has a place for it."""
        if isinstance(self.message, ProduceRequest) and self.message.acks == 0:
            self.abort(f"produce with acks=0 failed with error {code.name}")
        elif self.is_large:
            self.abort(f"{self._spec.name} failed with error {code.name}")
        else:
            self.answer(refusal_of(self.message, self.version, code, message))

    async def _answer_in_steps(self, holder: list[Message]) -> None:
        """Encode the response in `holder`, and free it, in turns of the connection. It must not change meanwhile."""
        await self.take_steps(self._encode_and_free(holder))

    def _encode_and_free(self, holder: list[Message]) -> Steps:
        response = holder[0]
        errors = yield from error_codes_in_steps(response)
        try:
            chunks = yield from encode_in_steps(response, self.version, self._prefix())
        except EncodeError:
            shorten_error_messages(response)
            chunks = yield from encode_in_steps(response, self.version, self._prefix())
        self._counter.errors.update(errors)
        self.slot.fill(chunks)
        del response
        yield from free_in_steps(holder)

    def _prefix(self) -> bytes:
        request = self.request
        return response_prefix(request.correlation_id, request.api_version >= self._spec.flexible_header_from)

    # -- work that outlasts the handler

    def spawn(self, task: Task, *args: Any) -> None:
        """Continue this request in `task(*args)`, in the background: the only way for a handler to do so. An unexpected
        exception fails this request."""
        assert self._execution is not None, "this dispatcher serves no requests with background work"
        self._execution.background.spawn(task, *args, failed=self.failed)

    async def take_steps(self, steps: Steps) -> None:
        """Take steps of this request in a background task, in turns of its connection. Raises what a step raises."""
        await self.slot.take_steps(self.counted(steps))

    def counted(self, steps: Steps) -> Steps:
        """The steps, each measured if the world counts work."""
        execution = self._execution
        if execution is None or execution.count_work is None:
            return steps
        return measured(steps, partial(execution.count_work, self._spec.name))

    def guarded(self, callback: Callable[..., None]) -> Callable[..., None]:
        """`callback` for use by others: an unexpected exception fails this request, and not its caller."""

        def call_back(*args: Any) -> None:
            try:
                callback(*args)
            except Exception as error:
                self.failed(error)

        return call_back

    def handler_ended(self) -> None:
        """The handler and its steps are over."""

    # -- failures

    def failed(self, error: Exception) -> None:
        """A mistake of ours ended the work on this request: UNKNOWN_SERVER_ERROR, a line in the log, and a count."""
        if not isinstance(error, AuthorizerNotReady):
            self._report(error)
        self.has_failed = True
        if not self.is_over:
            if isinstance(error, KafkaError):
                self.refuse(error.code, error.message)
            else:
                self.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _abort_failed(self, error: Exception) -> None:
        """The answer cannot be encoded."""
        self._report(error)
        try:
            refusal = refusal_of(self.message, self.version, ErrorCode.UNKNOWN_SERVER_ERROR)
            chunks = encode_chunks(refusal, self.version, self._prefix())
        except EncodeError:
            self.slot.abort("internal error")
        else:
            self.slot.fill(chunks)

    def _report(self, error: Exception) -> None:
        self._counter.failures += 1
        request = self.request
        log.error(
            "%s v%d failed, correlation id %d from %s",
            self._spec.name,
            request.api_version,
            request.correlation_id,
            request.peer_host,
            exc_info=error,
        )


@dataclass(slots=True)
class TimedCall(Call):
    """A call whose times are taken, on the stopwatch. A filled slot is sent later, in a turn of its connection."""

    _stopwatch: Stopwatch
    _began: float
    handled: float = 0.0
    """End of the handler, if the call was not answered by then."""
    answered: float = 0.0
    throttle_ms: int = 0
    """The time for which a quota holds the client back."""

    # `super()` does not know a class that was made again for its slots.

    def answer(self, response: Message, *, has_errors: bool = True) -> None:
        Call.answer(self, response, has_errors=has_errors)
        self.answered = self._stopwatch()

    def answer_bytes(self, header_and_body: bytes) -> None:
        Call.answer_bytes(self, header_and_body)
        self.answered = self._stopwatch()

    def answer_nothing(self) -> None:
        Call.answer_nothing(self)
        self.answered = self._stopwatch()

    def handler_ended(self) -> None:
        if not self.answered:
            self.handled = self._stopwatch()

    def sent(self, size_bytes: int, began: float, ended: float) -> None:
        """See `runtime.request.Timed`."""
        counter, received, answered = self._counter, self.request.received, self.answered
        handled = self.handled or answered
        counter.queue += self._began - received
        counter.local += handled - self._began
        counter.remote += answered - handled
        counter.response_queue += began - answered
        counter.send += ended - began
        counter.throttle += self.throttle_ms / 1000
        counter.total.took(ended - received)
        if request_log.isEnabledFor(logging.DEBUG):
            self._log(size_bytes, began, ended)

    def _log(self, size_bytes: int, began: float, ended: float) -> None:
        request, received, answered = self.request, self.request.received, self.answered
        handled = self.handled or answered
        request_log.debug(
            "request=%s version=%d client_id=%s correlation_id=%d principal=%s connection=%d peer=%s listener=%s"
            " request_bytes=%d response_bytes=%d total_ms=%.3f queue_ms=%.3f local_ms=%.3f remote_ms=%.3f"
            " throttle_ms=%.3f response_queue_ms=%.3f send_ms=%.3f",
            self._spec.name,
            request.api_version,
            _quoted(request.client_id),
            request.correlation_id,
            str(self.request.principal),
            request.connection_id,
            request.peer_host,
            request.listener_name,
            len(request.body),
            size_bytes,
            (ended - received) * 1000,
            (self._began - received) * 1000,
            (handled - self._began) * 1000,
            (answered - handled) * 1000,
            float(self.throttle_ms),
            (began - answered) * 1000,
            (ended - began) * 1000,
        )


def _quoted(client_id: str | None) -> str:
    """A client's own words on one line, as one word."""
    return "-" if client_id is None else json.dumps(client_id)
