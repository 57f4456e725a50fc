"""Partitions as queues (`workloads.queue`) whose topics are tiered: everybody writes at the end, and reads again and
again from the beginning, which is only in the remote store, across the seam to what brokers still have on their disks.
"""

from __future__ import annotations

from dataclasses import replace

from workloads.queue import Queue
from workloads.workload import WorkloadOptions

TIERED = {
    "remote.storage.enable": "true",
    "retention.ms": "-1",
    "local.retention.ms": "1000",
    "internal.segment.bytes": "2000",
}
"""Everything stays readable, and leaves the disks soon."""


class Tiered(Queue):
    """One run of it; a `Workload`."""

    name = "tiered"
    reassign_probability = 1 / 8
    reads_again = True

    def __init__(self, options: WorkloadOptions) -> None:
        super().__init__(replace(options, topic_configs={**TIERED, **options.topic_configs}))
