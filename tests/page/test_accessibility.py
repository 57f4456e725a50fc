"""axe-core finds nothing in any view of the page, in light and in dark colours."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.page.access_tables import Filter, page_of
from tests.page.browser_pages import BrowserPages
from tests.page.fake_page import FakePage
from tests.page.scene import Scene
from tests.page.test_groups_in_chromium import ROWS as GROUPS
from tests.page.test_groups_in_chromium import SHARE
from tests.page.test_schemas_in_chromium import FLIGHT
from tests.page.test_schemas_in_chromium import ROWS as SCHEMAS
from tests.page.test_topics_in_chromium import FLIGHTS, record
from tests.page.test_topics_in_chromium import ROWS as TOPICS

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.page, pytest.mark.feature("OB-03")]

RUN = "async () => (await axe.run()).violations.map((it) => [it.id, it.help, it.nodes.map((node) => node.html)])"


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    package = importlib.util.find_spec("axe_playwright_python")
    assert package is not None and package.origin is not None
    return (Path(package.origin).parent / "axe.min.js").read_text("utf-8")


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, browser_pages: BrowserPages, fake: FakePage, axe: str) -> Page:
    fake.groups = page_of(GROUPS, Filter()) | {"problem": ""}
    fake.group = {"workers": SHARE}
    fake.topics = page_of(TOPICS, Filter()) | {"problem": ""}
    fake.topic = {"flights": FLIGHTS}
    fake.schemas = page_of(SCHEMAS, Filter()) | {"problem": ""}
    fake.schema = {"flights-value": FLIGHT}
    fake.records = [(200, {"metadata": {"after": "0:44"}, "data": [record(42, {"gate": 7}, "JSON")]})]
    acl = {
        "who": "User:alice", "host": "*", "permission": "deny", "operation": "read", "resource": "topic",
        "pattern": "literal", "name": "flights",
    }  # fmt: skip
    nothing = page_of([], Filter()) | {"problem": ""}
    fake.access = dict.fromkeys(("denials", "users", "tokens", "quotas"), nothing)
    fake.access["acls"] = page_of([acl], Filter()) | {"problem": ""}
    scene = Scene(fake, int(time.time() * 1000))
    scene.begin()
    scene.kill("broker-2")
    page = browser_pages.open(fake.url, color_scheme=request.param)
    page.wait_for_selector("#connection[data-state=live]")
    page.evaluate(axe)
    return page


def check(page: Page) -> None:
    assert page.evaluate(RUN) == []


def test_the_board(page: Page) -> None:
    page.wait_for_selector("#events li")
    check(page)


def test_the_shortcuts(page: Page) -> None:
    page.keyboard.press("?")
    page.wait_for_selector("#help[open]")
    check(page)


def test_the_view_topics(page: Page) -> None:
    page.get_by_role("button", name="Topics", exact=True).click()
    page.get_by_role("button", name="flights").click()
    page.wait_for_selector("#topic-body tbody tr")
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_selector("#records-body tbody tr")
    check(page)


def test_the_view_groups(page: Page) -> None:
    page.get_by_role("button", name="Groups", exact=True).click()
    page.get_by_role("button", name="workers").click()
    page.wait_for_selector("#group-body tbody tr")
    check(page)


def test_the_view_schemas(page: Page) -> None:
    page.get_by_role("button", name="Schemas", exact=True).click()
    page.get_by_role("button", name="flights-value").click()
    page.wait_for_selector("#schema-body pre")
    check(page)


def test_the_view_access(page: Page) -> None:
    page.get_by_role("button", name="Access", exact=True).click()
    page.wait_for_selector("#access-acls tbody tr")
    check(page)
