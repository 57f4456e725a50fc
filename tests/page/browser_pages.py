"""Pages in a browser, with their errors and the requests that leave their origin."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

_BROKEN_CONNECTION = re.compile(r"Failed to load resource|net::ERR_")


class BrowserPages:
    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.errors: list[str] = []
        self.foreign_requests: list[str] = []
        self.may_break = False
        """The test breaks connections or is refused, so failed requests in the browser's console are no errors."""

    def open(self, url: str, *, width: int = 1440, height: int = 1000, own_clock: bool = False, **options: Any) -> Page:
        """Opens a page in a new browser context; `options` are those of the context.

        With `own_clock` the test controls the page's time.
        """
        context = self._browser.new_context(viewport={"width": width, "height": height}, **options)
        self._contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        origin = urlsplit(url).netloc

        def on_request(request: Request) -> None:
            if urlsplit(request.url).netloc != origin:
                self.foreign_requests.append(request.url)

        def on_console(message: ConsoleMessage) -> None:
            if message.type == "error" and not (self.may_break and _BROKEN_CONNECTION.search(message.text)):
                self.errors.append(message.text)

        page.on("request", on_request)
        page.on("console", on_console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        if own_clock:
            page.clock.install()
        page.goto(url)
        return page

    def close(self) -> None:
        """Closes all pages, before their server ends."""
        while self._contexts:
            self._contexts.pop().close()
