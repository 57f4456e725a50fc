"""The way into a trio loop from a thread that knows no `await`."""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
import trio

from barnabas.client.errors import IllegalStateException
from barnabas.portal import Held, Portal

pytestmark = pytest.mark.feature("CL-05")


@pytest.fixture
def portal() -> Iterator[Portal]:
    portal = Portal()
    portal.start()
    yield portal
    portal.stop()


async def double(number: int) -> int:
    await trio.lowlevel.checkpoint()
    return 2 * number


async def fail() -> None:
    raise LookupError("nothing there")


def test_a_call_gives_what_the_coroutine_gives_or_raises(portal: Portal) -> None:
    assert portal.call(double, 21) == 42
    with pytest.raises(LookupError, match="nothing there"):
        portal.call(fail)
    assert portal.call_now(lambda: threading.current_thread().name) == "barnabas"
    with pytest.raises(ZeroDivisionError):
        portal.call_now(lambda: 1 // 0)


def test_many_threads_call_at_once(portal: Portal) -> None:
    found: list[int] = []

    def call_often(start: int) -> None:
        found.extend(portal.call(double, start + number) for number in range(100))

    threads = [threading.Thread(target=call_often, args=(1000 * index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(2 * (1000 * index + number) for index in range(4) for number in range(100))


def signal_the_process() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    "send",
    [
        pytest.param(signal_the_process, id="a caller that waits"),
        # Like a signal that came just before: it is noted, and wakes no thread.
        pytest.param(_thread.interrupt_main, id="a caller that begins to wait"),
    ],
)
def test_an_interrupted_caller_has_its_task_cancelled_and_waits_for_that(
    portal: Portal, send: Callable[[], None]
) -> None:
    ended: list[str] = []
    began = threading.Event()

    async def wait_for_ever() -> None:
        try:
            began.set()
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.05)
            ended.append("cleaned up")

    def interrupt() -> None:
        began.wait()
        send()

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        portal.call(wait_for_ever)
    assert ended == ["cleaned up"]
    assert portal.call(double, 1) == 2


def test_a_caller_waits_until_it_is_notified(portal: Portal) -> None:
    events: list[str] = []

    def begin(notify: Callable[[], None]) -> list[str]:
        def later() -> None:
            events.append("now")
            notify()

        trio.lowlevel.current_trio_token().run_sync_soon(later)
        return events

    assert portal.call_until_notified(begin) == ["now"]

    def begin_at_once(notify: Callable[[], None]) -> int:
        notify()
        time.sleep(0.01)  # a notification before the return has no result yet
        return 42

    assert portal.call_until_notified(begin_at_once) == 42

    def mistake(notify: Callable[[], None]) -> int:
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        portal.call_until_notified(mistake)


def test_an_interrupted_caller_is_not_notified(portal: Portal) -> None:
    begun: list[Callable[[], None]] = []

    def begin(notify: Callable[[], None]) -> None:
        begun.append(notify)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        portal.call_until_notified(begin)
    [notify] = begun
    portal.call_now(notify)
    assert portal.call(double, 1) == 2


def test_no_thread_and_no_task_outlives_the_portal() -> None:
    before = threading.enumerate()
    portal = Portal()
    portal.start()
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            portal.call(trio.sleep_forever)
        except IllegalStateException as error:
            failures.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while portal.call_now(lambda: trio.lowlevel.current_statistics().tasks_living) < 4:
        time.sleep(0.001)
    portal.stop()
    waiting.join(5)
    assert [str(error) for error in failures] == ["this client is closed, or not open yet: use it in a `with` block"]
    assert not [each for each in threading.enumerate() if each.name == "barnabas" and each not in before]
    with pytest.raises(IllegalStateException, match="closed"):
        portal.call(double, 1)
    with pytest.raises(IllegalStateException, match="create another one"):
        portal.start()
    portal.stop()


def test_a_call_before_the_start_or_from_the_loop_is_refused(portal: Portal) -> None:
    with pytest.raises(IllegalStateException, match="not open yet"):
        Portal().call(double, 1)
    with pytest.raises(IllegalStateException, match="use another thread"):
        portal.call_now(lambda: portal.call(double, 1))


def test_a_fork_has_no_way_into_the_loop_of_its_parent(portal: Portal) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            portal.call(double, 1)
        except IllegalStateException as error:
            code = 0 if "forked" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert portal.call(double, 3) == 6


class Room:
    """Something with a nursery, as clients are."""

    def __init__(self) -> None:
        self.story: list[str] = []

    @asynccontextmanager
    async def open(self, *, swallow: bool = False, fails_at: str = "") -> AsyncIterator[int]:
        if fails_at == "opening":
            raise LookupError("opening")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            self.story.append("opened")
            try:
                yield 7
                self.story.append("left well")
            except RuntimeError as error:
                self.story.append(f"saw {error}")
                if not swallow:
                    raise
            finally:
                self.story.append("closed")
                nursery.cancel_scope.cancel()
        if fails_at == "closing":
            raise LookupError("closing")


def test_a_manager_is_held_open_by_one_task(portal: Portal) -> None:
    room = Room()
    held: Held[int] = Held(portal, room.open())
    assert held.open() == 7
    assert portal.call(double, 1) == 2
    assert held.close() is False
    assert room.story == ["opened", "left well", "closed"]


def test_a_manager_receives_errors_of_its_block(portal: Portal) -> None:
    room = Room()
    held = Held(portal, room.open(swallow=True))
    held.open()
    assert held.close(RuntimeError("a mistake")) is True
    held = Held(portal, room.open(fails_at="closing"))
    held.open()
    with pytest.raises(LookupError, match="closing"):
        held.close()
    with pytest.raises(LookupError, match="opening"):
        Held(portal, room.open(fails_at="opening")).open()
    assert room.story[:3] == ["opened", "saw a mistake", "closed"]
