"""Core: limits on the size of group requests. A command decides in one step of the event loop, so its input is bounded.
Each limit exceeds what fits into the record of a group, or what a client has a use for.
"""

from __future__ import annotations

from typing import Final

MOST_PROTOCOLS: Final = 100
"""Protocols in a JoinGroup. A client sends one per assignor."""

MOST_MEMBERS: Final = 3000
"""Members of a classic group, whatever group.max.size is. A rebalance goes through all of them in one step."""

MOST_METADATA_BYTES: Final = 1 << 20
"""Bytes of the metadata of all protocols in a JoinGroup. They stay in memory as long as the member."""

MOST_GROUP_BYTES: Final = 16 << 20
"""Bytes of the metadata of all members of a classic group. A record has one MiB, and one protocol of each member."""

MOST_ASSIGNMENTS: Final = 10_000
"""Assignments in a SyncGroup, one per member. A generation with more members does not fit into a record."""

MOST_TOPICS: Final = 5_000
"""Topics in a ConsumerGroupHeartbeat, subscribed by name or owned."""

MOST_OWNED_PARTITIONS: Final = 50_000
"""Partitions that a ConsumerGroupHeartbeat reports as owned."""

MOST_ELEMENTS_READ: Final = 40_000
"""Topics and partitions that the coordinator parses, in one step, from the subscription or assignment of a member of a
classic group.
"""

MOST_TOPICS_READ: Final = 20_000
"""Topics that the coordinator parses, in one step, from the different subscriptions of a classic group. With more of
them the subscribed topics count as unknown.
"""

MOST_TOPOLOGY_ELEMENTS: Final = 5_000
"""Subtopologies, topics, topic configs and copartitioned topics in the topology of a streams group. A topology is one
record.
"""

MOST_TASKS: Final = 20_000
"""Tasks of a streams group, without standbys."""

MOST_MEMBER_BYTES: Final = 64 << 10
"""Characters that a member of a streams group sends about itself (client tags, rack, endpoint). They stay in memory as
long as the member, and count towards MOST_GROUP_BYTES.
"""
