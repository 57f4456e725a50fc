"""Calls from an asyncio event loop into a trio event loop in another thread, and back. Knows no client.

A call is a task of the trio loop while its caller waits. If the caller is cancelled its task is cancelled, and the end
of the task awaited, so that nothing goes on in the background.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ParamSpec, TypeVar

import trio

from barnabas.client.errors import IllegalStateException
from barnabas.portal import Portal, Result

P = ParamSpec("P")
T = TypeVar("T")

_CLOSED = "this client is closed, or not open yet: use it in an `async with` block"


class Bridge:
    """The trio loop, from `start` to `stop`, for callers in the asyncio loop that started it."""

    def __init__(self) -> None:
        self.portal = Portal()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._outbox: deque[tuple[asyncio.Future[Any], Result[Any]]] = deque()
        """Results on their way to the asyncio loop."""
        self._is_called = False
        """The asyncio loop is about to empty the outbox."""

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self.portal.start)

    async def stop(self) -> None:
        await asyncio.shield(asyncio.to_thread(self.portal.stop))

    def now(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that does not wait in the trio loop, and return its value or raise its exception."""
        return self.portal.call_now(function, *args, **kwargs)

    async def call(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Await `function(*args, **kwargs)` in the trio loop, and return its value or raise its exception."""
        future = self._new_future()
        scope = trio.CancelScope()

        async def run() -> None:
            result: Result[T] = Result(error=IllegalStateException("cancelled"))
            try:
                with scope:
                    result = Result(await function(*args, **kwargs))
            except trio.Cancelled:
                result = Result(error=IllegalStateException(_CLOSED))
                raise
            except BaseException as error:  # raised in the asyncio loop
                result = Result(error=error)
            finally:
                self._hand_back(future, result)

        self.portal.spawn(run)
        try:
            result: Result[T] = await asyncio.shield(future)
        except asyncio.CancelledError:
            self.portal.soon(scope.cancel)
            await _until(future)
            raise
        return result.unwrap()

    async def until_notified(self, begin: Callable[[Callable[[], None]], T]) -> T:
        """Call `begin` in the trio loop with a function `notify`, and wait until that is called. Returns the value of
        `begin`, or raises its exception at once."""
        future = self._new_future()
        result: Result[T] | None = None
        is_notified = False

        def notify() -> None:
            nonlocal is_notified
            is_notified = True
            if result is not None:
                self._hand_back(future, result)

        def run() -> None:
            nonlocal result, is_notified
            try:
                result = Result(begin(notify))
            except BaseException as error:  # raised in the asyncio loop
                result = Result(error=error)
                is_notified = True
            if is_notified:
                self._hand_back(future, result)

        self.portal.soon(run)
        handed: Result[T] = await future
        return handed.unwrap()

    @asynccontextmanager
    async def held(self, manager: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """The value of an async context manager of trio, which is kept open in a task of the trio loop.

        A cancelled block cancels the manager.
        """
        opened: asyncio.Future[Any] = self._new_future()
        end = trio.Event()
        raised: Exception | None = None

        async def keep() -> None:
            async with manager as value:
                self._hand_back(opened, Result(value))
                await end.wait()
                if raised is not None:
                    raise raised

        keeping = asyncio.ensure_future(self.call(keep))
        try:
            await asyncio.wait((opened, keeping), return_when=asyncio.FIRST_COMPLETED)
            if not opened.done():
                keeping.result()
            yield opened.result().unwrap()
        except Exception as error:
            if keeping.done():
                raise
            raised = error
            self.portal.soon(end.set)
            await keeping
        except BaseException:
            keeping.cancel()
            await _until(keeping)
            raise
        else:
            self.portal.soon(end.set)
            await keeping

    async def in_asyncio(self, function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> None:
        """In the trio loop: call a function, which may be a coroutine function, in the asyncio loop, and wait for its
        end."""
        ended = trio.Event()
        error: BaseException | None = None
        token = trio.lowlevel.current_trio_token()

        async def run() -> None:
            nonlocal error
            try:
                value = function(*args, **kwargs)
                if inspect.isawaitable(value):
                    await value
            except BaseException as raised:  # raised in the trio loop
                error = raised
            finally:
                token.run_sync_soon(ended.set)

        assert self._loop is not None
        running = asyncio.run_coroutine_threadsafe(run(), self._loop)
        try:
            await ended.wait()
        except trio.Cancelled:
            running.cancel()
            with trio.CancelScope(shield=True):
                await ended.wait()
            raise
        if error is not None:
            raise error

    def _new_future(self) -> asyncio.Future[Any]:
        loop = self._loop
        if loop is None:
            raise IllegalStateException(_CLOSED)
        if loop is not asyncio.get_running_loop():
            raise IllegalStateException("this client belongs to the event loop that opened it: create another one")
        return loop.create_future()

    def _hand_back(self, future: asyncio.Future[Any], result: Result[Any]) -> None:
        """In the trio loop: give a result to the asyncio loop. Many results wake it once."""
        self._outbox.append((future, result))
        if self._is_called or self._loop is None or self._loop.is_closed():
            return
        self._is_called = True
        self._loop.call_soon_threadsafe(self._empty_outbox)

    def _empty_outbox(self) -> None:
        self._is_called = False
        while self._outbox:
            future, result = self._outbox.popleft()
            if not future.done():
                future.set_result(result)


async def _until(future: asyncio.Future[Any]) -> None:
    """Wait for the end, through further cancels."""
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError:
            continue
