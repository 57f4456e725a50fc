"""Makes the authorizer of a node; a node that does not check rights loads none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from barnabas.runtime.decisions import Decisions
from barnabas.runtime.late import Late
from barnabas.runtime.world import World
from barnabas.settings.node import NodeSettings

if TYPE_CHECKING:
    from barnabas.kraft.authorization import Authorization


def make_authorization(
    settings: NodeSettings, world: World, nursery: trio.Nursery, decisions: Decisions
) -> Authorization | None:
    """None without `authorizer.class.name`: everybody may do everything."""
    if not settings.authorizer_class_name:
        return None
    late: Late[Authorization] = Late("barnabas.kraft.authorization:Authorization", settings, world, nursery, decisions)
    return late.get()
