"""The view "Schemas" in a real browser, with answers of the test."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.page.access_tables import Filter, page_of
from tests.page.browser_pages import BrowserPages
from tests.page.fake_page import FakePage
from tests.page.scene import Scene

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.page, pytest.mark.feature("OB-03")]

HOSTILE = "<img src=x onerror=alert(1)>"


def row(subject: str, kind: str, version: int, schema_id: int) -> dict[str, Any]:
    return {"who": subject, "resource": kind, "name": "", "type": kind, "version": version, "id": schema_id}


ROWS = [
    row("flights-value", "Avro", 3, 12),
    row("gates-value", "JSON Schema", 1, 4),
    row("planes-value", "Protobuf", 2, 9),
]
FLIGHT = {
    **ROWS[0],
    "schema": "flights-value",
    "problem": "",
    "compatibility": "backward transitive",
    "versions": [2, 3],
    "versions_left_out": 1,
    "text": f'{{"doc": "{HOSTILE}"}}',
    "characters_left_out": 7,
    "references": [{"name": "shop.Gate", "subject": "gates-value", "version": 1}],
}


@pytest.fixture
def expect(playwright_api: Any) -> Any:
    playwright_api.expect.set_options(timeout=15_000)
    return playwright_api.expect


@pytest.fixture
def page(browser_pages: BrowserPages, fake: FakePage) -> Page:
    fake.schemas = lambda query: (
        page_of(ROWS, Filter(query.get("schema", ""), query.get("type", ""), int(query["start"]))) | {"problem": ""}
    )
    fake.schema = {"flights-value": FLIGHT}
    Scene(fake, int(time.time() * 1000)).begin()
    page = browser_pages.open(fake.url)
    page.wait_for_selector("#connection[data-state=live]")
    page.keyboard.press("s")
    page.wait_for_selector("#schemas-list tbody tr")
    return page


def test_subjects_are_filtered_by_name_and_type(page: Page, expect: Any) -> None:
    expect(page.locator("#board")).to_be_hidden()
    rows = page.locator("#schemas-list tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_have_text("flights-valueAvro312")
    page.locator("#schemas-type").select_option("Protobuf")
    expect(rows).to_have_count(1)
    page.locator("#schemas-type").select_option("")
    page.locator("#schemas-filter").fill("GATE")
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Topics", exact=True).click()
    expect(page.locator("#schemas")).to_be_hidden()
    page.get_by_role("button", name="Schemas", exact=True).click()
    expect(page.locator("#topics")).to_be_hidden()


def test_a_subject_shows_its_schema_versions_and_references(page: Page, expect: Any) -> None:
    page.get_by_role("button", name="flights-value").click()
    expect(page.locator("#schema-facts")).to_have_text("Avro · version 3 · id 12 · compatibility backward transitive")
    body = page.locator("#schema-body")
    expect(body).to_contain_text("Versions: 1 earlier ones, 2, 3")
    expect(body.locator("pre")).to_have_text(f'{{"doc": "{HOSTILE}"}}')
    expect(body).to_contain_text("… and 7 characters more")
    expect(body.locator("tbody tr")).to_have_text("shop.Gategates-value1")


def test_a_page_without_a_registry_says_so(page: Page, fake: FakePage, expect: Any) -> None:
    fake.schemas = page_of([], Filter()) | {"problem": "The page knows no schema registry."}
    page.locator("#schemas-refresh").click()
    expect(page.locator("#schemas-list")).to_contain_text("The page knows no schema registry.")
