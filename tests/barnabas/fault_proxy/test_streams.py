"""The proxy's core: frames, rules, and one direction of a connection, byte by byte and in virtual time."""

from __future__ import annotations

import random
import struct
from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.fault_proxy.frames import NO_API, Conversation, Frames, Message
from barnabas.fault_proxy.outlet import RESEND_SECONDS
from barnabas.fault_proxy.rules import CLIENT, Faults, LinkState, MessageRule, Way
from barnabas.fault_proxy.stream import Ends, Stream

PRODUCE, FETCH, END_TXN = 0, 1, 26
ENDS = Ends(CLIENT, "broker-1")


def request(api_key: int, correlation_id: int, body: bytes = b"body") -> bytes:
    return struct.pack(">ihhi", len(body) + 8, api_key, 3, correlation_id) + body


def answer(correlation_id: int, body: bytes = b"body") -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


class Wire:
    """Both directions of one connection, and a clock."""

    def __init__(self, ends: Ends = ENDS) -> None:
        self.faults = Faults()
        self.now = 100.0
        conversation = Conversation()
        chance = random.Random(1)
        self.there = Stream(ends, conversation, self.faults, chance, is_request=True)
        self.back = Stream(ends, conversation, self.faults, chance, is_request=False)

    def ask(self, data: bytes) -> bytes:
        """Feeds a request; returns the bytes that pass at once."""
        self.there.feed(data, self.now)
        return self.taken(self.there)

    def respond(self, data: bytes) -> bytes:
        self.back.feed(data, self.now)
        return self.taken(self.back)

    def taken(self, stream: Stream) -> bytes:
        return b"".join(stream.take(self.now))

    def later(self, stream: Stream, seconds: float) -> bytes:
        self.now += seconds
        return self.taken(stream)


@pytest.mark.feature("FI-04")
@given(st.lists(st.tuples(st.sampled_from([PRODUCE, FETCH, END_TXN]), st.binary(max_size=40)), max_size=6), st.data())
def test_frames_are_cut_the_same_wherever_the_bytes_are(asked: list[tuple[int, bytes]], data: st.DataObject) -> None:
    conversation = Conversation()
    there, back = Frames(conversation, is_request=True), Frames(conversation, is_request=False)
    requests = b"".join(request(key, number, body) for number, (key, body) in enumerate(asked))
    answers = b"".join(answer(number, body) for number, (_key, body) in enumerate(asked))
    for frames, sent, is_request in ((there, requests, True), (back, answers, False)):
        begun, passed = [], b""
        position = 0
        while position < len(sent):
            step = data.draw(st.integers(1, 20))
            for piece in frames.feed(sent[position : position + step]):
                passed += piece.data
                if piece.begins:
                    begun.append(piece.message)
            position += step
        assert passed == sent and not frames.inside
        assert [(m.api_key, m.correlation_id, m.is_request) for m in begun] == [
            (key, number, is_request) for number, (key, _body) in enumerate(asked)
        ]
    assert conversation.unanswered == 0


@pytest.mark.feature("FI-04")
@given(st.binary(max_size=60), st.booleans())
def test_bytes_that_are_no_kafka_frames_pass_unchanged(data: bytes, is_request: bool) -> None:
    frames = Frames(Conversation(), is_request=is_request)
    passed = b"".join(piece.data for half in (data[:7], data[7:]) for piece in frames.feed(half))
    assert passed + frames.rest() == data


@pytest.mark.feature("FI-04")
def test_an_answer_is_known_by_its_question() -> None:
    conversation = Conversation()
    Frames(conversation, is_request=True).feed(request(PRODUCE, 1) + request(FETCH, 2) + request(END_TXN, 3))
    back = Frames(conversation, is_request=False)
    # The produce with acks=0 is never answered.
    [first, *_] = back.feed(answer(2))
    assert first.message == Message(FETCH, 3, 2, False)
    [stranger, *_] = back.feed(answer(77))
    assert stranger.message.api_key == NO_API


@pytest.mark.feature("FI-04")
def test_a_healthy_link_carries_at_once() -> None:
    wire = Wire()
    assert wire.ask(request(PRODUCE, 1)) == request(PRODUCE, 1)
    assert wire.respond(answer(1)) == answer(1)
    assert wire.there.next_due(wire.now) is None
    wire.there.end(wire.now)
    assert wire.taken(wire.there) == b"" and wire.there.is_over and not wire.there.is_reset


@pytest.mark.feature("FI-04")
def test_a_cut_way_keeps_what_is_sent_and_the_news_of_an_end() -> None:
    wire = Wire()
    wire.faults.set_link(CLIENT, "broker-1", LinkState(cut=True))
    assert wire.ask(request(PRODUCE, 1)) == b""
    wire.there.end(wire.now)
    assert wire.there.next_due(wire.now) is None and wire.later(wire.there, 1000) == b"" and not wire.there.is_over
    # The other way is whole.
    assert wire.respond(answer(9)) == answer(9)
    wire.faults.heal()
    assert wire.taken(wire.there) == request(PRODUCE, 1) and wire.there.is_over


@pytest.mark.feature("FI-04")
def test_one_api_is_held_and_what_follows_waits_behind_it() -> None:
    wire = Wire()
    rule = MessageRule(END_TXN, "request", "hold", source=CLIENT)
    number = wire.faults.add_rule(rule)
    assert wire.ask(request(PRODUCE, 1)) == request(PRODUCE, 1)
    assert wire.ask(request(END_TXN, 2)[:9]) == b""
    assert wire.ask(request(END_TXN, 2)[9:] + request(PRODUCE, 3)) == b""
    assert wire.faults.clear_rule(number) == 1
    assert wire.taken(wire.there) == request(END_TXN, 2) + request(PRODUCE, 3)


@pytest.mark.feature("FI-04")
def test_one_answer_is_dropped_and_the_connection_goes_on() -> None:
    wire = Wire()
    wire.faults.add_rule(MessageRule(FETCH, "response", "drop"))
    wire.ask(request(PRODUCE, 1) + request(FETCH, 2) + request(PRODUCE, 3))
    assert wire.respond(answer(1) + answer(2, b"x" * 5000) + answer(3)) == answer(1) + answer(3)


@pytest.mark.feature("FI-04")
def test_a_delayed_message_is_late_also_when_the_link_gets_better() -> None:
    wire = Wire()
    wire.faults.set_link(CLIENT, "broker-1", LinkState(latency_ms=1000))
    wire.faults.add_rule(MessageRule(FETCH, "request", "delay", delay_ms=500))
    assert wire.ask(request(PRODUCE, 1) + request(FETCH, 2)) == b""
    wire.faults.set_link(CLIENT, "broker-1", LinkState())
    assert wire.taken(wire.there) == request(PRODUCE, 1)
    assert wire.there.next_due(wire.now) == pytest.approx(wire.now + 0.5)
    assert wire.later(wire.there, 0.51) == request(FETCH, 2)


@pytest.mark.feature("FI-04")
def test_resets_after_a_request_and_instead_of_an_answer() -> None:
    wire = Wire()
    wire.faults.add_rule(MessageRule(END_TXN, "request", "reset"))
    assert wire.ask(request(END_TXN, 1) + request(PRODUCE, 2)) == request(END_TXN, 1)
    assert wire.there.is_reset
    wire = Wire()
    wire.faults.add_rule(MessageRule(END_TXN, "response", "reset"))
    wire.ask(request(PRODUCE, 1) + request(END_TXN, 2))
    assert wire.respond(answer(1) + answer(2)) == answer(1) and wire.back.is_reset


@pytest.mark.feature("FI-04")
def test_a_connection_breaks_in_the_middle_of_a_frame() -> None:
    whole = request(PRODUCE, 1)
    wire = Wire()
    wire.faults.set_link(CLIENT, "broker-1", LinkState(reset_after_bytes=2 * len(whole)))
    assert wire.ask(whole) == whole and not wire.there.is_reset
    assert wire.ask(whole) == whole[:-1] and wire.there.is_reset


@pytest.mark.feature("FI-04")
def test_latency_loss_and_width() -> None:
    wire = Wire()
    wire.faults.set_link(CLIENT, "broker-1", LinkState(latency_ms=40, jitter_ms=20))
    assert wire.ask(request(PRODUCE, 1)) == b"" and wire.later(wire.there, 0.039) == b""
    assert wire.later(wire.there, 0.03) == request(PRODUCE, 1)
    wire.faults.set_link(CLIENT, "broker-1", LinkState(loss=1.0))
    assert wire.ask(request(PRODUCE, 1)) == b"" and wire.later(wire.there, RESEND_SECONDS) == b""
    assert wire.later(wire.there, 60 * RESEND_SECONDS) == b"" and wire.later(wire.there, 4 * RESEND_SECONDS)
    wire.faults.set_link(CLIENT, "broker-1", LinkState(bytes_per_second=1000))
    wire.there.feed(request(PRODUCE, 1, bytes(1000)), wire.now)
    passed = [len(wire.later(wire.there, 0.1)) for _ in range(12)]
    assert sum(passed) == 1012 and max(passed) <= 150 and passed[8] > 0


links = st.builds(
    LinkState,
    cut=st.booleans(),
    latency_ms=st.floats(0, 50),
    jitter_ms=st.floats(0, 50),
    bytes_per_second=st.sampled_from([0, 100, 5000]),
    loss=st.floats(0, 0.9),
    half_open=st.booleans(),
)


@pytest.mark.feature("FI-04")
@given(st.lists(st.tuples(links, st.integers(0, 60), st.floats(0, 0.2)), max_size=8), st.integers(1, 300))
def test_whatever_links_do_bytes_come_whole_and_in_order(steps: list[tuple[LinkState, int, float]], size: int) -> None:
    wire = Wire()
    sent = request(FETCH, 1, bytes(index % 251 for index in range(size)))
    came, position = b"", 0
    for state, count, seconds in steps:
        wire.faults.set_link(CLIENT, "broker-1", state)
        came += wire.ask(sent[position : position + count])
        position += count
        came += wire.later(wire.there, seconds)
        assert sent.startswith(came)
    wire.faults.heal()
    assert came + wire.ask(sent[position:]) == sent
    assert wire.there.buffered == 0


@pytest.mark.feature("FI-04")
def test_a_rule_matches_by_api_direction_and_nodes() -> None:
    rule = MessageRule(FETCH, "response", "drop", source="broker-2", target="broker-1")
    message = Message(FETCH, 12, 1, is_request=False)
    assert rule.is_about(message, "broker-2", "broker-1")
    assert not rule.is_about(message, "broker-1", "broker-2")
    assert not rule.is_about(message._replace(is_request=True), "broker-2", "broker-1")
    assert not rule.is_about(message._replace(api_key=PRODUCE), "broker-2", "broker-1")
    anybody = replace(rule, source=None, target=None)
    assert anybody.is_about(message, CLIENT, "broker-3")
    faults = Faults()
    number = faults.add_rule(replace(anybody, probability=0.5))
    struck = [faults.rule_for(message, CLIENT, "broker-3", random.Random(seed)) is not None for seed in range(40)]
    assert 8 < sum(struck) < 32 and faults.struck[number] == sum(struck)


@pytest.mark.feature("FI-04")
def test_requests_are_counted_by_who_asks_whom_also_those_that_are_lost() -> None:
    wire = Wire()
    wire.faults.add_rule(MessageRule(FETCH, "request", "drop"))
    wire.ask(request(FETCH, 1) + request(FETCH, 2) + request(END_TXN, 3))
    wire.respond(answer(3))
    wire.faults.heal()
    assert wire.faults.asked == {Way(FETCH, *astuple(ENDS)): 2, Way(END_TXN, CLIENT, "broker-1"): 1}
