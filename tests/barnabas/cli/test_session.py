"""How a command that talks to a cluster ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from barnabas.cli.session import with_cluster
from barnabas.client.cluster import Cluster


def test_an_interrupt_is_an_interrupt_in_whatever_task_it_comes(tmp_path: Path) -> None:
    async def interrupted() -> None:
        raise KeyboardInterrupt

    async def work(cluster: Cluster) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(interrupted)

    with pytest.raises(KeyboardInterrupt):
        with_cluster("127.0.0.1:1", tmp_path, work)
