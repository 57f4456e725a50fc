"""The broker that was to delete the segments of a deleted topic never returns: another one goes on, and touches nothing
else."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas import Admin
from barnabas.broker.remote import deletion_marks
from barnabas.broker.remote.deletion_marks import DeletionMarks
from barnabas.broker.remote.segment_store import RemoteSegmentStore
from barnabas.runtime.simulated.object_store import FaultKind
from barnabas.storage.remote.segment import RemotePartitionKey
from tests.broker.remote.test_copies_in_a_cluster import Tiers

pytestmark = pytest.mark.feature("TS-07")

OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
SEGMENT = "00000000000000000000-BBBBBBBBBBBBBBBBBBBBBA"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_marks, "LOOK_INTERVAL_MS", 5_000)
    monkeypatch.setattr(deletion_marks, "GONE_AFTER_MS", 5_000)


class Deleted(Tiers):
    """A cluster that shares its store with another one, which has a topic of the same name."""

    foreign: tuple[str, ...] = ()

    async def share_the_store(self) -> None:
        bucket = self.cluster.universe.bucket("file:///store")
        for suffix in (".log", ".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint"):
            bucket.put(f"t-0-{OTHER_ID}/{SEGMENT}{suffix}", b"of another cluster", if_absent=False)
        self.foreign = tuple(sorted(bucket.objects))

    async def tier(self, **create: Any) -> str:
        """Make `t`, with some segments in the store; returns the directory of its objects."""
        before = set(self.objects(""))
        await self.create(**create)
        await self.fill()
        await self.until(lambda: len(self.objects()) > len(before) // 5 + 5)
        [directory] = {key.partition("/")[0] for key in set(self.objects("")) - before}
        return directory

    async def delete(self) -> None:
        async with Admin(**self.client) as admin:
            await admin.delete_topics(["t"])

    def objects_in(self, directory: str) -> list[str]:
        return [key for key in self.objects("") if key.startswith(f"{directory}/")]

    def marked(self) -> bool:
        """A deletion is in the metadata."""
        for index in range(3):
            for log in self.logs("__remote_log_metadata", index).values():
                if any(deletion_marks.deletions_in(data)[0] for data in log.batches(0, log.high_watermark)):
                    return True
        return False


async def story(tiers: Deleted) -> None:
    """A broker deletes nothing of a topic, because the store refuses, and never returns. The topic is made again."""
    bucket = tiers.cluster.universe.bucket("file:///store")
    await tiers.share_the_store()
    directory = await tiers.tier()
    fault = bucket.fail(FaultKind.UNAVAILABLE, "delete")
    deleter = await tiers.cluster.leader_of("t")
    await tiers.delete()
    await tiers.until(tiers.marked)
    tiers.cluster.kill(deleter)
    again = await tiers.tier()
    bucket.faults.remove(fault)
    await tiers.until(lambda: not tiers.objects_in(directory), 120)
    await trio.sleep(10)
    assert tiers.objects_in(again)
    assert set(tiers.foreign) <= set(tiers.objects("")), "another cluster lost objects"
    assert await tiers.read() == list(range(60))


def test_another_broker_goes_on_and_touches_nothing_else() -> None:
    tiers = Deleted()
    tiers.run(lambda: story(tiers))


def test_a_mistake_that_deletes_by_name_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: all that has the name of the topic is deleted, whatever its id is."""

    async def stored(self: RemoteSegmentStore, key: RemotePartitionKey) -> Any:
        found = await self.everything()
        return [each for other, them in found.items() for each in them if other.topic == key.topic]

    monkeypatch.setattr(RemoteSegmentStore, "stored", stored)
    tiers = Deleted()
    with pytest.raises((AssertionError, BaseExceptionGroup)) as raised:
        tiers.run(lambda: story(tiers))
    assert "AssertionError" in repr(raised.getrepr(style="native"))


def test_a_topic_whose_only_broker_is_gone_leaves_nothing() -> None:
    tiers = Deleted()

    async def test() -> None:
        await tiers.share_the_store()
        directory = await tiers.tier(replication_factor=1)
        tiers.cluster.kill(await tiers.cluster.leader_of("t"))
        await tiers.delete()
        await tiers.until(lambda: not tiers.objects_in(directory), 120)
        assert set(tiers.foreign) <= set(tiers.objects(""))

    tiers.run(test)


def test_a_deletion_that_has_ended_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_marks, "LATE_AFTER_MS", 5_000)
    taken: list[RemotePartitionKey] = []
    looks = 0
    original = DeletionMarks.look

    async def look(self: DeletionMarks) -> None:
        nonlocal looks
        await original(self)
        looks += 1
        taken.extend(key for place in self._places.values() for key in place.marks)

    tiers = Deleted()

    async def test() -> None:
        directory = await tiers.tier()
        await tiers.delete()
        await tiers.until(lambda: not tiers.objects_in(directory), 120)
        await tiers.until(tiers.marked)
        monkeypatch.setattr(DeletionMarks, "look", look)
        await tiers.until(lambda: looks > 6)
        assert not taken

    tiers.run(test)
