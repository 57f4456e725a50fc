"""The grammar of rules, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cluster.errors import WrongArgument
from barnabas.fault_proxy.fault_rule import FaultRule, make_rule, parse_rule
from barnabas.fault_proxy.topics import names_topics
from barnabas.protocol.api_keys import API_SPECS
from barnabas.protocol.errors import ErrorCode

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30)
EFFECTS = st.one_of(
    st.fixed_dictionaries(
        {"error": st.sampled_from([each.name for each in ErrorCode if each is not ErrorCode.NONE])},
        optional={"applied": st.booleans(), "delay_ms": st.integers(0, 10**6), "response_delay_ms": st.integers(0, 99)},
    ),
    st.fixed_dictionaries({"drop": st.sampled_from(["request", "response"])}),
    st.fixed_dictionaries({"cut": st.sampled_from(["request", "response", "mid-frame"])}),
    st.fixed_dictionaries({"delay_ms": st.integers(1, 10**6)}),
)
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "client": TEXTS,
        "after": st.integers(0, 10**9),
        "every": st.integers(1, 10**9),
        "times": st.integers(1, 10**9),
        "probability": st.floats(0, 1, exclude_min=True),
    },
)


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    spec = draw(st.sampled_from(list(API_SPECS.values())))
    given_ = {"api": draw(st.sampled_from([spec.name, str(int(spec.key)), "*"])), **draw(EFFECTS), **draw(LIMITS)}
    if names_topics(spec):
        given_ |= draw(st.fixed_dictionaries({}, optional={"topic": TEXTS}))
    return given_


@given(rules())
def test_a_rule_survives_its_own_text(fields: dict[str, Any]) -> None:
    rule = make_rule(fields, "rule")
    assert parse_rule(rule.text) == rule


@given(st.text(max_size=60))
def test_any_text_is_a_rule_or_has_a_reason_in_one_line(text: str) -> None:
    try:
        assert isinstance(parse_rule(text), FaultRule)
    except WrongArgument as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Prodce error=1", "api must be the name or the key of an API, or *; did you mean Produce? got 'Prodce'"),
        ("Produce error=NOT_LEADER", "did you mean NOT_LEADER_OR_FOLLOWER? got 'NOT_LEADER'"),
        ("Produce error=NONE", "must be the name or the number of an error of Kafka"),
        ("Produce", "needs error, drop, cut, delay_ms, response_delay_ms or throttle_ms; got none of them"),
        ("Produce error=1 drop=request", "error and drop exclude each other; got both"),
        ("Produce drop=both", "drop must be request or response; got 'both'"),
        ("Produce error=1 times=0", "times must be greater than or equal to 1; got '0'"),
        ("Produce error=1 probability=2", "probability must be less than or equal to 1; got '2'"),
        ("Produce error=1 tims=2", "tims is unknown; did you mean times?"),
        ("Produce error=1 error=2", "error is there twice"),
        ("Produce orders", "'orders' is not NAME=VALUE, as in topic=orders"),
        ("error=1", "must begin with an API or *"),
        ("Heartbeat topic=orders error=1", "requests of Heartbeat name no topics; got topic=orders"),
        ("EndQuorumEpoch throttle_ms=1", "responses of EndQuorumEpoch have no throttle time; got throttle_ms=1"),
        ("4711 error=1", "API 4711 is not known here"),
        ("Produce drop=response throttle_ms=4", "drop and cut leave none"),
        ("Produce applied=true delay_ms=1", "applied needs error; got none"),
        ('Produce topic="orders', "No closing quotation"),
    ],
)
def test_a_wrong_rule_is_refused_with_value_and_remedy(text: str, reason: str) -> None:
    with pytest.raises(WrongArgument) as refused:
        parse_rule(text)
    message = str(refused.value)
    assert message.startswith(f"rule {text!r}: ") and reason in message and "\n" not in message


def test_names_are_those_of_kafka_in_any_case_and_numbers_of_both() -> None:
    assert parse_rule("0 error=6") == parse_rule("produce error=not_leader_or_follower")
    assert parse_rule("find_coordinator error=15").api == "FindCoordinator"
    assert parse_rule("4711 drop=request").api_key == 4711
