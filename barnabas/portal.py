"""A trio loop in a thread of its own, and the way into it for code that knows no `await`.

What is called there runs as a task of the loop while its caller waits. A caller that is interrupted (Ctrl-C) has its
task cancelled, and waits for the end of that, so that nothing goes on behind its back. Knows no client.
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
"""A signal that comes just before the interpreter goes to sleep does not wake it: who waits looks that often."""
_CLOSED = "this client is closed, or not open yet: it lives as long as its `with` block"


class _Answer(Generic[T]):
    """What became of a call; goes from the loop to the caller."""

    __slots__ = ("error", "value")

    def __init__(self, value: T | None = None, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error

    def unwrap(self) -> T:
        if self.error is not None:
            raise self.error
        return cast(T, self.value)  # which may itself be None


class Held(Generic[T]):
    """What an async context manager gave, for as long as it is held open."""

    def __init__(self, portal: Portal, manager: AbstractAsyncContextManager[T]) -> None:
        self._portal = portal
        self._manager = manager
        self._scope = trio.CancelScope()
        self._end = trio.Event()
        self._answers: queue.SimpleQueue[_Answer[Any]] = queue.SimpleQueue()
        self._raised: BaseException | None = None

    def open(self) -> T:
        """Enters the manager; raises what that raises."""
        self._portal.spawn(self._keep)
        value: T = self._portal.wait(self._answers, self._scope).unwrap()
        return value

    def close(self, raised: BaseException | None = None) -> bool:
        """Leaves the manager, as after `raised` in its block; whether it swallowed that. Raises what leaving raises.

        What is no Exception, as KeyboardInterrupt, is to the manager what a cancellation is.
        """
        if raised is not None and not isinstance(raised, Exception):
            self._portal.soon(self._scope.cancel)
            self._portal.wait(self._answers, self._scope)
            return False
        self._raised = raised
        self._portal.soon(self._end.set)
        error = self._portal.wait(self._answers, self._scope).error
        if error is None:
            return raised is not None
        if error is raised:
            return False
        raise error

    async def _keep(self) -> None:
        answer: _Answer[None] = _Answer()
        try:
            with self._scope:
                async with self._manager as value:
                    self._answers.put(_Answer(value))
                    await self._end.wait()
                    if self._raised is not None:
                        raise self._raised
            if self._scope.cancelled_caught:
                answer = _Answer(error=IllegalStateException("interrupted"))
        except trio.Cancelled:
            answer = _Answer(error=IllegalStateException(_CLOSED))
            raise
        except BaseException as error:  # whoever opens or closes raises it, in his thread
            answer = _Answer(error=error)
        finally:
            self._answers.put(answer)


class Portal:
    """The loop and its thread, from `start` to `stop`. Any thread may call; none of the loop's own may."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._closing = trio.Event()

    def start(self) -> None:
        if self._thread is not None:
            raise IllegalStateException("this client was open before: make another one")
        ready: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=trio.run, args=(self._main, ready), name="barnabas", daemon=True)
        self._thread.start()
        ready.get()

    def stop(self) -> None:
        """Cancels what still runs and waits for its end; nothing happens if it does not run."""
        thread, self._nursery = self._thread, None
        if thread is None or self._token is None or self._process != os.getpid():
            return
        try:
            self._token.run_sync_soon(self._closing.set)
        except trio.RunFinishedError:
            pass
        thread.join()

    def call(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """What awaiting `function(*args, **kwargs)` in the loop gives or raises. If the caller is interrupted, whenever
        that is, the task is cancelled and its end waited for.
        """
        scope = trio.CancelScope()
        ended = threading.Event()
        answer: _Answer[Any] = _Answer(error=IllegalStateException("interrupted"))
        begun = False

        async def run() -> None:
            nonlocal answer
            try:
                with scope:
                    answer = _Answer(await function(*args, **kwargs))
            except trio.Cancelled:
                answer = _Answer(error=IllegalStateException(_CLOSED))
                raise
            except BaseException as error:  # the caller raises it, in his thread
                answer = _Answer(error=error)
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
            raise  # it was not begun
        except BaseException:  # of a signal
            self.soon(interrupt)
            ended.wait()
            raise
        value: T = answer.unwrap()
        return value

    def call_now(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """What `function(*args, **kwargs)`, which waits for nothing, gives or raises in the loop's thread."""
        answers: queue.SimpleQueue[_Answer[T]] = queue.SimpleQueue()

        def run() -> None:
            try:
                answers.put(_Answer(function(*args, **kwargs)))
            except BaseException as error:  # else nobody would ever wake
                answers.put(_Answer(error=error))

        self.soon(run)
        return answers.get().unwrap()

    def call_until_told(self, begin: Callable[[Callable[[], None]], T]) -> T:
        """Call `begin` in the loop's thread, and wait until the function that it is given is called; gives what `begin`
        gave, or raises that at once. An interrupted caller does not wait on, but `begin` has come to its end by then.
        """
        woken = threading.Lock()
        woken.acquire()
        answer: _Answer[T] | None = None
        told = False

        def tell() -> None:
            nonlocal told
            told = True
            if answer is not None:
                woken.release()

        def run() -> None:
            nonlocal answer, told
            try:
                answer = _Answer(begin(tell))
            except BaseException as error:  # else nobody would ever wake
                answer = _Answer(error=error)
                told = True
            if told:
                woken.release()

        self.soon(run)
        try:
            while not woken.acquire(timeout=_LOOK_SECONDS):
                pass
        except BaseException:  # of a signal
            self.call_now(lambda: None)
            raise
        assert answer is not None
        return answer.unwrap()

    def spawn(self, function: Callable[[], Awaitable[None]]) -> None:
        """Let the loop run a task that answers by itself."""
        self._in_nursery(lambda nursery: nursery.start_soon(function))

    def _in_nursery(self, begin: Callable[[trio.Nursery], None]) -> None:
        nursery = self._nursery
        if nursery is None:
            raise IllegalStateException(_CLOSED)
        self.soon(lambda: begin(nursery))

    def soon(self, function: Callable[[], object]) -> None:
        """Call `function` in the loop's thread, in the order of these calls."""
        if self._token is None or self._nursery is None:
            raise IllegalStateException(_CLOSED)
        if self._process != os.getpid():
            raise IllegalStateException("this client belongs to the process that forked this one: make another one")
        if threading.current_thread() is self._thread:
            raise IllegalStateException("called back from the client's own thread, which cannot wait for itself")
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            raise IllegalStateException(_CLOSED) from None

    def wait(self, answers: queue.SimpleQueue[_Answer[Any]], scope: trio.CancelScope) -> _Answer[Any]:
        """The next answer. If the wait is interrupted, the task of `scope` is cancelled and its end waited for."""
        try:
            while True:
                with contextlib.suppress(queue.Empty):
                    return answers.get(timeout=_LOOK_SECONDS)
        except BaseException:
            self.soon(scope.cancel)
            answers.get()
            raise

    async def _main(self, ready: queue.SimpleQueue[None]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            ready.put(None)
            await self._closing.wait()
            nursery.cancel_scope.cancel()
