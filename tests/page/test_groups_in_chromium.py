"""The view "Groups" in a real browser, with answers of the test."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
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
ROWS = [
    {"who": name, "resource": f"{kind} Stable", "name": "", "type": kind, "protocol": kind, "state": "Stable"}
    for name, kind in ((HOSTILE, "classic"), ("app", "streams"), ("workers", "share"))
]
COMMON: Mapping[str, Any] = {
    "problem": "",
    "state": "Stable",
    "coordinator": 2,
    "assignor": None,
    "epoch": 4,
    "target_epoch": 4,
    "topology_epoch": None,
    "members_left_out": 0,
    "partitions_left_out": 0,
}
NOW_MS = 1_763_750_000_000
HISTORY = {
    "interval_ms": 5_000,
    "samples": [
        [NOW_MS - 120_000, 4_000, None, None],
        [NOW_MS - 115_000, None, None, None],
        [NOW_MS - 60_000, 1_500, 12.25, 480.0],
        [NOW_MS, 12, 0.0, 500.0],
    ],
    "topics": [{"topic": HOSTILE, "partitions": 3, "lag": 12, "written": 0.0, "read": 500.0}],
    "topics_left_out": 2,
}
SHARE = {
    **COMMON,
    "group": "workers",
    "type": "share",
    "lag": 12,
    "lag_seconds": 3.5,
    "history": HISTORY,
    "members": [
        {"member_id": "m-1", "client_id": HOSTILE, "host": "/10.0.0.7", "epoch": 4, "assignment": "jobs:0", "tasks": {}}
    ],
    "partitions": [
        {"topic": "jobs", "partition": 0, "committed": 5, "end": 17, "lag": 12, "lag_seconds": 3.5, "member": None}
    ],
    "shares": [
        {
            "topic": "jobs", "partition": 0, "leader": "broker-1", "start": 5, "end": 9, "high_watermark": 17,
            "counts": {"acquired": 3, "available": 1}, "error": "COORDINATOR_NOT_AVAILABLE", "spans_left_out": 7,
            "spans": [
                {"first": 5, "last": 7, "state": "acquired", "deliveries": 2, "member": "m-1", "client": "slow",
                 "since_ms": NOW_MS, "lock_ends_ms": NOW_MS + 30_000, "becomes": "acknowledged"},
                {"first": 8, "last": 8, "state": "available", "deliveries": 1, "member": None, "client": None,
                 "since_ms": None, "lock_ends_ms": None, "becomes": None},
            ],
        }
    ],
    "not_loaded": [],
}  # fmt: skip
STREAMS = {
    **COMMON,
    "group": "app",
    "type": "streams",
    "topology_epoch": 1,
    "target_epoch": 3,
    "lag": 0,
    "lag_seconds": 0.0,
    "partitions": [],
    "members": [
        {
            "member_id": "m-1", "client_id": "one", "host": "/10.0.0.7", "epoch": 4, "process_id": "p",
            "tasks": {"active": "0:0,1 1:2", "standby": "1:3", "warmup": ""},
        }
    ],
}  # fmt: skip


@pytest.fixture
def expect(playwright_api: Any) -> Any:
    playwright_api.expect.set_options(timeout=15_000)
    return playwright_api.expect


@pytest.fixture
def page(browser_pages: BrowserPages, fake: FakePage) -> Page:
    fake.groups = lambda query: page_of(
        ROWS, Filter(query.get("group", ""), query.get("type", ""), int(query["start"]))
    ) | {"problem": ""}
    nothing = page_of([], Filter()) | {"problem": ""}
    fake.access = dict.fromkeys(("acls", "denials", "users", "tokens", "quotas"), nothing)
    fake.group = {"workers": SHARE, "app": STREAMS}
    Scene(fake, int(time.time() * 1000)).begin()
    page = browser_pages.open(fake.url)
    page.wait_for_selector("#connection[data-state=live]")
    page.get_by_role("button", name="Groups", exact=True).click()
    page.wait_for_selector("#groups-list tbody tr")
    return page


def test_groups_are_filtered_by_name_and_type(page: Page, expect: Any) -> None:
    expect(page.locator("#board")).to_be_hidden()
    rows = page.locator("#groups-list tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first.locator("td").first).to_have_text(HOSTILE)
    page.locator("#groups-type").select_option("share")
    expect(rows).to_have_count(1)
    page.locator("#groups-type").select_option("")
    page.locator("#groups-filter").fill("APP")
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Access", exact=True).click()
    expect(page.locator("#groups")).to_be_hidden()
    expect(page.locator("#access")).to_be_visible()
    expect(page.locator("#board")).to_be_hidden()
    page.get_by_role("button", name="Access", exact=True).click()
    expect(page.locator("#board")).to_be_visible()


def test_a_share_group_shows_records_in_flight(page: Page, fake: FakePage, expect: Any) -> None:
    page.get_by_role("button", name="workers").click()
    expect(page.locator("#group-facts")).to_have_text(
        "share · Stable · epoch 4 · coordinator 2 · lag 12 records · 3.50 s behind"
    )
    body = page.locator("#group-body")
    expect(body).to_contain_text("jobs-0 on broker-1: offsets 5 to 9 in flight (3 acquired, 1 available)")
    spans = body.locator("table").last.locator("tbody tr")
    expect(spans.first).to_contain_text("5–7acquired, becomes acknowledged2m-1 (slow)")
    expect(spans.nth(1)).to_contain_text("8available1–––")
    expect(body).to_contain_text("… and 7 more")
    expect(body).to_contain_text("The last change could not be stored: COORDINATOR_NOT_AVAILABLE")
    expect(body).to_contain_text(HOSTILE)
    fake.group["workers"] = {**SHARE, "state": "Empty"}
    expect(page.locator("#group-facts")).to_contain_text("share · Empty")


def test_a_streams_group_shows_tasks_and_epochs(page: Page, expect: Any) -> None:
    page.get_by_role("button", name="app").click()
    expect(page.locator("#group-facts")).to_contain_text("epoch 4 · assigned for epoch 3 · topology epoch 1")
    row = page.locator("#group-body tbody tr").first
    expect(row).to_contain_text("0:0,1 1:21:3–")
    page.get_by_role("button", name="onerror").click()
    expect(page.locator("#group-body")).to_contain_text("not found.")


def test_lag_over_time_is_a_drawing_a_sentence_and_a_table(page: Page, fake: FakePage, expect: Any) -> None:
    page.get_by_role("button", name="workers").click()
    figure = page.locator("#group-lag")
    words = figure.locator("figcaption")
    expect(words).to_contain_text("the lag was at most 4,000 records")
    expect(words).to_contain_text("it was 12; 0/s written and 500/s read.")
    drawing = figure.get_by_role("img")
    assert drawing.get_attribute("aria-label") == words.text_content()
    # The line is broken where the lag is unknown, and where nobody looked.
    expect(figure.locator("path.lag")).to_have_attribute("d", re.compile(r"^M[^M]+M[^M]+M[^M]+$"))
    topics = figure.get_by_role("region", name="Topics").locator("tbody tr")
    expect(topics).to_have_text([f"{HOSTILE}3120/s500/s"])
    expect(figure).to_contain_text("… and 2 more")
    summary = figure.get_by_text("The same by the minute")
    summary.focus()
    page.keyboard.press("Enter")
    minutes = figure.get_by_role("region", name="Lag by the minute").locator("tbody tr")
    expect(minutes).to_have_count(3)
    expect(minutes.nth(1)).to_contain_text("1,50012/s480/s")
    # It stays open, and in focus, when the next answer comes.
    later = [*HISTORY["samples"], [NOW_MS + 60_000, 0, 1.0, 2.0]]
    fake.group["workers"] = {**SHARE, "history": {**HISTORY, "samples": later}}
    expect(minutes).to_have_count(4)
    expect(summary).to_be_focused()
    page.get_by_role("button", name="app").click()
    expect(figure).to_be_hidden()
