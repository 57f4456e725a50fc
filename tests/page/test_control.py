"""Actions of the page and their marks."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.page.control import Faults, NotNow, buttons
from barnabas.page.feed import Feed
from barnabas.page.links import Links


class FakeLayout:
    def node(self, name: str) -> str:
        if name not in ("broker-1", "broker-2"):
            raise WrongArgument(f"there is no node {name}")
        return name


class FakeCluster:
    """Notes what is done to it."""

    def __init__(self) -> None:
        self.layout = FakeLayout()
        self.done: list[tuple[str, str]] = []

    def kill(self, name: str) -> None:
        if ("kill", name) in self.done:
            raise ClusterError(f"{name} does not run")
        self.done.append(("kill", name))

    def pause(self, name: str) -> None:
        self.done.append(("pause", name))

    def resume(self, name: str) -> None:
        self.done.append(("resume", name))

    def start(self, name: str) -> None:
        self.done.append(("start", name))


class FakeLinks:
    """Those of two brokers."""

    _names = ("broker-1", "broker-2")
    pair = Links.pair

    def __init__(self) -> None:
        self.cut: list[tuple[str, str]] = []

    def set_cut(self, one: str, other: str, *, cut: bool) -> None:
        (self.cut.append if cut else self.cut.remove)((one, other))


class FakeSide:
    def __init__(self, links: FakeLinks | None) -> None:
        self.cluster = FakeCluster()
        self.links = links


class FakeClock:
    def now_ms(self) -> int:
        return 1234


class FakeLoad:
    def __init__(self) -> None:
        self.done: list[str] = []

    def start(self) -> None:
        self.done.append("start")

    def stop(self) -> None:
        raise NotNow("the load is not running")


class Desk:
    """The buttons, and what lies behind them."""

    def __init__(self, *, links: bool = True) -> None:
        self.side: Any = FakeSide(FakeLinks() if links else None)
        self.feed = Feed()
        self.load = FakeLoad()
        self.busy = ""
        self._buttons = buttons(Faults(self.side, self.feed, FakeClock()), {"load": self.load}, lambda: self.busy)

    async def press(self, what: str, about: str = "", **body: Any) -> None:
        await self._buttons[what](about, body)

    @property
    def answer(self) -> list[tuple[str, str, str]]:
        return [(mark["kind"], mark["subject"], mark["text"]) for mark in self.feed.marks()]


@pytest.mark.feature("FI-10")
async def test_faults_of_nodes_are_marks() -> None:
    desk = Desk()
    for what in ("kill", "start", "pause", "resume"):
        await desk.press(what, "broker-1")
    assert desk.side.cluster.done == [(what, "broker-1") for what in ("kill", "start", "pause", "resume")]
    assert desk.answer == [
        ("fault", "broker 1", "broker-1 is killed (SIGKILL)"),
        ("fault", "broker 1", "broker-1 is started"),
        ("fault", "broker 1", "broker-1 is paused (SIGSTOP)"),
        ("fault", "broker 1", "broker-1 is resumed (SIGCONT)"),
    ]
    assert [mark["at_ms"] for mark in desk.feed.marks()] == [1234] * 4


async def test_a_failed_action_is_no_mark() -> None:
    desk = Desk()
    with pytest.raises(WrongArgument, match="there is no node broker-9"):
        await desk.press("kill", "broker-9")
    await desk.press("kill", "broker-1")
    with pytest.raises(ClusterError, match="does not run"):
        await desk.press("kill", "broker-1")
    assert len(desk.answer) == 1


async def test_links_are_cut_and_healed_in_either_order_of_names() -> None:
    desk = Desk()
    await desk.press("cut", between=["broker-2", "broker-1"])
    assert desk.side.links.cut == [("broker-1", "broker-2")]
    await desk.press("heal", between=["broker-1", "broker-2"])
    assert desk.side.links.cut == []
    assert [text for _kind, _subject, text in desk.answer] == [
        "the link between broker-1 and broker-2 is cut",
        "the link between broker-1 and broker-2 is healed",
    ]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"between": None},
        {"between": "broker-1"},
        {"between": ["broker-1"]},
        {"between": ["broker-1", 2]},
        {"between": ["broker-1", "broker-1"]},
        {"between": ["broker-1", "x" * 4000]},
        {"between": ["broker-1", "broker-2", "broker-1"]},
        {"between": {"0": "broker-1", "1": "broker-2"}},
    ],
)
async def test_malformed_bodies_cut_no_link(body: dict[str, Any]) -> None:
    desk = Desk()
    with pytest.raises(WrongArgument) as caught:
        await desk.press("cut", **body)
    assert len(str(caught.value)) < 200
    assert desk.side.links.cut == [] and desk.answer == []


async def test_links_of_a_cluster_without_a_page_cannot_be_cut() -> None:
    with pytest.raises(NotNow, match="was not started by a page"):
        await Desk(links=False).press("cut", between=["broker-1", "broker-2"])


async def test_the_load_is_started_and_stopped() -> None:
    desk = Desk()
    await desk.press("load", "start")
    assert desk.load.done == ["start"]
    with pytest.raises(NotNow, match="the load is not running"):
        await desk.press("load", "stop")
    with pytest.raises(WrongArgument, match="must be load/start or load/stop"):
        await desk.press("load", "explode")


async def test_no_action_is_allowed_during_the_tour() -> None:
    desk = Desk()
    desk.busy = "the tour is running"
    for what, about in (("kill", "broker-1"), ("start", "broker-1"), ("cut", "")):
        with pytest.raises(NotNow, match="the tour is running"):
            await desk.press(what, about, between=["broker-1", "broker-2"])
    assert desk.side.cluster.done == []


async def test_actions_are_serialized() -> None:
    desk = Desk()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(desk.press, "pause", "broker-1")
    assert [mark["number"] for mark in desk.feed.marks()] == list(range(1, 21))
