"""The part of `barnabas why` about the replicas of a partition: which are new, online or offline now."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from barnabas.cli.session import run_until_done

if TYPE_CHECKING:
    from barnabas.why.node_addresses import NodeAddress

_PARTITION = re.compile(r"(.+)-(\d{1,9})", re.ASCII)


def replica_lines_now(
    addresses: Sequence[NodeAddress], subjects: Iterable[str], timeout_seconds: float
) -> list[str]:
    """A line for each replica of the partition, if the subjects are one that exists."""
    from barnabas.runtime.real import real_world
    from barnabas.why.node_queries import ask_states
    from barnabas.why.replicas_view import replica_lines

    wanted = list(subjects)
    found = _PARTITION.fullmatch(wanted[0]) if len(wanted) == 1 else None
    if found is None:
        return []
    answers = run_until_done(lambda: ask_states(real_world().network, addresses, found[1], timeout_seconds))
    return replica_lines(wanted[0], int(found[2]), answers)
