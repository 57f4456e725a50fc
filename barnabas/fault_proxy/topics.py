"""Core: the topics that requests name, by name or by id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from functools import cache
from typing import Any

from barnabas.protocol.api_keys import ApiKey, ApiSpec
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import FieldSpec, Message, Struct, parse_versions
from barnabas.runtime.at_once import Stepwise, at_once

NAME_FIELDS = frozenset(["name", "topic", "topic_name"])
"""Fields with the name of a topic, in items of an array of topics."""
ID_FIELD = "topic_id"
NOT_ASKED = frozenset(["forgotten_topics_data"])
"""Arrays of topics about which a request asks nothing."""
TOPIC_RESOURCE = 2
"""Type of a topic among the resources of configs and ACLs."""
MOST_IDS = 200_000
TOPICS_OF_A_STEP = 1_000


class TopicNames:
    """Names of topics by their ids, as responses have shown them."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}

    def learn(self, response: Any) -> None:
        """Take the topics of a Metadata or CreateTopics response."""
        at_once(self.learn_in_steps(response))

    def learn_in_steps(self, response: Any) -> Stepwise[None]:
        for number, topic in enumerate(response.topics):
            if number % TOPICS_OF_A_STEP == TOPICS_OF_A_STEP - 1:
                yield
            if topic.topic_id != ZERO_UUID and topic.name and len(self._names) < MOST_IDS:
                self._names[bytes(topic.topic_id)] = topic.name

    def name_of(self, topic_id: bytes) -> str | None:
        return self._names.get(bytes(topic_id))


TEACHERS = frozenset([ApiKey.METADATA, ApiKey.CREATE_TOPICS])
"""APIs whose responses show names and ids of topics."""

NameOf = Callable[[bytes], str | None]
IsMeant = Callable[[str], bool]


@cache
def names_topics(spec: ApiSpec) -> bool:
    """True if requests of some version name topics."""
    return _leads_to_topics(spec.request_type(), is_topic=False)


def topics_of(request: Message, version: int, name_of: NameOf) -> set[str]:
    """Names of the topics that a request names. Ids without a known name are left out."""
    return set(_names(request, version, name_of, is_topic=False))


def asks_for_all(request: Any) -> bool:
    """True if a Metadata request asks for all topics."""
    return request.API_KEY == ApiKey.METADATA and not request.topics


def split(request: Any, version: int, name_of: NameOf, is_meant: IsMeant) -> tuple[Any, Any]:
    """Copies of a request, without and with the topics that are meant. Either is None if it names no topic."""
    rest, meant = copy(request), copy(request)
    has_rest = has_meant = False
    kind: type[Struct] = type(request)
    for spec in _carried(kind, version):
        element = spec.type.element
        if element is None or spec.name in NOT_ASKED:
            continue
        items = getattr(request, spec.name)
        if element.struct is None:
            if not _is_list_of_topics(spec):
                continue
            halves = [[each for each in items or [] if is_meant(each) == wanted] for wanted in (False, True)]
        elif "topic" in spec.name or _is_resource(element.struct):
            halves = [
                [each for each in items or [] if _is_meant(each, version, name_of, is_meant) == wanted]
                for wanted in (False, True)
            ]
        elif _leads_to_topics(element.struct, is_topic=False):
            pairs = [split(each, version, name_of, is_meant) for each in items or []]
            halves = [[each for each in half if each is not None] for half in zip(*pairs, strict=True)] or [[], []]
        else:
            continue
        for half, part in ((rest, halves[0]), (meant, halves[1])):
            setattr(half, spec.name, part)
        has_rest, has_meant = has_rest or bool(halves[0]), has_meant or bool(halves[1])
    return rest if has_rest else None, meant if has_meant else None


@cache
def names_a_topic(kind: type[Struct]) -> bool:
    """True if an item of a response, or a resource, is about one topic by a field of its own."""
    names = {spec.name for spec in kind.FIELDS if spec.type.element is None}
    return bool(names & {*NAME_FIELDS, ID_FIELD, "resource_name"})


def _is_meant(topic: Any, version: int, name_of: NameOf, is_meant: IsMeant) -> bool:
    return any(map(is_meant, _names(topic, version, name_of, is_topic=True)))


def _names(struct: Any, version: int, name_of: NameOf, *, is_topic: bool) -> Iterator[str]:
    kind: type[Struct] = type(struct)
    if _is_resource(kind):
        if struct.resource_type == TOPIC_RESOURCE:
            yield struct.resource_name
        return
    for spec in _carried(kind, version):
        if spec.name in NOT_ASKED:
            continue
        element = spec.type.element
        if element is None:
            value = getattr(struct, spec.name)
            if not is_topic or not value:
                continue
            if spec.name in NAME_FIELDS:
                yield value
            elif spec.name == ID_FIELD and value != ZERO_UUID:
                name = name_of(value)
                if name is not None:
                    yield name
        elif element.struct is not None:
            if _leads_to_topics(element.struct, is_topic="topic" in spec.name):
                for each in getattr(struct, spec.name) or ():
                    yield from _names(each, version, name_of, is_topic="topic" in spec.name)
        elif _is_list_of_topics(spec):
            yield from getattr(struct, spec.name) or ()


@cache
def _leads_to_topics(kind: type[Struct], *, is_topic: bool) -> bool:
    if _is_resource(kind):
        return True
    for spec in kind.FIELDS:
        element = spec.type.element
        if spec.name in NOT_ASKED:
            continue
        if element is None:
            if is_topic and spec.name in (*NAME_FIELDS, ID_FIELD):
                return True
        elif _is_list_of_topics(spec) or (
            element.struct is not None and _leads_to_topics(element.struct, is_topic="topic" in spec.name)
        ):
            return True
    return False


@cache
def _is_resource(kind: type[Struct]) -> bool:
    names = {spec.name for spec in kind.FIELDS}
    return {"resource_type", "resource_name"} <= names


def _is_list_of_topics(spec: FieldSpec) -> bool:
    element = spec.type.element
    return element is not None and element.name == "string" and "topic" in spec.name and "regex" not in spec.name


@cache
def _carried(kind: type[Struct], version: int) -> tuple[FieldSpec, ...]:
    return tuple(spec for spec in kind.FIELDS if version in parse_versions(spec.versions))
