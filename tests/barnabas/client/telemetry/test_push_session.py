"""When a client asks, when it pushes, and what each response means (KIP-714), without a network."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.telemetry.push_session import (
    DEFAULT_INTERVAL_MS,
    LEAST_INTERVAL_MS,
    TRANSITIONS,
    PushSession,
    PushState,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from barnabas.protocol.otlp import Point, Sample, read_metrics, write_metrics
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.records.compression import Compression, decompress

pytestmark = pytest.mark.feature("CL-06")

ME = bytes(range(16))
SENT, DEPTH = "org.apache.kafka.producer.record.send.total", "org.apache.kafka.producer.waiting.threads"


def subscription(**changes: object) -> GetTelemetrySubscriptionsResponse:
    response = GetTelemetrySubscriptionsResponse(
        client_instance_id=ME,
        subscription_id=7,
        accepted_compression_types=[4, 3],
        push_interval_ms=10_000,
        telemetry_max_bytes=1_000_000,
        delta_temporality=True,
        requested_metrics=["*"],
    )
    for name, value in changes.items():
        setattr(response, name, value)
    return response


def session(**changes: object) -> PushSession:
    made = PushSession(random.Random(3), 0, 1_000_000)
    assert made.subscription_request().client_instance_id == ZERO_UUID
    made.subscribed(subscription(**changes), 0)
    return made


def samples(sent: float, depth: float = 1.0) -> list[Sample]:
    return [Sample(SENT, (), sent, is_sum=True), Sample(DEPTH, (("node_id", "node-1"),), depth)]


def points(request: PushTelemetryRequest) -> dict[str, Point]:
    data = request.metrics
    if request.compression_type:
        data = decompress(request.compression_type, data, 1 << 20)
    return {point.name: point for point in read_metrics(data)}


def test_the_first_push_comes_at_a_random_time_and_the_others_at_the_interval() -> None:
    waits = []
    for seed in range(50):
        each = PushSession(random.Random(seed), 0, 0)
        each.subscribed(subscription(), 0)
        assert each.state is PushState.PUSH_NEEDED and each.instance_id == ME
        waits.append(each.due_ms)
        each.push_request(samples(1), {}, 0)
        each.pushed(PushTelemetryResponse(), 20_000)
        assert each.due_ms == 30_000
    assert 5_000 <= min(waits) < 7_000 and 13_000 < max(waits) <= 15_000


def test_sums_are_deltas_since_the_push_that_was_accepted() -> None:
    made = session()
    first = made.push_request(samples(10), {}, 1_005_000)
    assert (first.subscription_id, first.client_instance_id, first.terminating) == (7, ME, False)
    assert points(first)[SENT] == Point(SENT, (), 10, True)
    assert points(first)[DEPTH] == Point(DEPTH, (("node_id", "node-1"),), 1, False)
    made.pushed(PushTelemetryResponse(), 5_000)
    made.push_request(samples(14), {}, 1_015_000)
    made.unanswered(45_000)
    assert made.state is PushState.SUBSCRIPTION_NEEDED and made.due_ms == 55_000
    made.subscribed(subscription(), 55_000)
    assert points(made.push_request(samples(15), {}, 1_060_000))[SENT].value == 5, "4 of them were not accepted"


def test_cumulative_sums_stay_as_they_are() -> None:
    made = session(delta_temporality=False)
    for sent in (10, 14):
        assert points(made.push_request(samples(sent), {}, 0))[SENT] == Point(SENT, (), sent, False)
        made.pushed(PushTelemetryResponse(), 0)


def test_only_what_is_asked_for_is_pushed() -> None:
    made = session(requested_metrics=["org.apache.kafka.producer.record.", "nothing"])
    assert list(points(made.push_request(samples(1), {}, 0))) == [SENT]
    made = session(requested_metrics=[])
    assert made.state is PushState.SUBSCRIPTION_NEEDED and made.due_ms == 10_000
    nan = [Sample(SENT, (), float("nan"))]
    assert points(session().push_request(nan, {}, 0)) == {}, "no samples yet"


def test_the_codec_is_the_first_that_both_know_and_that_was_not_refused() -> None:
    assert session(accepted_compression_types=[9, -1, 3, 4]).push_request([], {}, 0).compression_type == Compression.LZ4
    assert session(accepted_compression_types=[]).push_request([], {}, 0).compression_type == Compression.NONE
    made = session()
    assert made.push_request(samples(1), {}, 0).compression_type == Compression.ZSTD
    made.pushed(PushTelemetryResponse(error_code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), 100)
    assert made.state is PushState.SUBSCRIPTION_NEEDED and made.due_ms == 100
    made.subscribed(subscription(), 100)
    assert made.state is PushState.PUSH_NEEDED and made.due_ms == 100
    assert made.push_request(samples(1), {}, 0).compression_type == Compression.LZ4


def test_a_push_is_never_larger_than_the_broker_takes() -> None:
    many = [Sample(f"org.apache.kafka.producer.metric.{number}", (), number, is_sum=True) for number in range(500)]
    made = session(telemetry_max_bytes=2_000, accepted_compression_types=[])
    request = made.push_request(many, {}, 0)
    kept = points(request)
    assert len(request.metrics) <= 2_000 and 10 < len(kept) < 500
    made.pushed(PushTelemetryResponse(), 0)
    late = many[499]
    assert points(made.push_request([late], {}, 0))[late.name].value == 499, "it was left out, so nothing is deducted"


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE])
def test_errors_that_a_new_subscription_mends(code: ErrorCode) -> None:
    made = session()
    made.push_request(samples(1), {}, 0)
    made.pushed(PushTelemetryResponse(error_code=code), 9_000)
    assert (made.state, made.due_ms) == (PushState.SUBSCRIPTION_NEEDED, 9_000)
    assert made.subscription_request().client_instance_id == ME
    made.subscribed(subscription(subscription_id=8), 9_000)
    assert made.push_request(samples(1), {}, 0).subscription_id == 8
    # A broker that refuses again and again is not asked without end.
    made.pushed(PushTelemetryResponse(error_code=code), 9_001)
    assert (made.state, made.due_ms) == (PushState.SUBSCRIPTION_NEEDED, 19_001)


@pytest.mark.parametrize("code", [ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED])
def test_errors_that_time_mends(code: ErrorCode) -> None:
    made = session()
    made.push_request(samples(1), {}, 0)
    made.pushed(PushTelemetryResponse(error_code=code), 9_000)
    assert (made.state, made.due_ms) == (PushState.SUBSCRIPTION_NEEDED, 19_000)
    first = PushSession(random.Random(1), 0, 0)
    first.subscribed(GetTelemetrySubscriptionsResponse(error_code=code), 9_000)
    assert first.due_ms == 9_000 + DEFAULT_INTERVAL_MS


FINAL = [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION, 999]


@pytest.mark.parametrize("code", FINAL)
def test_errors_that_end_it(code: int) -> None:
    made = session()
    made.push_request(samples(1), {}, 0)
    made.pushed(PushTelemetryResponse(error_code=code), 9_000)
    assert made.state is PushState.ENDED
    first = PushSession(random.Random(1), 0, 0)
    first.subscribed(GetTelemetrySubscriptionsResponse(error_code=code), 0)
    assert first.state is PushState.ENDED


def test_nonsense_of_a_broker_does_no_harm() -> None:
    assert session(client_instance_id=ZERO_UUID).state is PushState.ENDED
    for interval_ms, expected in ((-1, DEFAULT_INTERVAL_MS), (0, DEFAULT_INTERVAL_MS), (1, LEAST_INTERVAL_MS)):
        made = session(push_interval_ms=interval_ms, requested_metrics=[])
        assert made.due_ms == expected
    assert session(telemetry_max_bytes=-5).push_request(samples(1), {}, 0).metrics


def test_the_states_are_those_of_the_text() -> None:
    assert sum(len(targets) for targets in TRANSITIONS.values()) == 6


names = st.text(max_size=200)
series = st.tuples(names, st.lists(st.tuples(names, names), max_size=3, unique=True).map(sorted).map(tuple))


written_samples = st.builds(
    lambda it, value, is_sum: Sample(*it, value, is_sum), series, st.floats(allow_nan=False), st.booleans()
)


@given(st.lists(written_samples, max_size=20), st.dictionaries(names, names, max_size=3), st.booleans())
def test_reading_gives_back_written_samples(written: list[Sample], resource: dict[str, str], is_delta: bool) -> None:
    data = write_metrics(written, resource, is_delta=is_delta, began_ms=5, now_ms=2**40)
    expected = [Point(each.name, each.attributes, each.value, is_delta and each.is_sum) for each in written]
    assert read_metrics(data) == expected
