"""Core: names of subjects: by topic, by record, or by both."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.client.errors import ConfigException, SerializationException

SubjectName = Callable[[str, bool, str | None], str]
"""(topic, whether it is the key, the full name of the record if the schema has one) to a subject."""


def topic_name(topic: str, is_key: bool, record: str | None) -> str:
    return f"{topic}-key" if is_key else f"{topic}-value"


def record_name(topic: str, is_key: bool, record: str | None) -> str:
    return _named(topic, record)


def topic_record_name(topic: str, is_key: bool, record: str | None) -> str:
    return f"{topic}-{_named(topic, record)}"


def _named(topic: str, record: str | None) -> str:
    if record is None:
        raise SerializationException(f"topic {topic}: the subject is named after the record; this schema has no name")
    return record


STRATEGIES: dict[str, SubjectName] = {
    "TopicNameStrategy": topic_name,
    "RecordNameStrategy": record_name,
    "TopicRecordNameStrategy": topic_record_name,
}


def strategy_of(text: object, setting: str) -> SubjectName:
    """A strategy by its name, with or without Java's package, or a function. Raises ConfigException."""
    if callable(text):
        return text
    found = STRATEGIES.get(str(text).rpartition(".")[2])
    if found is None:
        raise ConfigException(f"{setting} must be one of {', '.join(STRATEGIES)}, or a function; got {text!r}")
    return found
