"""Logs that move between the log directories of one simulated broker, and how the promises see them.

Every promise holds through each move: the watch ignores a copy until it takes the place of its log, and then checks it
as it checks a log that was recovered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

from barnabas.cluster.simulated import DATA
from barnabas.storage.directories import LogDirectories
from barnabas.storage.log import PartitionLog
from barnabas.storage.names import FUTURE_DIRECTORY_SUFFIX
from simulation.findings import Findings
from simulation.watch import Watch

SECOND = "second"
LOG_DIRS = ",".join(f"/{{name}}/{each}" for each in (DATA, SECOND))
"""Value of `log.dirs` for simulated nodes with two directories each."""
SWAPS = "replicas that changed their log directory"


@contextmanager
def watching_moves(watch: Watch, findings: Findings) -> Iterator[None]:
    """The watch sees a future log as the log of its partition from its swap on, and not before. If a crash left two
    logs of a partition, it sees the one that stays."""
    promote = LogDirectories.promote_future
    seen_before = {name: getattr(watch, name) for name in ("log_opened", "high_watermark_set", "log_truncated")}

    settle = LogDirectories.settle_copies
    twins: list[tuple[PartitionLog, dict[str, Any]]] = []

    def of_current(seen: Callable[..., None], log: PartitionLog, **more: Any) -> None:
        if log.directory.endswith(FUTURE_DIRECTORY_SUFFIX):
            return
        if seen is seen_before["log_opened"] and _has_twin(log):
            twins.append((log, more))
        else:
            seen(log, **more)

    def settled(directories: LogDirectories, *arguments: Any) -> None:
        settle(directories, *arguments)
        for log, more in twins[:]:
            if any(each is log for each in directories.logs.values()):
                twins.remove((log, more))
                seen_before["log_opened"](log, **more)

    def promoted(
        directories: LogDirectories,
        key: tuple[str, int],
        now_ms: int,
        between: Callable[[PartitionLog], None] | None = None,
    ) -> bool:
        def opened(log: PartitionLog) -> None:
            if between is not None:
                between(log)
            seen_before["log_opened"](log, recovered=False)
            findings.count(SWAPS)

        return promote(directories, key, now_ms, opened)

    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(LogDirectories, "promote_future", promoted))
        patches.enter_context(mock.patch.object(LogDirectories, "settle_copies", settled))
        for name, seen in seen_before.items():
            patches.enter_context(mock.patch.object(watch, name, partial(of_current, seen)))
        yield


def _has_twin(log: PartitionLog) -> bool:
    """True if another directory of the node holds the partition as well, or a copy of it."""
    home, _, name = log.directory.rpartition("/")
    roots = [f"{home.rpartition('/')[0]}/{each}" for each in (DATA, SECOND)]
    found = [each for root in roots if root != home and log.disk.exists(root) for each in log.disk.list(root)]
    return any(each == name or (each.startswith(f"{name}.") and each.endswith("-future")) for each in found)
