"""The quota of a client among eight levels (KIP-55), and the sensor that it shares."""

from __future__ import annotations

from itertools import product

import pytest

from barnabas.runtime.identity import Principal
from barnabas.runtime.quotas.levels import QuotaLevels, sanitized
from barnabas.runtime.quotas.source import Client, QuotaType
from tests.kraft.metadata.quota_lookup import quota_for

pytestmark = pytest.mark.feature("QU-03")

PRODUCE, FETCH, REQUEST = QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST


def entity(user: str | None = "", client_id: str | None = "") -> tuple[tuple[str, str | None], ...]:
    parts = [("client-id", client_id), ("user", user)]
    return tuple(part for part in parts if part[1] != "")


EIGHT = [
    entity("alice", "app"),
    entity("alice", None),
    entity("alice"),
    entity(None, "app"),
    entity(None, None),
    entity(None),
    entity(client_id="app"),
    entity(client_id=None),
]


def client(user: str, client_id: str) -> Client:
    return Client(Principal(user), client_id)


def limit(levels: QuotaLevels, user: str, client_id: str, quota: QuotaType = PRODUCE) -> float | None:
    return levels.limit(quota, levels.tags(quota, client(user, client_id)))


def test_the_most_specific_level_wins_and_the_next_when_it_goes() -> None:
    quotas = {each: {PRODUCE.key: float(place)} for place, each in enumerate(EIGHT, 1)}
    levels = QuotaLevels(quotas)
    for place, each in enumerate(EIGHT, 1):
        assert limit(levels, "alice", "app") == place
        levels.apply({each: None})
    assert limit(levels, "alice", "app") is None
    assert not levels.is_active(PRODUCE)


def test_every_set_of_quotas_gives_what_the_lookup_in_the_image_gives() -> None:
    for chosen in product([False, True], repeat=8):
        quotas = {each: {PRODUCE.key: float(place)} for place, each in enumerate(EIGHT) if chosen[place]}
        levels = QuotaLevels(quotas)
        for user, client_id in product(("alice", "bob"), ("app", "other")):
            found = quota_for(quotas, user, client_id, PRODUCE.key)
            assert limit(levels, user, client_id) == (None if found is None else found.value), (quotas, user, client_id)


def test_types_of_quotas_have_levels_of_their_own() -> None:
    levels = QuotaLevels({entity("alice", "app"): {PRODUCE.key: 1.0}, entity("alice"): {REQUEST.key: 2.0}})
    assert limit(levels, "alice", "app", PRODUCE) == 1
    assert limit(levels, "alice", "app", REQUEST) == 2
    assert not levels.is_active(FETCH)


@pytest.mark.parametrize(
    ("quotas", "user", "client_id", "tags"),
    [
        ([], "alice", "app", ("", "app")),
        ([entity(client_id="app")], "alice", "other", ("", "other")),
        ([entity("alice")], "bob", "app", ("bob", "")),
        ([entity("alice", "app")], "bob", "other", ("bob", "other")),
        ([entity("alice"), entity(client_id="app")], "alice", "app", ("alice", "")),
        ([entity("alice"), entity(client_id="app")], "bob", "other", ("", "other")),
        ([entity("alice"), entity(None, None)], "bob", "app", ("bob", "app")),
        ([entity("alice", None), entity(None)], "alice", "app", ("alice", "app")),
        ([entity("alice", None), entity(None)], "bob", "app", ("bob", "")),
    ],
)
def test_clients_with_the_same_tags_share_a_sensor(quotas: list, user: str, client_id: str, tags: tuple) -> None:
    levels = QuotaLevels({each: {PRODUCE.key: 1.0} for each in quotas})
    assert levels.tags(PRODUCE, client(user, client_id)) == (("user", tags[0]), ("client-id", tags[1]))


def test_addresses_have_no_part_in_it() -> None:
    levels = QuotaLevels({(("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0}})
    assert not any(levels.is_active(quota) for quota in QuotaType)


def test_names_of_users_are_percent_encoded_in_metrics() -> None:
    assert sanitized("CN=Some One,O=x*y") == "CN%3DSome%20One%2CO%3Dx%2Ay"
