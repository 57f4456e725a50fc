"""Pages in a browser, watched: their errors, and whom they ask."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

_BROKEN_CONNECTION = re.compile(r"Failed to load resource|net::ERR_")


class Looking:
    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.errors: list[str] = []
        self.asked_elsewhere: list[str] = []
        self.may_break = False
        """The test breaks connections or is refused: that a browser says so in its console is no error of the page."""

    def open(self, url: str, *, width: int = 1440, height: int = 1000, own_clock: bool = False, **options: Any) -> Page:
        """A new page with a memory of its own; `options` are those of a browser's context.

        With its own clock, time passes on the page when the test says so.
        """
        context = self._browser.new_context(viewport={"width": width, "height": height}, **options)
        self._contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        origin = urlsplit(url).netloc

        def asked(request: Request) -> None:
            if urlsplit(request.url).netloc != origin:
                self.asked_elsewhere.append(request.url)

        def said(message: ConsoleMessage) -> None:
            if message.type == "error" and not (self.may_break and _BROKEN_CONNECTION.search(message.text)):
                self.errors.append(message.text)

        page.on("request", asked)
        page.on("console", said)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        if own_clock:
            page.clock.install()
        page.goto(url)
        return page

    def close(self) -> None:
        """All pages, before their server goes."""
        while self._contexts:
            self._contexts.pop().close()
