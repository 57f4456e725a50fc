"""What users see: the client, clusters on this machine and for tests, the command line.

    from barnabas import TopicPartition, errors

What is named here is imported when it is first used, so that `import barnabas` costs nothing; it raises ImportError, in
one line, where our packages are hidden behind others of their names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from barnabas.rooms import FOR_CLIENTS, refuse_strangers

if TYPE_CHECKING:
    from barnabas.client import errors
    from barnabas.client.cluster import TopicPartition
    from barnabas.client.consumer.record import ConsumerRecord, TimestampType
    from barnabas.client.offsets import OffsetAndMetadata

refuse_strangers(FOR_CLIENTS)

_HOMES = {
    "ConsumerRecord": "barnabas.client.consumer.record",
    "OffsetAndMetadata": "barnabas.client.offsets",
    "TimestampType": "barnabas.client.consumer.record",
    "TopicPartition": "barnabas.client.cluster",
}
_MODULES = {"errors": "barnabas.client.errors"}

__all__ = ["ConsumerRecord", "OffsetAndMetadata", "TimestampType", "TopicPartition", "errors"]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        found: object = import_module(_MODULES[name])
    elif name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
