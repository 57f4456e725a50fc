"""Shell completion of topic names and group ids, from the cluster if it answers within a second."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.client.admin import Admin

PATIENCE_SECONDS = 1.0


def topics(ctx: Any, incomplete: str) -> list[str]:
    """Topic names with the prefix `incomplete`; empty if no cluster answers."""

    async def names(admin: Admin) -> Iterable[str]:
        return await admin.list_topics()

    return _ask(ctx, incomplete, names)


def groups(ctx: Any, incomplete: str) -> list[str]:
    """Ids that begin so; none if no cluster answers."""

    async def names(admin: Admin) -> Iterable[str]:
        return [listing.group_id for listing in await admin.list_groups()]

    return _ask(ctx, incomplete, names)


def _ask(ctx: Any, incomplete: str, names: Callable[[Admin], Awaitable[Iterable[str]]]) -> list[str]:
    from dataclasses import fields

    from barnabas.cli.connection import Connection
    from barnabas.cli.session import with_admin
    from barnabas.cluster.errors import ClusterError

    given = {field.name: ctx.params[field.name] for field in fields(Connection) if ctx.params.get(field.name)}
    try:
        found = with_admin(Connection(**{**given, "timeout": PATIENCE_SECONDS}), names)
    except ClusterError:
        return []
    return sorted(name for name in found if name.startswith(incomplete))
