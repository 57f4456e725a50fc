"""The metadata topic is deleted: nothing that it made readable is deleted anywhere because of it."""

from __future__ import annotations

import pytest
import trio

from barnabas import Admin
from barnabas.broker.remote import expirer
from tests.broker.remote.test_copies_in_a_cluster import Tiers

TOPIC = "__remote_log_metadata"


@pytest.mark.feature("TS-04", "TS-07")
def test_objects_outlive_the_topic_that_knows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expirer, "ORPHAN_AGE_MS", -1)
    tiers = Tiers()

    async def test() -> None:
        await tiers.create()
        await tiers.fill()
        await tiers.until(lambda: len(tiers.objects()) > 5)
        await tiers.until(lambda: all(log.local_log_start_offset > 30 for log in tiers.logs().values()))
        before = set(tiers.objects())
        async with Admin(**tiers.client) as admin:
            await admin.delete_topics([TOPIC])
        await trio.sleep(5)
        for name in tiers.cluster.brokers:
            tiers.cluster.kill(name)
        await tiers.start_again(*tiers.cluster.brokers)
        await tiers.until(lambda: len(tiers.logs()) == 3)
        await trio.sleep(60)
        assert before <= set(tiers.objects()), "objects with the only copy of records were deleted"

    tiers.run(test)
