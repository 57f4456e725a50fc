"""A trio event loop in its own thread, and calls into it from code without `await`.

A call runs as a task of the loop while its caller waits. If the caller is interrupted (Ctrl-C) its task is cancelled,
and the end of the task awaited, so that nothing goes on in the background. Knows no client.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar, cast

import trio

from barnabas.client.errors import IllegalStateException

T = TypeVar("T")

_LOOK_SECONDS = 0.2
"""A signal that comes just before the interpreter blocks does not wake it: waiting callers wake up this often."""
_CLOSED = "this client is closed, or not open yet: use it in a `with` block"


class Result(Generic[T]):
    """Value or error of a call, for the thread of the caller."""

    __slots__ = ("error", "value")

    def __init__(self, value: T | None = None, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error

    def unwrap(self) -> T:
        if self.error is not None:
            raise self.error
        return cast(T, self.value)  # the value may itself be None


class Held(Generic[T]):
    """The value of an async context manager that is kept open."""

    def __init__(self, portal: Portal, manager: AbstractAsyncContextManager[T]) -> None:
        self._portal = portal
        self._manager = manager
        self._scope = trio.CancelScope()
        self._end = trio.Event()
        self._results: queue.SimpleQueue[Result[Any]] = queue.SimpleQueue()
        self._raised: BaseException | None = None

    def open(self) -> T:
        """Enter the manager; raises its exceptions."""
        self._portal.spawn(self._keep)
        value: T = self._portal.wait(self._results, self._scope).unwrap()
        return value

    def close(self, raised: BaseException | None = None) -> bool:
        """Exit the manager, with the exception `raised` of its block if any; True if it suppressed that. Raises the
        manager's exceptions.

        An exception that is not an `Exception`, such as KeyboardInterrupt, cancels the manager instead.
        """
        if raised is not None and not isinstance(raised, Exception):
            self._portal.soon(self._scope.cancel)
            self._portal.wait(self._results, self._scope)
            return False
        self._raised = raised
        self._portal.soon(self._end.set)
        error = self._portal.wait(self._results, self._scope).error
        if error is None:
            return raised is not None
        if error is raised:
            return False
        raise error

    async def _keep(self) -> None:
        result: Result[None] = Result()
        try:
            with self._scope:
                async with self._manager as value:
                    self._results.put(Result(value))
                    await self._end.wait()
                    if self._raised is not None:
                        raise self._raised
            if self._scope.cancelled_caught:
                result = Result(error=IllegalStateException("interrupted"))
        except trio.Cancelled:
            result = Result(error=IllegalStateException(_CLOSED))
            raise
        except BaseException as error:  # raised in the thread of the caller
            result = Result(error=error)
        finally:
            self._results.put(result)


class Portal:
    """The loop and its thread, from `start` to `stop`. Any thread but that of the loop may call."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._closing = trio.Event()

    def start(self) -> None:
        if self._thread is not None:
            raise IllegalStateException("this client was opened before: create another one")
        ready: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=trio.run, args=(self._main, ready), name="barnabas", daemon=True)
        self._thread.start()
        ready.get()

    def stop(self) -> None:
        """Cancel all tasks and wait for their end; does nothing if the loop does not run."""
        thread, self._nursery = self._thread, None
        if thread is None or self._token is None or self._process != os.getpid():
            return
        try:
            self._token.run_sync_soon(self._closing.set)
        except trio.RunFinishedError:
            pass
        thread.join()

    def call(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """Await `function(*args, **kwargs)` in the loop, and return its value or raise its exception. If the caller is
        interrupted the task is cancelled, and its end awaited.
        """
        scope = trio.CancelScope()
        ended = threading.Event()
        result: Result[Any] = Result(error=IllegalStateException("interrupted"))
        begun = False

        async def run() -> None:
            nonlocal result
            try:
                with scope:
                    result = Result(await function(*args, **kwargs))
            except trio.Cancelled:
                result = Result(error=IllegalStateException(_CLOSED))
                raise
            except BaseException as error:  # raised in the thread of the caller
                result = Result(error=error)
            finally:
                ended.set()

        def begin(nursery: trio.Nursery) -> None:
            nonlocal begun
            begun = True
            nursery.start_soon(run)

        def interrupt() -> None:
            scope.cancel()
            if not begun:
                ended.set()

        try:
            self._in_nursery(begin)
            while not ended.wait(_LOOK_SECONDS):
                pass
        except Exception:
            raise  # the task was not started
        except BaseException:  # raised by a signal handler
            self.soon(interrupt)
            ended.wait()
            raise
        value: T = result.unwrap()
        return value

    def call_now(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call `function(*args, **kwargs)`, which must not wait, in the loop's thread; its value or exception."""
        results: queue.SimpleQueue[Result[T]] = queue.SimpleQueue()

        def run() -> None:
            try:
                results.put(Result(function(*args, **kwargs)))
            except BaseException as error:  # otherwise the caller would wait for ever
                results.put(Result(error=error))

        self.soon(run)
        return results.get().unwrap()

    def call_until_notified(self, begin: Callable[[Callable[[], None]], T]) -> T:
        """Call `begin` in the loop's thread with a function `notify`, and wait until that is called; returns the value
        of `begin`, or raises its exception at once. An interrupted caller stops waiting once `begin` has returned.
        """
        woken = threading.Lock()
        woken.acquire()
        result: Result[T] | None = None
        notified = False

        def notify() -> None:
            nonlocal notified
            notified = True
            if result is not None:
                woken.release()

        def run() -> None:
            nonlocal result, notified
            try:
                result = Result(begin(notify))
            except BaseException as error:  # otherwise the caller would wait for ever
                result = Result(error=error)
                notified = True
            if notified:
                woken.release()

        self.soon(run)
        try:
            while not woken.acquire(timeout=_LOOK_SECONDS):
                pass
        except BaseException:  # raised by a signal handler
            self.call_now(lambda: None)
            raise
        assert result is not None
        return result.unwrap()

    def spawn(self, function: Callable[[], Awaitable[None]]) -> None:
        """Start a task that reports its result by itself."""
        self._in_nursery(lambda nursery: nursery.start_soon(function))

    def _in_nursery(self, begin: Callable[[trio.Nursery], None]) -> None:
        nursery = self._nursery
        if nursery is None:
            raise IllegalStateException(_CLOSED)
        self.soon(lambda: begin(nursery))

    def soon(self, function: Callable[[], object]) -> None:
        """Call `function` in the loop's thread; calls keep their order."""
        if self._token is None or self._nursery is None:
            raise IllegalStateException(_CLOSED)
        if self._process != os.getpid():
            raise IllegalStateException("this client belongs to the process that forked this one: create another one")
        if threading.current_thread() is self._thread:
            raise IllegalStateException(
                "a callback on the client's own thread cannot call the client: use another thread"
            )
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            raise IllegalStateException(_CLOSED) from None

    def wait(self, results: queue.SimpleQueue[Result[Any]], scope: trio.CancelScope) -> Result[Any]:
        """The next result. If the wait is interrupted, the task of `scope` is cancelled and its end awaited."""
        try:
            while True:
                with contextlib.suppress(queue.Empty):
                    return results.get(timeout=_LOOK_SECONDS)
        except BaseException:
            self.soon(scope.cancel)
            results.get()
            raise

    async def _main(self, ready: queue.SimpleQueue[None]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            ready.put(None)
            await self._closing.wait()
            nursery.cancel_scope.cancel()
