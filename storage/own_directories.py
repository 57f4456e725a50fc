"""The log dirs of a node at its start: they are locked, their identity is checked, new ones are formatted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from barnabas.runtime.uuids import random_uuid
from barnabas.runtime.world import Chance
from barnabas.storage.log_directory import (
    LogDirectory,
    LogDirectoryError,
    MetaProperties,
    format_directory,
    make_directory,
    read_meta_properties,
)
from barnabas.storage.names import METADATA_TOPIC, parse_directory_name

_log = logging.getLogger(__name__)


def take_directories(
    directories: Sequence[LogDirectory],
    owner: tuple[int, str | None],
    chance: Chance,
    failed: Callable[[LogDirectory, OSError], None],
) -> None:
    """Take them for `owner`, a node id and a cluster id; without the latter, one of them must have it. Raises
    `LogDirectoryError` if the node must not start.
    """
    node_id, cluster_id = owner
    for directory in directories:
        try:
            make_directory(directory.disk, directory.path)
            directory.lock()
            directory.note_last_stop()
            directory.properties = read_meta_properties(directory.disk, directory.path)
            if not directory.takes_replicas:
                _look_for_replicas(directory)
        except OSError as error:
            failed(directory, error)
    for directory in _online(directories):
        if directory.properties is not None:
            cluster_id = cluster_id or directory.properties.cluster_id
            _check_owner(directory.path, directory.properties, cluster_id, node_id)
    if not any(directory.takes_replicas for directory in _online(directories)):
        problems = "; ".join(f"{directory.path}: {directory.failure}" for directory in directories)
        raise LogDirectoryError(f"no log dir is usable: {problems or 'none is configured'}")
    if cluster_id is None:
        raise LogDirectoryError(f"{directories[0].path} was never formatted: it has no cluster id")
    for directory in _online(directories):
        if directory.directory_id is None:
            properties = MetaProperties(cluster_id, node_id, random_uuid(chance))
            try:
                format_directory(directory.disk, directory.path, properties)
                directory.properties = properties
            except OSError as error:
                failed(directory, error)
    ids = [directory.directory_id for directory in _online(directories)]
    for directory in _online(directories):
        if ids.count(directory.directory_id) > 1:
            raise LogDirectoryError(f"{directory.path} has the directory.id of another log dir")


def _online(directories: Sequence[LogDirectory]) -> list[LogDirectory]:
    return [directory for directory in directories if directory.failure is None]


def _check_owner(path: str, properties: MetaProperties, cluster_id: str, node_id: int) -> None:
    if properties.cluster_id != cluster_id:
        raise LogDirectoryError(f"{path} belongs to cluster {properties.cluster_id}, not {cluster_id}")
    if properties.node_id != node_id:
        raise LogDirectoryError(f"{path} belongs to node {properties.node_id}, not {node_id}")


def _look_for_replicas(directory: LogDirectory) -> None:
    """Replicas that were placed in `metadata.log.dir` stay there and work, until they are deleted or moved."""
    names = directory.disk.list(directory.path)
    parsed = [it for it in map(parse_directory_name, names) if it is not None]
    count = sum(it.kind == "current" and it.topic != METADATA_TOPIC for it in parsed)
    directory.holds_replicas = count > 0
    if count:
        _log.warning("%s is not in log.dirs, but holds %d replicas; it gets no more", directory.path, count)
