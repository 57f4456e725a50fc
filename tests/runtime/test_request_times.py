"""Counts and times of requests, and their text for Prometheus."""

from __future__ import annotations

import logging
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from barnabas.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from barnabas.runtime.families import Family
from barnabas.runtime.metrics import render, request_families
from barnabas.runtime.process import wanted_levels
from barnabas.runtime.request_times import BUSY_SECONDS, STRIDE, ApiCounter, Spread, error_codes


@pytest.mark.feature("OB-01")
def test_errors_are_found_wherever_they_stand() -> None:
    fine = PartitionProduceResponse(index=0)
    refused = PartitionProduceResponse(index=1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert error_codes(ProduceResponse(responses=[TopicProduceResponse(partition_responses=[fine, refused])])) == [6]
    partition = PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    response = FetchResponse(error_code=70, responses=[FetchableTopicResponse(partitions=[partition])])
    assert sorted(error_codes(response)) == [1, 70]
    assert error_codes(FindCoordinatorResponse(coordinators=[Coordinator(error_code=15)])) == [15]
    assert error_codes(ProduceResponse()) == []


def test_some_of_many_requests_are_timed() -> None:
    counter, timed = ApiCounter(), []
    for number in range(1, 50):
        counter.requests = number
        if number >= counter.next_timed:
            timed.append(number)
            counter.timed(number * BUSY_SECONDS / 20)
    assert timed[:3] == [1, 2, 2 + STRIDE] and {later - each for each, later in pairwise(timed[1:])} == {STRIDE}
    counter.requests = counter.next_timed
    counter.timed(1_000.0)
    assert counter.next_timed == counter.requests + 1, "rare ones are all timed"


def test_all_are_timed_while_they_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    counter = ApiCounter()
    with caplog.at_level(logging.DEBUG, "kafka.request.logger"):
        for number in range(1, 10):
            counter.requests = number
            assert number >= counter.next_timed
            counter.timed(number * 1e-6)


label = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=20)


@given(st.lists(st.tuples(label, label, st.integers(-(2**63), 2**63 - 1) | st.floats()), unique_by=lambda it: it[:2]))
def test_prometheus_parses_the_text(samples: list[tuple[str, str, float]]) -> None:
    family = Family("gauge", "a_b", "What it is: \\ and\nmore", ("x", "y"), [((x, y), v) for x, y, v in samples])
    [read] = text_string_to_metric_families(b"".join(render(family)).decode())
    assert (read.name, read.type, read.documentation) == ("a_b", "gauge", family.help)
    for sample, (x, y, value) in zip(read.samples, samples, strict=True):
        assert sample.labels == {"x": x, "y": y}
        assert sample.value == float(value) or (math.isnan(value) and math.isnan(sample.value))


@given(st.lists(st.floats(0, 100), max_size=50))
def test_a_histogram_adds_up(times: list[float]) -> None:
    spread = Spread()
    for each in times:
        spread.took(each)
    [read] = text_string_to_metric_families(b"".join(render(Family.of("histogram", "h", "How long.", spread))).decode())
    values = {(sample.name, sample.labels.get("le")): sample.value for sample in read.samples}
    assert values["h_count", None] == values["h_bucket", "+Inf"] == len(times)
    assert values["h_sum", None] == pytest.approx(sum(times) * 1000)
    for (name, bound), count in values.items():
        if name == "h_bucket":
            assert bound is not None
            assert count == sum(each <= float(bound) / 1000 for each in times)


def test_unused_apis_have_no_samples() -> None:
    used = ApiCounter()
    used.requests = used.answers = 2
    used.errors.update([3, 3, 12_345])
    families = request_families({"Fetch": used, "Produce": ApiCounter()})
    samples = {family.name: list(family.samples) for family in families}
    assert samples["kafka_network_requestmetrics_requests"] == [(("Fetch",), 2)]
    assert samples["kafka_network_requestmetrics_errors"] == [
        (("Fetch", "UNKNOWN_TOPIC_OR_PARTITION"), 2),
        (("Fetch", "12345"), 1),
    ]
    assert samples["kafka_network_requestmetrics_totaltimems"] == []


def test_long_steps_of_a_forwarded_request_are_shown_where_they_were_taken() -> None:
    """A controller counts no request for it: it came in an Envelope."""
    forwarded = ApiCounter()
    forwarded.over_budget, forwarded.longest = 1, 0.025
    samples = {family.name: list(family.samples) for family in request_families({"CreateAcls": forwarded})}
    assert samples["barnabas_request_overbudget"] == [(("CreateAcls",), 1)]
    assert samples["barnabas_request_longest_step_ms"] == [(("CreateAcls",), 25.0)]


@pytest.mark.feature("OB-01")
@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("", {"": logging.INFO, "kafka.request.logger": logging.WARNING}),
        ("DEBUG", {"": logging.DEBUG, "kafka.request.logger": logging.WARNING}),
        ("warn, kafka.request.logger=debug", {"": logging.WARNING, "kafka.request.logger": logging.DEBUG}),
        ("broker.node=ERROR,nonsense,x=LOUD", {"": 20, "kafka.request.logger": 30, "broker.node": logging.ERROR}),
    ],
)
def test_levels_are_set_for_all_and_for_single_loggers(text: str, levels: dict[str, int]) -> None:
    assert wanted_levels(text) == levels
