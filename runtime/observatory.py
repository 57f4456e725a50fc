"""The HTTP pages of a node: health, readiness, and the pages that its parts add.

    /healthz   200 as long as the event loop runs
    /readyz    200 if the node does its work, else 503 and what is missing

Knows no node: it calls the functions that it was given.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import trio

from barnabas.runtime.http import HttpRequest, HttpResponse, HttpServer
from barnabas.runtime.world import World
from barnabas.settings.listeners import Endpoint

log = logging.getLogger(__name__)

Page = Callable[[HttpRequest], Awaitable[HttpResponse]]


class Observatory:
    """The pages of one node."""

    def __init__(self, what_is_missing: Callable[[], str]) -> None:
        """`what_is_missing` returns one line until the node does its work, then an empty text."""
        self._what_is_missing = what_is_missing
        self.pages: dict[str, Page] = {"/healthz": self._healthz, "/readyz": self._readyz}
        """By path; parts of the node add theirs."""

    async def handle(self, request: HttpRequest) -> HttpResponse:
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

    async def _healthz(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse.text("ok\n")

    async def _readyz(self, request: HttpRequest) -> HttpResponse:
        missing = self._what_is_missing()
        if missing:
            return HttpResponse.text(f"{missing}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        return HttpResponse.text("ready\n")
