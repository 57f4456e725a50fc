"""Subscriptions to metrics of clients, and the metrics that they push (KIP-714)."""

from __future__ import annotations

import gzip
import random
import struct
import sys
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.telemetry import Asker, ClientTelemetry, Software, Subscription, read_subscription
from barnabas.kraft.metadata.image import CLIENT_METRICS_RESOURCE, TOPIC_RESOURCE
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest
from barnabas.protocol.otlp import MAX_BYTES as MOST_READ_BYTES
from barnabas.protocol.otlp import MAX_POINTS, MalformedTelemetry, Point, read_metrics
from barnabas.protocol.primitives import ZERO_UUID, uuid_to_string
from barnabas.runtime.metrics import render
from simulation.invariants.work import MOST_CALLS

MAX_BYTES = 10_000
JAVA = Asker("till-7", "10.0.0.7", Software("apache-kafka-java", "4.3.0"))


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def metric(name: str, value: float, attributes: dict[str, str] | None = None, temporality: int = 0) -> bytes:
    """A gauge; a sum if it has a temporality (1 delta, 2 cumulative)."""
    point = bytes([4 << 3 | 1]) + struct.pack("<d", value)
    for key, text in (attributes or {}).items():
        point += field(7, field(1, key.encode()) + field(2, field(1, text.encode())))
    if not temporality:
        return field(1, name.encode()) + field(5, field(1, point))
    return field(1, name.encode()) + field(7, field(1, point) + bytes([2 << 3, temporality, 3 << 3, 1]))


def pushed(*metrics: bytes) -> bytes:
    scope = field(1, field(1, b"some library")) + b"".join(field(2, each) for each in metrics)
    return field(1, field(1, b"") + field(2, scope))


def telemetry(**configs: dict[str, str]) -> ClientTelemetry:
    made = ClientTelemetry(random.Random(1), MAX_BYTES)
    made.configs_are({(CLIENT_METRICS_RESOURCE, name): config for name, config in configs.items()})
    return made


ALL = {"metrics": "*", "interval.ms": "1000"}


def carried_out(steps: Generator[Callable[[], Any] | None, Any, Any]) -> Any:
    """The result of all steps, with their work."""
    resume: Callable[[], Callable[[], Any] | None] = partial(next, steps)
    while True:
        try:
            work = resume()
        except StopIteration as end:
            return end.value
        try:
            resume = partial(steps.send, None if work is None else work())
        except MalformedTelemetry as error:
            resume = partial(steps.throw, error)


def get(by: ClientTelemetry, instance_id: bytes, asker: Asker, now_ms: int) -> GetTelemetrySubscriptionsResponse:
    """Raises KafkaError."""
    answer = carried_out(by.get(instance_id, asker, now_ms))
    assert isinstance(answer, GetTelemetrySubscriptionsResponse)
    return answer


def push(
    to: ClientTelemetry, got: GetTelemetrySubscriptionsResponse, data: bytes, now_ms: int, **changes: object
) -> ErrorCode:
    """The error that it is answered with."""
    request = PushTelemetryRequest(
        client_instance_id=got.client_instance_id, subscription_id=got.subscription_id, metrics=data
    )
    for name, value in changes.items():
        setattr(request, name, value)
    try:
        carried_out(to.push(request, JAVA, now_ms))
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def pushed_values(by: ClientTelemetry, now_ms: int) -> dict[tuple[str, ...], float]:
    """Name and label values, without what is always there."""
    return {
        (family.name, *labels): value  # type: ignore[misc]
        for family in by.families(now_ms)
        if family is not None and family.name.startswith("kafka_client_")
        for labels, value in family.samples
    }


@pytest.mark.feature("OB-05")
def test_clients_are_asked_for_what_matches_them() -> None:
    asked = telemetry(
        java={
            "metrics": "org.apache.kafka.producer., org.apache.kafka.consumer.",
            "match": "client_software_name=apache.*",
        },
        tills={"metrics": "org.apache.kafka.producer.", "match": "client_id=till-[0-9]+", "interval.ms": "5000"},
        others={"metrics": "*", "match": "client_id=other"},
        by_port={"metrics": "*", "match": "client_source_port=.*"},
        broken={"metrics": "*", "match": "client_id=(("},
    )
    got = get(asked, ZERO_UUID, JAVA, 0)
    assert got.requested_metrics == ["org.apache.kafka.producer.", "org.apache.kafka.consumer."]
    assert (got.push_interval_ms, got.telemetry_max_bytes) == (5_000, MAX_BYTES)
    assert got.accepted_compression_types == [4, 3, 1, 2] and got.client_instance_id != ZERO_UUID
    other = get(asked, ZERO_UUID, Asker("other", "10.0.0.8", Software()), 0)
    assert (other.requested_metrics, other.push_interval_ms) == (["*"], 300_000)
    nobody = get(asked, ZERO_UUID, Asker("x", "10.0.0.9", Software()), 0)
    assert (nobody.requested_metrics, nobody.push_interval_ms) == ([], 300_000)


@pytest.mark.feature("OB-05")
def test_pushed_metrics_are_served_to_prometheus() -> None:
    receiver = telemetry(all=ALL)
    got = get(receiver, ZERO_UUID, JAVA, 0)
    whose = ("till-7", uuid_to_string(got.client_instance_id))
    data = pushed(
        metric("org.apache.kafka.producer.record.send.total", 7.0, temporality=2),
        metric("org.apache.kafka.producer.node.request.latency.avg", 1.5, {"node.id": "2"}),
    )
    assert push(receiver, got, gzip.compress(data), 10, compression_type=1) is ErrorCode.NONE
    expected = {
        ("kafka_client_producer_record_send_total", *whose): 7.0,
        ("kafka_client_producer_node_request_latency_avg", *whose, "2"): 1.5,
    }
    assert pushed_values(receiver, 20) == expected
    assert pushed_values(receiver, 59_000) == expected
    assert pushed_values(receiver, 61_000) == {}, "it has been silent for too long"


def test_delta_metrics_are_added_up() -> None:
    receiver = telemetry(all=ALL)
    got = get(receiver, ZERO_UUID, JAVA, 0)
    for turn in range(3):
        data = pushed(metric("a", 2.0, temporality=1), metric("b", 2.0))
        assert push(receiver, got, data, 1_000 * turn) is ErrorCode.NONE
    assert sorted(pushed_values(receiver, 3_000).values()) == [2.0, 6.0]


@pytest.mark.feature("OB-05")
def test_a_client_that_pushes_too_early_is_throttled() -> None:
    receiver = telemetry(all=ALL)
    got = get(receiver, ZERO_UUID, JAVA, 0)
    with pytest.raises(KafkaError) as refused:
        get(receiver, got.client_instance_id, JAVA, 999)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(receiver, got, b"", 10) is ErrorCode.NONE, "the first may come at any time"
    assert push(receiver, got, b"", 1_009) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(receiver, got, b"", 1_010) is ErrorCode.NONE
    assert push(receiver, got, b"", 1_020, terminating=True) is ErrorCode.NONE, "nor need a last one wait"
    assert push(receiver, got, b"", 9_000) is ErrorCode.INVALID_REQUEST


@pytest.mark.feature("OB-05")
def test_a_changed_subscription_is_learned_at_once() -> None:
    receiver = telemetry(all=ALL)
    got = get(receiver, ZERO_UUID, JAVA, 0)
    receiver.configs_are({(CLIENT_METRICS_RESOURCE, "all"): {"metrics": "other.", "interval.ms": "2000"}})
    assert push(receiver, got, b"", 10) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = get(receiver, got.client_instance_id, JAVA, 11)
    assert (again.requested_metrics, again.push_interval_ms) == (["other."], 2_000)
    assert again.client_instance_id == got.client_instance_id and again.subscription_id != got.subscription_id
    assert push(receiver, again, b"", 12) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("data", "changes", "error"),
    [
        (b"", {"client_instance_id": ZERO_UUID}, ErrorCode.INVALID_REQUEST),
        (b"x", {"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (b"x" * (MAX_BYTES + 1), {}, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"no metrics at all", {}, ErrorCode.INVALID_RECORD),
        (b"not gzip", {"compression_type": 1}, ErrorCode.INVALID_RECORD),
        (gzip.compress(bytes(1_000_000)), {"compression_type": 1}, ErrorCode.INVALID_RECORD),
        (pushed(*[metric("a", 0.0)] * (MAX_POINTS + 1)), {}, ErrorCode.TELEMETRY_TOO_LARGE),
        (
            gzip.compress(pushed(*[metric("a", 0.0)] * (MAX_POINTS + 1))),
            {"compression_type": 1},
            ErrorCode.INVALID_RECORD,
        ),
    ],
    ids=lambda it: it.name if isinstance(it, ErrorCode) else "",
)
def test_invalid_pushes_are_refused(data: bytes, changes: dict[str, object], error: ErrorCode) -> None:
    receiver = telemetry(all=ALL)
    got = get(receiver, ZERO_UUID, JAVA, 0)
    assert push(receiver, got, data, 10, **changes) is error
    assert pushed_values(receiver, 11) == {}


def test_the_memory_of_pushes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.telemetry.MAX_KEPT", 30)
    receiver = telemetry(all=ALL)
    data = pushed(*[metric(f"m{number}", 1.0) for number in range(10)])
    for _ in range(5):
        assert push(receiver, get(receiver, ZERO_UUID, JAVA, 0), data, 10) is ErrorCode.NONE
    assert len(pushed_values(receiver, 20)) == 30


@pytest.mark.feature("OB-05", "RP-02")
def test_each_sample_has_the_labels_of_its_own_attributes() -> None:
    by = telemetry(all=ALL)
    count = 300
    got = get(by, ZERO_UUID, JAVA, 0)
    assert push(by, got, pushed(*[metric("m", n, {f"a{n}": "x"}) for n in range(count)]), 0) is ErrorCode.NONE
    text = b"".join(stretch for family in by.families(0) if family is not None for stretch in render(family)).decode()
    lines = [line for line in text.splitlines() if line.startswith("kafka_client_m{")]
    whose = f'client_id="till-7",client_instance_id="{uuid_to_string(got.client_instance_id)}"'
    assert lines == [f'kafka_client_m{{a{n}="x",{whose}}} {n:.1f}' for n in range(count)]
    assert text.count("# TYPE kafka_client_m gauge") == 1, "they are one family"


@pytest.mark.feature("OB-05", "RP-02")
def test_values_are_put_in_order_in_steps() -> None:
    by = telemetry(all=ALL)
    data = pushed(*[metric(f"m{n}", 1.0) for n in range(MAX_POINTS // 10)])
    for _ in range(100):
        assert push(by, get(by, ZERO_UUID, JAVA, 0), data, 0) is ErrorCode.NONE
    longest = 0
    began = calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    families = by.families(0)
    sys.setprofile(count)
    try:
        for _ in families:
            longest, began = max(longest, calls - began), calls
    finally:
        sys.setprofile(None)
    assert longest < MOST_CALLS < calls


def test_a_point_with_very_many_attributes_is_refused() -> None:
    with pytest.raises(MalformedTelemetry, match="more than 64 attributes"):
        read_metrics(pushed(metric("a", 1.0, {f"a{number}": "" for number in range(65)})))


@pytest.mark.feature("OB-05", "RP-02")
def test_a_change_of_other_configs_reads_no_subscription_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def reading(name: str, config: Mapping[str, str]) -> Subscription | None:
        read.append(name)
        return read_subscription(name, config)

    monkeypatch.setattr("barnabas.broker.telemetry.read_subscription", reading)
    configs = {(CLIENT_METRICS_RESOURCE, f"s{n}"): {"metrics": "*", "match": "client_id=a.*"} for n in range(5)}
    by = telemetry()
    by.configs_are(configs)
    assert read == [], "no client has asked yet"
    for turn in range(3):
        by.configs_are({**configs, (TOPIC_RESOURCE, "t"): {"retention.ms": str(turn)}})
        get(by, ZERO_UUID, JAVA, 0)
    assert sorted(read) == ["s0", "s1", "s2", "s3", "s4"]
    by.configs_are({**configs, (CLIENT_METRICS_RESOURCE, "s3"): {"metrics": "*", "match": "client_id=till.*"}})
    assert get(by, ZERO_UUID, JAVA, 0).requested_metrics == ["*"]
    assert read[5:] == ["s3"]


@pytest.mark.feature("OB-05", "RP-02")
def test_a_long_client_id_is_matched_elsewhere() -> None:
    by = telemetry(long={"metrics": "*", "match": f"client_id={'[a-z]?' * 50}"})
    assert get(by, ZERO_UUID, JAVA, 0).requested_metrics == []
    asker = Asker("abcd" * 8_000, "10.0.0.7", Software())
    work = next(by.get(ZERO_UUID, asker, 0))
    assert work is not None and work() is False, "the worker matches it"


names = st.text(min_size=1, max_size=20)


@given(
    st.lists(st.tuples(names, st.floats(allow_nan=False), st.dictionaries(names, names, max_size=3), st.integers(0, 2)))
)
def test_metrics_are_read_as_they_were_written(metrics: list[tuple[str, float, dict[str, str], int]]) -> None:
    read = read_metrics(pushed(*(metric(*each) for each in metrics)))
    assert read == [Point(n, tuple(sorted(a.items())), v, t == 1) for n, v, a, t in metrics]


def test_too_many_bytes_are_refused_before_they_are_read() -> None:
    with pytest.raises(MalformedTelemetry, match="more than 4194304 bytes"):
        read_metrics(bytes(MOST_READ_BYTES + 1))


def test_clients_with_long_names_drop_what_was_pushed_longest_ago() -> None:
    by = telemetry(all=ALL)
    metrics = [metric(f"m{number}", 1.0, {"label": "x" * 100_000}, 2) for number in range(10)]
    data = gzip.compress(pushed(*metrics))
    clients = [get(by, ZERO_UUID, JAVA, 0) for _ in range(40)]
    by._max_bytes = 1 << 20
    for got in clients:
        assert push(by, got, data, 0, compression_type=1) == ErrorCode.NONE
    families = [family for family in by.families(0) if family is not None and family.name.startswith("kafka_client_m")]
    shown = {labels[1] for family in families for labels, _ in family.samples}
    assert shown == {uuid_to_string(got.client_instance_id) for got in clients[-33:]}


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        read_metrics(data)
    except MalformedTelemetry:
        pass
