"""Any message that a version can carry comes back from its bytes, and from its JSON form."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.protocol.schema import Message, decode, decode_in_steps, encode, encode_chunks, encode_in_steps
from tests.examples import examples
from tests.protocol.json_form import from_json, to_json
from tests.protocol.vectors import message_types

PAIRS = [
    (kind, version)
    for kind in message_types().values()
    for version in range(kind.VERSIONS.lowest, kind.VERSIONS.highest + 1)
]
QUICK = settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

R = TypeVar("R")
MessagesOf = Callable[[type[Message], int], st.SearchStrategy[Any]]


def result_of(steps: Generator[None, None, R]) -> R:
    """The result of all steps."""
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            result: R = finished.value
            return result


@pytest.mark.feature("PF-03")
@QUICK
@given(data=st.data())
def test_bytes_come_back(messages_of: MessagesOf, data: st.DataObject) -> None:
    kind, version = data.draw(st.sampled_from(PAIRS))
    message = data.draw(messages_of(kind, version))
    encoded = encode(message, version)
    again = decode(kind, encoded, version)
    assert again == message
    assert encode(again, version) == encoded
    assert b"".join(encode_chunks(message, version, b"prefix")) == b"prefix" + encoded
    # The same in steps.
    assert b"".join(result_of(encode_in_steps(message, version, b"prefix"))) == b"prefix" + encoded
    assert result_of(decode_in_steps(kind, encoded, version, len(encoded))) == (message, len(encoded))


@pytest.mark.feature("PF-03")
@QUICK
@given(data=st.data())
def test_the_json_form_comes_back(messages_of: MessagesOf, data: st.DataObject) -> None:
    kind, version = data.draw(st.sampled_from(PAIRS))
    message = data.draw(messages_of(kind, version))
    form = to_json(message, version)
    assert to_json(from_json(kind, form, version), version) == form


@pytest.mark.feature("PF-03")
@pytest.mark.parametrize("name", sorted(message_types()))
def test_defaults_come_back_in_every_version(name: str) -> None:
    kind = message_types()[name]
    for version in range(kind.VERSIONS.lowest, kind.VERSIONS.highest + 1):
        message = kind()
        assert decode(kind, encode(message, version), version) == message
