"""The view "Access" in a real browser with answers of the test, and a page that asks for a password."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from barnabas.page.access_tables import Filter, page_of
from barnabas.runtime.http_token import HttpToken
from tests.page.browser_pages import BrowserPages
from tests.page.fake_page import FakePage
from tests.page.scene import HELLO, Scene
from tests.page.test_server import served

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.page

HOSTILE = "<img src=x onerror=alert(1)>"
ACLS = [
    {
        "who": HOSTILE if index == 0 else f"User:user-{index}", "host": "*", "operation": "read", "resource": "topic",
        "permission": "deny" if index == 0 else "allow", "pattern": "literal", "name": f"flights-{index}",
    }
    for index in range(60)
]  # fmt: skip
NOTHING = {"rows": [], "start": 0, "found": 0, "total": 0, "problem": ""}
ACL_OF_BOB = "an ACL denies it: StandardAcl[resourceType=TOPIC, resourceName=flights]"


@pytest.fixture
def expect(playwright_api: Any) -> Any:
    playwright_api.expect.set_options(timeout=15_000)
    return playwright_api.expect


class Cluster:
    """Answers about the access control of a cluster."""

    def __init__(self, fake: FakePage) -> None:
        self.denials: list[dict[str, Any]] = []
        self.throttled: list[dict[str, Any]] = []
        self.questions: list[Mapping[str, str]] = []
        self.tables: dict[str, list[dict[str, Any]]] = {
            "acls": ACLS,
            "users": [{"who": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 8192}],
            "quotas": [{"who": "user alice", "quota": "producer_byte_rate", "value": 1024.5}],
            "tokens": [],
            "denials": self.denials,
        }
        for table in self.tables:
            fake.access[table] = lambda query, table=table: self.page(table, query)
        fake.access["check"] = self.check

    def page(self, table: str, query: Mapping[str, str]) -> dict[str, Any]:
        wanted = Filter(query.get("principal", ""), query.get("resource", ""), int(query["start"]))
        problem = "The cluster has no delegation tokens." if table == "tokens" else ""
        return page_of(self.tables[table], wanted) | {"problem": problem, "throttled": self.throttled}

    def check(self, query: Mapping[str, str]) -> dict[str, Any]:
        self.questions.append(query)
        allowed = query["principal"] == "alice"
        return {"allowed": allowed, "reason": "an ACL allows it: StandardAcl[…]" if allowed else ACL_OF_BOB}


@pytest.fixture
def cluster(fake: FakePage) -> Cluster:
    return Cluster(fake)


@pytest.fixture
def page(browser_pages: BrowserPages, fake: FakePage, cluster: Cluster) -> Iterator[Page]:
    Scene(fake, int(time.time() * 1000)).begin()
    page = browser_pages.open(fake.url)
    page.wait_for_selector("#connection[data-state=live]")
    page.get_by_role("button", name="Access", exact=True).click()
    page.wait_for_selector("#access-acls tbody tr")
    yield page


def test_lists_are_filtered_and_turned_page_by_page(page: Page, expect: Any) -> None:
    expect(page.locator("#board")).to_be_hidden()
    rows, aside = page.locator("#access-acls tbody tr"), page.locator("#access-acls .aside")
    expect(rows).to_have_count(25)
    expect(aside).to_have_text("1–25 of 60")
    first = rows.first.locator("td")
    expect(first.nth(0)).to_have_text(HOSTILE)
    expect(first.nth(1)).to_have_text("deny")
    page.get_by_role("button", name="Next ACLs").click()
    expect(aside).to_have_text("26–50 of 60")
    page.get_by_role("button", name="Next ACLs").click()
    expect(rows).to_have_count(10)
    expect(page.get_by_role("button", name="Next ACLs")).to_be_disabled()
    page.get_by_role("button", name="Previous ACLs").click()
    expect(aside).to_have_text("26–50 of 60")
    page.locator("#access-who").fill("USER-5")
    expect(aside).to_have_text("1–11 of 11, 60 in all")
    page.locator("#access-what").fill("topic flights-59")
    expect(rows).to_have_count(1)
    expect(page.locator("#access-users")).to_contain_text("Nothing fits the filter.")
    page.locator("#access-who").fill("")
    expect(page.locator("#access-users tbody tr")).to_have_text(["aliceSCRAM-SHA-5128,192"])
    expect(page.locator("#access-tokens")).to_contain_text("The cluster has no delegation tokens.")
    page.get_by_role("button", name="Access", exact=True).click()
    expect(page.locator("#board")).to_be_visible()
    expect(page.locator("#access")).to_be_hidden()


def test_the_question_is_answered_with_the_rule(page: Page, cluster: Cluster, expect: Any) -> None:
    page.get_by_label("Principal", exact=True).fill("alice")
    page.get_by_label("Name", exact=True).fill("flights")
    page.get_by_role("button", name="Check").click()
    verdict = page.locator("#verdict")
    expect(verdict).to_have_text("Yes: an ACL allows it: StandardAcl[…]")
    expect(verdict).to_have_attribute("data-tone", "good")
    page.get_by_label("Principal", exact=True).fill("bob")
    page.locator("#ask-operation").select_option("alter")
    page.locator("#ask-resource").select_option("cluster")
    expect(page.get_by_label("Name", exact=True)).to_be_disabled()
    page.get_by_role("button", name="Check").click()
    expect(verdict).to_have_text(f"No: {ACL_OF_BOB}")
    last = cluster.questions[-1]
    assert (last["principal"], last["operation"], last["resource"]) == ("bob", "alter", "cluster")


def test_a_new_denial_and_a_throttled_client_are_shown_by_themselves(
    page: Page, fake: FakePage, cluster: Cluster, expect: Any
) -> None:
    expect(page.locator("#access-denials")).to_contain_text("There are no denials that nodes have noted.")
    expect(page.locator("#throttled")).to_have_attribute("data-empty", "Nobody is held back now.")
    now_ms = int(time.time() * 1000)
    what = "User:bob from 127.0.0.1 is denied WRITE on topic flights for Produce"
    cluster.denials.append({
        "who": "User:bob", "at_ms": now_ms, "node": "broker-1", "resource": "topic flights", "name": "", "what": what,
        "cause": ACL_OF_BOB, "times": 10,
    })  # fmt: skip
    cluster.throttled.append({
        "who": "user alice", "node": "broker-2", "quota": "producer_byte_rate", "limit": 1024, "rate": 4096,
        "left_ms": 750,
    })  # fmt: skip
    fake.say("mark", {"number": 900, "at_ms": now_ms, "kind": "access", "subject": "topic flights", "text": what})
    expect(page.locator("#access-denials tbody tr")).to_contain_text([ACL_OF_BOB])
    line = "user alice is held back by broker-2 for 750 ms: producer_byte_rate 4,096 of 1,024"
    expect(page.locator("#throttled li")).to_have_text(line)


def test_an_answer_that_fails_is_shown_in_its_place(
    page: Page, fake: FakePage, browser_pages: BrowserPages, expect: Any
) -> None:
    browser_pages.may_break = True
    del fake.access["users"]
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator("#access-users")).to_contain_text("It could not be loaded")
    expect(page.locator("#access-acls tbody tr")).to_have_count(25)


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1440, "light"), (1440, "dark")])
def test_the_view_fits_and_can_be_read(
    browser_pages: BrowserPages, fake: FakePage, cluster: Cluster, width: int, scheme: str
) -> None:
    fake.say("hello", HELLO)
    page = browser_pages.open(fake.url, width=width, color_scheme=scheme)
    page.keyboard.press("a")
    page.wait_for_selector("#access-acls tbody tr")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    weak = page.evaluate((Path(__file__).parent / "contrasts.js").read_text())
    assert weak == []


@contextmanager
def server_with(token: HttpToken) -> Iterator[str]:
    """The address of the page's own server, without nodes, that needs a token."""
    ready, end = threading.Event(), trio.Event()
    found: list[tuple[int, trio.lowlevel.TrioToken]] = []

    async def serve() -> None:
        async with served(http_token=token) as it:
            found.append((it.port, trio.lowlevel.current_trio_token()))
            ready.set()
            await end.wait()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    try:
        assert ready.wait(20)
        yield f"http://127.0.0.1:{found[0][0]}"
    finally:
        found[0][1].run_sync_soon(end.set)
        thread.join()


def test_a_browser_asks_for_the_password_once_and_uses_it_for_everything(
    browser_pages: BrowserPages, playwright_api: Any, expect: Any
) -> None:
    browser_pages.may_break = True
    token = HttpToken("correct-horse-battery")
    with server_with(token) as address:
        with pytest.raises(playwright_api.Error, match="ERR_INVALID_AUTH_CREDENTIALS"):
            browser_pages.open(address)
        credentials = {"username": "anybody", "password": token.secret}
        reader = browser_pages.open(address, http_credentials=credentials)
        expect(reader.locator("#connection")).not_to_have_attribute("data-state", "connecting")
        expect(reader.locator("#connection")).to_have_attribute("data-state", "away")
        browser_pages.close()
