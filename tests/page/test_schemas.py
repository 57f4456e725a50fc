"""The view "Schemas": what a real registry answers, and what it does not."""

from __future__ import annotations

import json

import pytest
import trio

from barnabas.client.schemas.lookup import NewSchema, RegistryLookup
from barnabas.dev.embedded import embedded
from barnabas.page import schemas
from barnabas.page.access_tables import Filter
from barnabas.page.schemas import MOST_SCHEMA_CHARACTERS, NO_REGISTRY, Schemas

pytestmark = pytest.mark.feature("OB-03")

GATE = '{"type":"record","name":"Gate","namespace":"shop","fields":[{"name":"n","type":"int"}]}'
FLIGHT = '{"type":"record","name":"Flight","fields":[{"name":"gate","type":"shop.Gate"}]}'


def view_of(registry: RegistryLookup | None) -> Schemas:
    return Schemas(registry, trio.to_thread.run_sync)


async def test_subjects_are_listed_and_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "KEPT_SECONDS", 0.0)
    with embedded(registry=True) as servers:
        registry = RegistryLookup([servers.registry_url])
        view = view_of(registry)
        assert (await view.listing(Filter()))["rows"] == []

        def fill() -> None:
            registry.register("gates-value", NewSchema("AVRO", GATE))
            registry.register("flights-value", NewSchema("AVRO", FLIGHT, [("shop.Gate", "gates-value", 1)]))
            registry.register("labels-value", NewSchema("JSON", '{"type":"object"}'))
            long = "x" * MOST_SCHEMA_CHARACTERS
            registry.register("labels-value", NewSchema("JSON", json.dumps({"type": "object", "title": long})))

        await trio.to_thread.run_sync(fill)
        listing = await view.listing(Filter())
        assert listing["problem"] == ""
        assert [(each["who"], each["type"], each["version"]) for each in listing["rows"]] == [
            ("flights-value", "Avro", 1),
            ("gates-value", "Avro", 1),
            ("labels-value", "JSON Schema", 2),
        ]
        assert [each["who"] for each in (await view.listing(Filter("LABEL", "json")))["rows"]] == ["labels-value"]
        flight = await view.describe("flights-value")
        assert (flight["problem"], flight["compatibility"], flight["versions"]) == ("", "backward", [1])
        assert flight["references"] == [{"name": "shop.Gate", "subject": "gates-value", "version": 1}]
        assert json.loads(flight["text"]) == json.loads(FLIGHT) and "\n" in flight["text"]
        label = await view.describe("labels-value")
        assert label["versions"] == [1, 2]
        assert len(label["text"]) == MOST_SCHEMA_CHARACTERS and label["characters_left_out"] > 0
        assert "answered 404: Subject 'none' not found." in (await view.describe("none"))["problem"]


async def test_a_registry_that_is_away_is_one_line() -> None:
    view = view_of(RegistryLookup(["http://127.0.0.1:9"]))
    problem = (await view.listing(Filter()))["problem"]
    assert problem.startswith("no schema registry answered: http://127.0.0.1:9/schemas: ") and "\n" not in problem


async def test_another_server_is_named() -> None:
    class Odd(RegistryLookup):
        def ask(self, path: str) -> object:
            return [{"subject": 7}]

    assert (await view_of(Odd(["http://odd"])).listing(Filter()))["problem"] == (
        "http://odd does not answer as a schema registry does"
    )


async def test_a_page_without_a_registry_names_the_option() -> None:
    view = view_of(None)
    assert (await view.listing(Filter()))["problem"] == NO_REGISTRY
    assert (await view.describe("s"))["problem"] == NO_REGISTRY
