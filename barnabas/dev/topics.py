"""Topics of a development node: those of its options, and the removal of all between tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.dev.options import NewDevTopic

if TYPE_CHECKING:
    from barnabas.client.admin import Admin

async def create_topics(admin: Admin, topics: Sequence[NewDevTopic]) -> None:
    """Create those that do not exist. Raises `WrongArgument` for a refused one."""
    from barnabas.client.admin import NewTopic
    from barnabas.client.errors import TopicExistsException

    wanted = [NewTopic(each.name, num_partitions=each.partitions) for each in topics]
    results = await admin.create_topics(wanted, raise_errors=False)
    for name, error in results.errors.items():
        if not isinstance(error, TopicExistsException):
            raise WrongArgument(f"topic {name}: {error}")



async def delete_all_topics(admin: Admin, kept: Sequence[str] = ()) -> None:
    """Delete all topics but those `kept`, the internal ones too, and with them groups, offsets and transactions. Raises
    `ClusterError`."""
    from barnabas.client.errors import UnknownTopicOrPartitionException

    names = [name for name in await admin.list_topics(list_internal=True) if name not in kept]
    errors = (await admin.delete_topics(names, raise_errors=False)).errors if names else {}
    for name, error in errors.items():
        if not isinstance(error, UnknownTopicOrPartitionException):
            raise ClusterError(f"topic {name} was not deleted: {error}")
