"""Core: how much one request may say of a group. A command decides in one step of the event loop, so what it goes
through is limited. Each limit is above what fits into the record of a group, or what a client has a use for.
"""

from __future__ import annotations

from typing import Final

MOST_PROTOCOLS: Final = 100
"""Of a JoinGroup. A client names one for each of its assignors."""

MOST_ASSIGNMENTS: Final = 10_000
"""Of a SyncGroup: one for each member. A generation of so many members does not fit into a record."""

MOST_TOPICS: Final = 5_000
"""That a ConsumerGroupHeartbeat subscribes to by name, or owns partitions of."""

MOST_OWNED_PARTITIONS: Final = 50_000
"""That a ConsumerGroupHeartbeat reports."""

MOST_ELEMENTS_READ: Final = 40_000
"""Topics and partitions that a coordinator reads from the bytes that members of a classic group send each other, in one
step. If there are more it does not know what they subscribe to."""
