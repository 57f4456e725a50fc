"""Mistakes of voters of the metadata quorum."""

from __future__ import annotations

from typing import Any

from barnabas.kraft.quorum_state import QuorumStateFile


def forget_votes(_original: Any) -> Any:
    """A vote is answered and kept in memory only: after a restart the voter votes once more in the same epoch."""

    def write(self: QuorumStateFile, *_: object) -> None:
        pass

    return write
