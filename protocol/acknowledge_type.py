"""Outcomes of a delivered record, as ShareFetch and ShareAcknowledge carry them (KIP-932, KIP-1222)."""

from __future__ import annotations

from enum import IntEnum


class AcknowledgeType(IntEnum):
    GAP = 0
    """There is no record at the offset, or none for applications."""
    ACCEPT = 1
    """It was processed."""
    RELEASE = 2
    """It was not processed: it may be delivered again."""
    REJECT = 3
    """It cannot be processed: it is not delivered again."""
    RENEW = 4
    """It is still being processed: its acquisition lock begins again (KIP-1222)."""
