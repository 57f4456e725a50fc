"""Steps of the metadata reach the parts of a broker in order, whatever each of them needs first."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.broker.metadata_publisher import MetadataPublisher
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.steps import Steps
from barnabas.storage.log_dir_work import NewLog


class Parts:
    """The parts of a broker. A step is known by its offset, and by the steps that its preparation takes."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.publisher = MetadataPublisher(self._prepare, self._make, self._announce, self._publish)
        self._lengths: dict[int, tuple[int, int]] = {}

    def put(self, offset: int, *, preparation: int = 1, logs: int = 0) -> None:
        self._lengths[offset] = (preparation, logs)
        image = MetadataImage(offset=offset)
        self.publisher.put(MetadataDelta(before=EMPTY_IMAGE, after=image))

    def _announce(self, delta: MetadataDelta) -> None:
        self.happened.append(f"announce {delta.after.offset}")

    def _prepare(self, delta: MetadataDelta) -> Stepwise[list[NewLog]]:
        steps, logs = self._lengths[delta.after.offset]
        for _ in range(steps - 1):
            self.happened.append(f"prepare {delta.after.offset}")
            yield
        wanted: Any = [f"log {delta.after.offset}"] * logs
        return wanted

    async def _make(self, logs: list[NewLog]) -> None:
        await trio.sleep(0)
        self.happened.append(f"make {logs[0]}")

    def _publish(self, delta: MetadataDelta) -> Steps:
        self.happened.append(f"publish {delta.after.offset}")
        yield from ()


async def until_published(parts: Parts, offset: int) -> None:
    async def others() -> None:
        while True:
            parts.happened.append("others")
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(parts.publisher.run)
        nursery.start_soon(others)
        while f"publish {offset}" not in parts.happened:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


@pytest.mark.feature("MB-16")
async def test_a_step_that_needs_nothing_is_published_at_once() -> None:
    parts = Parts()
    parts.put(1)
    assert parts.happened == ["announce 1", "publish 1"] and parts.publisher.behind is None


@pytest.mark.feature("MB-16")
async def test_others_run_while_a_step_is_prepared_and_later_steps_wait() -> None:
    parts = Parts()
    parts.put(1, preparation=6, logs=2)
    parts.put(2)
    parts.put(3, preparation=3)
    assert parts.happened == ["announce 1", "prepare 1", "announce 2", "announce 3"]
    assert parts.publisher.behind == EMPTY_IMAGE.offset
    await until_published(parts, 3)
    order = [it for it in parts.happened if it != "others" and not it.startswith("announce")]
    assert order == [*["prepare 1"] * 5, "make log 1", "publish 1", "publish 2", *["prepare 3"] * 2, "publish 3"]
    prepared = [place for place, it in enumerate(parts.happened) if it == "prepare 1"]
    assert parts.happened[prepared[1] : prepared[-1]].count("others") >= 2
