"""Requests of administrators about partitions and their logs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.apis.alter_replica_log_dirs import AlterLogDirsPorts, alter_replica_log_dirs
from barnabas.broker.apis.delete_records import DeleteRecordsPorts, delete_records
from barnabas.broker.apis.describe_producers import describe_producers
from barnabas.broker.apis.log_dirs import LogDirPorts, describe_log_dirs
from barnabas.protocol.api_keys import ApiKey
from barnabas.runtime.rooms import Handlers

if TYPE_CHECKING:
    from barnabas.broker.parts import BrokerParts


def records_admin_handlers(parts: BrokerParts) -> Handlers:
    world, lookup = parts.world, parts.lookup
    deletions = DeleteRecordsPorts(lookup, parts.deletions, world.monotonic)
    log_dirs = LogDirPorts(
        parts.store.directories, parts.partitions, parts.fetchers.lag, world.disk, parts.cordoned_ids
    )
    alter_log_dirs = AlterLogDirsPorts(
        parts.store, parts.partitions, parts.log_dir_moves, parts.cordoned_ids, world.wall_clock
    )
    return {
        ApiKey.DELETE_RECORDS: partial(delete_records, deletions),
        ApiKey.DESCRIBE_PRODUCERS: partial(describe_producers, lookup),
        ApiKey.DESCRIBE_LOG_DIRS: partial(describe_log_dirs, log_dirs),
        ApiKey.ALTER_REPLICA_LOG_DIRS: partial(alter_replica_log_dirs, alter_log_dirs),
    }
