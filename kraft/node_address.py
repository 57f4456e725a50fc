"""The address of a node of the metadata quorum."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Address of a voter's listener."""

    host: str
    port: int
