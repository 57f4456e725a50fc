"""Topics of requests: every API that names some, in every version, by name and by id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.fault_proxy.error_answers import ERROR_FIELDS, has_errors_by_topic
from barnabas.fault_proxy.topics import ID_FIELD, NAME_FIELDS, TopicNames, names_topics, split, topics_of
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from barnabas.protocol.refusals import refusal_of
from barnabas.protocol.schema import parse_versions
from tests.barnabas.fault_proxy.client_wire import ClientWire, filled, read_answer, read_request

IDS = {"orders": bytes(range(16)), "others": bytes(range(16, 32))}
SHOWN = MetadataResponse(topics=[MetadataResponseTopic(name=name, topic_id=each) for name, each in IDS.items()])
WHOLE = {ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.METADATA}
"""Their sessions, or their answers, are treated apart; `test_dialogue.py` has them."""


def with_topics(kind: Any, version: int) -> Any:
    """A request that names both topics wherever it can name one."""
    made = filled(kind, version)
    for spec in kind.FIELDS:
        element = spec.type.element
        if version not in parse_versions(spec.versions) or element is None:
            continue
        if element.name == "string" and "topic" in spec.name and "regex" not in spec.name:
            setattr(made, spec.name, list(IDS))
        elif element.struct is not None and "topic" in spec.name:
            setattr(made, spec.name, [named(with_topics(element.struct, version), name) for name in IDS])
        elif element.struct is not None and {"resource_type", "resource_name"} <= set(names_of(element.struct)):
            setattr(made, spec.name, [resource(element.struct, version, name) for name in IDS])
        elif element.struct is not None:
            setattr(made, spec.name, [with_topics(element.struct, version)])
    return made


def names_of(kind: Any) -> list[str]:
    return [spec.name for spec in kind.FIELDS]


def named(item: Any, name: str) -> Any:
    for spec in item.FIELDS:
        if spec.type.element is None and spec.name in NAME_FIELDS:
            setattr(item, spec.name, name)
        elif spec.type.element is None and spec.name == ID_FIELD:
            item.topic_id = IDS[name]
    return item


def resource(kind: Any, version: int, name: str) -> Any:
    made = filled(kind, version)
    made.resource_type, made.resource_name = 2, name
    return made


def every_version() -> Iterator[tuple[ApiKey, int]]:
    for key, spec in API_SPECS.items():
        if names_topics(spec):
            for version in range(spec.min_version, spec.max_version + 1):
                if topics_of(with_topics(spec.request_type(), version), version, name_of):
                    yield key, version


def name_of(topic_id: bytes) -> str | None:
    names = TopicNames()
    names.learn(SHOWN)
    return names.name_of(topic_id)


CASES = list(every_version())


def test_every_api_with_topics_is_here() -> None:
    assert {API_SPECS[key].name for key, _ in CASES} == {spec.name for spec in API_SPECS.values() if names_topics(spec)}


@pytest.mark.parametrize(("key", "version"), CASES, ids=str)
def test_a_request_is_split_into_topics_that_are_meant_and_others(key: ApiKey, version: int) -> None:
    request = with_topics(API_SPECS[key].request_type(), version)
    assert topics_of(request, version, name_of) == set(IDS)
    rest, meant = split(request, version, name_of, lambda name: name == "orders")
    assert topics_of(rest, version, name_of) == {"others"}
    assert topics_of(meant, version, name_of) == {"orders"}
    assert topics_of(request, version, name_of) == set(IDS), "the request stays as it was"
    none, every = split(request, version, name_of, lambda name: True)
    assert topics_of(every, version, name_of) == set(IDS)
    assert none is None or not topics_of(none, version, name_of)


@pytest.mark.parametrize(("key", "version"), [case for case in CASES if case[0] not in WHOLE], ids=str)
def test_a_rule_for_a_topic_leaves_the_other_one_to_the_broker(key: ApiKey, version: int) -> None:
    spec = API_SPECS[key]
    wire = ClientWire(f"{spec.name} topic=orders error=REQUEST_TIMED_OUT")
    wire.common.topics.learn(SHOWN)
    request = with_topics(spec.request_type(), version)
    if key is ApiKey.PRODUCE:
        request.acks = -1
    sent = wire.ask(request, version)
    if not has_errors_by_topic(request, version):
        assert sent == b"" and read_answer(wire.to_client(), key, version)
        return
    assert topics_of(read_request(sent, key, version), version, name_of) == {"others"}
    rest, _ = split(request, version, name_of, lambda name: name == "orders")
    real = error_free(rest, version)
    _, answer = read_answer(wire.answer(real, version), key, version)
    assert sorted(set(codes(answer, version))) in ([0, 7], [7]), answer
    assert topics_said(answer, version) == {(name, name == "orders") for name in IDS}


def error_free(request: Any, version: int) -> Any:
    """The answer of a broker that refuses nothing."""
    return refusal_of(request, version, ErrorCode.NONE)


def codes(struct: Any, version: int) -> Iterator[int]:
    for spec in struct.FIELDS:
        value = getattr(struct, spec.name)
        if version not in parse_versions(spec.versions):
            continue
        if spec.name in ERROR_FIELDS:
            yield value
        elif isinstance(value, list):
            for each in value:
                if hasattr(each, "FIELDS"):
                    yield from codes(each, version)


def topics_said(answer: Any, version: int) -> set[tuple[str, bool]]:
    """Topics of an answer, and whether an error is said of each."""
    found: set[tuple[str, bool]] = set()
    for spec in answer.FIELDS:
        value = getattr(answer, spec.name)
        if version not in parse_versions(spec.versions) or not isinstance(value, list):
            continue
        for each in value:
            if not hasattr(each, "FIELDS"):
                continue
            name = next((getattr(each, field) for field in (*NAME_FIELDS, "resource_name") if hasattr(each, field)), "")
            name = name or next((key for key, topic_id in IDS.items() if getattr(each, ID_FIELD, b"") == topic_id), "")
            found |= {(name, any(codes(each, version)))} if name else topics_said(each, version)
    return found
