"""The ports of handlers that need remote segments, and the part of a fetch that is read there (KIP-405).

The response waits for it, but not longer than `remote.fetch.max.wait.ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.fetch_session import PartitionKey
from barnabas.broker.remote.gathering import Answers, Gathering
from barnabas.broker.remote.wanted import Wanted
from barnabas.broker.replication.partition import Partition
from barnabas.broker.timing_wheel import TimingWheel
from barnabas.runtime.world import Clock

if TYPE_CHECKING:
    from barnabas.broker.remote.reads import RemoteReads


@dataclass(frozen=True, slots=True)
class RemoteReadPorts:
    reads: RemoteReads
    wheel: TimingWheel
    monotonic: Clock
    settings: CurrentSettings


def fetch_remotely(
    ports: RemoteReadPorts,
    wants: Mapping[PartitionKey, tuple[Partition, Wanted]],
    finish: Callable[[Answers[PartitionKey]], None],
) -> None:
    """Call `finish` with the records (`RemoteRecords`) that were read in time."""
    reads, counts = ports.reads, ports.reads.counts

    def expired() -> None:
        counts.expired_fetches += 1

    gathering = Gathering[PartitionKey](ports.wheel, ports.monotonic, finish, reads.leave)
    begins = {key: partial(reads.fetch, partition, wanted) for key, (partition, wanted) in wants.items()}
    gathering.begin(begins, ports.settings().remote_fetch_max_wait_ms, expired)
