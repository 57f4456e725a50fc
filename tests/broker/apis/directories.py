"""Simulated brokers with several log directories."""

from __future__ import annotations

from dataclasses import replace

from tests.broker.apis.rig import Rig


def on_two_directories(rig: Rig, node: int) -> None:
    """Give a broker that is down two directories of data, and one for the metadata besides."""
    settings = rig.cluster.node_of(node)
    paths = [f"/broker-{node}/a", f"/broker-{node}/b"]
    raw = {**settings.settings.raw, "log.dirs": ",".join(paths), "metadata.log.dir": f"/broker-{node}/data"}
    settings.settings = replace(
        settings.settings, log_dirs=paths, metadata_log_dir=f"/broker-{node}/data", raw=raw
    )


async def with_two_directories(rig: Rig, *nodes: int) -> None:
    for node in nodes:
        await rig.cluster.stop(f"broker-{node}")
        on_two_directories(rig, node)
        rig.cluster.start(f"broker-{node}")
    await rig.cluster.wait_ready()


def places(rig: Rig, node: int) -> dict[int, str]:
    """Partition of "t" to the directory it is in."""
    return {
        it.index: it.log.directory.split("/")[2] for it in rig.broker(node).partitions if it.topic == "t"
    }
