"""Core: why a table is no longer written, and how one attempt to commit ended. Each message is one line."""

from __future__ import annotations

from barnabas.cluster.errors import ClusterError


class LakeError(ClusterError):
    """The table cannot be written or read as it is."""


class Fenced(LakeError):
    """Another process writes the table now. Nothing that this one had not committed is in the table."""


class TableChanged(LakeError):
    """The table is not what this process has written: rolled back, replaced, or its progress is gone."""


class RecordsLost(LakeError):
    """Records that the table does not have are no longer in the topic."""


class TopicChanged(LakeError):
    """The topic was deleted, or created again."""


class CatalogRefused(LakeError):
    """The catalogue refuses: no rights, a bad request, no such table. Repeating changes nothing."""


class CatalogUnavailable(LakeError):
    """The catalogue or the store gave no usable answer. A commit may have happened, or may still happen."""


class CommitConflict(LakeError):
    """The catalogue says that the table's current snapshot is another one."""


class SchemaUnavailable(LakeError):
    """The schema registry gave no usable answer; it may later."""
