"""Core: the common part of `upgrades.py` and `downgrades.py`: the environment, and the policy that allows them."""

from __future__ import annotations

from typing import ClassVar

from barnabas.broker.groups.classic_groups import ClassicGroups
from barnabas.broker.groups.consumer_groups import ConsumerGroups
from barnabas.broker.groups.conversions import Conversions
from barnabas.broker.groups.group import GroupContext


class KindChanges:
    """Conversions in one direction, in one partition of `__consumer_offsets`."""

    policy: ClassVar[str]
    """Value of group.consumer.migration.policy that allows no other direction."""

    def __init__(
        self, context: GroupContext, classic: ClassicGroups, consumer: ConsumerGroups, conversions: Conversions
    ) -> None:
        self._context = context
        self._classic = classic
        self._consumer = consumer
        self._conversions = conversions

    @property
    def _are_enabled(self) -> bool:
        return self._context.settings().group_consumer_migration_policy.lower() in (self.policy, "bidirectional")
