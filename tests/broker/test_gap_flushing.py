"""A follower's copy of a compacted log is made durable early."""

from __future__ import annotations

import pytest
import trio

from barnabas.broker.log_store import LogStore
from barnabas.broker.periodic import flush_logs
from barnabas.protocol.primitives import uuid_to_string
from barnabas.runtime.simulated import make_world, run_simulation
from barnabas.settings.topic import TopicConfig
from barnabas.storage.checkpoints import RECOVERY_POINT_CHECKPOINT, read_offsets
from barnabas.storage.directories import LogDirectories
from barnabas.storage.log_dir_work import NewLog
from tests.storage.rig import numbered


@pytest.mark.feature("ST-10", "CR-02")
def test_gaps_that_a_leader_gave_are_flushed_and_that_is_written_down() -> None:
    """In one round: a recovery that knew of an earlier recovery point would cut the log at the first of them."""

    async def simulated(universe: object) -> None:
        world = make_world("node", universe)  # type: ignore[arg-type]
        directories = LogDirectories.open(world.disk, ["/data"], 1, world.chance, uuid_to_string(bytes(16)))
        directories.load(lambda topic: TopicConfig(), 0)
        logs = [directories.make(NewLog(topic, 0, bytes(16), TopicConfig()), 0) for topic in ("gaps", "whole")]
        for log, offsets in zip(logs, [(0, 7, 8), (0, 1, 2)], strict=True):
            assert log is not None
            for offset in offsets:
                log.append_as_follower(bytearray(numbered(offset)), 0)
        with trio.fail_after(60):
            await flush_logs(world, LogStore(directories, world))
        noted = read_offsets(world.disk, f"/data/{RECOVERY_POINT_CHECKPOINT}")
        assert noted == {("gaps", 0): 9, ("whole", 0): 0}

    run_simulation(1, simulated)
