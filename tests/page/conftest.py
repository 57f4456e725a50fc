"""One Chromium for all tests marked `page`, and pages in it that are watched for errors and for where they ask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.page.available import CHROMIUM, could_be_had, lacking
from tests.page.browser_pages import BrowserPages
from tests.page.fake_page import FakePage

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_unexcused: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--chromium-required",
        action="store_true",
        help="A test that is skipped, though Chromium could be had, fails the run.",
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("page") and (why := lacking()):
        if could_be_had():
            _unexcused.append(item.nodeid)
        pytest.skip(f"Chromium: {why}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    required = session.config.getoption("chromium_required", False)
    if required and _unexcused and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _unexcused:
        terminalreporter.write_line(f"skipped though Chromium could be had: {', '.join(_unexcused)}")


@pytest.fixture(scope="session")
def playwright_api() -> Any:
    return pytest.importorskip("playwright.sync_api")


@pytest.fixture(scope="session")
def browser(playwright_api: Any) -> Iterator[Browser]:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture
def fake() -> Iterator[FakePage]:
    with FakePage().running() as page:
        yield page


@pytest.fixture
def browser_pages(browser: Browser) -> Iterator[BrowserPages]:
    """Opens pages; afterwards none of them has had an error, or asked anybody but its own server."""
    browser_pages = BrowserPages(browser)
    yield browser_pages
    browser_pages.close()
    assert browser_pages.errors == []
    assert browser_pages.foreign_requests == []
