"""The client without `await` has every name that the client with it has."""

from __future__ import annotations

import inspect

import pytest

from barnabas import Admin, Consumer, Producer, ShareConsumer, errors, sync

pytestmark = pytest.mark.feature("CL-05")

NOT_FOR_USERS = {"begin_send", "decided", "membership", "over", "put_back", "split", "take_ahead"}
"""Methods for the client's other parts, or for callers inside of trio."""
PAIRS = [
    (Producer, sync.Producer),
    (Consumer, sync.Consumer),
    (ShareConsumer, sync.ShareConsumer),
    (Admin, sync.Admin),
]


@pytest.mark.parametrize(("awaited", "waiting"), PAIRS)
def test_every_public_name_is_there_and_nothing_needs_await(awaited: type, waiting: type) -> None:
    missing = {name for name in dir(awaited) if not name.startswith("_")} - set(dir(waiting))
    assert missing <= NOT_FOR_USERS
    assert [name for name in dir(waiting) if inspect.iscoroutinefunction(getattr(waiting, name))] == []


@pytest.mark.parametrize(("awaited", "waiting"), PAIRS)
def test_it_explains_itself_as_the_other_does(awaited: type, waiting: type) -> None:
    common = [name for name in dir(awaited) if not name.startswith("_") and hasattr(waiting, name)]
    assert len(common) > 8
    for name in common:
        assert inspect.getdoc(getattr(waiting, name)) == inspect.getdoc(getattr(awaited, name)), name


def test_a_wrong_setting_is_reported_before_anything_is_opened() -> None:
    with pytest.raises(errors.ConfigException, match="linger"):
        sync.Producer(bootstrap_servers="127.0.0.1:1", linger=5)


def test_a_client_that_is_not_open_raises() -> None:
    producer = sync.Producer(bootstrap_servers="127.0.0.1:1")
    with pytest.raises(errors.IllegalStateException, match="`with` block"):
        producer.flush()
