"""Fault injection: kills, pauses, resumes and starts nodes, cuts and heals links, each with a mark on the page.

One action at a time; blocking calls run in a thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

import trio

from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.page.feed import Feed
from barnabas.page.links import Links
from barnabas.page.local_side import LocalSide
from barnabas.runtime.world import Clock

Json = Mapping[str, Any]
Do = Callable[[str, Json], Awaitable[None]]

FAULT = "fault"
NO_LINKS = "links cannot be cut: the cluster was not started by a page"


class NotNow(ClusterError):
    """The action is impossible in the present state."""


class Starts(Protocol):
    """A task with a start and a stop button."""

    def start(self) -> None:
        """Raises `NotNow`."""

    def stop(self) -> None:
        """Raises `NotNow`."""


class Faults:
    """Actions on the cluster, for buttons and the tour."""

    def __init__(self, side: LocalSide, feed: Feed, wall_clock: Clock) -> None:
        self.side = side
        self._feed = feed
        self._wall_clock = wall_clock
        self._one_at_a_time = trio.Lock()

    async def kill(self, name: str) -> None:
        await self._node(name, f"{name} is killed (SIGKILL)", self.side.cluster.kill)

    async def pause(self, name: str) -> None:
        await self._node(name, f"{name} is paused (SIGSTOP)", self.side.cluster.pause)

    async def resume(self, name: str) -> None:
        await self._node(name, f"{name} is resumed (SIGCONT)", self.side.cluster.resume)

    async def start(self, name: str) -> None:
        await self._node(name, f"{name} is started", self.side.cluster.start)

    async def cut(self, one: str, other: str, *, cut: bool) -> None:
        links = self.side.links
        if links is None:
            raise NotNow(NO_LINKS)
        first, second = links.pair(one, other)
        text = f"the link between {first} and {second} is {'cut' if cut else 'healed'}"
        await self._do(subject_of(first), text, partial(_set_cut, links, first, second, cut))

    async def _node(self, name: str, text: str, work: Callable[[str], object]) -> None:
        """Raises `ClusterError` if there is no such node, or the action is impossible."""
        self.side.cluster.layout.node(name)
        await self._do(subject_of(name), text, partial(work, name))

    async def _do(self, subject: str, text: str, work: Callable[[], object]) -> None:
        async with self._one_at_a_time:
            at_ms = self._wall_clock.now_ms()
            await trio.to_thread.run_sync(work)
            self._feed.mark(FAULT, subject, text, at_ms=at_ms)


def subject_of(name: str) -> str:
    """The subject of decisions about a node: `broker 1`."""
    return name.replace("-", " ")


def _set_cut(links: Links, first: str, second: str, cut: bool) -> None:
    links.set_cut(first, second, cut=cut)


def buttons(faults: Faults, starts: Mapping[str, Starts], busy: Callable[[], str]) -> dict[str, Do]:
    """Actions by the first word of the path. `starts` has the tasks for the paths `NAME/start` and `NAME/stop`; `busy`
    returns why no action is allowed now, or an empty text."""

    def refuse_if_busy() -> None:
        if reason := busy():
            raise NotNow(reason)

    def about_node(do: Callable[[str], Awaitable[None]]) -> Do:
        async def act(about: str, body: Json) -> None:
            refuse_if_busy()
            await do(about)

        return act

    def about_link(*, cut: bool) -> Do:
        async def act(about: str, body: Json) -> None:
            refuse_if_busy()
            between = body.get("between")
            match between:
                case [str(one), str(other)] if not about:
                    await faults.cut(one, other, cut=cut)
                case _:
                    raise WrongArgument('the body must be {"between": ["broker-1", "broker-2"]}')

        return act

    def about_start(name: str, what: Starts) -> Do:
        async def act(about: str, body: Json) -> None:
            if about not in ("start", "stop"):
                raise WrongArgument(f"must be {name}/start or {name}/stop; got {name}/{about}")
            (what.start if about == "start" else what.stop)()

        return act

    return {
        "kill": about_node(faults.kill),
        "pause": about_node(faults.pause),
        "resume": about_node(faults.resume),
        "start": about_node(faults.start),
        "cut": about_link(cut=True),
        "heal": about_link(cut=False),
        **{name: about_start(name, what) for name, what in starts.items()},
    }
