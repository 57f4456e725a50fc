"""The HTTP pages of a node: health, readiness, and the pages that its parts add.

    /healthz   200 as long as the event loop runs
    /readyz    200 if the node does its work, else 503 and what is missing

With a token (`barnabas.http.token.file`) all pages but these two need it, and `/readyz` gives no reason without it.
Knows no node: it calls the functions that it was given.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import trio

from barnabas.runtime.http import HttpRequest, HttpResponse, HttpServer
from barnabas.runtime.http_token import ALLOWED, CHALLENGE, HttpToken
from barnabas.runtime.world import World
from barnabas.settings.errors import SettingsError
from barnabas.settings.listeners import Endpoint
from barnabas.settings.node import HTTP_TOKEN_FILE

log = logging.getLogger(__name__)

_OPEN = ("/healthz", "/readyz")
"""Pages for probes, which have no token."""

Page = Callable[[HttpRequest], Awaitable[HttpResponse]]


class Observatory:
    """The pages of one node."""

    def __init__(self, what_is_missing: Callable[[], str], token: HttpToken | None = None) -> None:
        """`what_is_missing` returns one line until the node does its work, then an empty text. Without a token, pages
        are for everybody."""
        self._what_is_missing = what_is_missing
        self._token = token
        self.pages: dict[str, Page] = {"/healthz": self._healthz, "/readyz": self._readyz}
        """By path; parts of the node add theirs."""

    async def handle(self, request: HttpRequest) -> HttpResponse:
        if not self._admits(request) and request.path not in _OPEN:
            text = f"this page needs the token in the file of {HTTP_TOKEN_FILE}\n"
            challenge = {"WWW-Authenticate": CHALLENGE}
            return HttpResponse(text.encode(), status=HTTPStatus.UNAUTHORIZED, headers=challenge)
        page = self.pages.get(request.path)
        if page is not None:
            return await page(request)
        listed = "".join(f"{path}\n" for path in sorted(self.pages))
        if request.path == "/":
            return HttpResponse.text(listed)
        return HttpResponse.text(f"no page {request.path}; the pages are\n{listed}", HTTPStatus.NOT_FOUND)

    async def serve(
        self, world: World, at: Endpoint | None, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve at `at`; started when it listens. Raises OSError if it cannot listen. Does nothing if `at` is None."""
        if at is None:
            task_status.started()
            return
        listener = await world.network.listen(at.host, at.port)
        log.info("health, metrics and decisions on http://%s", at)
        task_status.started()
        await HttpServer(world, self.handle).serve(listener)

    def _admits(self, request: HttpRequest) -> bool:
        return self._token is None or self._token.admits(request.headers.get("authorization", ""))

    async def _healthz(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse.text("ok\n")

    async def _readyz(self, request: HttpRequest) -> HttpResponse:
        missing = self._what_is_missing()
        if missing:
            reason = missing if self._admits(request) else "not ready"
            return HttpResponse.text(f"{reason}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        return HttpResponse.text("ready\n")


def read_token(world: World, path: str | None) -> HttpToken | None:
    """The token in the file at `path`, the value of `HTTP_TOKEN_FILE`; None without a file. Raises SettingsError."""
    if path is None:
        return None
    try:
        return HttpToken.parse(world.disk.read_bytes(path))
    except OSError as error:
        raise SettingsError(f"cannot be read: {error.strerror}", HTTP_TOKEN_FILE, path, ALLOWED) from None
    except ValueError as error:
        raise SettingsError(str(error), HTTP_TOKEN_FILE, path, ALLOWED) from None
