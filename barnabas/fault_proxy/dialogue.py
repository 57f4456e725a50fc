"""Core: one connection of a client through the proxy: requests and answers as whole frames, with what rules do to them.

Answers keep the order of the requests, also where the proxy answers in place of the broker. A message that a rule loses
takes all later ones of its direction with it, as if the network or the broker hung there: an answer that comes after a
gap would be a broken protocol, and clients end in other ways than after a fault.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.cluster.errors import ClusterError
from barnabas.fault_proxy.answering import answer_frame, changed_answer
from barnabas.fault_proxy.endpoints import LocalAddress
from barnabas.fault_proxy.error_answers import error_answer, has_errors_by_topic
from barnabas.fault_proxy.frames import TooLong, WholeFrames
from barnabas.fault_proxy.outlet import Outlet
from barnabas.fault_proxy.requests import Asked, BadRequest, read_request
from barnabas.fault_proxy.rule_book import Rule, RuleBook
from barnabas.fault_proxy.rules import CLIENT, Faults
from barnabas.fault_proxy.sessions import SessionReset
from barnabas.fault_proxy.topics import TopicNames, split
from barnabas.fault_proxy.waiting import Waiting
from barnabas.protocol.errors import EncodeError, ErrorCode
from barnabas.runtime.at_once import Stepwise, at_once
from barnabas.runtime.world import Chance

MOST_REQUEST_BYTES = 100 << 20
"""The default of socket.request.max.bytes."""
MOST_ANSWER_BYTES = 256 << 20
MOST_UNANSWERED = 10_000
MOST_READY_BYTES = 16 << 20
"""Answers of the proxy that wait for those of the broker before them."""
_SIZE_BYTES = 4


@dataclass(frozen=True, slots=True)
class Seen:
    """A message that passed the proxy, or that it made or lost."""

    connection: int
    broker: str
    is_request: bool
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    frame: bytes
    """Without its size: a request as the client sent it, an answer as it leaves for the client."""
    rule: Rule | None


@dataclass(slots=True)
class Common:
    """The things that all connections of a proxy share."""

    faults: Faults
    rules: RuleBook
    chance: Chance
    topics: TopicNames = field(default_factory=TopicNames)
    observers: list[Callable[[Seen], None]] = field(default_factory=list)


class Dialogue:
    """One connection. `requests` and `answers` are its two directions."""

    def __init__(self, number: int, broker: str, common: Common, local: LocalAddress, *, is_held: bool = False) -> None:
        """`is_held`: requests of the client wait for `resume`."""
        self.number = number
        self.broker = broker
        self.requests = _Requests(self, (CLIENT, broker), common)
        self.answers = _Answers(self, (broker, CLIENT), common)
        self.reason = ""
        """The reason why the proxy ended the connection by itself."""
        self._common = common
        self._local = local
        self._waiting: deque[Waiting] = deque()
        self._ready_bytes = 0
        self._loses_requests = False
        self._loses_answers = False
        self._sessions = SessionReset()
        self.is_held = is_held

    def ask(self, frame: bytes, take: Callable[[bytes], None], now: float) -> None:
        """Send a request of the proxy itself, with its size before it; `take` gets the frame of the answer."""
        self._waiting.append(Waiting(read_request(frame[_SIZE_BYTES:]), take=take))
        self.requests.push("bytes", frame, self.requests.arrival(now))

    def resume(self, now: float) -> None:
        """Let the client's requests pass."""
        self.is_held = False
        self.requests.release(now)

    @property
    def is_answered(self) -> bool:
        """No request waits for its answer."""
        return not self._waiting

    # ---- requests

    def asked(self, frame: bytes, now: float) -> None:
        """A request of the client arrived."""
        if self._loses_requests:
            return
        try:
            asked = read_request(frame)
        except BadRequest as error:
            self.stop(str(error), now)
            return
        if len(self._waiting) >= MOST_UNANSWERED:
            self.stop(f"{MOST_UNANSWERED} requests wait for their answers", now)
            return
        about = self._common.rules.about(asked.api_key, asked.client_id)
        refused = self._sessions.check(asked, about)
        if refused is not None:
            self._wait_for(Waiting(asked, answer=answer_frame(asked, *refused)), now)
            return
        rule = self._common.rules.decide(about, lambda rule: asked.is_about(rule.fault, self._common.topics))
        self._see(asked, frame, rule, is_request=True)
        if rule is None:
            self._forward(Waiting(asked), asked.frame, now)
        else:
            self._strike(rule, asked, now)

    def _strike(self, rule: Rule, asked: Asked, now: float) -> None:
        try:
            self._do(rule, asked, now)
        except EncodeError as error:
            self.stop(f"{asked.spec}: {error}", now)

    def _do(self, rule: Rule, asked: Asked, now: float) -> None:
        fault = rule.fault
        if fault.drop == "request":
            self._loses_requests = True
        elif fault.cut == "request":
            self.answers.push("reset", b"", now)
        elif fault.error_code is None or fault.applied or asked.is_metadata:
            self._forward(Waiting(asked, rule), asked.frame, now)
        elif asked.wants_no_answer:
            # Kafka has no other way to say it.
            self.answers.push("reset", b"", now)
        else:
            self._refuse(rule, fault.error_code, asked, now)

    def _refuse(self, rule: Rule, code: ErrorCode, asked: Asked, now: float) -> None:
        """Answer in place of the broker, or let it answer for the topics that are not meant."""
        request, version, fault = asked.decoded, asked.version, rule.fault
        rest = None
        if fault.topic is not None and has_errors_by_topic(request, version):
            rest, request = split(request, version, self._common.topics.name_of, fault.is_about_topic)
        if rest is None:
            answer = answer_frame(asked, *error_answer(request or asked.decoded, version, code, fault.throttle_ms))
            self._wait_for(Waiting(asked, rule, answer), now)
            return
        self._sessions.broken(asked)
        refused, _ = error_answer(request, version, code)
        self._forward(Waiting(asked, rule, refused=refused), asked.encoded(rest), now)

    def _forward(self, waiting: Waiting, frame: bytes, now: float) -> None:
        if not waiting.asked.wants_no_answer:
            self._waiting.append(waiting)
        delay_ms = waiting.rule.fault.delay_ms if waiting.rule is not None else 0
        self.requests.push("bytes", sized(frame), self.requests.arrival(now), delay=delay_ms / 1000)

    def _wait_for(self, waiting: Waiting, now: float) -> None:
        self._waiting.append(waiting)
        self._ready_bytes += len(waiting.answer or b"")
        self._answer_in_order(now)
        if self._ready_bytes > MOST_READY_BYTES:
            self.stop(f"answers of more than {MOST_READY_BYTES} bytes wait for earlier ones", now)

    # ---- answers

    def answered(self, frame: bytes, now: float) -> Stepwise[None]:
        """An answer of the broker arrived. Until the last step its request stays the first that waits."""
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        while self._waiting:
            waiting = self._waiting[0]
            if waiting.answer is None and waiting.asked.correlation_id == correlation_id:
                yield from self._take(waiting, frame, now)
                self._answer_in_order(now)
                return
            self._waiting.popleft()
            if waiting.answer is not None:
                self._answer(waiting, waiting.answer, now)
        self.stop(f"an answer without a request, correlation id {correlation_id}", now)

    def _take(self, waiting: Waiting, frame: bytes, now: float) -> Stepwise[None]:
        if waiting.take is not None:
            self._waiting.popleft()
            waiting.take(frame)
            return
        try:
            changed = yield from changed_answer(waiting, frame, self._common.topics, self._local)
        except (ClusterError, EncodeError) as error:
            self.stop(str(error), now)
            return
        finally:
            self._waiting.popleft()
        self._answer(waiting, changed, now)

    def _answer_in_order(self, now: float) -> None:
        """Send answers of the proxy for which no earlier one is missing."""
        while self._waiting and self._waiting[0].answer is not None:
            waiting = self._waiting.popleft()
            assert waiting.answer is not None
            self._answer(waiting, waiting.answer, now)

    def _answer(self, waiting: Waiting, frame: bytes, now: float) -> None:
        self._ready_bytes -= len(waiting.answer or b"")
        if self._loses_answers:
            return
        self._see(waiting.asked, frame, waiting.rule, is_request=False)
        due, delay, data = self.answers.arrival(now), 0.0, sized(frame)
        if waiting.rule is not None:
            fault = waiting.rule.fault
            if fault.drop == "response":
                self._loses_answers = True
                return
            # The answer of the proxy takes as long as the one that it replaces.
            delay = (fault.response_delay_ms + (fault.delay_ms if waiting.answer is not None else 0)) / 1000
            if fault.cut is not None:
                half = data[: len(data) // 2] if fault.cut == "mid-frame" else b""
                if half:
                    self.answers.push("bytes", half, due, delay=delay)
                self.answers.push("reset", b"", due, delay=delay)
                self._loses_answers = True
                return
        self.answers.push("bytes", data, due, delay=delay)

    # ---- both

    def stop(self, reason: str, now: float) -> None:
        """Reset the connection after what has passed already."""
        self.reason = self.reason or reason
        self._loses_requests = self._loses_answers = True
        self.answers.push("reset", b"", now)

    def _see(self, asked: Asked, frame: bytes, rule: Rule | None, *, is_request: bool) -> None:
        if self._common.observers:
            seen = Seen(
                self.number,
                self.broker,
                is_request,
                asked.api_key,
                asked.version,
                asked.correlation_id,
                asked.client_id,
                frame,
                rule,
            )
            for observe in self._common.observers:
                observe(seen)


class _Requests(Outlet):
    """The direction from the client to the broker."""

    def __init__(self, dialogue: Dialogue, way: tuple[str, str], common: Common) -> None:
        super().__init__(way, common.faults, common.chance)
        self._dialogue = dialogue
        self._frames = WholeFrames(MOST_REQUEST_BYTES)
        self._held = bytearray()

    def feed(self, data: bytes, now: float) -> None:
        if self._dialogue.is_held:
            self._held += data
            self.buffered += len(data)
            return
        try:
            frames = self._frames.feed(data)
        except TooLong as error:
            self._dialogue.stop(f"{error}, as if the client spoke TLS or another protocol", now)
            return
        for frame in frames:
            self._dialogue.asked(frame, now)

    def release(self, now: float) -> None:
        """Take in what was held."""
        held, self._held = bytes(self._held), bytearray()
        self.buffered -= len(held)
        self.feed(held, now)

    def end(self, now: float) -> None:
        self.push("end", b"", self.arrival(now))


class _Answers(Outlet):
    """The direction from the broker to the client."""

    def __init__(self, dialogue: Dialogue, way: tuple[str, str], common: Common) -> None:
        super().__init__(way, common.faults, common.chance)
        self._dialogue = dialogue
        self._frames = WholeFrames(MOST_ANSWER_BYTES)

    def feed(self, data: bytes, now: float) -> None:
        at_once(self.receive(data, now))

    def receive(self, data: bytes, now: float) -> Stepwise[None]:
        try:
            frames = self._frames.feed(data)
        except TooLong as error:
            self._dialogue.stop(f"{error}, as if the broker spoke TLS or another protocol", now)
            return
        for frame in frames:
            yield from self._dialogue.answered(frame, now)

    def end(self, now: float) -> None:
        self.push("end", b"", self.arrival(now))


def sized(frame: bytes) -> bytes:
    """The frame with its size before it."""
    return len(frame).to_bytes(_SIZE_BYTES, "big") + frame
