"""The view "Topics" in a real browser, with answers of the test."""

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


def row(name: str, state: str, size_bytes: int, *, is_internal: bool = False) -> dict[str, Any]:
    resource = f"{state} {'internal' if is_internal else ''}"
    return {
        "who": name, "resource": resource, "name": "", "state": state, "is_internal": is_internal,
        "moving": 0, "partitions": 3, "replicas": 3, "size_bytes": size_bytes,
    }  # fmt: skip


ROWS = [
    row("flights", "healthy", 5_000_000),
    row("gates", "under-replicated", 900),
    row("__consumer_offsets", "healthy", 0, is_internal=True),
]
FLIGHTS = {
    **ROWS[0],
    "topic": "flights",
    "topic_id": "id-of-flights",
    "cluster_id": "the cluster",
    "problem": "",
    "has_records": True,
    "rows": [
        {"partition": 0, "leader": 2, "isr": [2, 3], "replicas": [2, 3, 1], "joining": [], "leaving": [], "start": 10,
         "end": 4711, "size_bytes": 2048}
    ],
    "rows_left_out": 2,
    "configs": [
        {"name": "retention.ms", "value": "60000", "source": "dynamic topic config", "is_default": False,
         "is_sensitive": False},
        {"name": "cleanup.policy", "value": "delete", "source": "default config", "is_default": True,
         "is_sensitive": False},
    ],
}  # fmt: skip


def record(offset: int, value: Any, kind: str = "STRING") -> dict[str, Any]:
    return {
        "topic_name": "flights", "partition_id": 0, "offset": offset, "timestamp": "2026-01-31T12:00:00.000Z",
        "headers": [{"name": "trace", "value": None}], "key": {"type": "STRING", "data": "UA1545"},
        "value": {"type": kind, "data": value},
    }  # fmt: skip


@pytest.fixture
def expect(playwright_api: Any) -> Any:
    playwright_api.expect.set_options(timeout=15_000)
    return playwright_api.expect


@pytest.fixture
def page(browser_pages: BrowserPages, fake: FakePage) -> Page:
    fake.topics = lambda query: page_of(
        ROWS, Filter(query.get("topic", ""), query.get("state", ""), int(query["start"]))
    ) | {"problem": "", "moving": 0}
    fake.topic = {"flights": FLIGHTS, "gates": FLIGHTS | {"topic": "gates", "has_records": False}}
    Scene(fake, int(time.time() * 1000)).begin()
    page = browser_pages.open(fake.url)
    page.wait_for_selector("#connection[data-state=live]")
    page.get_by_role("button", name="Topics", exact=True).click()
    page.wait_for_selector("#topics-list tbody tr")
    return page


def test_topics_are_filtered_by_name_and_state(page: Page, expect: Any) -> None:
    expect(page.locator("#board")).to_be_hidden()
    rows = page.locator("#topics-list tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_have_text("flightshealthy334.8 MiB")
    page.locator("#topics-state").select_option("internal")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("healthy, internal")
    page.locator("#topics-state").select_option("")
    page.locator("#topics-filter").fill("GATE")
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Topics", exact=True).click()
    expect(page.locator("#board")).to_be_visible()


def test_a_topic_shows_partitions_and_configs(page: Page, expect: Any) -> None:
    page.get_by_role("button", name="flights").click()
    facts = "healthy · 3 partitions · 3 replicas · 4.8 MiB · id id-of-flights"
    expect(page.locator("#topic-facts")).to_have_text(facts)
    body = page.locator("#topic-body")
    expect(body.locator("tbody tr").first).to_have_text("022, 32, 3, 1104,7112.0 KiB")
    expect(body).to_contain_text("… and 2 more")
    expect(body).to_contain_text("retention.ms60000dynamic topic config")
    expect(body.locator("details")).to_contain_text("1 defaults")


def test_records_are_read_from_an_offset_filtered_and_read_on(
    page: Page, fake: FakePage, expect: Any, browser_pages: BrowserPages
) -> None:
    browser_pages.may_break = True
    page.get_by_role("button", name="flights").click()
    fake.records = [
        (200, {"metadata": {"after": "0:44"}, "data": [record(42, HOSTILE), record(43, {"gate": 7}, "JSON")]}),
        (200, {"metadata": {"after": "0:44"}, "data": []}),
        (400, {"error_code": 400, "message": "from must be earliest, latest, an offset or a time"}),
    ]
    page.locator("#records-from").fill("42")
    page.locator("#records-partition").fill("0")
    page.locator("#records-contains").fill("UA")
    page.locator("#records-format").select_option("json")
    page.get_by_role("button", name="Show", exact=True).click()
    rows = page.locator("#records-body tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text(HOSTILE)
    expect(rows.nth(1)).to_contain_text('"gate": 7')
    assert fake.records_asked == [{"from": "42", "value": "json", "max": "50", "partition": "0", "contains": "UA"}]
    page.get_by_role("button", name="More").click()
    expect(page.locator("#records-told")).to_have_text("No records.")
    assert fake.records_asked[-1]["after"] == "0:44"
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("#records-told")).to_contain_text("They could not be loaded: from must be earliest")


def test_a_page_without_the_rest_interface_says_how_to_see_records(page: Page, expect: Any) -> None:
    page.get_by_role("button", name="gates").click()
    expect(page.locator("#records-told")).to_have_text("Records are shown by a page that was started with --rest.")
    expect(page.locator("#records-form")).to_be_hidden()


def test_a_topic_that_moves_is_shown_until_it_is_there(page: Page, fake: FakePage, expect: Any) -> None:
    moving = [ROWS[0] | {"moving": 2}, *ROWS[1:]]
    part = FLIGHTS["rows"][0] | {"replicas": [4, 2, 3, 1], "joining": [4], "leaving": [1]}
    fake.topics = lambda query: page_of(moving, Filter("", "", 0)) | {"problem": "", "moving": 2}
    fake.topic = {"flights": FLIGHTS | {"moving": 2, "rows": [part]}}
    page.locator("#topics-refresh").click()
    rows = page.locator("#topics-list tbody tr")
    expect(rows.first).to_contain_text("3, 2 move")
    page.get_by_role("button", name="flights", exact=True).click()
    expect(page.locator("#topic-body")).to_contain_text("4, 2, 3, 1 (+4, −1)")
    # Nobody clicks any more.
    moved = FLIGHTS["rows"][0] | {"replicas": [4, 2, 3]}
    fake.topic = {"flights": FLIGHTS | {"rows": [moved]}}
    fake.topics = lambda query: page_of(ROWS, Filter("", "", 0)) | {"problem": "", "moving": 0}
    expect(rows.first).not_to_contain_text("move")
    expect(page.locator("#topic-body")).not_to_contain_text("+4")
